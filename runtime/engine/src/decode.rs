//! Decoding: token after token until a stop rule holds.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use skillgraft_kv::TokenId;

use crate::backend::Backend;
use crate::error::EngineError;
use crate::model::Model;
use crate::sample::{Sampler, SamplingOptions};
use crate::session::{Session, uninterrupted};
use crate::text::TextStream;

/// When decoding ends, and how tokens are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecodeOptions {
    /// The most tokens to generate.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
}

/// Why decoding ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The model ended its turn.
    EndOfTurn,
    /// [`DecodeOptions::max_tokens`] were generated.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The caller asked to stop.
    Interrupted,
}

impl StopReason {
    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            StopReason::EndOfTurn => "end_of_turn",
            StopReason::MaxTokens => "max_tokens",
            StopReason::ContextFull => "context_full",
            StopReason::Interrupted => "interrupted",
        }
    }
}

/// What was generated.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The tokens, without the one that ended the turn.
    pub tokens: Vec<TokenId>,
    /// The last token, when decoding ended before its KV was computed.
    pub pending: Option<TokenId>,
    /// Their text.
    pub text: String,
    /// Why decoding ended.
    pub stop: StopReason,
    /// Mean time per output token after the first, in milliseconds.
    pub tpot_ms: f64,
}

/// Decodes an answer. `logits` are those of the last token of the context.
/// `on_text` gets the text as it becomes certain and may stop the decoding.
///
/// # Errors
/// [`EngineError::Tokenizer`].
///
/// # Panics
/// When `logits` is empty.
pub fn decode<B: Backend>(
    session: &mut Session<B>,
    logits: Vec<f32>,
    options: &DecodeOptions,
    on_text: OnText<'_>,
) -> Result<Decoded, EngineError> {
    let model = Arc::clone(session.model());
    let mut answer = Answer::new(&model, *options);
    let mut flow = Flow::Next(logits);
    let stop = loop {
        match flow {
            Flow::Next(logits) => flow = answer.step(session, &logits, on_text)?,
            Flow::Stop(stop) => break stop,
        }
    };
    answer.finish(stop, on_text)
}

/// Gets text as it becomes certain; breaking stops the decoding.
pub(crate) type OnText<'a> = &'a mut dyn FnMut(&str) -> ControlFlow<()>;

/// What follows a token.
pub(crate) enum Flow {
    /// The next one, by these logits.
    Next(Vec<f32>),
    /// Nothing.
    Stop(StopReason),
}

/// An answer as it grows.
pub(crate) struct Answer<'m, B: Backend> {
    model: &'m Model<B>,
    options: DecodeOptions,
    pub(crate) sampler: Sampler,
    stream: TextStream<'m>,
    /// Without the one that ended the turn.
    pub(crate) tokens: Vec<TokenId>,
    /// The token that ended the turn.
    pub(crate) end: Option<TokenId>,
    /// What was handed out of their text.
    pub(crate) text: String,
    pub(crate) first_token_at: Option<Instant>,
}

impl<'m, B: Backend> Answer<'m, B> {
    pub(crate) fn new(model: &'m Model<B>, options: DecodeOptions) -> Self {
        Answer {
            model,
            options,
            sampler: Sampler::new(options.sampling),
            stream: model.tokenizer().stream(),
            tokens: Vec::new(),
            end: None,
            text: String::new(),
            first_token_at: None,
        }
    }

    pub(crate) fn model(&self) -> &'m Model<B> {
        self.model
    }

    /// Chooses a token by the logits of the one before it, and computes its KV.
    pub(crate) fn step(
        &mut self,
        session: &mut Session<B>,
        logits: &[f32],
        on_text: OnText<'_>,
    ) -> Result<Flow, EngineError> {
        if self.tokens.len() == self.options.max_tokens {
            return Ok(Flow::Stop(StopReason::MaxTokens));
        }
        let token = self.sampler.sample(logits, session.tokens());
        self.accept(session, token, on_text)
    }

    /// Takes a token, and computes its KV.
    pub(crate) fn accept(
        &mut self,
        session: &mut Session<B>,
        token: TokenId,
        on_text: OnText<'_>,
    ) -> Result<Flow, EngineError> {
        self.first_token_at.get_or_insert_with(Instant::now);
        if self.model.tokenizer().is_end_of_turn(token) {
            self.end = Some(token);
            return Ok(Flow::Stop(StopReason::EndOfTurn));
        }
        let fresh = self.push(token)?;
        if on_text(&fresh).is_break() {
            return Ok(Flow::Stop(StopReason::Interrupted));
        }
        if session.ledger().room() == 0 {
            return Ok(Flow::Stop(StopReason::ContextFull));
        }
        if self.tokens.len() == self.options.max_tokens {
            return Ok(Flow::Stop(StopReason::MaxTokens));
        }
        let next = session.prefill(&[token], "answer", &uninterrupted)?;
        Ok(Flow::Next(next.expect("one token gives logits")))
    }

    /// Adds a token, and returns the text that it makes certain.
    pub(crate) fn push(&mut self, token: TokenId) -> Result<String, EngineError> {
        self.tokens.push(token);
        let fresh = self.stream.push(token)?;
        self.text.push_str(&fresh);
        Ok(fresh)
    }

    pub(crate) fn finish(
        self,
        stop: StopReason,
        on_text: OnText<'_>,
    ) -> Result<Decoded, EngineError> {
        let Answer { stream, tokens, mut text, first_token_at, .. } = self;
        let rest = stream.finish()?;
        text.push_str(&rest);
        if !rest.is_empty() {
            // The decoding is over: a wish to stop changes nothing.
            let _ = on_text(&rest);
        }
        let decoding_ms = first_token_at.map_or(0.0, |at| at.elapsed().as_secs_f64() * 1e3);
        let tpot_ms = decoding_ms / (tokens.len().saturating_sub(1)).max(1) as f64;
        let pending = tokens.last().copied().filter(|_| stop != StopReason::EndOfTurn);
        Ok(Decoded { tokens, pending, text, stop, tpot_ms })
    }
}
