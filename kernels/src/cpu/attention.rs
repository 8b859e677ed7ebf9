//! Attention over a context that lies in segments.
//!
//! A segment's K was rotated for the positions it was computed at. Where it was
//! moved since, queries read it through another frame: rotated by that much
//! less. So a block is used as it lies, and nothing of it is rewritten.
//!
//! A work item is one KV head and some query tokens, with all query heads that
//! share it: for each tile of tokens, K is widened and transposed once and
//! multiplied by all rows; when all scores are known, one softmax; then V tile
//! by tile.
//!
//! **Invariant:** a score is one `fma` chain over `head_dim`. The softmax of a
//! row takes the maximum of the whole row, then the same polynomial for each
//! score, then the sum in sixteen lanes by the token's index in the context. An
//! output is one `fma` chain over the tokens in the order of the context, which
//! is stored and taken up again at each tile. None of it knows where segments,
//! pages or tiles begin. That is why scores are kept for the whole context, and
//! not folded tile by tile into an online softmax.
//!
//! **Refuses:** K or V that is not finite: a token behind a row's own has weight
//! 0 there, and 0 times infinity is not 0.

use skillgraft_kv::KvView;

use crate::cpu::buffer::with_scratch;
use crate::cpu::dispatch::{Cpu, Kernel};
use crate::cpu::kv::{Element, KvShape, KvSource, convert};
use crate::cpu::lanes::{
    LANES, Lanes, chunk, chunk_mut, exp, reduce_add, reduce_max, transpose_block,
};
use crate::cpu::shared::Shared;
use crate::cpu::tile::{Columns, Extent, PANEL, Rows, Sink, product};

/// Tokens of one tile of K or V. At `head_dim` 64 the tile takes 16 KiB, a third
/// of a first-level cache.
const TILE_TOKENS: usize = 64;

/// Rows that share one widening of K and V, if their scores fit.
const ITEM_ROWS: usize = 96;

/// Scores of one work item: 1 MiB, so that they stay in a second-level cache.
const ITEM_SCORES: usize = 1 << 18;

/// K and V of a span of the context, `[n_kv_heads, capacity, head_dim]`, of one
/// origin.
#[derive(Debug, Clone, Copy)]
pub struct AttentionSegment<'a> {
    /// K, rotated, from the segment's first token on.
    pub k: KvView<'a>,
    /// V, from the segment's first token on.
    pub v: KvView<'a>,
    /// Tokens of the segment; 0 is allowed.
    pub n_tokens: usize,
    /// Elements from one KV head to the next, in K and in V.
    pub head_stride: usize,
    /// Which of the query frames reads the segment.
    pub frame: usize,
}

/// Shape of an attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Query tokens: the last of the context.
    pub n_rows: usize,
    /// Query heads.
    pub n_heads: usize,
    /// KV heads; query head `h` reads KV head `h / (n_heads / n_kv_heads)`.
    pub n_kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
    /// What scores are multiplied by, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// How far back a token sees: the one at position `p` sees positions above
    /// `p - window`. `None` for all of them.
    pub window: Option<usize>,
}

