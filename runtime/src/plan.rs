//! A turn before anything of it is computed: its texts as token ids.
//!
//! **Invariant:** a plan changes nothing. What a conversation knows of the skills
//! is in the plan as it will be once the turn is done.

use skillgraft_engine::EngineError;
use skillgraft_kv::{PositionDelta, TokenId};
use skillgraft_skills::{
    Activation, Caller, CatalogChange, ChangeKind, Choice, FileText, Given, Pick, SkillSession,
    Window, mentions,
};

use crate::conversation::{Conversation, Placement, TurnOptions};
use crate::edit::Edit;
use crate::error::Error;
use crate::prompt::{ActivationText, Prompts};
use crate::report::AlreadyReport;
use crate::snapshot::Snapshot;

/// The context of a turn.
pub(crate) struct Plan {
    /// End of the last answer, the opening of the message, and news of skills.
    pub(crate) opening: Vec<TokenId>,
    /// What is activated, in order.
    pub(crate) items: Vec<Item>,
    /// What was asked for and is in the context already.
    pub(crate) already: Vec<AlreadyReport>,
    /// The user's words and the marker that makes the model answer.
    pub(crate) message: Vec<TokenId>,
    /// The message's content, for the chat template.
    pub(crate) content: String,
    /// Texts that are edited in their place, before anything else.
    pub(crate) edits: Vec<Edit>,
    /// What the model is told of changed skills.
    pub(crate) update: Option<String>,
    /// The skills as the conversation knows them after the turn.
    pub(crate) skills: SkillSession,
}

/// A text to be activated.
pub(crate) struct Item {
    /// A skill, or `skill/path` of a file.
    pub(crate) name: String,
    /// `skill` or `file`.
    pub(crate) kind: &'static str,
    pub(crate) reason: String,
    pub(crate) note: Option<String>,
    pub(crate) text: ActivationText,
    /// What it says, for the chat template.
    content: String,
}

/// What a conversation learns at the beginning of a turn.
pub(crate) struct News {
    snapshot: Snapshot,
    skills: SkillSession,
    pub(crate) update: Option<String>,
    /// Skills in the context whose text has changed since and that are brought in
    /// again.
    stale: Vec<String>,
    /// Those whose text is edited in its place.
    edits: Vec<Edit>,
}

impl News {
    /// The skills for a prompt: those that the user named, or else what the
    /// search finds in the full text of all skills.
    pub(crate) fn choose(&self, prompt: &str, options: &TurnOptions) -> Result<Chosen, Error> {
        if prompt.trim().is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let catalog = &self.snapshot.catalog;
        let mut named = Vec::new();
        for name in &options.use_skills {
            named.push((catalog.locate(name)?, name.clone()));
        }
        for address in mentions(prompt, catalog)? {
            let name = format!("${}", catalog.name_of(&address));
            named.push((address, name));
        }
        let mut picks: Vec<Pick> = Vec::new();
        for (address, asked) in named {
            let id = catalog.name_of(&address);
            if picks.iter().all(|pick| pick.id != id) {
                let reason = format!("asked for as `{asked}`");
                picks.push(Pick { skill: address.skill, id, score: 1.0, reason });
            }
        }
        if !picks.is_empty() {
            return Ok(Chosen { choice: Choice::Picks(picks), how: "forced" });
        }
        let choice = self.snapshot.choose(prompt)?;
        let how = if choice.picks().is_empty() { "none" } else { "search" };
        Ok(Chosen { choice, how })
    }
}

/// How the skills of a turn were chosen.
pub(crate) struct Chosen {
    pub(crate) choice: Choice,
    /// `forced`, `search` or `none`.
    pub(crate) how: &'static str,
}

