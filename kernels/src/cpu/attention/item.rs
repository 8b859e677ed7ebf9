//! One work item of an attention: scores, softmax, sum of values.

use super::rows::{Context, KvRow, Registers, Scaled, words_across};
use super::{AttentionSegment, AttentionShape, Plan, TILE_TOKENS};
use crate::cpu::dispatch::ProductKernel;
use crate::cpu::lanes::{
    LANES, Lanes, Operands, chunk, chunk_mut, exp, reduce_add, reduce_max, transpose_block,
};
use crate::cpu::shared::Shared;
use crate::cpu::tile::{Columns, Extent, Matrix, PANEL, Rows};

/// One KV head and some query tokens; a row is a token and a query head. A word
/// is what [`Operands`] says, an `f32` or two shorter numbers.
pub(super) struct Item<'a> {
    pub(super) plan: &'a Plan,
    pub(super) segments: &'a [AttentionSegment<'a>],
    pub(super) q_frames: &'a [f32],
    pub(super) kv_head: usize,
    pub(super) first_token: usize,
    pub(super) n_tokens: usize,
    pub(super) out: Shared<'a, f32>,
    /// `[n_rows, score_stride]`: scores, then weights, then words of weights.
    pub(super) scores: &'a mut [f32],
    /// `[n_rows, padded_dim]`: words of the current frame's queries, scaled.
    pub(super) queries: &'a mut [f32],
    /// `[n_rows, padded_dim]`
    pub(super) sums: &'a mut [f32],
    /// `[n_rows]`: what the sums are multiplied by in the end.
    pub(super) inverses: &'a mut [f32],
    /// `[TILE_TOKENS, padded_dim]`: words of a tile of K or V.
    pub(super) tokens: &'a mut [f32],
    /// `[padded_dim, TILE_TOKENS]`: words of a tile of K, transposed.
    pub(super) panel: &'a mut [f32],
}

impl ProductKernel for Item<'_> {
    #[inline(always)]
    fn run<L: Lanes, O: Operands<L>>(mut self, mut operands: O) {
        self.score::<L, O>(&mut operands);
        self.softmax::<L, O>();
        self.mix::<L, O>(&mut operands);
        self.write::<L>();
    }
}

/// Tokens of a segment that are scored together.
#[derive(Clone, Copy)]
struct Tile {
    /// First token, in the segment.
    first: usize,
    n_tokens: usize,
    /// First token, in the context.
    at: usize,
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
    fn score<L: Lanes, O: Operands<L>>(&mut self, operands: &mut O) {
        let mut at = 0;
        let mut frame = usize::MAX;
        for segment in self.segments {
            let n_tokens = segment.n_tokens.min(self.limit() - at);
            if n_tokens > 0 && segment.frame != frame {
                frame = segment.frame;
                self.take_queries::<L, O>(frame);
            }
            for first in (0..n_tokens).step_by(TILE_TOKENS) {
                let n_tokens = TILE_TOKENS.min(n_tokens - first);
                let tile = Tile { first, n_tokens, at: at + first };
                if tile.at + n_tokens <= self.start() {
                    continue;
                }
                self.take_keys::<L, O>(segment, tile);
                self.score_tile::<L, O>(operands, tile);
            }
            at += n_tokens;
        }
    }

    /// Words of this item's queries of a frame, scaled.
    #[inline(always)]
    fn take_queries<L: Lanes, O: Operands<L>>(&mut self, frame: usize) {
        let AttentionShape { n_rows, n_heads, head_dim, scale, .. } = self.plan.shape;
        let q = &self.q_frames[frame * n_rows * n_heads * head_dim..];
        let padded_dim = self.plan.padded_dim;
        for row in 0..self.n_rows() {
            let (token, head) = (row / self.plan.group, row % self.plan.group);
            let from = &q[self.row_start(token) + head * head_dim..][..head_dim];
            let from = Scaled { row: from, scale: L::splat(scale) };
            let to = &mut self.queries[row * padded_dim..][..padded_dim];
            for i in 0..vectors::<L, O>(head_dim) {
                O::along(&from, i).store(chunk_mut(to, i * LANES));
            }
        }
    }

    /// Words of a tile of this item's keys, transposed into `panel`. Tokens
    /// behind the last one are whatever was there; their scores are overwritten
    /// by the next tile or cut off.
    #[inline(always)]
    fn take_keys<L: Lanes, O: Operands<L>>(&mut self, segment: &AttentionSegment<'_>, tile: Tile) {
        let head_dim = self.plan.shape.head_dim;
        let vectors = vectors::<L, O>(head_dim);
        // Only as wide as the words, so that tokens of whole vectors lie without
        // gaps, as they do in the segment.
        let width = vectors * LANES;
        let start = self.kv_head * segment.head_stride + tile.first * head_dim;
        let shape = [tile.n_tokens, head_dim];
        KvRow::words_of::<L, O>(segment.k, start, shape, width, self.tokens);
        for token in (0..tile.n_tokens).step_by(LANES) {
            for i in 0..vectors {
                let from = &self.tokens[token * width + i * LANES..];
                let to = &mut self.panel[i * LANES * TILE_TOKENS + token..];
                transpose_block::<L>(from, width, to, TILE_TOKENS);
            }
        }
    }

    #[inline(always)]
    fn score_tile<L: Lanes, O: Operands<L>>(&mut self, operands: &mut O, tile: Tile) {
        let inner = self.plan.shape.head_dim.div_ceil(O::PER_WORD);
        let extent = Extent { rows: self.n_rows(), inner, vectors: tile.n_tokens.div_ceil(LANES) };
        let queries = Rows { data: self.queries, stride: self.plan.padded_dim };
        let k = Columns { data: self.panel, step: TILE_TOKENS, pair_stride: PANEL };
        let stride = self.plan.score_stride;
        let mut scores = Matrix { rows: self.scores, stride, at: tile.at, adds: false };
        operands.product(queries, k, extent, &mut scores);
    }

