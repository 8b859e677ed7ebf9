//! The segmented KV cache: a table of segments, each a live page or a block.
//!
//! **Invariant:** segments follow one another in the order of the context; each
//! knows how far its keys are from where they were rotated. Grafting a block is
//! one more entry: nothing is copied or rewritten. Tokens that are recomputed in
//! the middle get a page of their own, and what they replace is cut out of the
//! table, not out of the block. A branch is a copy of the table. Pages that two
//! segments share are never written: an append then begins a new page.

use std::sync::Arc;

use skillgraft_kernels::RopeTable;
use skillgraft_kv::{
    KvBuffer, KvGeometry, LayerIdx, Position, PositionDelta, TokenSpan, VerifiedBlock,
};

use crate::backend::{Backend, SegmentCopy};

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
    /// First token of the storage that is in use.
    pub from: usize,
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
    Page(Arc<LivePage<B>>),
    /// A block, read where it lies.
    Block(VerifiedBlock),
}

/// K and V of tokens that were computed in this context.
#[derive(Debug)]
pub struct LivePage<B: Backend> {
    /// Where they are.
    pub data: B::Page,
    /// Tokens that it has room for.
    capacity: usize,
}

impl<B: Backend> Clone for SegmentedCache<B> {
    fn clone(&self) -> Self {
        SegmentedCache { geometry: self.geometry, segments: self.segments.clone() }
    }
}

