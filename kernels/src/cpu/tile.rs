//! The one inner loop: rows of one matrix times columns of another.
//!
//! Linear layers, attention scores and the sum of values all come down to
//! `out[r][c] = init[r][c] + sum over i of x[r][i] * w[i][c]`.
//!
//! What is multiplied are words: an `f32` each, or two shorter numbers
//! ([`Multiply`]).
//!
//! **Invariant:** each output is one chain of multiplications with addition over
//! `i` in ascending order, from its initial value on. How rows and columns are grouped into tiles
//! decides only which chains run side by side, so a row's result does not
//! depend on the other rows of a call, and a chain that is stored and taken up
//! again gives the same bits as one that is not interrupted.
//!
//! **Refuses:** several accumulators for one output, and blocking of `i` with
//! partial sums: both would be faster for short rows and neither is invariant.

use crate::cpu::lanes::{LANES, Lanes, chunk, chunk_mut, chunk_unchecked};

/// Columns of a panel: two vectors of lanes.
pub(crate) const PANEL: usize = 2 * LANES;

/// How far ahead of the loop weights are asked for, in steps of `i`.
const PREFETCH_STEPS: usize = 32;

/// The left matrix: row `r` is `data[r * stride..][..n_inner]`.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) stride: usize,
}

/// The right matrix. Sixteen columns, the vector `v`, of step `i` start at
/// `data[(v / 2) * pair_stride + (v % 2) * LANES + i * step]`.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) step: usize,
    pub(crate) pair_stride: usize,
}

/// Where chains start and what becomes of them. `row` and `vector` count from
/// the first of the call.
pub(crate) trait Sink {
    /// Whether the right matrix is too large to lie in the cache already.
    const STREAMS: bool;
    /// The initial value of a chain.
    fn start<L: Lanes>(&self, row: usize, vector: usize) -> L;
    /// Takes the end of a chain.
    fn finish<L: Lanes>(&mut self, row: usize, vector: usize, value: L);
}

/// Rows of numbers that a product is put into, or added to.
pub(crate) struct Matrix<'a> {
    pub(crate) rows: &'a mut [f32],
    /// From one row to the next.
    pub(crate) stride: usize,
    /// First column of the product.
    pub(crate) at: usize,
    pub(crate) adds: bool,
}

impl Sink for Matrix<'_> {
    const STREAMS: bool = false;

    #[inline(always)]
    fn start<L: Lanes>(&self, row: usize, vector: usize) -> L {
        if self.adds {
            L::load(chunk(self.rows, row * self.stride + self.at + vector * LANES))
        } else {
            L::splat(0.0)
        }
    }

    #[inline(always)]
    fn finish<L: Lanes>(&mut self, row: usize, vector: usize, value: L) {
        value.store(chunk_mut(self.rows, row * self.stride + self.at + vector * LANES));
    }
}

/// How two words are multiplied and added to a sum, lane by lane.
pub(crate) trait Multiply<L: Lanes> {
    fn multiply(x: L, w: L, sum: L) -> L;
}

/// The extent of a product.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) rows: usize,
    /// Length of the chains, in words.
    pub(crate) inner: usize,
    /// Columns, in vectors of lanes.
    pub(crate) vectors: usize,
}

impl Extent {
    /// Asserts that all that [`At::tile`] reads is there.
    #[inline(always)]
    fn check(self, x: Rows<'_>, w: Columns<'_>) {
        let Extent { rows, inner, vectors } = self;
        assert!(rows > 0 && inner > 0 && vectors > 0, "empty product");
        assert!((rows - 1) * x.stride + inner <= x.data.len(), "rows out of bounds");
        let last = vectors - 1;
        let last = (last / 2) * w.pair_stride + (last % 2) * LANES;
        // With more than one vector the second of a pair may lie further on
        // than the last.
        let second = if vectors > 1 { ((vectors - 2) / 2) * w.pair_stride + LANES } else { 0 };
        let end = last.max(second) + (inner - 1) * w.step + LANES;
        assert!(end <= w.data.len(), "columns out of bounds");
    }
}

