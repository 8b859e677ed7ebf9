//! What is done to each element or each row: norm, gate, sum.
//!
//! **Invariant:** a row's sum of squares is taken in sixteen lanes by the
//! element's index, then by a fixed tree; all else is element by element.
//!
//! **Refuses:** shapes; a row is a run of elements.

use crate::cpu::dispatch::{Cpu, Kernel};
use crate::cpu::lanes::{LANES, Lanes, chunk, chunk_mut, exp, padded, reduce_add};

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

    /// `out = silu(gate) * up`, element by element.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn silu_mul(&self, gate: &[f32], up: &[f32], out: &mut [f32]) {
        assert_eq!(gate.len(), out.len(), "`gate` is not like `out`");
        assert_eq!(up.len(), out.len(), "`up` is not like `out`");
        self.threads().for_each_chunk(out, ITEM_ELEMENTS, |i, out| {
            let gate = &gate[i * ITEM_ELEMENTS..][..out.len()];
            let up = &up[i * ITEM_ELEMENTS..][..out.len()];
            self.run(SiluMul { gate, up, out });
        });
    }

    /// [`silu_mul`](Self::silu_mul) where one linear layer gave both: a row of
    /// `gate_up`, `[m, 2 n]`, is `n` gates, then `n` ups; `out` is `[m, n]`.
    ///
    /// # Panics
    /// When `n` is 0 or a shape does not fit.
    pub fn swiglu(&self, gate_up: &[f32], n: usize, out: &mut [f32]) {
        assert!(n > 0 && out.len().is_multiple_of(n), "`out` is not [m, {n}]");
        assert_eq!(gate_up.len(), 2 * out.len(), "`gate_up` is not [m, 2 * {n}]");
        let item_rows = (ITEM_ELEMENTS / n).max(1);
        self.threads().for_each_chunk(out, item_rows * n, |i, out| {
            for (j, out) in out.chunks_mut(n).enumerate() {
                let row = &gate_up[(i * item_rows + j) * 2 * n..][..2 * n];
                let (gate, up) = row.split_at(n);
                self.run(SiluMul { gate, up, out });
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
            let whole = n - n % LANES;
            let mut squares = L::splat(0.0);
            for i in (0..whole).step_by(LANES) {
                let x = L::load(chunk(x, i));
                squares = x.fma(x, squares);
            }
            let tail = L::load(&padded(x, whole, 0.0));
            let mean = reduce_add(tail.fma(tail, squares)) / n as f32;
            let scale = 1.0 / (mean + self.eps).sqrt();
            for ((out, &x), &weight) in out.iter_mut().zip(x).zip(self.weight) {
                *out = x * scale * weight;
            }
        }
    }
}

struct SiluMul<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

/// `gate / (1 + e^-gate) * up`
#[inline(always)]
fn silu_mul<L: Lanes>(gate: L, up: L) -> L {
    let e = exp(L::splat(0.0).sub(gate));
    gate.div(L::splat(1.0).add(e)).mul(up)
}

impl Kernel for SiluMul<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let n = self.out.len();
        let whole = n - n % LANES;
        for i in (0..whole).step_by(LANES) {
            let (gate, up) = (L::load(chunk(self.gate, i)), L::load(chunk(self.up, i)));
            silu_mul(gate, up).store(chunk_mut(self.out, i));
        }
        if whole < n {
            let gate = L::load(&padded(self.gate, whole, 0.0));
            let up = L::load(&padded(self.up, whole, 0.0));
            let mut last = [0.0; LANES];
            silu_mul(gate, up).store(&mut last);
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