impl<B: Backend> Clone for CacheSegment<B> {
    fn clone(&self) -> Self {
        let CacheSegment { from, n_tokens, delta, ref storage } = *self;
        CacheSegment { from, n_tokens, delta, storage: storage.clone() }
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
    /// through [`page_mut`](Self::page_mut).
    ///
    /// # Panics
    /// When `n_tokens` is more than [`PAGE_TOKENS`].
    pub fn reserve(&mut self, backend: &B, n_tokens: usize) -> TokenSpan {
        assert!(n_tokens <= PAGE_TOKENS, "{n_tokens} tokens in one pass, at most {PAGE_TOKENS}");
        let span = TokenSpan { start: self.end(), len: n_tokens as u32 };
        if let Some(last) = self.segments.last_mut()
            && let Storage::Page(page) = &mut last.storage
            && last.delta.0 == 0
            && let Some(page) = Arc::get_mut(page)
            && last.from + last.n_tokens + n_tokens <= page.capacity
        {
            last.n_tokens += n_tokens;
        } else {
            self.segments.push(self.new_live(backend, n_tokens, PAGE_TOKENS));
        }
        span
    }

    /// Makes room for `n_tokens` live tokens in the place of those of `span`, to be
    /// filled through [`page_mut`](Self::page_mut). What follows is moved.
    ///
    /// # Panics
    /// When `span` is not in the context.
    pub fn replace(&mut self, backend: &B, span: TokenSpan, n_tokens: usize) {
        assert!(span.end() <= self.end(), "{span:?} is not in the context");
        let (first, end) = (self.cut(span.start.index()), self.cut(span.end().index()));
        let by = PositionDelta(n_tokens as i32 - span.len as i32);
        for segment in &mut self.segments[end..] {
            segment.delta = segment.delta + by;
        }
        let live = (n_tokens > 0).then(|| self.new_live(backend, n_tokens, n_tokens));
        self.segments.splice(first..end, live);
    }

    fn new_live(&self, backend: &B, n_tokens: usize, capacity: usize) -> CacheSegment<B> {
        let page = LivePage { data: backend.new_page(self.geometry, capacity), capacity };
        let storage = Storage::Page(Arc::new(page));
        CacheSegment { from: 0, n_tokens, delta: PositionDelta(0), storage }
    }

    /// Makes a segment begin at token `at`, and returns its index.
    fn cut(&mut self, at: usize) -> usize {
        let mut start = 0;
        for idx in 0..self.segments.len() {
            let segment = &mut self.segments[idx];
            let before = at - start;
            if before == 0 {
                return idx;
            }
            if before < segment.n_tokens {
                let mut rest = segment.clone();
                rest.from += before;
                rest.n_tokens -= before;
                segment.n_tokens = before;
                self.segments.insert(idx + 1, rest);
                return idx + 1;
            }
            start += segment.n_tokens;
        }
        self.segments.len()
    }

    /// The page that [`reserve`](Self::reserve) or [`replace`](Self::replace) made
    /// room for a span in, and the token of the page that the span begins at.
    ///
    /// # Panics
    /// When no room was made for it.
    pub fn page_mut(&mut self, span: TokenSpan) -> (&mut B::Page, usize) {
        let mut start = 0;
        for segment in &mut self.segments {
            let end = start + segment.n_tokens;
            if span.start.index() < end {
                assert!(span.end().index() <= end, "{span:?} is one segment");
                let at = segment.from + span.start.index() - start;
                let Storage::Page(page) = &mut segment.storage else {
                    panic!("room was made for {span:?}, a block is there");
                };
                let page = Arc::get_mut(page).expect("a page to be filled is not shared");
                return (&mut page.data, at);
            }
            start = end;
        }
        panic!("no room was made for {span:?}");
    }

    /// The segments of the context up to `end`, each with its tokens before it.
    pub fn segments_before(
        &self,
        end: Position,
    ) -> impl Iterator<Item = (&CacheSegment<B>, usize)> {
        let mut left = end.index();
        self.segments.iter().map_while(move |segment| {
            let n_tokens = segment.n_tokens.min(left);
            left -= n_tokens;
            (n_tokens > 0).then_some((segment, n_tokens))
        })
    }

    /// Appends a block, to be used at the end of the context. Costs one entry of
    /// the table, whatever its length.
    pub fn graft(&mut self, block: VerifiedBlock) -> PositionDelta {
        let delta = self.end() - block.header().compiled_at;
        let n_tokens = block.header().n_tokens();
        let storage = Storage::Block(block);
        self.segments.push(CacheSegment { from: 0, n_tokens, delta, storage });
        delta
    }

    /// Where blocks are used that can no longer be read, in order; see
    /// [`KvBlock::is_intact`](skillgraft_kv::KvBlock::is_intact).
    pub fn broken(&self) -> Vec<TokenSpan> {
        let mut start = 0;
        let mut broken = Vec::new();
        for segment in &self.segments {
            let len = segment.n_tokens as u32;
            if let Storage::Block(block) = &segment.storage
                && !block.get().is_intact()
            {
                broken.push(TokenSpan { start: Position(start), len });
            }
            start += len;
        }
        broken
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
    /// the span was grafted, or has been moved.
    pub fn extract(&self, backend: &B, span: TokenSpan) -> Option<[Vec<KvBuffer>; 2]> {
        let is_live = |segment: &CacheSegment<B>| {
            matches!(segment.storage, Storage::Page(_)) && segment.delta.0 == 0
        };
        self.copy(backend, span, &is_live, &|_| None)
    }

    /// The same of any span, each K rotated to where it stands by the rotation of its
    /// layer, which rounds once more where it has been moved.
    ///
    /// # Panics
    /// When the span is not in the context.
    pub fn relocated<'r>(
        &self,
        backend: &B,
        span: TokenSpan,
        rope_of: &dyn Fn(LayerIdx) -> &'r RopeTable,
    ) -> [Vec<KvBuffer>; 2] {
        let copied = self.copy(backend, span, &|_| true, &|layer| Some(rope_of(layer)));
        copied.expect("the span is in the context")
    }

    fn copy<'r>(
        &self,
        backend: &B,
        span: TokenSpan,
        accept: &dyn Fn(&CacheSegment<B>) -> bool,
        rope_of: &dyn Fn(LayerIdx) -> Option<&'r RopeTable>,
    ) -> Option<[Vec<KvBuffer>; 2]> {
        let capacity = span.len as usize;
        let zeroed = || KvBuffer::zeroed(self.geometry.dtype, self.geometry.tensor_len(capacity));
        let [mut ks, mut vs] = [(); 2].map(|()| vec![zeroed(); self.geometry.n_layers]);
        let (mut start, mut at) = (0, 0);
        for segment in &self.segments {
            let from = span.start.index().max(start);
            let to = span.end().index().min(start + segment.n_tokens);
            if from < to {
                if !accept(segment) {
                    return None;
                }
                let (from, n_tokens) = (from - start, to - from);
                for (layer, (k, v)) in (0..).map(LayerIdx).zip(ks.iter_mut().zip(&mut vs)) {
                    let copy = SegmentCopy { layer, from, n_tokens, at, capacity };
                    backend.copy_segment(segment, &copy, rope_of(layer), k, v);
                }
                at += n_tokens;
            }
            start += segment.n_tokens;
        }
        (at == capacity).then_some([ks, vs])
    }
}