impl Conversation {
    /// The skills as they are now, and what the model must hear of them.
    pub(crate) fn catch_up(&self) -> Result<News, Error> {
        let snapshot = self.runtime.snapshot();
        let mut skills = self.skills.clone();
        let (mut changes, _) = skills.refresh(snapshot.catalog.clone());
        let is_stale = |change: &&CatalogChange| {
            matches!(change.kind, ChangeKind::Changed { front_matter_only: false })
                && skills.loaded().digest(&change.id).is_some()
        };
        let ids: Vec<String> =
            changes.iter().filter(is_stale).map(|change| change.id.clone()).collect();
        let (mut stale, mut edits) = (Vec::new(), Vec::new());
        for id in ids {
            match self.edit(&id, &mut skills)? {
                None => stale.push(id),
                Some(edit) => {
                    // Its lines are told, which says more than that it has changed.
                    changes.retain(|change| change.id != id);
                    edits.push(edit);
                }
            }
        }
        let told = snapshot.catalog.announce(&changes, self.skills.catalog());
        let errata = edits.iter().map(|edit| edit.erratum.as_str());
        let update: String = told.as_deref().into_iter().chain(errata).collect();
        let update = Some(update).filter(|update| !update.is_empty());
        Ok(News { snapshot, skills, update, stale, edits })
    }

    /// Works out the turn's token ids and checks that they fit.
    pub(crate) fn plan(
        &self,
        prompt: &str,
        chosen: &Chosen,
        news: News,
        placement: Placement,
    ) -> Result<Plan, Error> {
        let prompts = Prompts::new(self.runtime.model());
        let mut opening = self.pending.clone();
        opening.extend(prompts.open_message(&self.history)?);
        let mut content = String::new();
        if let Some(update) = &news.update {
            content.push_str(update);
            content.push('\n');
            opening.extend(prompts.words(&content)?);
        }
        // Words that stand before the skills, and those behind them.
        let (asked, prompt) = match placement {
            Placement::Tail if !chosen.choice.picks().is_empty() => (format!("{prompt}\n"), ""),
            _ => (String::new(), prompt),
        };
        opening.extend(prompts.words(&asked)?);
        content.push_str(&asked);
        let growth: i32 = news.edits.iter().map(|edit| edit.growth().0).sum();
        let end = (self.session.end() + PositionDelta(growth)).index();
        let mut drafts = Drafts::new(prompts, news.skills, end);
        drafts.end += opening.len() as u64;
        let caller = if chosen.how == "forced" { Caller::User } else { Caller::Model };
        for pick in chosen.choice.picks() {
            drafts.add(&pick.id, &pick.reason, caller)?;
        }
        let words = |is_first: bool| match prompt {
            "" => String::new(),
            prompt if is_first => prompt.to_owned(),
            prompt => format!("\n{prompt}"),
        };
        let message = prompts.close_message(&self.history, &words(drafts.items.is_empty()))?;
        let mut room = self.check_room(end, &opening, &drafts.items, message.len())?;
        // What the context has in an old version is brought in again while there
        // is room, asked for or not: the model would answer from the old one.
        for id in &news.stale {
            room = drafts.add_within(id, "its text has changed since it was loaded", room)?;
        }
        let words = words(drafts.items.is_empty());
        let message = prompts.close_message(&self.history, &words)?;
        content.extend(drafts.items.iter().map(|item| item.content.as_str()));
        content.push_str(&words);
        let Drafts { items, already, skills, .. } = drafts;
        let (edits, update) = (news.edits, news.update);
        Ok(Plan { opening, items, already, message, content, edits, update, skills })
    }

    /// Names what is too long behind `end`, and leaves room for at least one token of answer.
    /// Returns what is left.
    fn check_room(
        &self,
        end: usize,
        opening: &[TokenId],
        items: &[Item],
        n_message: usize,
    ) -> Result<usize, Error> {
        let limit = self.session.ledger().limit() as usize;
        let mut room = limit.saturating_sub(end + 1);
        let n_tokens = opening.len() + n_message;
        if n_tokens > room {
            return Err(Error::PromptTooLong { n_tokens, room, limit });
        }
        room -= n_tokens;
        for item in items {
            let n_tokens = item.text.n_tokens();
            if n_tokens > room {
                return Err(Error::SkillTooLong { name: item.name.clone(), n_tokens, room, limit });
            }
            room -= n_tokens;
        }
        Ok(room)
    }
}

