//! What is done to each element or each row: norm, gate, sum.
//!
//! **Invariant:** a row's sum of squares is taken in sixteen lanes by the
//! element's index, then by a fixed tree; all else is element by element.
//!
//! **Refuses:** shapes; a row is a run of elements.

use crate::cpu::dispatch::{Cpu, Kernel};
use crate::cpu::lanes::{LANES, Lanes, chunk, chunk_mut, exp, padded, reduce_add};
use crate::cpu::rotate::HeadRows;

/// The activation of a gated MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// `x / (1 + e^-x)` (SwiGLU, Shazeer 2020).
    Silu,
    /// GELU by its approximation with tanh (Hendrycks and Gimpel 2016):
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
    GeluTanh,
}

/// Elements of one work item: enough to be worth a thread.
const ITEM_ELEMENTS: usize = 1 << 15;

impl Cpu {
    /// `out = x / rms(x) * weight` for each row: `x` and `out` are `[m, n]`,
    /// `weight` is `[n]`; the mean of squares has `eps` added.
    ///
    /// # Panics
    /// When `weight` is empty or a shape does not fit.
    pub fn rms_norm(&self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let n = weight.len();
        assert!(n > 0 && x.len().is_multiple_of(n), "x is not [m, {n}]");
        assert_eq!(out.len(), x.len(), "`out` is not like `x`");
        let item_len = (ITEM_ELEMENTS / n).max(1) * n;
        self.threads().for_each_chunk(out, item_len, |i, out| {
            let x = &x[i * item_len..][..out.len()];
            self.run(RmsNorm { x, weight, eps, out });
        });
    }

    /// RMS norm of each head of each row, in place: `x` holds `n_rows` rows,
    /// `[n_heads, weight.len()]`, `row_stride` elements apart; what lies between
    /// rows is left alone.
    ///
    /// # Panics
    /// When `weight` is empty or a shape does not fit.
    pub fn head_norm(
        &self,
        x: &mut [f32],
        row_stride: usize,
        n_rows: usize,
        n_heads: usize,
        weight: &[f32],
        eps: f32,
    ) {
        let width = n_heads * weight.len();
        assert!(width > 0, "{n_heads} heads of {}", weight.len());
        HeadRows { data: x, row_stride }.check(n_rows, width);
        let used = x.len().min(n_rows * row_stride);
        let item_rows = (ITEM_ELEMENTS / width).max(1);
        self.threads().for_each_chunk(&mut x[..used], item_rows * row_stride, |_, rows| {
            for row in rows.chunks_mut(row_stride) {
                self.run(HeadNorm { heads: &mut row[..width], weight, eps });
            }
        });
    }

    /// `out = gate(g) * up` where one linear layer gave both: a row of `gate_up`,
    /// `[m, 2 n]`, is `n` values of `g`, then `n` ups; `out` is `[m, n]`.
    ///
    /// # Panics
    /// When `n` is 0 or a shape does not fit.
    pub fn gated(&self, gate: Gate, gate_up: &[f32], n: usize, out: &mut [f32]) {
        assert!(n > 0 && out.len().is_multiple_of(n), "`out` is not [m, {n}]");
        assert_eq!(gate_up.len(), 2 * out.len(), "`gate_up` is not [m, 2 * {n}]");
        let item_rows = (ITEM_ELEMENTS / n).max(1);
        self.threads().for_each_chunk(out, item_rows * n, |i, out| {
            for (j, out) in out.chunks_mut(n).enumerate() {
                let row = &gate_up[(i * item_rows + j) * 2 * n..][..2 * n];
                let (g, up) = row.split_at(n);
                match gate {
                    Gate::Silu => self.run(Gated { kind: Silu, g, up, out }),
                    Gate::GeluTanh => self.run(Gated { kind: GeluTanh, g, up, out }),
                }
            }
        });
    }

