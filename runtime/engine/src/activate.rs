//! Activation: a skill becomes part of a context. **The second main path.**

use std::ops::Range;
use std::time::Instant;

use skillgraft_kv::{
    AnchorKind, BlockStore, Kept, Lookup, MissReason, Position, Tier, TokenId, TokenSpan,
    VerifiedBlock,
};

use crate::backend::Backend;
use crate::compile::{BlockSource, compile_from, take_block};
use crate::error::EngineError;
use crate::session::{Interrupt, Session};

/// How the text of an activation gets into the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Prefilled: the reference.
    Exact,
    /// Grafted from a block that was compiled elsewhere.
    Graft,
    /// Grafted, and the tokens that matter most here computed anew.
    Repair,
}

/// What is to be activated.
#[derive(Debug, Clone, Copy)]
pub struct Activation<'a> {
    /// Label of the segments.
    pub label: &'a str,
    /// Prefilled before the block: role marker and skill name.
    pub header: &'a [TokenId],
    /// The block behind each anchor that will do, the best one first. Never
    /// empty; all have the same tokens.
    pub sources: &'a [BlockSource<'a>],
    /// Tokens of the block that [`Mode::Repair`] computes anew, sorted and apart:
    /// see [`tokens_to_repair`](crate::tokens_to_repair).
    pub repair: &'a [Range<usize>],
}

