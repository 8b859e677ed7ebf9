//! Activation: a skill becomes part of a context. **The second main path.**

use std::time::Instant;

use skillgraft_kv::{BlockStore, Kept, Lookup, MissReason, Tier, TokenId, VerifiedBlock};

use crate::backend::Backend;
use crate::compile::{BlockSource, compile};
use crate::error::EngineError;
use crate::session::{Interrupt, Session};

/// How the text of an activation gets into the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Prefilled: the reference.
    Exact,
    /// Grafted from a block that was compiled elsewhere.
    Graft,
}

/// What is to be activated.
#[derive(Debug, Clone, Copy)]
pub struct Activation<'a> {
    /// Label of the segments.
    pub label: &'a str,
    /// Prefilled before the block: role marker and skill name.
    pub header: &'a [TokenId],
    /// The block.
    pub source: BlockSource<'a>,
}

/// What an activation did.
#[derive(Debug, Clone, PartialEq)]
pub struct Activated {
    /// How the text came in.
    pub mode: Mode,
    /// Where the block came from; `None` when the text was prefilled.
    pub block: Option<BlockOrigin>,
    /// Tokens grafted.
    pub grafted_tokens: usize,
    /// Tokens prefilled in this context.
    pub prefilled_tokens: usize,
    /// The graft itself: the look-up excluded, one entry of the segment table.
    pub graft_ms: f64,
    /// Finding, opening and checking the block.
    pub lookup_ms: f64,
    /// Compiling the block, its anchor included, and writing it; 0 on a hit.
    pub compile_ms: f64,
    /// What prefilling the block's tokens took when it was compiled.
    pub saved_ms: f64,
    /// Why the mode is not the one that was asked for.
    pub fallback: Option<String>,
}

/// Where a grafted block came from.
#[derive(Debug, Clone, PartialEq)]
pub enum BlockOrigin {
    /// Found in a store.
    Found(Tier),
    /// Compiled now.
    Compiled {
        /// Why it was not found.
        miss: MissReason,
        /// Whether it will be found next time.
        kept: Kept,
    },
}

/// Activates a text at the end of a context: prefills its header, then grafts
/// its block, compiling it first where no store has it. A block that cannot be
/// used never fails the activation; the text is prefilled then.
///
/// # Errors
/// [`EngineError::Context`] when the text does not fit, [`EngineError::Interrupted`].
pub fn activate<B: Backend>(
    session: &mut Session<B>,
    store: &dyn BlockStore,
    activation: &Activation<'_>,
    mode: Mode,
    interrupt: Interrupt<'_>,
) -> Result<Activated, EngineError> {
    let _span = tracing::info_span!("activate", label = activation.label).entered();
    session.prefill(activation.header, activation.label, interrupt)?;
    if mode == Mode::Exact {
        return prefill_text(session, activation, None, interrupt);
    }
    if let Some(reason) = session.model().not_graftable().map(str::to_owned) {
        tracing::warn!(label = activation.label, reason, "falling back to exact");
        return prefill_text(session, activation, Some(reason), interrupt);
    }
    let found = find_or_compile(session, store, &activation.source, interrupt)?;
    match graft(session, activation, found) {
        Err(EngineError::ForeignBlock { label, reason }) => {
            tracing::warn!(label, reason, "falling back to exact");
            prefill_text(session, activation, Some(reason), interrupt)
        }
        grafted_or_failed => grafted_or_failed,
    }
}

/// A block, where it came from, and what that took.
struct Found {
    block: VerifiedBlock,
    origin: BlockOrigin,
    lookup_ms: f64,
    compile_ms: f64,
}

fn find_or_compile<B: Backend>(
    session: &Session<B>,
    store: &dyn BlockStore,
    source: &BlockSource<'_>,
    interrupt: Interrupt<'_>,
) -> Result<Found, EngineError> {
    let started = Instant::now();
    let key = source.key(session.model());
    let lookup = store.get(&key);
    let lookup_ms = ms_since(started);
    let miss = match lookup {
        Lookup::Hit(block, tier) => {
            let origin = BlockOrigin::Found(tier);
            return Ok(Found { block, origin, lookup_ms, compile_ms: 0.0 });
        }
        Lookup::Miss(reason) => reason,
    };
    let started = Instant::now();
    let stored = store.put(compile(session.model(), source, interrupt)?);
    let origin = BlockOrigin::Compiled { miss, kept: stored.kept };
    Ok(Found { block: stored.block, origin, lookup_ms, compile_ms: ms_since(started) })
}

fn graft<B: Backend>(
    session: &mut Session<B>,
    activation: &Activation<'_>,
    found: Found,
) -> Result<Activated, EngineError> {
    let saved_ms = found.block.header().compile_ms;
    let started = Instant::now();
    let span = session.graft(found.block, activation.label)?;
    Ok(Activated {
        mode: Mode::Graft,
        block: Some(found.origin),
        grafted_tokens: span.len as usize,
        prefilled_tokens: activation.header.len(),
        graft_ms: ms_since(started),
        lookup_ms: found.lookup_ms,
        compile_ms: found.compile_ms,
        saved_ms,
        fallback: None,
    })
}

fn prefill_text<B: Backend>(
    session: &mut Session<B>,
    activation: &Activation<'_>,
    fallback: Option<String>,
    interrupt: Interrupt<'_>,
) -> Result<Activated, EngineError> {
    let tokens = activation.source.tokens;
    session.prefill(tokens, activation.label, interrupt)?;
    Ok(Activated {
        mode: Mode::Exact,
        block: None,
        grafted_tokens: 0,
        prefilled_tokens: activation.header.len() + tokens.len(),
        graft_ms: 0.0,
        lookup_ms: 0.0,
        compile_ms: 0.0,
        saved_ms: 0.0,
        fallback,
    })
}

fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}
