//! Every text that the runtime itself puts into a context, as token ids.
//!
//! **Invariant:** each piece is encoded on its own, so its ids do not depend on
//! its neighbours: the same skill gives the same block wherever it is used, and
//! `exact` and `graft` see the same ids. What a skill or a person wrote is
//! encoded as content: no control token comes out of it.

use std::ops::Range;

use skillgraft_engine::{EngineError, Hunk, Message, Model, Role, tokens_to_repair};
use skillgraft_kv::TokenId;
use skillgraft_skills::{Activation, FileText, rank_lines};

/// What the model is told about skills.
const SYSTEM: &str = "You are a helpful AI assistant with access to skills. \
    A skill is a document with facts and procedures. \
    When a skill fits, it is loaded and you answer from it.";

/// Follows [`SYSTEM`] in the system turn of the neutral anchor: true in every
/// context. A longer anchor that resembles the live context gives blocks that
/// are nearer to it; it says nothing of how to answer, since that would stay in
/// the block.
const NEUTRAL: &str =
    "Read the skill below with care, since its names, numbers and commands are exact.";

/// Changed lines of one skill that are told at the tail; more would be a second
/// activation in disguise.
const ERRATA_LINES_MAX: usize = 4;

/// The most of a text that is computed anew in its place. What depends on a changed
/// line elsewhere in the text goes on saying the old: the more has changed, the more
/// of that there is.
const PATCH_SHARE: f64 = 0.3;

/// Tokens that are computed anew in their place whatever their share of a short
/// text.
const PATCH_TOKENS: f64 = 32.0;

/// Lines that fit a request at least this well, against the best, are repaired: a
/// request may be about several.
const REPAIR_SCORE_SHARE: f32 = 0.3;

/// Makes the pieces of a context for one model.
#[derive(Debug, Clone, Copy)]
pub struct Prompts<'m> {
    model: &'m Model,
}

/// The text of a skill or of a file as token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivationText {
    /// Names it; prefilled in each context.
    pub header: Vec<TokenId>,
    /// The text and its closing tag: the block.
    pub block: Vec<TokenId>,
    /// What the block says.
    pub block_text: String,
    /// What differs from machine to machine; prefilled in each context.
    pub after: Vec<TokenId>,
}

impl ActivationText {
    /// Its length in tokens.
    pub fn n_tokens(&self) -> usize {
        self.header.len() + self.block.len() + self.after.len()
    }
}

impl<'m> Prompts<'m> {
    /// Pieces for `model`.
    pub fn new(model: &'m Model) -> Self {
        Prompts { model }
    }

    /// The system message with the catalog: the text of the static prefix.
    pub fn system_message(catalog_text: &str) -> Message {
        let catalog = catalog_text.trim_end();
        let content = if catalog.is_empty() {
            SYSTEM.to_owned()
        } else {
            format!("{SYSTEM}\n\nAvailable skills:\n{catalog}")
        };
        Message { role: Role::System, content }
    }

    /// The static prefix: begin of text where the model wants it, and the
    /// system turn.
    ///
    /// # Errors
    /// When the chat template refuses a system message.
    pub fn prefix(&self, system: &Message) -> Result<Vec<TokenId>, EngineError> {
        let frame = self.model.template().frame(&[], Role::System)?;
        let tokenizer = self.model.tokenizer();
        let mut tokens = tokenizer.encode_markup(&frame.head)?;
        if let Some(bos) = tokenizer.required_bos()
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        tokens.extend(tokenizer.encode_content(&system.content)?);
        tokens.extend(tokenizer.encode_markup(&frame.tail)?);
        Ok(tokens)
    }

    /// Opens a message of the user's, after `history`.
    ///
    /// # Errors
    /// When the chat template refuses it.
    pub fn open_message(&self, history: &[Message]) -> Result<Vec<TokenId>, EngineError> {
        let frame = self.model.template().frame(history, Role::User)?;
        self.model.tokenizer().encode_markup(&frame.head)
    }

