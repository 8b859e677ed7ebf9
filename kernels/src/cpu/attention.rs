//! Attention over a context that lies in segments.
//!
//! A segment's K was rotated for the positions it was computed at. Where it was
//! moved since, queries read it through another frame: rotated by that much
//! less. So a block is used as it lies, and nothing of it is rewritten.
//!
//! A work item is one KV head and some query tokens, with all query heads that
//! share it: for each tile of tokens, K is made into words and transposed once and
//! multiplied by all rows; when all scores are known, one softmax; then V tile by
//! tile. What a word is depends on the machine ([`AttentionFactors`]): a number of
//! 32 bits, or two of bfloat16.
//!
//! **Invariant:** a score is one chain over `head_dim`. The softmax of a row takes
//! the maximum of the whole row, then the same polynomial for each score, then the
//! sum in sixteen lanes by the token's index in the context. An output is one chain
//! over the tokens in the order of the context, which is stored and taken up again
//! at each tile. None of it knows where segments, pages or tiles begin: words and
//! steps of a chain are counted from the context's beginning. That is why scores
//! are kept for the whole context, and not folded tile by tile into an online
//! softmax.
//!
//! [`AttentionFactors`]: crate::AttentionFactors
//!
//! **Refuses:** K or V that is not finite: a token behind a row's own has weight
//! 0 there, and 0 times infinity is not 0.

mod item;
mod rows;

use skillgraft_kv::KvView;

use item::Item;

use crate::cpu::buffer::with_scratch;
use crate::cpu::dispatch::Cpu;
use crate::cpu::kv::{KvShape, KvSource};
use crate::cpu::lanes::LANES;
use crate::cpu::shared::Shared;
use crate::cpu::tile::PANEL;

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
                n_rows * plan.padded_dim,
                n_rows * plan.padded_dim,
                n_rows,
                tile_len,
                tile_len,
            ];
            with_scratch(lens, |[scores, queries, sums, inverses, tokens, panel]| {
                self.run_product(Item {
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
                    tokens,
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
    /// `head_dim`, rounded up to pairs of vectors.
    padded_dim: usize,
    /// Tokens of the context.
    n_context: usize,
    /// Elements from one row of scores to the next: the context, and room for
    /// the last vectors to run over.
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
            padded_dim: head_dim.next_multiple_of(PANEL),
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

/// Room for `n_context` scores and two vectors more, an odd number of cache lines
/// long so that the rows of a tile fall into different sets of the cache.
fn score_stride(n_context: usize) -> usize {
    let lines = n_context.div_ceil(LANES) + 2;
    (lines | 1) * LANES
}