/// Collects what is to be activated.
struct Drafts<'m> {
    prompts: Prompts<'m>,
    skills: SkillSession,
    items: Vec<Item>,
    already: Vec<AlreadyReport>,
    /// Position at which the next text begins.
    end: u64,
}

impl<'m> Drafts<'m> {
    fn new(prompts: Prompts<'m>, skills: SkillSession, end: usize) -> Self {
        Drafts { prompts, skills, items: Vec::new(), already: Vec::new(), end: end as u64 }
    }

    /// Adds a skill or a file, unless it is in the context.
    fn add(&mut self, name: &str, reason: &str, caller: Caller) -> Result<(), Error> {
        match self.draft(name, reason, caller)? {
            Ok(item) => {
                self.end += item.text.n_tokens() as u64;
                self.items.push(item);
            }
            Err(position) => self.already.push(AlreadyReport { name: name.to_owned(), position }),
        }
        Ok(())
    }

    /// Adds a skill of which nothing is lost when it does not fit. Returns the
    /// room that is left.
    fn add_within(&mut self, id: &str, reason: &str, room: usize) -> Result<usize, Error> {
        if self.items.iter().any(|item| item.name == id) {
            return Ok(room);
        }
        let catalog = self.skills.catalog();
        let by_model = catalog.resolve(id).is_ok_and(|at| catalog.get(at).invocable.by_model);
        let caller = if by_model { Caller::Model } else { Caller::User };
        let before = self.skills.clone();
        match self.draft(id, reason, caller) {
            // One token more: the line end before the user's words.
            Ok(Ok(item)) if item.text.n_tokens() < room => {
                let n_tokens = item.text.n_tokens();
                self.end += n_tokens as u64;
                self.items.push(item);
                return Ok(room - n_tokens);
            }
            Err(Error::Engine(error)) => return Err(Error::Engine(error)),
            _ => self.skills = before,
        }
        Ok(room)
    }

    /// The text of a skill or a file; the position where it is, when it is there.
    fn draft(
        &mut self,
        name: &str,
        reason: &str,
        caller: Caller,
    ) -> Result<Result<Item, u64>, Error> {
        let address = self.skills.catalog().locate(name)?;
        let (kind, written) = if address.path.is_none() {
            let given = self.skills.activate(name, caller, self.end)?;
            let write =
                |skill: &Activation| Ok((self.prompts.skill(skill)?, skill.body.clone(), None));
            ("skill", written(given, write)?)
        } else {
            let given = self.skills.read(name, Window::default(), self.end)?;
            let write = |file: &FileText| {
                Ok((self.prompts.file(name, file)?, file.text.clone(), file.notice()))
            };
            ("file", written(given, write)?)
        };
        Ok(written.map(|Written { text, content, note }| Item {
            name: name.to_owned(),
            kind,
            reason: reason.to_owned(),
            note,
            text,
            content,
        }))
    }
}

/// A text as token ids and as a string.
struct Written {
    text: ActivationText,
    content: String,
    note: Option<String>,
}

/// Writes what was given; the position where it is, when it is there.
fn written<T>(
    given: Given<T>,
    write: impl FnOnce(&T) -> Result<(ActivationText, String, Option<String>), EngineError>,
) -> Result<Result<Written, u64>, Error> {
    match given {
        Given::Already { place } => Ok(Err(place)),
        Given::New { text, note } => {
            let (text, content, notice) = write(&text)?;
            Ok(Ok(Written { text, content, note: note.or(notice) }))
        }
    }
}
