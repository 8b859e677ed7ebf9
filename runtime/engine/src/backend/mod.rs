//! What the decoder asks of a device: about a dozen coarse operations.
//!
//! The decoder is written once against [`Backend`]. Activations are opaque to
//! it, so that a CPU backend can work on plain buffers and a GPU backend on
//! device memory. Rows of several sequences may be computed together: all
//! operations but attention see rows only.

mod cpu;

use std::fmt;

use skillgraft_kernels::{Angles, Coding, Gate, QueryFrames, RopeTable, WeightBlock};
use skillgraft_kv::{KvBuffer, KvGeometry, LayerIdx, TokenId, TokenSpan};

pub use cpu::{CpuBackend, CpuPage};

use crate::cache::{CacheSegment, SegmentedCache};

/// A device that runs the decoder.
pub trait Backend: Send + Sync + Sized + fmt::Debug + 'static {
    /// The weights of a linear map, packed as the device likes them.
    type Linear: Send + Sync;
    /// The weights of a norm, or a bias.
    type Vector: Send + Sync;
    /// Activations, `[n_rows, width]`, f32.
    type Hidden;
    /// Room for K and V of some tokens, in all layers.
    type Page: Send + Sync + fmt::Debug;

    /// Opens the device.
    fn new(options: &BackendOptions) -> Self;

    /// Names the arithmetic: results of two backends with the same name are
    /// bit-identical. Part of a block's key.
    fn arithmetic(&self) -> String;

    /// Packs weights `[n_out, n_in]`; `fill` writes one row of them, `[n_in]`,
    /// and is called once a row, from several threads.
    fn pack_linear(
        &self,
        n_out: usize,
        n_in: usize,
        fill: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) -> Self::Linear;

    /// Whether it multiplies with quantised weights as they are.
    fn takes_blocks(&self) -> bool;

    /// Packs quantised weights `[n_out, n_in]`; `fill` writes the blocks of one
    /// row, `[n_in / 32]`, and is called once a row, from several threads.
    /// Called only where [`takes_blocks`](Self::takes_blocks).
    fn pack_blocks(
        &self,
        n_out: usize,
        n_in: usize,
        coding: Coding,
        fill: &(dyn Fn(usize, &mut [WeightBlock]) + Sync),
    ) -> Self::Linear;

    /// Bytes of packed weights that a product reads.
    fn linear_bytes(&self, weights: &Self::Linear) -> usize;

    /// Takes the weights of a norm, or a bias, `[width]`.
    fn pack_vector(&self, values: Vec<f32>) -> Self::Vector;

    /// An empty page for `capacity` tokens.
    fn new_page(&self, geometry: KvGeometry, capacity: usize) -> Self::Page;

    /// Rows of the embedding table, times `scale`, `[n_rows, hidden_dim]`.
    fn embed(&self, table: &Self::Linear, tokens: &[TokenId], scale: f32) -> Self::Hidden;

    /// RMS norm of every row (Zhang and Sennrich 2019).
    fn rms_norm(&self, x: &Self::Hidden, norm: &Self::Vector, eps: f32) -> Self::Hidden;

    /// RMS norm of some heads of every row, each on its own, in place.
    fn head_norm(&self, x: &mut Self::Hidden, heads: HeadSpan, norm: &Self::Vector, eps: f32);

    /// `x W^T + bias`, `[n_rows, n_out]`.
    fn linear(
        &self,
        x: &Self::Hidden,
        weights: &Self::Linear,
        bias: Option<&Self::Vector>,
    ) -> Self::Hidden;

    /// `sum += x`.
    fn add(&self, x: &Self::Hidden, sum: &mut Self::Hidden);

    /// `sum += x W^T`.
    fn linear_add(&self, x: &Self::Hidden, weights: &Self::Linear, sum: &mut Self::Hidden);

    /// `gate(x G^T) * (x U^T)`, `[n_rows, n]`, where `gate_up` is G and U, one
    /// below the other, `2n` rows together.
    fn gated(&self, x: &Self::Hidden, gate_up: &Self::Linear, gate: Gate) -> Self::Hidden;

    /// Rotates the K and V rows of each sequence and puts them into its cache,
    /// then attends: every row sees its own sequence up to itself, the rows that
    /// are before it included. A row of `qkv` is
    /// its queries, keys and values, not rotated:
    /// `[n_rows, (n_heads + 2 n_kv_heads) * head_dim]`. Returns
    /// `[n_rows, n_heads * head_dim]`.
    fn attention(
        &self,
        attention: &AttentionSpec,
        qkv: Self::Hidden,
        sequences: &mut [Sequence<'_, Self>],
    ) -> Self::Hidden;

    /// Logits of the named rows, `[rows.len(), vocab_size]`.
    fn logits(&self, x: &Self::Hidden, rows: &[usize], head: &Self::Linear) -> Vec<f32>;

    /// Copies K and V of some tokens of a segment's layer behind the tokens already in
    /// `k` and `v`, which are `[n_kv_heads, capacity, head_dim]` with `at` tokens
    /// filled. K is rotated on by `rope` to where the segment is placed; without one
    /// it is copied as it is.
    fn copy_segment(
        &self,
        segment: &CacheSegment<Self>,
        copy: &SegmentCopy,
        rope: Option<&RopeTable>,
        k: &mut KvBuffer,
        v: &mut KvBuffer,
    );
}