impl Cpu {
    /// Causal attention of the context's last `n_rows` tokens over all of it.
    ///
    /// `q_frames` is `[n_frames, n_rows, n_heads, head_dim]`, see
    /// [`query_frames`](Self::query_frames); `segments` are in the order of the
    /// context and include the rows' own tokens at its end; `out` is
    /// `[n_rows, n_heads, head_dim]`. Row `i` sees all tokens up to its own, or
    /// those of its window.
    /// Segments may differ in type and in frame.
    ///
    /// # Panics
    /// When a shape does not fit, a frame is missing, or the segments hold fewer
    /// than `n_rows` tokens.
    pub fn segment_attention(
        &self,
        shape: &AttentionShape,
        q_frames: &[f32],
        segments: &[AttentionSegment<'_>],
        out: &mut [f32],
    ) {
        let plan = Plan::new(shape, segments);
        let frame_len = shape.n_rows * shape.n_heads * shape.head_dim;
        assert_eq!(out.len(), frame_len, "`out` does not fit {shape:?}");
        if frame_len == 0 {
            return;
        }
        assert!(q_frames.len().is_multiple_of(frame_len), "`q_frames` does not fit {shape:?}");
        for segment in segments {
            let known = q_frames.len() / frame_len;
            assert!(segment.frame < known, "frame {} of {known}", segment.frame);
        }
        let out = Shared::new(out);
        self.threads().for_each(shape.n_kv_heads * plan.n_tiles, |item| {
            // Tiles of the last tokens come first: they take longest.
            let tile = plan.n_tiles - 1 - item / shape.n_kv_heads;
            let (first_token, n_tokens) = plan.tokens(tile);
            let n_rows = n_tokens * plan.group;
            let tile_len = TILE_TOKENS * plan.padded_dim;
            let lens = [
                n_rows * plan.score_stride,
                n_rows * shape.head_dim,
                n_rows * plan.padded_dim,
                n_rows,
                tile_len,
                tile_len,
            ];
            with_scratch(lens, |[scores, queries, sums, inverses, wide, panel]| {
                self.run(Item {
                    plan: &plan,
                    segments,
                    q_frames,
                    kv_head: item % shape.n_kv_heads,
                    first_token,
                    n_tokens,
                    out,
                    scores,
                    queries,
                    sums,
                    inverses,
                    wide,
                    panel,
                });
            });
        });
    }
}

/// How an attention is cut into work items.
struct Plan {
    shape: AttentionShape,
    /// Query heads that share a KV head.
    group: usize,
    /// `head_dim`, rounded up to whole vectors.
    padded_dim: usize,
    /// Tokens of the context.
    n_context: usize,
    /// Elements from one row of scores to the next: the context, and room for
    /// the last vector to run over.
    score_stride: usize,
    /// Query tokens of a work item.
    tile_tokens: usize,
    n_tiles: usize,
}

impl Plan {
    fn new(shape: &AttentionShape, segments: &[AttentionSegment<'_>]) -> Self {
        let AttentionShape { n_rows, n_heads, n_kv_heads, head_dim, .. } = *shape;
        assert!(n_kv_heads > 0 && n_heads.is_multiple_of(n_kv_heads), "heads of {shape:?}");
        assert!(n_heads > 0 && head_dim > 0, "heads of {shape:?}");
        assert!(shape.window != Some(0), "a token sees itself at least");
        for segment in segments {
            let span = KvShape { n_kv_heads, n_tokens: segment.n_tokens, head_dim };
            KvSource { view: segment.k, head_stride: segment.head_stride }.check(span);
            KvSource { view: segment.v, head_stride: segment.head_stride }.check(span);
        }
        let n_context: usize = segments.iter().map(|segment| segment.n_tokens).sum();
        assert!(n_context >= n_rows, "{n_rows} rows in a context of {n_context}");
        let group = n_heads / n_kv_heads;
        let score_stride = score_stride(n_context);
        let item_rows = (ITEM_SCORES / score_stride).min(ITEM_ROWS);
        let tile_tokens = (item_rows / group).max(1);
        Plan {
            shape: *shape,
            group,
            padded_dim: head_dim.next_multiple_of(LANES),
            n_context,
            score_stride,
            tile_tokens,
            n_tiles: n_rows.div_ceil(tile_tokens),
        }
    }

    /// First query token of a tile, and how many.
    fn tokens(&self, tile: usize) -> (usize, usize) {
        let first = tile * self.tile_tokens;
        (first, self.tile_tokens.min(self.shape.n_rows - first))
    }

    /// First token that query token `token` sees.
    fn first_visible(&self, token: usize) -> usize {
        self.shape.window.map_or(0, |window| self.visible(token).saturating_sub(window))
    }

    /// End of the tokens that query token `token` sees.
    fn visible(&self, token: usize) -> usize {
        self.n_context - self.shape.n_rows + token + 1
    }
}

/// Room for `n_context` scores and a vector more, an odd number of cache lines
/// long so that the rows of a tile fall into different sets of the cache.
fn score_stride(n_context: usize) -> usize {
    let lines = n_context.div_ceil(LANES) + 1;
    (lines | 1) * LANES
}

/// One KV head and some query tokens; a row is a token and a query head.
struct Item<'a> {
    plan: &'a Plan,
    segments: &'a [AttentionSegment<'a>],
    q_frames: &'a [f32],
    kv_head: usize,
    first_token: usize,
    n_tokens: usize,
    out: Shared<'a, f32>,
    /// `[n_rows, score_stride]`: scores, then weights.
    scores: &'a mut [f32],
    /// `[n_rows, head_dim]`: queries of the current frame, scaled.
    queries: &'a mut [f32],
    /// `[n_rows, padded_dim]`
    sums: &'a mut [f32],
    /// `[n_rows]`: what the sums are multiplied by in the end.
    inverses: &'a mut [f32],
    /// `[TILE_TOKENS, padded_dim]`
    wide: &'a mut [f32],
    /// `[padded_dim, TILE_TOKENS]`
    panel: &'a mut [f32],
}

/// Tokens of a segment that share one widening.
#[derive(Clone, Copy)]
struct Tile {
    /// First token, in the segment.
    first: usize,
    n_tokens: usize,
    /// First token, in the context.
    at: usize,
}

impl Kernel for Item<'_> {
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        self.score::<L>();
        self.softmax::<L>();
        self.mix::<L>();
        self.write::<L>();
    }
}

