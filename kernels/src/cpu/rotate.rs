//! Rotating heads by [`Angles`].
//!
//! **Invariant:** two products and a sum for each element, none of them fused,
//! so every instruction set gives the same bits.
//!
//! **Refuses:** computing angles; [`RopeTable`](crate::RopeTable) has.

use skillgraft_kv::RopePairing;

use crate::cpu::dispatch::{Cpu, Kernel};
use crate::cpu::lanes::Lanes;
use crate::rope::{Angles, QueryFrames};

/// Rows of one work item: enough to be worth a thread.
const ITEM_ROWS: usize = 32;

/// Heads of some rows, `[n_rows, n_heads, head_dim]`. Rows may lie apart, so
/// that Q, K and V can be read where one joined linear layer left them.
#[derive(Debug, Clone, Copy)]
pub struct HeadRows<'a> {
    /// Row `i` starts at `i * row_stride`.
    pub data: &'a [f32],
    /// Elements from one row to the next, at least `n_heads * head_dim`.
    pub row_stride: usize,
}

impl<'a> HeadRows<'a> {
    /// Rows that follow one another without a gap.
    pub fn contiguous(data: &'a [f32], n_heads: usize, head_dim: usize) -> Self {
        HeadRows { data, row_stride: n_heads * head_dim }
    }

    /// Row `i`, `width` elements of it.
    pub(crate) fn row(&self, i: usize, width: usize) -> &'a [f32] {
        &self.data[i * self.row_stride..][..width]
    }

    pub(crate) fn check(&self, n_rows: usize, width: usize) {
        assert!(self.row_stride >= width, "rows of {width} are {} apart", self.row_stride);
        let needed = if n_rows == 0 { 0 } else { (n_rows - 1) * self.row_stride + width };
        assert!(self.data.len() >= needed, "{n_rows} rows need {needed} elements");
    }
}

impl Cpu {
    /// Rotates heads in place: `x` holds a row for each row of `angles`,
    /// `[n_rows, n_heads, head_dim]`, rows `row_stride` elements apart; what
    /// lies between rows is left alone.
    ///
    /// # Panics
    /// When `x` is too short, `row_stride` is less than `n_heads * head_dim`, or
    /// `rotary_dim` exceeds `head_dim`.
    pub fn rotate(
        &self,
        x: &mut [f32],
        row_stride: usize,
        n_heads: usize,
        head_dim: usize,
        angles: &Angles,
    ) {
        let n_rows = angles.n_rows();
        HeadRows { data: x, row_stride }.check(n_rows, n_heads * head_dim);
        assert!(angles.rotary_dim() <= head_dim, "`rotary_dim` exceeds {head_dim}");
        let used = x.len().min(n_rows * row_stride);
        self.threads().for_each_chunk(&mut x[..used], ITEM_ROWS * row_stride, |item, rows| {
            let first = item * ITEM_ROWS;
            self.run(Rotate {
                rows,
                row_stride,
                width: n_heads * head_dim,
                head_dim,
                angles,
                first,
            });
        });
    }

    /// The queries as each frame sees them: `q` is `[n_rows, n_heads, head_dim]`,
    /// not rotated; `out` is `[n_frames, n_rows, n_heads, head_dim]`.
    ///
    /// # Panics
    /// When a shape does not fit, or `rotary_dim` exceeds `head_dim`.
    pub fn query_frames(
        &self,
        frames: &QueryFrames,
        q: HeadRows<'_>,
        n_heads: usize,
        head_dim: usize,
        out: &mut [f32],
    ) {
        let width = n_heads * head_dim;
        let n_rows = frames.n_rows();
        q.check(n_rows, width);
        assert_eq!(out.len(), frames.n_frames() * n_rows * width, "`out` does not fit");
        if n_rows == 0 {
            return;
        }
        for (i, frame) in out.chunks_mut(n_rows * width).enumerate() {
            for (j, row) in frame.chunks_mut(width).enumerate() {
                row.copy_from_slice(q.row(j, width));
            }
            self.rotate(frame, width, n_heads, head_dim, frames.angles(i));
        }
    }
}

/// Rotates some rows, the first of which is row `first` of the angles.
struct Rotate<'a> {
    rows: &'a mut [f32],
    row_stride: usize,
    width: usize,
    head_dim: usize,
    angles: &'a Angles,
    first: usize,
}

impl Kernel for Rotate<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (i, row) in self.rows.chunks_mut(self.row_stride).enumerate() {
            let (cos, sin) = self.angles.row(self.first + i);
            for head in row[..self.width].chunks_exact_mut(self.head_dim) {
                rotate_head(head, cos, sin, self.angles.pairing());
            }
        }
    }
}

/// Rotates the leading `2 * cos.len()` elements of a head.
#[inline(always)]
pub(crate) fn rotate_head(head: &mut [f32], cos: &[f32], sin: &[f32], pairing: RopePairing) {
    let n_pairs = cos.len();
    match pairing {
        RopePairing::HalfSplit => {
            let (firsts, rest) = head.split_at_mut(n_pairs);
            let seconds = &mut rest[..n_pairs];
            for i in 0..n_pairs {
                let (a, b) = (firsts[i], seconds[i]);
                firsts[i] = a * cos[i] - b * sin[i];
                seconds[i] = b * cos[i] + a * sin[i];
            }
        }
        RopePairing::Interleaved => {
            let pairs = head[..2 * n_pairs].chunks_exact_mut(2);
            for ((pair, &cos), &sin) in pairs.zip(cos).zip(sin) {
                let (a, b) = (pair[0], pair[1]);
                pair[0] = a * cos - b * sin;
                pair[1] = b * cos + a * sin;
            }
        }
    }
}
