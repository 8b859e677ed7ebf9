//! The model's own chat template, rendered so that a transcript only grows.
//!
//! A message is rendered as a [`Frame`]: the text the template puts before and
//! after its content. The frame is what the template adds to the rendering of
//! the messages before it; a template that changes those is refused, since
//! nothing before the change could be reused.

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, context};

use crate::error::EngineError;

/// Stands for a message's content while its frame is found.
const PLACEHOLDER: &str = "\u{1}skillgraft-content\u{1}";
/// What stands for a chat template where a model has none: a base model, which
/// goes on with a text. Turns are paragraphs, and the answer's has a name.
const PLAIN: &str = "{{ bos_token }}{% for message in messages %}\
    {% if message.role == 'assistant' %}{{ 'Answer: ' }}{% endif %}\
    {{ message.content + '\n\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ 'Answer:' }}{% endif %}";
/// Name of the one template in the environment.
const NAME: &str = "chat";

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The runtime.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The name templates use.
    pub const fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

/// The text a template puts around a message's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Before the content.
    pub head: String,
    /// After it.
    pub tail: String,
}

/// A chat template, ready to render.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    digest: [u8; 32],
    is_plain: bool,
}

impl ChatTemplate {
    /// Takes a Jinja template and the texts of the model's begin and end tokens.
    ///
    /// # Errors
    /// [`EngineError::Template`] when it cannot be parsed.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, EngineError> {
        let mut environment = Environment::new();
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        // As Hugging Face's tokenizers set Jinja, for which templates are written.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(template_error)?);
        environment.add_function("raise_exception", |message: String| -> Result<String, _> {
            Err(minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, message))
        });
        environment.add_template_owned(NAME, source.to_owned()).map_err(template_error)?;
        Ok(ChatTemplate {
            environment,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            digest: *blake3::hash(source.as_bytes()).as_bytes(),
            is_plain: false,
        })
    }

    /// Plain text, for a model that has no template. `bos` is the text that every
    /// context begins with, empty for none.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn plain(bos: &str) -> Result<Self, EngineError> {
        ChatTemplate::new(PLAIN, bos, "")
            .map(|template| ChatTemplate { is_plain: true, ..template })
    }

    /// Whether the model has no template of its own, so that messages are put
    /// together as plain text.
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// BLAKE3 of the template's source.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// The frame of a `role` message that follows `history`.
    ///
    /// # Errors
    /// [`EngineError::TemplateRewrites`] when the message changes what comes
    /// before it; [`EngineError::Template`] when the template refuses the
    /// message or does not print its content exactly once.
    pub fn frame(&self, history: &[Message], role: Role) -> Result<Frame, EngineError> {
        let before = self.render(history, false)?;
        let mut messages = history.to_vec();
        messages.push(Message { role, content: PLACEHOLDER.to_owned() });
        let after = self.render(&messages, false)?;
        let added = after
            .strip_prefix(&before)
            .ok_or(EngineError::TemplateRewrites { role: role.name() })?;
        let mut parts = added.split(PLACEHOLDER);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(head), Some(tail), None) => {
                Ok(Frame { head: head.to_owned(), tail: tail.to_owned() })
            }
            _ => Err(EngineError::Template(format!(
                "a `{}` message's content is not printed exactly once",
                role.name()
            ))),
        }
    }

    /// The text that makes the model answer after `history`.
    ///
    /// # Errors
    /// As [`frame`](Self::frame).
    pub fn generation_prompt(&self, history: &[Message]) -> Result<String, EngineError> {
        let before = self.render(history, false)?;
        let after = self.render(history, true)?;
        let prompt = after.strip_prefix(&before);
        let role = Role::Assistant.name();
        prompt.map(str::to_owned).ok_or(EngineError::TemplateRewrites { role })
    }

    fn render(&self, messages: &[Message], generate: bool) -> Result<String, EngineError> {
        if messages.is_empty() {
            return Ok(String::new());
        }
        let messages: Vec<_> = messages
            .iter()
            .map(|message| context! { role => message.role.name(), content => &message.content })
            .collect();
        let template = self.environment.get_template(NAME).map_err(template_error)?;
        template
            .render(context! {
                messages,
                add_generation_prompt => generate,
                bos_token => &self.bos,
                eos_token => &self.eos,
            })
            .map_err(template_error)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is used as a function in `map_err`")]
fn template_error(error: minijinja::Error) -> EngineError {
    EngineError::Template(error.to_string())
}