/// What attention needs to know about the model and the layer.
#[derive(Debug, Clone)]
pub struct AttentionSpec {
    /// The layer whose K and V are written and read.
    pub layer: LayerIdx,
    /// Query heads.
    pub n_heads: usize,
    /// KV heads.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Scale of the scores.
    pub scale: f32,
    /// Which of the model's rotations the layer uses.
    pub rope: usize,
    /// How far back a token sees: positions above its own minus this. `None` for
    /// all of them.
    pub window: Option<usize>,
}

/// Some heads of a row, one after another.
#[derive(Debug, Clone, Copy)]
pub struct HeadSpan {
    /// Element of the row that the first begins at.
    pub at: usize,
    /// Heads.
    pub n_heads: usize,
}

/// The rows of one sequence in a forward pass.
#[derive(Debug)]
pub struct Sequence<'a, B: Backend> {
    /// Its context, with room for the rows.
    pub cache: &'a mut SegmentedCache<B>,
    /// Its rows, in the order of the context.
    pub runs: Vec<Run>,
}

/// Rows that follow one another in the context.
#[derive(Debug)]
pub struct Run {
    /// Which they are among all rows of the pass.
    pub rows: std::ops::Range<usize>,
    /// Where they are in the context.
    pub span: TokenSpan,
    /// One for each of the model's rotations.
    pub turns: Vec<Turns>,
}

/// How the rows of one run are rotated under one of the model's rotations.
#[derive(Debug)]
pub struct Turns {
    /// Angles of the rows' positions: what K is rotated by.
    pub angles: Angles,
    /// Where queries are rotated to, once for each distance at which blocks of
    /// the context are used.
    pub frames: QueryFrames,
}

/// A copy out of a segment.
#[derive(Debug, Clone, Copy)]
pub struct SegmentCopy {
    /// Which layer.
    pub layer: LayerIdx,
    /// First token of the segment to copy.
    pub from: usize,
    /// Number of tokens.
    pub n_tokens: usize,
    /// Token of the destination where the copy begins.
    pub at: usize,
    /// Tokens of the destination.
    pub capacity: usize,
}

/// What a user may choose about a backend.
#[derive(Debug, Clone, Copy, Default)]
pub struct BackendOptions {
    /// Threads; `None` takes as many as the process may use.
    pub n_threads: Option<usize>,
    /// Unpack quantised weights and compute in `f32` throughout: the weights'
    /// exact numbers, with four to eight times the memory.
    pub strict_f32: bool,
}
