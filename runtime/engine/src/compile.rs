//! Compiling: the KV of a text, computed behind an anchor and kept as a block.

use std::time::Instant;

use skillgraft_kv::{
    AnchorKind, BlockHeader, BlockIdentity, BlockKey, CompiledBlock, Position, TokenId, TokenSpan,
    VerifiedBlock,
};

use crate::backend::Backend;
use crate::error::EngineError;
use crate::model::Model;
use crate::patch::hunks;
use crate::session::{Interrupt, Session};

/// The text of a block, and what it is compiled behind.
#[derive(Debug, Clone, Copy)]
pub struct BlockSource<'a> {
    /// What a person calls it.
    pub label: &'a str,
    /// What the anchor is.
    pub anchor: AnchorKind,
    /// The anchor's tokens: computed first, and dropped.
    pub anchor_tokens: &'a [TokenId],
    /// The block's tokens.
    pub tokens: &'a [TokenId],
    /// Keeps one user's blocks from being guessed by another.
    pub salt: [u8; 16],
}

impl BlockSource<'_> {
    /// The block's key under a model.
    pub fn key<B: Backend>(&self, model: &Model<B>) -> BlockKey {
        let identity = BlockIdentity {
            model: model.fingerprint(),
            tokenizer: model.tokenizer().digest(),
            template: model.template().digest(),
            ropes: model.spec().ropes.clone(),
            layers: model.spec().layers.clone(),
            geometry: model.kv_geometry(),
            arithmetic: model.backend().arithmetic(),
            anchor: self.anchor,
            anchor_tokens: self.anchor_tokens.to_vec(),
            tokens: self.tokens.to_vec(),
            salt: self.salt,
        };
        BlockKey(*blake3::hash(&identity.canonical_bytes()).as_bytes())
    }
}

/// Computes a block from nothing.
///
/// # Errors
/// As [`compile_from`].
pub fn compile<B: Backend>(
    model: &std::sync::Arc<Model<B>>,
    source: &BlockSource<'_>,
    interrupt: Interrupt<'_>,
) -> Result<CompiledBlock, EngineError> {
    compile_from(&Session::new(std::sync::Arc::clone(model)), source, interrupt)
}

/// Computes a block. What a context has of the anchor already, such as a static
/// prefix, is not computed again; the context itself is not changed.
///
/// # Errors
/// [`EngineError::Context`] when anchor and text exceed the context limit,
/// [`EngineError::Interrupted`].
pub fn compile_from<B: Backend>(
    base: &Session<B>,
    source: &BlockSource<'_>,
    interrupt: Interrupt<'_>,
) -> Result<CompiledBlock, EngineError> {
    let _span =
        tracing::info_span!("compile", label = source.label, n_tokens = source.tokens.len())
            .entered();
    let mut scratch = behind_anchor(base, source, interrupt)?;
    let start = scratch.end();
    let started = Instant::now();
    scratch.prefill(source.tokens, source.label, interrupt)?;
    let compile_ms = started.elapsed().as_secs_f64() * 1e3;
    let span = TokenSpan { start, len: source.tokens.len() as u32 };
    Ok(take_block(&scratch, source, span, compile_ms))
}

/// A context that holds an anchor, and of what `base` has what is the same.
fn behind_anchor<B: Backend>(
    base: &Session<B>,
    source: &BlockSource<'_>,
    interrupt: Interrupt<'_>,
) -> Result<Session<B>, EngineError> {
    let exact = &base.tokens()[..base.exact_end().index()];
    let n_shared = exact.iter().zip(source.anchor_tokens).take_while(|(a, b)| a == b).count();
    let mut scratch = base.branch();
    scratch.roll_back(Position(n_shared as u32))?;
    scratch.prefill(&source.anchor_tokens[n_shared..], "anchor", interrupt)?;
    Ok(scratch)
}

/// Makes a block from that of an earlier version of the text, computing only the
/// lines that differ. What follows them goes on saying what it read before, so the
/// block is an approximation of the one that [`compile_from`] makes. `None` when the
/// earlier one was compiled elsewhere.
///
/// # Errors
/// As [`compile_from`], and [`EngineError::Tokenizer`].
pub fn compile_edited<B: Backend>(
    base: &Session<B>,
    source: &BlockSource<'_>,
    earlier: &VerifiedBlock,
    interrupt: Interrupt<'_>,
) -> Result<Option<CompiledBlock>, EngineError> {
    let mut scratch = behind_anchor(base, source, interrupt)?;
    let start = scratch.end();
    let header = earlier.header();
    if (header.anchor, header.compiled_at) != (source.anchor, start) {
        return Ok(None);
    }
    let started = Instant::now();
    let model = base.model();
    let hunks = hunks(model.tokenizer(), &header.tokens, source.tokens)?;
    scratch.graft_exact(earlier.clone(), source.label)?;
    scratch.patch(start, &hunks, source.tokens, interrupt)?;
    let span = TokenSpan { start, len: source.tokens.len() as u32 };
    let rope_of = |layer| model.decoder.rope(layer);
    let [k, v] = scratch.cache().relocated(model.backend(), span, &rope_of);
    let compile_ms = started.elapsed().as_secs_f64() * 1e3;
    Ok(Some(CompiledBlock { header: header_of(model, source, start, compile_ms), k, v }))
}

/// Makes a block of a span of a context that was just computed, such as its
/// static prefix.
///
/// # Panics
/// When part of the span was grafted, or `source` is not what the context has.
pub fn take_block<B: Backend>(
    session: &Session<B>,
    source: &BlockSource<'_>,
    span: TokenSpan,
    compile_ms: f64,
) -> CompiledBlock {
    let model = session.model();
    assert_eq!(&session.tokens()[span.start.index()..span.end().index()], source.tokens);
    let [k, v] = session
        .cache()
        .extract(model.backend(), span)
        .expect("the span was computed in this context");
    CompiledBlock { header: header_of(model, source, span.start, compile_ms), k, v }
}

fn header_of<B: Backend>(
    model: &Model<B>,
    source: &BlockSource<'_>,
    compiled_at: Position,
    compile_ms: f64,
) -> BlockHeader {
    BlockHeader {
        key: source.key(model),
        geometry: model.kv_geometry(),
        tokens: source.tokens.to_vec(),
        compiled_at,
        anchor: source.anchor,
        label: source.label.to_owned(),
        compile_ms,
    }
}