    /// `x += y`, element by element.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn add(&self, x: &mut [f32], y: &[f32]) {
        assert_eq!(x.len(), y.len(), "`y` is not like `x`");
        self.threads().for_each_chunk(x, ITEM_ELEMENTS, |i, x| {
            let y = &y[i * ITEM_ELEMENTS..][..x.len()];
            self.run(Add { x, y });
        });
    }
}

/// `1 / rms(x)`, with `eps` added to the mean of squares.
#[inline(always)]
fn rms_scale<L: Lanes>(x: &[f32], eps: f32) -> f32 {
    let whole = x.len() - x.len() % LANES;
    let mut squares = L::splat(0.0);
    for i in (0..whole).step_by(LANES) {
        let x = L::load(chunk(x, i));
        squares = x.fma(x, squares);
    }
    let tail = L::load(&padded(x, whole, 0.0));
    let mean = reduce_add(tail.fma(tail, squares)) / x.len() as f32;
    1.0 / (mean + eps).sqrt()
}

/// Some whole rows.
struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let n = self.weight.len();
        for (x, out) in self.x.chunks_exact(n).zip(self.out.chunks_exact_mut(n)) {
            let scale = rms_scale::<L>(x, self.eps);
            for ((out, &x), &weight) in out.iter_mut().zip(x).zip(self.weight) {
                *out = x * scale * weight;
            }
        }
    }
}

/// The heads of one row, one after another.
struct HeadNorm<'a> {
    heads: &'a mut [f32],
    weight: &'a [f32],
    eps: f32,
}

impl Kernel for HeadNorm<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        for head in self.heads.chunks_exact_mut(self.weight.len()) {
            let scale = rms_scale::<L>(head, self.eps);
            for (x, &weight) in head.iter_mut().zip(self.weight) {
                *x = *x * scale * weight;
            }
        }
    }
}

struct Gated<'a, F> {
    kind: F,
    g: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

/// An activation, lane by lane.
trait Activate: Copy {
    /// What `x` is multiplied by the logistic function of.
    fn inner<L: Lanes>(self, x: L) -> L;
}

#[derive(Clone, Copy)]
struct Silu;

impl Activate for Silu {
    #[inline(always)]
    fn inner<L: Lanes>(self, x: L) -> L {
        x
    }
}

#[derive(Clone, Copy)]
struct GeluTanh;

impl Activate for GeluTanh {
    /// `(1 + tanh(u)) / 2` is the logistic function of `2 u`.
    #[inline(always)]
    fn inner<L: Lanes>(self, x: L) -> L {
        /// `2 sqrt(2 / pi)`
        const FACTOR: f32 = 1.595_769_2;
        let cubic = x.mul(x).fma(L::splat(0.044_715), L::splat(1.0));
        x.mul(cubic).mul(L::splat(FACTOR))
    }
}

/// `g / (1 + e^-inner(g)) * up`
#[inline(always)]
fn gate_mul<L: Lanes>(kind: impl Activate, g: L, up: L) -> L {
    let e = exp(L::splat(0.0).sub(kind.inner(g)));
    g.div(L::splat(1.0).add(e)).mul(up)
}

impl<F: Activate> Kernel for Gated<'_, F> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let n = self.out.len();
        let whole = n - n % LANES;
        for i in (0..whole).step_by(LANES) {
            let (g, up) = (L::load(chunk(self.g, i)), L::load(chunk(self.up, i)));
            gate_mul(self.kind, g, up).store(chunk_mut(self.out, i));
        }
        if whole < n {
            let g = L::load(&padded(self.g, whole, 0.0));
            let up = L::load(&padded(self.up, whole, 0.0));
            let mut last = [0.0; LANES];
            gate_mul(self.kind, g, up).store(&mut last);
            self.out[whole..].copy_from_slice(&last[..n - whole]);
        }
    }
}

struct Add<'a> {
    x: &'a mut [f32],
    y: &'a [f32],
}

impl Kernel for Add<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (x, &y) in self.x.iter_mut().zip(self.y) {
            *x += y;
        }
    }
}
