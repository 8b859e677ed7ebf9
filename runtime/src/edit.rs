//! Skills that have changed while a conversation holds them.
//!
//! The text in the context becomes the new one in place, at the cost of the lines
//! that differ. What was said since was said on the old text, so the lines are told
//! anew at the tail as well; where nothing was said since, the text in its place is
//! enough. A text of which much has changed is brought in again at the tail instead.

use std::time::Instant;

use skillgraft_engine::{Hunk, hunks};
use skillgraft_kv::{Position, PositionDelta, TokenId, TokenSpan};
use skillgraft_skills::{Caller, Given, SkillSession};

use crate::conversation::{Conversation, StopFlag};
use crate::error::Error;
use crate::prompt::Prompts;
use crate::report::PatchReport;

/// A skill's text in a context.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    /// Identifier of the skill.
    pub(crate) name: String,
    /// Where its block is.
    pub(crate) span: TokenSpan,
}

/// How a held text becomes its next version.
#[derive(Debug)]
pub(crate) struct Edit {
    /// Which of [`Conversation::held`](crate::conversation::Conversation).
    at: usize,
    name: String,
    hunks: Vec<Hunk>,
    /// The new version.
    tokens: Vec<TokenId>,
    /// What is told at the tail; empty when nothing was said since.
    pub(crate) erratum: String,
}

impl Edit {
    /// Tokens that are computed anew.
    fn n_computed(&self) -> usize {
        self.hunks.iter().map(|hunk| hunk.new.len()).sum()
    }

    /// Tokens that the context grows by.
    pub(crate) fn growth(&self) -> PositionDelta {
        let grown = |hunk: &Hunk| hunk.new.len() as i32 - hunk.old.len() as i32;
        PositionDelta(self.hunks.iter().map(grown).sum())
    }
}

impl Conversation {
    /// The edit that makes a held skill what it is now, and notes in `skills` that
    /// it is. `None` when the skill is not held, cannot be activated any more, or
    /// has changed so much that it is better brought in again.
    pub(crate) fn edit(&self, id: &str, skills: &mut SkillSession) -> Result<Option<Edit>, Error> {
        let Some(at) = self.held.iter().position(|held| held.name == id) else { return Ok(None) };
        let span = self.held[at].span;
        let mut after = skills.clone();
        let skill = after.catalog().get(after.catalog().resolve(id)?);
        let caller = if skill.invocable.by_model { Caller::Model } else { Caller::User };
        let Ok(Given::New { text, .. }) = after.activate(id, caller, u64::from(span.start.0))
        else {
            return Ok(None);
        };
        let model = self.runtime.model();
        let prompts = Prompts::new(model);
        let new = prompts.skill(&text)?;
        let old = &self.session.tokens()[span.start.index()..span.end().index()];
        let hunks = hunks(model.tokenizer(), old, &new.block)?;
        let mut edit =
            Edit { at, name: id.to_owned(), hunks, tokens: new.block, erratum: String::new() };
        let room = i64::from(self.session.ledger().room());
        if !Prompts::edits_in_place(&edit.hunks, edit.tokens.len())
            || i64::from(edit.growth().0) > room
            || model.not_graftable().is_some()
        {
            return Ok(None);
        }
        if self.has_answered_since(span) {
            let lines = prompts.changed_lines(&new.block_text, &edit.hunks)?;
            edit.erratum = Prompts::erratum(id, &lines);
        }
        after.moved(u64::from(span.end().0), i64::from(edit.growth().0));
        *skills = after;
        Ok(Some(edit))
    }

    /// Whether anything was generated behind a span.
    fn has_answered_since(&self, span: TokenSpan) -> bool {
        let segments = self.session.ledger().segments();
        segments.iter().any(|segment| segment.span.start >= span.end() && segment.label == "answer")
    }

    /// Puts edits into the context.
    pub(crate) fn apply(
        &mut self,
        edits: &[Edit],
        stop: &StopFlag,
    ) -> Result<Vec<PatchReport>, Error> {
        let mut reports = Vec::new();
        for edit in edits {
            let started = Instant::now();
            let start = self.held[edit.at].span.start;
            self.session.patch(start, &edit.hunks, &edit.tokens, &|| stop.check())?;
            let growth = edit.growth();
            for held in &mut self.held {
                if held.span.start > start {
                    held.span.start = held.span.start + growth;
                }
            }
            self.held[edit.at].span.len = edit.tokens.len() as u32;
            reports.push(PatchReport {
                name: edit.name.clone(),
                hunks: edit.hunks.len(),
                tokens: edit.tokens.len(),
                recomputed_tokens: edit.n_computed(),
                told: !edit.erratum.is_empty(),
                ms: started.elapsed().as_secs_f64() * 1e3,
            });
        }
        Ok(reports)
    }

    /// Notes where the block of a skill is.
    pub(crate) fn hold(&mut self, name: &str, n_tokens: usize) {
        let end = self.session.end();
        let n_tokens = n_tokens as u32;
        let span = TokenSpan { start: Position(end.0 - n_tokens), len: n_tokens };
        self.held.retain(|held| held.name != name);
        self.held.push(Held { name: name.to_owned(), span });
    }
}
