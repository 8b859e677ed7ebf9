//! Decoding: token after token until a stop rule holds.

use std::ops::ControlFlow;
use std::time::Instant;

use skillgraft_kv::TokenId;

use crate::backend::Backend;
use crate::error::EngineError;
use crate::sample::{Sampler, SamplingOptions};
use crate::session::{Session, uninterrupted};

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
    mut logits: Vec<f32>,
    options: &DecodeOptions,
    on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<Decoded, EngineError> {
    let model = std::sync::Arc::clone(session.model());
    let mut sampler = Sampler::new(options.sampling);
    let mut stream = model.tokenizer().stream();
    let mut tokens = Vec::new();
    let mut text = String::new();
    let mut first_token_at = None;
    let stop = loop {
        if tokens.len() == options.max_tokens {
            break StopReason::MaxTokens;
        }
        let token = sampler.sample(&logits, session.tokens());
        first_token_at.get_or_insert_with(Instant::now);
        if model.tokenizer().is_end_of_turn(token) {
            break StopReason::EndOfTurn;
        }
        tokens.push(token);
        let fresh = stream.push(token)?;
        text.push_str(&fresh);
        if on_text(&fresh).is_break() {
            break StopReason::Interrupted;
        }
        if session.ledger().room() == 0 {
            break StopReason::ContextFull;
        }
        if tokens.len() < options.max_tokens {
            let next = session.prefill(&[token], "answer", &uninterrupted)?;
            logits = next.expect("one token gives logits");
        }
    };
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
