//! Every text that the runtime itself puts into a context, as token ids.
//!
//! **Invariant:** each piece is encoded on its own, so its ids do not depend on
//! its neighbours: the same skill gives the same block wherever it is used, and
//! `exact` and `graft` see the same ids. What a skill or a person wrote is
//! encoded as content: no control token comes out of it.

use skillgraft_engine::{EngineError, Message, Model, Role};
use skillgraft_kv::TokenId;
use skillgraft_skills::{Catalog, Skill};

/// What the model is told about skills.
const SYSTEM: &str = "You are a helpful AI assistant with access to skills. \
    A skill is a document with facts and procedures. \
    When a skill fits, it is loaded and you answer from it.";

/// The system turn of the neutral anchor: true in every context.
const NEUTRAL_SYSTEM: &str = "You are a helpful assistant.";

/// Makes the pieces of a context for one model.
#[derive(Debug, Clone, Copy)]
pub struct Prompts<'m> {
    model: &'m Model,
}

/// A skill's text as token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivationText {
    /// Names the skill; prefilled in each context.
    pub header: Vec<TokenId>,
    /// The skill's text and its closing tag: the block.
    pub block: Vec<TokenId>,
}

impl<'m> Prompts<'m> {
    /// Pieces for `model`.
    pub fn new(model: &'m Model) -> Self {
        Prompts { model }
    }

    /// The system message with the catalog: the text of the static prefix.
    pub fn system_message(catalog: &Catalog) -> Message {
        let content = if catalog.is_empty() {
            SYSTEM.to_owned()
        } else {
            format!("{SYSTEM}\n\nAvailable skills:\n{}", catalog.render().trim_end())
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

    /// A skill inside an open message.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn activation(&self, skill: &Skill) -> Result<ActivationText, EngineError> {
        let tokenizer = self.model.tokenizer();
        Ok(ActivationText {
            header: tokenizer.encode_content(&format!("<skill name=\"{}\">\n", skill.id))?,
            block: tokenizer.encode_content(&format!("{}\n</skill>\n", skill.body.trim_end()))?,
        })
    }

    /// What a block is compiled behind to be used in any context: a short
    /// system turn, then the header as it stands in the live context.
    ///
    /// # Errors
    /// When the chat template refuses a message.
    pub fn neutral_anchor(&self, header: &[TokenId]) -> Result<Vec<TokenId>, EngineError> {
        let system = Message { role: Role::System, content: NEUTRAL_SYSTEM.to_owned() };
        let mut tokens = self.prefix(&system)?;
        tokens.extend(self.open_message(&[system])?);
        tokens.extend_from_slice(header);
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