/// Computes all of `extent`, whose `inner` counts words. Rows are taken in tiles as high as the registers
/// allow; with few rows a tile is wider instead, since `fma` needs about eight
/// chains to keep busy.
///
/// # Panics
/// When a matrix is smaller than `extent` says.
#[inline(always)]
pub(crate) fn product<L: Lanes, O: Multiply<L>, S: Sink>(
    x: Rows<'_>,
    w: Columns<'_>,
    extent: Extent,
    sink: &mut S,
) {
    extent.check(x, w);
    let mut row = 0;
    while row < extent.rows {
        let left = extent.rows - row;
        let at = At { x, w, n_inner: extent.inner, row };
        let n = extent.vectors;
        if L::ROWS == 12 {
            match left {
                1 => at.across::<L, O, S, 1, 8>(n, sink),
                2 => at.across::<L, O, S, 2, 4>(n, sink),
                3 => at.across::<L, O, S, 3, 4>(n, sink),
                4 => at.across::<L, O, S, 4, 4>(n, sink),
                5 => at.across::<L, O, S, 5, 2>(n, sink),
                6 => at.across::<L, O, S, 6, 2>(n, sink),
                7 => at.across::<L, O, S, 7, 2>(n, sink),
                8 => at.across::<L, O, S, 8, 2>(n, sink),
                9 => at.across::<L, O, S, 9, 2>(n, sink),
                10 => at.across::<L, O, S, 10, 2>(n, sink),
                11 => at.across::<L, O, S, 11, 2>(n, sink),
                _ => at.across::<L, O, S, 12, 2>(n, sink),
            }
        } else if L::ROWS == 6 {
            match left {
                1 => at.across::<L, O, S, 1, 4>(n, sink),
                2 => at.across::<L, O, S, 2, 2>(n, sink),
                3 => at.across::<L, O, S, 3, 2>(n, sink),
                4 => at.across::<L, O, S, 4, 1>(n, sink),
                5 => at.across::<L, O, S, 5, 1>(n, sink),
                _ => at.across::<L, O, S, 6, 1>(n, sink),
            }
        } else {
            match left {
                1 => at.across::<L, O, S, 1, 2>(n, sink),
                _ => at.across::<L, O, S, 2, 1>(n, sink),
            }
        }
        row += left.min(L::ROWS);
    }
}

/// A strip of rows, from `row` on, of a product that was checked.
#[derive(Clone, Copy)]
struct At<'a> {
    x: Rows<'a>,
    w: Columns<'a>,
    n_inner: usize,
    row: usize,
}

impl At<'_> {
    /// `R` rows by all columns, `C` vectors at a time and fewer at the end.
    #[inline(always)]
    fn across<L: Lanes, O: Multiply<L>, S: Sink, const R: usize, const C: usize>(
        self,
        n_vectors: usize,
        sink: &mut S,
    ) {
        let mut vector = 0;
        while vector + C <= n_vectors {
            self.tile::<L, O, S, R, C>(vector, sink);
            vector += C;
        }
        if C > 4 && vector + 4 <= n_vectors {
            self.tile::<L, O, S, R, 4>(vector, sink);
            vector += 4;
        }
        if C > 2 && vector + 2 <= n_vectors {
            self.tile::<L, O, S, R, 2>(vector, sink);
            vector += 2;
        }
        if C > 1 && vector < n_vectors {
            self.tile::<L, O, S, R, 1>(vector, sink);
        }
    }

    /// Element `i` of the strip's row `r`, in all lanes.
    #[inline(always)]
    #[expect(unsafe_code, reason = "bounds checks would be most of the loop")]
    fn row<L: Lanes>(self, r: usize, i: usize) -> L {
        let offset = (self.row + r) * self.x.stride + i;
        // SAFETY: `Extent::check` has bounded the last row's last element.
        L::splat(*unsafe { self.x.data.get_unchecked(offset) })
    }

    /// Step `i` of the vector that starts at `start`.
    #[inline(always)]
    #[expect(unsafe_code, reason = "see `row`")]
    fn column<L: Lanes, S: Sink>(self, start: usize, i: usize) -> L {
        let offset = start + i * self.w.step;
        if S::STREAMS {
            L::prefetch(self.w.data, offset + PREFETCH_STEPS * self.w.step);
        }
        // SAFETY: `Extent::check` has bounded the last step of the last vector,
        // which no other exceeds.
        L::load(unsafe { chunk_unchecked(self.w.data, offset) })
    }

    /// `R` rows by `C` vectors: `R * C` chains side by side.
    #[inline(always)]
    fn tile<L: Lanes, O: Multiply<L>, S: Sink, const R: usize, const C: usize>(
        self,
        vector: usize,
        sink: &mut S,
    ) {
        let mut sums = [[L::splat(0.0); C]; R];
        for (r, sums) in sums.iter_mut().enumerate() {
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum = sink.start(self.row + r, vector + c);
            }
        }
        let mut starts = [0; C];
        for (c, start) in starts.iter_mut().enumerate() {
            let vector = vector + c;
            *start = (vector / 2) * self.w.pair_stride + (vector % 2) * LANES;
        }
        for i in 0..self.n_inner {
            if R <= 3 {
                // A low tile is wide: its rows take fewer registers than its columns.
                let mut rows = [L::splat(0.0); R];
                for (r, row) in rows.iter_mut().enumerate() {
                    *row = self.row(r, i);
                }
                for c in 0..C {
                    let column = self.column::<L, S>(starts[c], i);
                    for (sums, row) in sums.iter_mut().zip(rows) {
                        sums[c] = O::multiply(row, column, sums[c]);
                    }
                }
            } else {
                let mut columns = [L::splat(0.0); C];
                for (column, start) in columns.iter_mut().zip(starts) {
                    *column = self.column::<L, S>(start, i);
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let row: L = self.row(r, i);
                    for (sum, column) in sums.iter_mut().zip(columns) {
                        *sum = O::multiply(row, column, *sum);
                    }
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (c, &sum) in sums.iter().enumerate() {
                sink.finish(self.row + r, vector + c, sum);
            }
        }
    }
}