impl Item<'_> {
    fn n_rows(&self) -> usize {
        self.n_tokens * self.plan.group
    }

    /// Tokens that the last row sees; no more are read.
    fn limit(&self) -> usize {
        self.plan.visible(self.first_token + self.n_tokens - 1)
    }

    /// First token that any row sees; tiles that end before it are not read.
    fn start(&self) -> usize {
        self.plan.first_visible(self.first_token)
    }

    /// Elements of a query or output row before this item's part of it.
    fn row_start(&self, token: usize) -> usize {
        let AttentionShape { n_heads, head_dim, .. } = self.plan.shape;
        ((self.first_token + token) * n_heads + self.kv_head * self.plan.group) * head_dim
    }

    #[inline(always)]
    fn score<L: Lanes>(&mut self) {
        let mut at = 0;
        let mut frame = usize::MAX;
        for segment in self.segments {
            let n_tokens = segment.n_tokens.min(self.limit() - at);
            if n_tokens > 0 && segment.frame != frame {
                frame = segment.frame;
                self.take_queries(frame);
            }
            for first in (0..n_tokens).step_by(TILE_TOKENS) {
                let n_tokens = TILE_TOKENS.min(n_tokens - first);
                let tile = Tile { first, n_tokens, at: at + first };
                if tile.at + n_tokens <= self.start() {
                    continue;
                }
                match segment.k {
                    KvView::F16(k) => self.widen::<L, u16>(k, segment, tile),
                    KvView::F32(k) => self.widen::<L, f32>(k, segment, tile),
                }
                self.transpose::<L>(n_tokens);
                self.score_tile::<L>(tile);
            }
            at += n_tokens;
        }
    }

    /// Copies this item's queries of a frame, scaled.
    #[inline(always)]
    fn take_queries(&mut self, frame: usize) {
        let AttentionShape { n_rows, n_heads, head_dim, scale, .. } = self.plan.shape;
        let q = &self.q_frames[frame * n_rows * n_heads * head_dim..];
        let width = self.plan.group * head_dim;
        for token in 0..self.n_tokens {
            let from = &q[self.row_start(token)..][..width];
            let to = &mut self.queries[token * width..][..width];
            for (to, from) in to.iter_mut().zip(from) {
                *to = from * scale;
            }
        }
    }

    /// Widens a tile of this item's KV head into `wide`. Elements that pad a
    /// token stay what they were: no chain that is used reads them.
    #[inline(always)]
    fn widen<L: Lanes, T: Element>(
        &mut self,
        from: &[T],
        segment: &AttentionSegment<'_>,
        tile: Tile,
    ) {
        let head_dim = self.plan.shape.head_dim;
        let start = self.kv_head * segment.head_stride + tile.first * head_dim;
        let from = &from[start..][..tile.n_tokens * head_dim];
        let padded_dim = self.plan.padded_dim;
        if head_dim == padded_dim {
            convert::<L, T, f32>(from, &mut self.wide[..tile.n_tokens * head_dim]);
        } else {
            for (i, from) in from.chunks_exact(head_dim).enumerate() {
                convert::<L, T, f32>(from, &mut self.wide[i * padded_dim..][..head_dim]);
            }
        }
    }

    /// Turns `wide` into `panel`. Tokens behind the last one are whatever was
    /// there; their scores are overwritten by the next tile or cut off.
    #[inline(always)]
    fn transpose<L: Lanes>(&mut self, n_tokens: usize) {
        let padded_dim = self.plan.padded_dim;
        for token in (0..n_tokens).step_by(LANES) {
            for dim in (0..padded_dim).step_by(LANES) {
                let from = &self.wide[token * padded_dim + dim..];
                let to = &mut self.panel[dim * TILE_TOKENS + token..];
                transpose_block::<L>(from, padded_dim, to, TILE_TOKENS);
            }
        }
    }

    #[inline(always)]
    fn score_tile<L: Lanes>(&mut self, tile: Tile) {
        let head_dim = self.plan.shape.head_dim;
        let extent =
            Extent { rows: self.n_rows(), inner: head_dim, vectors: tile.n_tokens.div_ceil(LANES) };
        let queries = Rows { data: self.queries, stride: head_dim };
        let k = Columns { data: self.panel, step: TILE_TOKENS, pair_stride: PANEL };
        let stride = self.plan.score_stride;
        let mut scores = Scores { rows: self.scores, stride, at: tile.at };
        product::<L, _>(queries, k, extent, &mut scores);
    }

    /// Turns the scores of each row into weights, and keeps what their sum is to
    /// be divided by.
    #[inline(always)]
    fn softmax<L: Lanes>(&mut self) {
        let limit = self.limit().next_multiple_of(LANES);
        // Whole vectors before any row's window have weight 0 in every row.
        let start = self.start() / LANES * LANES;
        for row in 0..self.n_rows() {
            let token = self.first_token + row / self.plan.group;
            let (first, visible) = (self.plan.first_visible(token), self.plan.visible(token));
            let scores = &mut self.scores[row * self.plan.score_stride..][..limit];
            scores[..start].fill(0.0);
            scores[start..first].fill(f32::NEG_INFINITY);
            scores[visible..].fill(f32::NEG_INFINITY);
            let mut largest = L::splat(f32::NEG_INFINITY);
            for i in (start..limit).step_by(LANES) {
                largest = largest.max(L::load(chunk(scores, i)));
            }
            let largest = L::splat(reduce_max(largest));
            let mut sum = L::splat(0.0);
            for i in (start..limit).step_by(LANES) {
                let weights = exp(L::load(chunk(scores, i)).sub(largest));
                weights.store(chunk_mut(scores, i));
                sum = sum.add(weights);
            }
            self.inverses[row] = 1.0 / reduce_add(sum);
        }
    }

    #[inline(always)]
    fn mix<L: Lanes>(&mut self) {
        self.sums.fill(0.0);
        let mut at = 0;
        for segment in self.segments {
            let n_tokens = segment.n_tokens.min(self.limit() - at);
            for first in (0..n_tokens).step_by(TILE_TOKENS) {
                let n_tokens = TILE_TOKENS.min(n_tokens - first);
                let tile = Tile { first, n_tokens, at: at + first };
                if tile.at + n_tokens <= self.start() {
                    continue;
                }
                match segment.v {
                    KvView::F16(v) => self.widen::<L, u16>(v, segment, tile),
                    KvView::F32(v) => self.widen::<L, f32>(v, segment, tile),
                }
                self.mix_tile::<L>(tile);
            }
            at += n_tokens;
        }
    }

    #[inline(always)]
    fn mix_tile<L: Lanes>(&mut self, tile: Tile) {
        let padded_dim = self.plan.padded_dim;
        let extent =
            Extent { rows: self.n_rows(), inner: tile.n_tokens, vectors: padded_dim / LANES };
        let weights = Rows { data: &self.scores[tile.at..], stride: self.plan.score_stride };
        let v = Columns { data: self.wide, step: padded_dim, pair_stride: PANEL };
        let mut sums = Sums { rows: self.sums, stride: padded_dim };
        product::<L, _>(weights, v, extent, &mut sums);
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "items write interleaved parts of `out`")]
    fn write<L: Lanes>(&mut self) {
        let AttentionShape { head_dim, .. } = self.plan.shape;
        let padded_dim = self.plan.padded_dim;
        for row in 0..self.n_rows() {
            let (token, head) = (row / self.plan.group, row % self.plan.group);
            let start = self.row_start(token) + head * head_dim;
            let inverse = L::splat(self.inverses[row]);
            let sums = &mut self.sums[row * padded_dim..][..padded_dim];
            for i in (0..padded_dim).step_by(LANES) {
                // Adding 0 makes a zero positive: its sign may depend on tokens
                // of weight 0.
                let value = L::load(chunk(sums, i)).fma(inverse, L::splat(0.0));
                value.store(chunk_mut(sums, i));
            }
            // SAFETY: rows of one item are distinct tokens and heads, and items
            // have disjoint heads or tokens.
            let out = unsafe { self.out.claim(start, head_dim) };
            out.copy_from_slice(&sums[..head_dim]);
        }
    }
}

/// Puts scores where they belong in the rows of the context.
struct Scores<'a> {
    rows: &'a mut [f32],
    stride: usize,
    at: usize,
}

impl Sink for Scores<'_> {
    const STREAMS: bool = false;

    #[inline(always)]
    fn start<L: Lanes>(&self, _row: usize, _vector: usize) -> L {
        L::splat(0.0)
    }

    #[inline(always)]
    fn finish<L: Lanes>(&mut self, row: usize, vector: usize, value: L) {
        let start = row * self.stride + self.at + vector * LANES;
        value.store(chunk_mut(self.rows, start));
    }
}

/// Takes up the sums of earlier tiles and puts them back.
struct Sums<'a> {
    rows: &'a mut [f32],
    stride: usize,
}

impl Sink for Sums<'_> {
    const STREAMS: bool = false;

    #[inline(always)]
    fn start<L: Lanes>(&self, row: usize, vector: usize) -> L {
        L::load(chunk(self.rows, row * self.stride + vector * LANES))
    }

    #[inline(always)]
    fn finish<L: Lanes>(&mut self, row: usize, vector: usize, value: L) {
        value.store(chunk_mut(self.rows, row * self.stride + vector * LANES));
    }
}
