//! One context: token ids, ledger and cache, always in step.
//!
//! **Invariant:** the ledger's end, the cache's end and the number of token ids
//! are equal, whatever call failed.

use std::ops::ControlFlow;
use std::sync::Arc;

use skillgraft_kv::{
    AnchorKind, Ledger, Position, Segment, SegmentOrigin, TokenId, TokenSpan, VerifiedBlock,
};

use crate::backend::{Backend, CpuBackend};
use crate::cache::{PAGE_TOKENS, SegmentedCache};
use crate::error::EngineError;
use crate::model::{LogitRows, Model, Step};

/// Asked between chunks of work; breaking makes the work end with
/// [`EngineError::Interrupted`].
pub type Interrupt<'a> = &'a (dyn Fn() -> ControlFlow<()> + Sync);

/// Never interrupts.
pub fn uninterrupted() -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// One context of a model.
#[derive(Debug)]
pub struct Session<B: Backend = CpuBackend> {
    model: Arc<Model<B>>,
    ledger: Ledger,
    cache: SegmentedCache<B>,
    tokens: Vec<TokenId>,
}

impl<B: Backend> Session<B> {
    /// An empty context.
    pub fn new(model: Arc<Model<B>>) -> Self {
        let ledger = Ledger::new(model.context_length());
        let cache = SegmentedCache::new(model.kv_geometry());
        Session { model, ledger, cache, tokens: Vec::new() }
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model<B>> {
        &self.model
    }

    /// What is in the context.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The token ids of the context.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The KV of the context.
    pub fn cache(&self) -> &SegmentedCache<B> {
        &self.cache
    }

    /// Position of the next token.
    pub fn end(&self) -> Position {
        self.ledger.end()
    }

    /// Where approximation begins: everything before is what a full prefill
    /// computes, to the bit. The end when nothing was grafted.
    pub fn exact_end(&self) -> Position {
        let is_approximate = |segment: &&Segment| segment.origin.is_approximate();
        let approximate = self.ledger.segments().iter().find(is_approximate);
        approximate.map_or_else(|| self.end(), |segment| segment.span.start)
    }

    /// A second context with the same contents. Costs a copy of the segment
    /// table and the token ids; K and V are shared.
    #[must_use]
    pub fn branch(&self) -> Self {
        Session {
            model: Arc::clone(&self.model),
            ledger: self.ledger.clone(),
            cache: self.cache.clone(),
            tokens: self.tokens.clone(),
        }
    }

    /// Appends tokens, computing their KV, and returns the logits of the last
    /// one, `[vocab_size]`; `None` when there is no token.
    ///
    /// # Errors
    /// [`EngineError::Context`] when they do not fit (nothing is changed then),
    /// [`EngineError::Interrupted`] between chunks (whole chunks stay).
    ///
    /// # Panics
    /// When a token is outside the vocabulary.
    pub fn prefill(
        &mut self,
        tokens: &[TokenId],
        label: &str,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Vec<f32>>, EngineError> {
        self.check_room(tokens.len())?;
        let n_chunks = tokens.len().div_ceil(PAGE_TOKENS);
        let mut logits = None;
        for (chunk, idx) in tokens.chunks(PAGE_TOKENS).zip(1..) {
            if interrupt().is_break() {
                return Err(EngineError::Interrupted);
            }
            let rows = if idx == n_chunks { LogitRows::Last } else { LogitRows::None };
            logits = Some(self.forward(chunk, label, rows)?);
        }
        Ok(logits)
    }

    /// Appends tokens and returns the logits of each, `[n_tokens, vocab_size]`:
    /// what fidelity measurements compare.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill).
    pub fn score(&mut self, tokens: &[TokenId], label: &str) -> Result<Vec<f32>, EngineError> {
        self.check_room(tokens.len())?;
        let mut logits = Vec::new();
        for chunk in tokens.chunks(PAGE_TOKENS) {
            logits.extend(self.forward(chunk, label, LogitRows::All)?);
        }
        Ok(logits)
    }

    fn check_room(&self, n_tokens: usize) -> Result<(), EngineError> {
        let n_tokens = u32::try_from(n_tokens).unwrap_or(u32::MAX);
        // The ledger decides; a copy is asked, so that nothing changes yet.
        self.ledger.clone().append(n_tokens, SegmentOrigin::Live, "")?;
        Ok(())
    }

    fn forward(
        &mut self,
        chunk: &[TokenId],
        label: &str,
        logits: LogitRows,
    ) -> Result<Vec<f32>, EngineError> {
        assert!(chunk.iter().all(|&token| self.model.knows(token)), "token outside the vocabulary");
        self.mend()?;
        self.ledger.append(chunk.len() as u32, SegmentOrigin::Live, label)?;
        let span = self.cache.reserve(&self.model.backend, chunk.len());
        let step = Step { cache: &mut self.cache, spans: &[span], tokens: chunk, logits };
        let mut logits = self.model.decoder.forward(&self.model.backend, &mut [step]);
        self.tokens.extend_from_slice(chunk);
        Ok(logits.pop().unwrap_or_default())
    }

    /// Appends a block without computing anything: one entry of the segment
    /// table, whatever its length.
    ///
    /// # Errors
    /// [`EngineError::ForeignBlock`] when its shape is not the model's,
    /// [`EngineError::Context`] when it does not fit. Nothing is changed then.
    pub fn graft(&mut self, block: VerifiedBlock, label: &str) -> Result<TokenSpan, EngineError> {
        let delta = self.end() - block.header().compiled_at;
        // A block without an anchor, at the place it was compiled at, is no
        // approximation.
        let is_exact = block.header().anchor == AnchorKind::None && delta.0 == 0;
        self.graft_as(block, label, is_exact)
    }

    /// Appends a block that was compiled behind the very tokens that this context
    /// has, all of them exact: what a full prefill computes, to the bit.
    ///
    /// # Errors
    /// As [`graft`](Self::graft).
    pub(crate) fn graft_exact(
        &mut self,
        block: VerifiedBlock,
        label: &str,
    ) -> Result<TokenSpan, EngineError> {
        self.graft_as(block, label, true)
    }

    fn graft_as(
        &mut self,
        block: VerifiedBlock,
        label: &str,
        is_exact: bool,
    ) -> Result<TokenSpan, EngineError> {
        let header = block.header();
        let foreign =
            |reason: String| EngineError::ForeignBlock { label: header.label.clone(), reason };
        if header.geometry != self.model.kv_geometry() {
            let ours = self.model.kv_geometry();
            return Err(foreign(format!("its KV is {:?}, the model's {ours:?}", header.geometry)));
        }
        if let Some(token) = header.tokens.iter().find(|&&token| !self.model.knows(token)) {
            return Err(foreign(format!("token {} is outside the vocabulary", token.0)));
        }
        let delta = self.end() - header.compiled_at;
        if delta.0 != 0
            && let Some(reason) = self.model.not_graftable()
        {
            return Err(foreign(reason.to_owned()));
        }
        let block_key = header.key;
        let origin = if is_exact {
            SegmentOrigin::Exact { block: block_key }
        } else {
            SegmentOrigin::Grafted { block: block_key, anchor: header.anchor, delta }
        };
        let span = self.ledger.append(header.n_tokens() as u32, origin, label)?;
        self.tokens.extend_from_slice(&header.tokens);
        self.cache.graft(block);
        Ok(span)
    }

    /// Computes tokens anew where they are, in the context as it is now: each sees
    /// everything before it, those that were computed anew included. Spans are in
    /// the order of the context and do not overlap. Nothing else is computed.
    ///
    /// # Errors
    /// [`EngineError::Context`] when a span is not in the context (nothing is
    /// changed then), [`EngineError::Interrupted`] between passes (each span is old
    /// or new as a whole, or in whole passes of a long one).
    ///
    /// # Panics
    /// When spans overlap or are out of order.
    pub fn recompute(
        &mut self,
        spans: &[TokenSpan],
        interrupt: Interrupt<'_>,
    ) -> Result<(), EngineError> {
        let in_order = |before: &TokenSpan, after: &TokenSpan| before.end() <= after.start;
        assert!(spans.is_sorted_by(in_order), "spans overlap or are out of order");
        let mut ledger = self.ledger.clone();
        for span in spans {
            ledger.recompute(*span)?;
        }
        self.mend()?;
        for pass in passes(spans) {
            if interrupt().is_break() {
                return Err(EngineError::Interrupted);
            }
            self.put_anew(&pass)?;
        }
        Ok(())
    }

    /// Puts other tokens in the place of some, or between two, computing their KV in
    /// the context as it is. What follows is moved, and not computed again: it goes on saying
    /// what it has read before the edit.
    ///
    /// # Errors
    /// [`EngineError::Context`] when `span` is not in the context, or the tokens do
    /// not fit. Nothing is changed then.
    ///
    /// # Panics
    /// When a token is outside the vocabulary.
    pub fn replace(&mut self, span: TokenSpan, tokens: &[TokenId]) -> Result<(), EngineError> {
        assert!(
            tokens.iter().all(|&token| self.model.knows(token)),
            "token outside the vocabulary"
        );
        self.mend()?;
        self.ledger.replace(span, tokens.len() as u32)?;
        self.tokens.splice(span.start.index()..span.end().index(), tokens.iter().copied());
        self.cache.replace(&self.model.backend, span, tokens.len());
        let edited = TokenSpan { start: span.start, len: tokens.len() as u32 };
        for pass in passes(&[edited]) {
            self.fill(&pass);
        }
        Ok(())
    }

    /// Computes tokens anew whose block can no longer be read, since its file was
    /// shortened by another program.
    fn mend(&mut self) -> Result<(), EngineError> {
        for span in self.cache.broken() {
            let (from, n) = (span.start.0, span.len);
            tracing::warn!(
                from,
                n,
                "the file of a block was shortened; its tokens are computed anew"
            );
            for pass in passes(&[span]) {
                self.put_anew(&pass)?;
            }
        }
        Ok(())
    }

    /// Computes tokens anew in one pass.
    fn put_anew(&mut self, spans: &[TokenSpan]) -> Result<(), EngineError> {
        for span in spans {
            self.ledger.recompute(*span)?;
            self.cache.replace(&self.model.backend, *span, span.len as usize);
        }
        self.fill(spans);
        Ok(())
    }

    /// Computes tokens that room was made for, in one pass.
    fn fill(&mut self, spans: &[TokenSpan]) {
        let tokens_of = |span: &TokenSpan| &self.tokens[span.start.index()..span.end().index()];
        let tokens: Vec<TokenId> = spans.iter().flat_map(tokens_of).copied().collect();
        let (cache, logits) = (&mut self.cache, LogitRows::None);
        let step = Step { cache, spans, tokens: &tokens, logits };
        self.model.decoder.forward(&self.model.backend, &mut [step]);
    }

    /// Drops all tokens from `to` on.
    ///
    /// # Errors
    /// [`EngineError::Context`] when `to` lies behind the end.
    pub fn roll_back(&mut self, to: Position) -> Result<(), EngineError> {
        self.ledger.roll_back(to)?;
        self.cache.truncate(to);
        self.tokens.truncate(to.index());
        Ok(())
    }
}

/// Cuts spans so that each pass has at most [`PAGE_TOKENS`] tokens.
fn passes(spans: &[TokenSpan]) -> Vec<Vec<TokenSpan>> {
    let (mut passes, mut room) = (Vec::<Vec<TokenSpan>>::new(), 0);
    for span in spans {
        let mut left = *span;
        while !left.is_empty() {
            if room == 0 {
                passes.push(Vec::new());
                room = PAGE_TOKENS as u32;
            }
            let len = left.len.min(room);
            passes.last_mut().expect("a pass was begun").push(TokenSpan { len, ..left });
            left = TokenSpan { start: left.start + len, len: left.len - len };
            room -= len;
        }
    }
    passes
}