    /// Turns the scores of each row into weights, keeps what their sum is to be
    /// divided by, and makes words of the weights.
    #[inline(always)]
    fn softmax<L: Lanes, O: Operands<L>>(&mut self) {
        let step = LANES * O::PER_WORD;
        let limit = self.limit().next_multiple_of(step);
        // Whole vectors before any row's window have weight 0 in every row.
        let start = self.start() / step * step;
        for row in 0..self.n_rows() {
            let token = self.first_token + row / self.plan.group;
            let (first, visible) = (self.plan.first_visible(token), self.plan.visible(token));
            let scores = &mut self.scores[row * self.plan.score_stride..][..limit];
            scores[..start].fill(0.0);
            scores[start..first].fill(f32::NEG_INFINITY);
            scores[visible..].fill(f32::NEG_INFINITY);
            let largest = L::splat(largest::<L>(&scores[start..]));
            let mut sum = L::splat(0.0);
            for i in (start..limit).step_by(step) {
                let mut weights = [L::splat(0.0); 2];
                for (j, weights) in weights[..O::PER_WORD].iter_mut().enumerate() {
                    let scores = L::load(chunk(scores, i + j * LANES));
                    *weights = exp(scores.sub(largest));
                    sum = sum.add(*weights);
                }
                // Words lie no further back than the weights they are made of.
                O::along(&Registers(weights), 0).store(chunk_mut(scores, i / O::PER_WORD));
            }
            self.inverses[row] = 1.0 / reduce_add(sum);
        }
    }

    /// Tiles of values begin at multiples of their length in the context, so that
    /// a word holds the same tokens however the context is cut.
    #[inline(always)]
    fn mix<L: Lanes, O: Operands<L>>(&mut self, operands: &mut O) {
        self.sums.fill(0.0);
        let limit = self.limit();
        let mut context = Context::new(self.segments, self.kv_head, self.plan.shape.head_dim);
        for at in (self.start() / TILE_TOKENS * TILE_TOKENS..limit).step_by(TILE_TOKENS) {
            let end = limit.min(at + TILE_TOKENS);
            self.take_values::<L, O>(&mut context, at, end);
            self.mix_tile::<L, O>(operands, at, end);
        }
    }

    /// Words of this item's values of tokens `at..end`, `[n_words, padded_dim]`.
    #[inline(always)]
    fn take_values<L: Lanes, O: Operands<L>>(
        &mut self,
        context: &mut Context<'_>,
        at: usize,
        end: usize,
    ) {
        let AttentionShape { head_dim, .. } = self.plan.shape;
        let padded_dim = self.plan.padded_dim;
        if O::PER_WORD == 1 {
            let mut token = at;
            while token < end {
                let (view, start, left) = context.find(token);
                let n_tokens = left.min(end - token);
                let to = &mut self.tokens[(token - at) * padded_dim..];
                KvRow::words_of::<L, O>(view, start, [n_tokens, head_dim], padded_dim, to);
                token += n_tokens;
            }
            return;
        }
        // Words behind the last token's are read, up to a multiple of sixteen.
        let all = at..at + (end - at).next_multiple_of(O::PER_WORD * LANES);
        let words = self.tokens.chunks_exact_mut(padded_dim);
        for (first, to) in all.step_by(O::PER_WORD).zip(words) {
            let mut steps = [KvRow::Nothing; 2];
            for (i, step) in steps.iter_mut().enumerate() {
                if first + i < end {
                    *step = context.value(first + i);
                }
            }
            words_across::<L, O>(steps, head_dim, to);
        }
    }

    #[inline(always)]
    fn mix_tile<L: Lanes, O: Operands<L>>(&mut self, operands: &mut O, at: usize, end: usize) {
        let padded_dim = self.plan.padded_dim;
        let extent = Extent {
            rows: self.n_rows(),
            inner: (end - at).div_ceil(O::PER_WORD),
            vectors: self.plan.shape.head_dim.div_ceil(LANES),
        };
        let weights =
            Rows { data: &self.scores[at / O::PER_WORD..], stride: self.plan.score_stride };
        let v = Columns { data: self.tokens, step: padded_dim, pair_stride: PANEL };
        let mut sums = Matrix { rows: self.sums, stride: padded_dim, at: 0, adds: true };
        operands.product(weights, v, extent, &mut sums);
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

/// Vectors of words that a chain over `head_dim` takes.
#[inline(always)]
fn vectors<L: Lanes, O: Operands<L>>(head_dim: usize) -> usize {
    head_dim.div_ceil(LANES * O::PER_WORD)
}

/// The largest of some scores, a multiple of sixteen of them.
#[inline(always)]
fn largest<L: Lanes>(scores: &[f32]) -> f32 {
    // Four at a time, since each waits for the one before it.
    let mut largest = [L::splat(f32::NEG_INFINITY); 4];
    let (fours, rest) = scores.as_chunks::<{ 4 * LANES }>();
    for four in fours {
        for (i, largest) in largest.iter_mut().enumerate() {
            *largest = largest.max(L::load(chunk(four, i * LANES)));
        }
    }
    let [mut all, b, c, d] = largest;
    for i in (0..rest.len()).step_by(LANES) {
        all = all.max(L::load(chunk(rest, i)));
    }
    reduce_max(all.max(b).max(c.max(d)))
}
