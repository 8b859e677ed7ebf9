//! The segmented KV cache: a table of segments, each a live page or a block.
//!
//! **Invariant:** segments follow one another in the order of the context; each
//! knows how far its keys are from where they were rotated. Grafting a block is
//! one more entry: nothing is copied or rewritten. A branch is a copy of the
//! table. Pages that a branch shares are never written: an append then begins
//! a new page.

use std::sync::Arc;

use skillgraft_kv::{
    KvBuffer, KvGeometry, LayerIdx, Position, PositionDelta, TokenSpan, VerifiedBlock,
};

use crate::backend::{Backend, PageRead};

/// Tokens of a page, and so the most that one forward pass appends: long enough
/// for full matrix tiles, short enough for activations to stay in L2.
pub const PAGE_TOKENS: usize = 256;

/// The KV of one context.
#[derive(Debug)]
pub struct SegmentedCache<B: Backend> {
    geometry: KvGeometry,
    segments: Vec<CacheSegment<B>>,
}

/// One entry of the segment table.
#[derive(Debug)]
pub struct CacheSegment<B: Backend> {
    /// Tokens in use.
    pub n_tokens: usize,
    /// Placed position minus the position its keys are rotated for.
    pub delta: PositionDelta,
    /// Where K and V are.
    pub storage: Storage<B>,
}

/// Where the K and V of a segment are.
#[derive(Debug)]
pub enum Storage<B: Backend> {
    /// Computed in this context.
    Page(Arc<B::Page>),
    /// A block, read where it lies.
    Block(VerifiedBlock),
}

impl<B: Backend> Clone for SegmentedCache<B> {
    fn clone(&self) -> Self {
        SegmentedCache { geometry: self.geometry, segments: self.segments.clone() }
    }
}

impl<B: Backend> Clone for CacheSegment<B> {
    fn clone(&self) -> Self {
        CacheSegment { n_tokens: self.n_tokens, delta: self.delta, storage: self.storage.clone() }
    }
}

impl<B: Backend> Clone for Storage<B> {
    fn clone(&self) -> Self {
        match self {
            Storage::Page(page) => Storage::Page(Arc::clone(page)),
            Storage::Block(block) => Storage::Block(block.clone()),
        }
    }
}

impl<B: Backend> SegmentedCache<B> {
    /// An empty context.
    pub fn new(geometry: KvGeometry) -> Self {
        SegmentedCache { geometry, segments: Vec::new() }
    }

    /// Shape and element type.
    pub fn geometry(&self) -> KvGeometry {
        self.geometry
    }

    /// The segment table.
    pub fn segments(&self) -> &[CacheSegment<B>] {
        &self.segments
    }

    /// Tokens in the context.
    pub fn n_tokens(&self) -> usize {
        self.segments.iter().map(|segment| segment.n_tokens).sum()
    }

    /// Position of the next token.
    pub fn end(&self) -> Position {
        Position(self.n_tokens() as u32)
    }

    /// The distinct distances at which segments are used; live ones come first.
    pub fn deltas(&self) -> Vec<PositionDelta> {
        let mut deltas = vec![PositionDelta(0)];
        for segment in &self.segments {
            if !deltas.contains(&segment.delta) {
                deltas.push(segment.delta);
            }
        }
        deltas
    }

    /// Appends room for `n_tokens` live tokens, to be filled layer by layer
    /// through [`tail_page_mut`](Self::tail_page_mut).
    ///
    /// # Panics
    /// When `n_tokens` is more than [`PAGE_TOKENS`].
    pub fn reserve(&mut self, backend: &B, n_tokens: usize) {
        assert!(n_tokens <= PAGE_TOKENS, "{n_tokens} tokens in one pass, at most {PAGE_TOKENS}");
        if let Some(last) = self.segments.last_mut()
            && let Storage::Page(page) = &mut last.storage
            && last.n_tokens + n_tokens <= PAGE_TOKENS
            && Arc::get_mut(page).is_some()
        {
            last.n_tokens += n_tokens;
            return;
        }
        let page = Arc::new(backend.new_page(self.geometry, PAGE_TOKENS));
        let storage = Storage::Page(page);
        self.segments.push(CacheSegment { n_tokens, delta: PositionDelta(0), storage });
    }

    /// The page that [`reserve`](Self::reserve) made room in, and the tokens in
    /// use in it, the reserved ones included.
    ///
    /// # Panics
    /// When nothing was reserved.
    pub fn tail_page_mut(&mut self) -> (&mut B::Page, usize) {
        let last = self.segments.last_mut().expect("a page was reserved");
        let n_tokens = last.n_tokens;
        match &mut last.storage {
            Storage::Page(page) => {
                (Arc::get_mut(page).expect("a reserved page is not shared"), n_tokens)
            }
            Storage::Block(_) => panic!("a page was reserved, the last segment is a block"),
        }
    }

    /// Appends a block, to be used at the end of the context. Costs one entry of
    /// the table, whatever its length.
    pub fn graft(&mut self, block: VerifiedBlock) -> PositionDelta {
        let delta = self.end() - block.header().compiled_at;
        let n_tokens = block.header().n_tokens();
        self.segments.push(CacheSegment { n_tokens, delta, storage: Storage::Block(block) });
        delta
    }

    /// Drops all tokens from `to` on.
    pub fn truncate(&mut self, to: Position) {
        let mut start = 0;
        self.segments.retain_mut(|segment| {
            let end = start + segment.n_tokens;
            let keep = start < to.index();
            if keep {
                segment.n_tokens = segment.n_tokens.min(to.index() - start);
            }
            start = end;
            keep
        });
    }

    /// Copies the K and V of a span that was computed in this context, one
    /// tensor `[n_kv_heads, span.len, head_dim]` a layer; `None` when part of
    /// the span was grafted.
    pub fn extract(&self, backend: &B, span: TokenSpan) -> Option<[Vec<KvBuffer>; 2]> {
        let capacity = span.len as usize;
        let zeroed = || KvBuffer::zeroed(self.geometry.dtype, self.geometry.tensor_len(capacity));
        let [mut ks, mut vs] = [(); 2].map(|()| vec![zeroed(); self.geometry.n_layers]);
        let (mut start, mut at) = (0, 0);
        for segment in &self.segments {
            let from = span.start.index().max(start);
            let to = span.end().index().min(start + segment.n_tokens);
            if from < to {
                let Storage::Page(page) = &segment.storage else { return None };
                for (layer, (k, v)) in (0..).zip(ks.iter_mut().zip(&mut vs)) {
                    let layer = LayerIdx(layer);
                    let n_tokens = to - from;
                    let read = PageRead { layer, from: from - start, n_tokens, at, capacity };
                    backend.read_page(page, &read, k, v);
                }
                at += to - from;
            }
            start += segment.n_tokens;
        }
        (at == capacity).then_some([ks, vs])
    }
}
