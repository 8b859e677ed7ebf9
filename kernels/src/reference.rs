//! The slow, obvious version of each operation, in `f64`.
//!
//! It is what backends are compared with, and the place to read what an
//! operation means.
//!
//! **Invariant:** shares no arithmetic with a backend. Moved segments are
//! handled the other way round: K is rotated to where it was placed, where
//! backends rotate queries.
//!
//! **Refuses:** speed.

use half::f16;
use skillgraft_kv::{KvView, PositionDelta, RopePairing};

use crate::{AttentionShape, Gate, KvShape, KvSource, RopeTable};

/// `x W^T + bias`: `x` is `[m, n_in]`, `weights` `[n_out, n_in]`; the result is
/// `[m, n_out]`.
///
/// # Panics
/// When a shape does not fit.
pub fn linear(x: &[f32], weights: &[f32], n_in: usize, bias: Option<&[f32]>) -> Vec<f64> {
    let mut y = Vec::new();
    for x in x.chunks_exact(n_in) {
        for (i, row) in weights.chunks_exact(n_in).enumerate() {
            let products = x.iter().zip(row).map(|(&x, &w)| f64::from(x) * f64::from(w));
            y.push(products.sum::<f64>() + bias.map_or(0.0, |bias| f64::from(bias[i])));
        }
    }
    y
}

/// `x / rms(x) * weight` for each row of `x`, `[m, weight.len()]`.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let mut out = Vec::new();
    for row in x.chunks_exact(weight.len()) {
        let squares: f64 = row.iter().map(|&x| f64::from(x).powi(2)).sum();
        let rms = (squares / row.len() as f64 + f64::from(eps)).sqrt();
        out.extend(row.iter().zip(weight).map(|(&x, &w)| f64::from(x) / rms * f64::from(w)));
    }
    out
}

/// `gate(g) * up`, element by element.
pub fn gated(gate: Gate, g: &[f32], up: &[f32]) -> Vec<f64> {
    let activate = |x: f64| match gate {
        Gate::Silu => x / (1.0 + (-x).exp()),
        Gate::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            x / 2.0 * (1.0 + inner.tanh())
        }
    };
    g.iter().zip(up).map(|(&g, &up)| activate(f64::from(g)) * f64::from(up)).collect()
}

/// Rotates one head in place to `position`, times `scaling`.
pub fn rotate_head(head: &mut [f64], table: &RopeTable, position: i64, scaling: f64) {
    let n_pairs = table.rotary_dim() / 2;
    for (i, inv_freq) in table.inv_freq().iter().enumerate() {
        let (first, second) = match table.pairing() {
            RopePairing::HalfSplit => (i, i + n_pairs),
            RopePairing::Interleaved => (2 * i, 2 * i + 1),
        };
        let (sin, cos) = (position as f64 * inv_freq).sin_cos();
        let (a, b) = (head[first], head[second]);
        head[first] = (a * cos - b * sin) * scaling;
        head[second] = (b * cos + a * sin) * scaling;
    }
}

/// Rotates `x`, `[n_rows, n_heads, head_dim]`, row `i` to `positions[i]`,
/// attention scaling included.
pub fn rotate(x: &[f32], n_heads: usize, table: &RopeTable, positions: &[i64]) -> Vec<f64> {
    let mut out = widen(x);
    let width = out.len() / positions.len();
    for (row, &position) in out.chunks_exact_mut(width).zip(positions) {
        for head in row.chunks_exact_mut(width / n_heads) {
            rotate_head(head, table, position, table.attention_scaling());
        }
    }
    out
}

/// K rotated by `delta`, contiguous: `[n_kv_heads, n_tokens, head_dim]`.
pub fn relocate(
    table: &RopeTable,
    delta: PositionDelta,
    source: KvSource<'_>,
    shape: KvShape,
) -> Vec<f64> {
    let mut out = gather(source, shape);
    for head in out.chunks_exact_mut(shape.head_dim) {
        rotate_head(head, table, i64::from(delta.0), 1.0);
    }
    out
}

/// K and V of a span of the context, moved by `delta` since K was rotated.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// K, rotated for where it was computed.
    pub k: KvSource<'a>,
    /// V.
    pub v: KvSource<'a>,
    /// Tokens.
    pub n_tokens: usize,
    /// Placed position minus computed position.
    pub delta: PositionDelta,
}

/// Causal attention of queries at `positions`, the last of the context, over
/// all of it, or over the window that each sees. `q` is `[n_rows, n_heads, head_dim]`, not rotated; so is the
/// result.
pub fn segment_attention(
    shape: &AttentionShape,
    table: &RopeTable,
    q: &[f32],
    positions: &[i64],
    segments: &[Segment<'_>],
) -> Vec<f64> {
    let AttentionShape { n_rows, n_heads, n_kv_heads, head_dim, scale, window } = *shape;
    let mut out = Vec::new();
    let q = rotate(q, n_heads, table, positions);
    let n_context: usize = segments.iter().map(|segment| segment.n_tokens).sum();
    for (i, q) in q.chunks_exact(head_dim).enumerate() {
        let (row, kv_head) = (i / n_heads, i % n_heads / (n_heads / n_kv_heads));
        let mut keys = Vec::new();
        let mut values = Vec::new();
        for segment in segments {
            let span = KvShape { n_kv_heads, n_tokens: segment.n_tokens, head_dim };
            let len = segment.n_tokens * head_dim;
            let head = kv_head * len..(kv_head + 1) * len;
            keys.extend_from_slice(&relocate(table, segment.delta, segment.k, span)[head.clone()]);
            values.extend_from_slice(&gather(segment.v, span)[head]);
        }
        let end = n_context - n_rows + row + 1;
        let start = window.map_or(0, |window| end.saturating_sub(window));
        let scores: Vec<f64> = keys[start * head_dim..end * head_dim]
            .chunks_exact(head_dim)
            .map(|k| q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() * f64::from(scale))
            .collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        out.extend((0..head_dim).map(|d| {
            let column = values[start * head_dim..].iter().skip(d).step_by(head_dim);
            weights.iter().zip(column).map(|(weight, v)| weight * v).sum::<f64>() / sum
        }));
    }
    out
}

fn widen(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// The elements of `source`, contiguous: `[n_kv_heads, n_tokens, head_dim]`.
fn gather(source: KvSource<'_>, shape: KvShape) -> Vec<f64> {
    let len = shape.n_tokens * shape.head_dim;
    let head =
        |head: usize| source.view.slice(head * source.head_stride, head * source.head_stride + len);
    (0..shape.n_kv_heads)
        .flat_map(|i| match head(i) {
            KvView::F16(bits) => bits.iter().map(|&b| f16::from_bits(b).to_f64()).collect(),
            KvView::F32(values) => widen(values),
        })
        .collect()
}