    /// A skill inside an open message: its text, and a list of its files and of
    /// the skills inside.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn skill(&self, skill: &Activation) -> Result<ActivationText, EngineError> {
        let encode = |text: &str| self.model.tokenizer().encode_content(text);
        let listing = skill.listing();
        let gap = if listing.is_empty() { "" } else { "\n" };
        let after = if skill.files.is_empty() {
            Vec::new()
        } else {
            encode(&format!("The files of `{}` are in {}.\n", skill.id, skill.folder.display()))?
        };
        let block_text = format!("{}\n{gap}{listing}</skill>\n", skill.body.trim_end());
        Ok(ActivationText {
            header: encode(&format!("<skill name=\"{}\">\n", skill.id))?,
            block: encode(&block_text)?,
            block_text,
            after,
        })
    }

    /// Lines of a file inside an open message; `address` is `skill/path`.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn file(&self, address: &str, file: &FileText) -> Result<ActivationText, EngineError> {
        let encode = |text: &str| self.model.tokenizer().encode_content(text);
        let notice = file.notice().map_or_else(String::new, |notice| format!("{notice}\n"));
        let block_text = format!("{}\n</file>\n", file.text.trim_end());
        Ok(ActivationText {
            header: encode(&format!("<file name=\"{address}\">\n{notice}"))?,
            block: encode(&block_text)?,
            block_text,
            after: Vec::new(),
        })
    }

    /// The tokens of a block, which says `block_text`, that a request is about: those of the lines that a
    /// search finds in it, within the budget of a repair.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn repair(
        &self,
        block_text: &str,
        block: &[TokenId],
        request: &str,
    ) -> Result<Vec<Range<usize>>, EngineError> {
        let ranked = rank_lines(block_text, request);
        let least = ranked.first().map_or(0.0, |best| best.score * REPAIR_SCORE_SHARE);
        let lines: Vec<Range<usize>> =
            ranked.into_iter().filter(|line| line.score >= least).map(|line| line.bytes).collect();
        tokens_to_repair(self.model.tokenizer(), block_text, block, &lines)
    }

    /// Whether a text that has become one of `n_tokens` is edited where it stands;
    /// otherwise it is brought in again at the tail.
    pub fn edits_in_place(hunks: &[Hunk], n_tokens: usize) -> bool {
        let n_computed: usize = hunks.iter().map(|hunk| hunk.new.len()).sum();
        n_computed as f64 <= (PATCH_SHARE * n_tokens as f64).max(PATCH_TOKENS)
    }

    /// The lines of a block's text that hunks touch, whole; `hunks` are of the
    /// text's tokens.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn changed_lines<'t>(
        &self,
        block_text: &'t str,
        hunks: &[Hunk],
    ) -> Result<Vec<&'t str>, EngineError> {
        let offsets = self.model.tokenizer().content_offsets(block_text)?;
        let mut lines = Vec::new();
        for hunk in hunks.iter().filter(|hunk| !hunk.new.is_empty()) {
            let (from, to) = (offsets[hunk.new.start].start, offsets[hunk.new.end - 1].end);
            let from = block_text[..from].rfind('\n').map_or(0, |at| at + 1);
            lines.extend(block_text[from..to].lines().filter(|line| !line.trim().is_empty()));
        }
        lines.dedup();
        Ok(lines)
    }

    /// What a model is told at the tail of a skill that has changed where it stands:
    /// the new lines, whole. On the evaluation set "X is replaced by Y" does far worse
    /// than the line, and a sentence more, such as "this replaces the earlier value",
    /// no better.
    pub fn erratum(skill: &str, lines: &[&str]) -> String {
        if lines.is_empty() || lines.len() > ERRATA_LINES_MAX {
            return format!(
                "[SKILL UPDATE] {skill}: it has changed. The skill above is current; apply it as \
                 it is now.\n"
            );
        }
        let tell = |line: &&str| {
            format!("[SKILL UPDATE] {skill}: {}.\n", line.trim().trim_end_matches('.'))
        };
        lines.iter().map(tell).collect()
    }

    /// The user's words, or a notice to the model, within an open message.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn words(&self, words: &str) -> Result<Vec<TokenId>, EngineError> {
        self.model.tokenizer().encode_content(words)
    }

    /// What a block is compiled behind to be used in any context: a general
    /// system turn, then the header as it stands in the live context.
    ///
    /// # Errors
    /// When the chat template refuses a message.
    pub fn neutral_anchor(&self, header: &[TokenId]) -> Result<Vec<TokenId>, EngineError> {
        let system = Message { role: Role::System, content: format!("{SYSTEM} {NEUTRAL}") };
        let mut tokens = self.prefix(&system)?;
        tokens.extend(self.open_message(&[system])?);
        tokens.extend_from_slice(header);
        Ok(tokens)
    }

    /// What a block is compiled behind to be used in contexts with a static
    /// prefix: that prefix, and the header as the first thing of the first message.
    ///
    /// # Errors
    /// When the chat template refuses a message.
    pub fn prefix_anchor(
        &self,
        prefix: &[TokenId],
        system: &Message,
        header: &[TokenId],
    ) -> Result<Vec<TokenId>, EngineError> {
        let opening = self.open_message(std::slice::from_ref(system))?;
        Ok([prefix, &opening, header].concat())
    }

    /// A turn about nothing, which stands for whatever was said before a skill.
    ///
    /// # Errors
    /// When the chat template refuses it.
    pub fn small_talk(&self) -> Result<Vec<TokenId>, EngineError> {
        let message = |role, content: &str| Message { role, content: content.to_owned() };
        let system = Self::system_message("");
        let asked = message(Role::User, "Hello. I have a question.");
        let answered = "Hello! What would you like to know?";
        let mut tokens = self.open_message(std::slice::from_ref(&system))?;
        tokens.extend(self.close_message(std::slice::from_ref(&system), &asked.content)?);
        tokens.extend(self.words(answered)?);
        tokens.extend(self.close_answer(&[system, asked])?);
        Ok(tokens)
    }

    /// Closes an open message with the user's words, and makes the model answer.
    ///
    /// # Errors
    /// When the chat template refuses it.
    pub fn close_message(
        &self,
        history: &[Message],
        words: &str,
    ) -> Result<Vec<TokenId>, EngineError> {
        let (template, tokenizer) = (self.model.template(), self.model.tokenizer());
        let frame = template.frame(history, Role::User)?;
        let mut history = history.to_vec();
        history.push(Message { role: Role::User, content: words.to_owned() });
        let mut tokens = tokenizer.encode_content(words)?;
        tokens.extend(tokenizer.encode_markup(&frame.tail)?);
        tokens.extend(tokenizer.encode_markup(&template.generation_prompt(&history)?)?);
        Ok(tokens)
    }

    /// What follows an answer before the next message.
    ///
    /// # Errors
    /// When the chat template refuses it.
    pub fn close_answer(&self, history: &[Message]) -> Result<Vec<TokenId>, EngineError> {
        let frame = self.model.template().frame(history, Role::Assistant)?;
        self.model.tokenizer().encode_markup(&frame.tail)
    }
}