/// What an activation did.
#[derive(Debug, Clone, PartialEq)]
pub struct Activated {
    /// How the text came in.
    pub mode: Mode,
    /// Where the block came from; `None` when there is none.
    pub block: Option<BlockOrigin>,
    /// What the block was compiled behind.
    pub anchor: AnchorKind,
    /// Whether the text's KV is what a full prefill computes here, to the bit.
    pub is_exact: bool,
    /// Tokens grafted.
    pub grafted_tokens: usize,
    /// Grafted tokens that were computed anew in this context.
    pub repaired_tokens: usize,
    /// Tokens prefilled in this context.
    pub prefilled_tokens: usize,
    /// The graft itself: the look-up excluded, one entry of the segment table.
    pub graft_ms: f64,
    /// Computing tokens of the block anew.
    pub repair_ms: f64,
    /// Finding, opening and checking the block.
    pub lookup_ms: f64,
    /// Compiling the block, its anchor included, and writing it; 0 on a hit. Of a
    /// block that was compiled in place, writing it.
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
/// its block. Where no store has it, the text is prefilled and the block taken
/// from that, if the context is what the block is to be compiled behind; or else
/// the block is compiled apart and grafted. Under [`Mode::Repair`] some of its tokens
/// are computed anew. A block that cannot be used never
/// fails the activation; the text is prefilled then.
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
    let found = match look_up(session, store, activation.sources) {
        Ok(found) => found,
        Err(missed) => match activation.sources.iter().find(|source| is_behind(session, source)) {
            Some(source) => {
                return compile_in_place(session, store, activation, source, missed, interrupt);
            }
            None => compile_apart(session, store, &activation.sources[0], missed, interrupt)?,
        },
    };
    match graft(session, activation, found) {
        Ok(grafted) if mode == Mode::Repair => repair(session, activation, grafted, interrupt),
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

/// A look-up that found nothing.
#[derive(Clone, Copy)]
struct Missed {
    reason: MissReason,
    lookup_ms: f64,
}

/// The best block that the store has.
fn look_up<B: Backend>(
    session: &Session<B>,
    store: &dyn BlockStore,
    sources: &[BlockSource<'_>],
) -> Result<Found, Missed> {
    let started = Instant::now();
    let mut reason = MissReason::Absent;
    for source in sources {
        match store.get(&source.key(session.model())) {
            Lookup::Hit(block, tier) => {
                let (origin, lookup_ms) = (BlockOrigin::Found(tier), ms_since(started));
                return Ok(Found { block, origin, lookup_ms, compile_ms: 0.0 });
            }
            // That one of them is damaged says more than that others are absent.
            Lookup::Miss(MissReason::Absent) => {}
            Lookup::Miss(other) => reason = other,
        }
    }
    Err(Missed { reason, lookup_ms: ms_since(started) })
}

/// Whether a context is exactly what a block is to be compiled behind.
fn is_behind<B: Backend>(session: &Session<B>, source: &BlockSource<'_>) -> bool {
    session.exact_end() == session.end() && session.tokens() == source.anchor_tokens
}

/// Prefills the text, and keeps what that computed as the block.
fn compile_in_place<B: Backend>(
    session: &mut Session<B>,
    store: &dyn BlockStore,
    activation: &Activation<'_>,
    source: &BlockSource<'_>,
    missed: Missed,
    interrupt: Interrupt<'_>,
) -> Result<Activated, EngineError> {
    let span = TokenSpan { start: session.end(), len: source.tokens.len() as u32 };
    let started = Instant::now();
    let mut activated = prefill_text(session, activation, None, interrupt)?;
    let prefill_ms = ms_since(started);
    let started = Instant::now();
    let stored = store.put(take_block(session, source, span, prefill_ms));
    activated.mode = Mode::Graft;
    activated.anchor = source.anchor;
    activated.block = Some(BlockOrigin::Compiled { miss: missed.reason, kept: stored.kept });
    activated.lookup_ms = missed.lookup_ms;
    activated.compile_ms = ms_since(started);
    Ok(activated)
}

fn compile_apart<B: Backend>(
    session: &Session<B>,
    store: &dyn BlockStore,
    source: &BlockSource<'_>,
    missed: Missed,
    interrupt: Interrupt<'_>,
) -> Result<Found, EngineError> {
    let started = Instant::now();
    let stored = store.put(compile_from(session, source, interrupt)?);
    let origin = BlockOrigin::Compiled { miss: missed.reason, kept: stored.kept };
    let (lookup_ms, compile_ms) = (missed.lookup_ms, ms_since(started));
    Ok(Found { block: stored.block, origin, lookup_ms, compile_ms })
}

fn graft<B: Backend>(
    session: &mut Session<B>,
    activation: &Activation<'_>,
    found: Found,
) -> Result<Activated, EngineError> {
    let (saved_ms, anchor) = (found.block.header().compile_ms, found.block.header().anchor);
    let is_exact = (activation.sources.iter())
        .any(|source| source.anchor == anchor && is_behind(session, source));
    let started = Instant::now();
    let span = if is_exact {
        session.graft_exact(found.block, activation.label)?
    } else {
        session.graft(found.block, activation.label)?
    };
    Ok(Activated {
        mode: Mode::Graft,
        block: Some(found.origin),
        anchor,
        is_exact,
        grafted_tokens: span.len as usize,
        repaired_tokens: 0,
        prefilled_tokens: activation.header.len(),
        graft_ms: ms_since(started),
        repair_ms: 0.0,
        lookup_ms: found.lookup_ms,
        compile_ms: found.compile_ms,
        saved_ms,
        fallback: None,
    })
}

/// Computes the tokens of a grafted block anew that the activation names. What is
/// exact already is left as it is.
fn repair<B: Backend>(
    session: &mut Session<B>,
    activation: &Activation<'_>,
    mut activated: Activated,
    interrupt: Interrupt<'_>,
) -> Result<Activated, EngineError> {
    activated.mode = Mode::Repair;
    if activated.is_exact {
        return Ok(activated);
    }
    let started = Instant::now();
    let block = session.end().index() - activated.grafted_tokens;
    let spans: Vec<TokenSpan> = (activation.repair.iter())
        .map(|tokens| TokenSpan {
            start: Position((block + tokens.start) as u32),
            len: tokens.len() as u32,
        })
        .collect();
    session.recompute(&spans, interrupt)?;
    activated.repaired_tokens = spans.iter().map(|span| span.len as usize).sum();
    activated.repair_ms = ms_since(started);
    Ok(activated)
}

fn prefill_text<B: Backend>(
    session: &mut Session<B>,
    activation: &Activation<'_>,
    fallback: Option<String>,
    interrupt: Interrupt<'_>,
) -> Result<Activated, EngineError> {
    let tokens = activation.sources[0].tokens;
    let is_exact = session.exact_end() == session.end();
    session.prefill(tokens, activation.label, interrupt)?;
    Ok(Activated {
        mode: Mode::Exact,
        block: None,
        anchor: AnchorKind::None,
        is_exact,
        grafted_tokens: 0,
        repaired_tokens: 0,
        prefilled_tokens: activation.header.len() + tokens.len(),
        graft_ms: 0.0,
        repair_ms: 0.0,
        lookup_ms: 0.0,
        compile_ms: 0.0,
        saved_ms: 0.0,
        fallback,
    })
}

fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}
