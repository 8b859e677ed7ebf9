//! Linear layers: `y = x W^T`.
//!
//! Weights are packed once, when a model is loaded, into panels of 32 output
//! columns, so that the inner loop reads them in order: `[n_out / 32, n_in, 32]`,
//! the last panel padded with zeros.
//!
//! **Invariant:** each output is one `fma` chain over the inputs in ascending
//! order (see [`tile`](crate::cpu::tile)); bias or residual is added after it.
//!
//! **Refuses:** choosing another algorithm by the number of rows.
//!
//! Weights in four or eight bits are packed as `quantised.rs` says. A further
//! format is one more variant of [`Panels`] with a file of its own.

use std::ops::Range;

use crate::cpu::buffer::{AlignedBuffer, with_scratch};
use crate::cpu::dispatch::{Cpu, Kernel};
use crate::cpu::inputs::with_inputs;
use crate::cpu::lanes::{Floats, LANES, Lanes, chunk, chunk_mut, padded};
use crate::cpu::quantised::{Coding, QuantisedPanels, QuantisedProduct, WeightBlock};
use crate::cpu::shared::Shared;
use crate::cpu::tile::{Columns, Extent, PANEL, Rows, Sink, product};

/// Below this many multiplications, waking a thread costs more than it saves.
const INLINE_MULTIPLICATIONS: usize = 1 << 17;

/// Rows of one work item: whole tiles, and as many as prefill takes at once.
/// Their inputs (at usual widths half a MiB) and one panel stay in a core's
/// second-level cache together.
const ITEM_ROWS: usize = 256;

/// Panels of one work item with few rows: what the widest tile reads at once.
const ITEM_PANELS: usize = 4;

/// The packed weights, in one of the formats.
#[derive(Debug)]
enum Panels {
    F32(AlignedBuffer),
    Quantised(QuantisedPanels),
}

/// The weights of a linear layer, `[n_out, n_in]`, packed for [`Cpu::linear`].
#[derive(Debug)]
pub struct PackedLinear {
    n_out: usize,
    n_in: usize,
    panels: Panels,
}

impl PackedLinear {
    /// Packs `n_out` rows of `n_in` weights. `fill(i, row)` writes row `i`, so
    /// it is the place to dequantise, to permute rows, and to join several
    /// matrices into one. It is called once for each row, from several threads.
    ///
    /// # Panics
    /// When a dimension is 0.
    pub fn from_rows(
        cpu: &Cpu,
        n_out: usize,
        n_in: usize,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Self {
        assert!(n_out > 0 && n_in > 0, "a linear layer of {n_out} x {n_in}");
        let mut packed = AlignedBuffer::zeroed(n_out.div_ceil(PANEL) * n_in * PANEL);
        cpu.threads().for_each_chunk(packed.as_mut_slice(), n_in * PANEL, |i, panel| {
            let n_rows = PANEL.min(n_out - i * PANEL);
            let mut rows = vec![0.0; n_rows * n_in];
            for (j, row) in rows.chunks_mut(n_in).enumerate() {
                fill(i * PANEL + j, row);
            }
            for (k, columns) in panel.chunks_mut(PANEL).enumerate() {
                for (j, column) in columns[..n_rows].iter_mut().enumerate() {
                    *column = rows[j * n_in + k];
                }
            }
        });
        PackedLinear { n_out, n_in, panels: Panels::F32(packed) }
    }

    /// Packs `n_out` rows of `n_in` weights that were written in few bits, as they
    /// are. `fill(i, blocks)` writes the blocks of row `i`, `[n_in / 32]`; it is
    /// called once for each row, from several threads. A product with them takes
    /// its inputs in bytes, each block of 32 with a scale of its own.
    ///
    /// # Panics
    /// When a dimension is 0, `n_in` is no multiple of 32, or a code is more than
    /// 127 above its coding's zero.
    pub fn from_blocks(
        cpu: &Cpu,
        n_out: usize,
        n_in: usize,
        coding: Coding,
        fill: impl Fn(usize, &mut [WeightBlock]) + Sync,
    ) -> Self {
        assert!(n_out > 0 && n_in > 0, "a linear layer of {n_out} x {n_in}");
        let panels = QuantisedPanels::pack(cpu, [n_out, n_in], coding, fill);
        PackedLinear { n_out, n_in, panels: Panels::Quantised(panels) }
    }

    /// Packs a row-major matrix `[n_out, n_in]`.
    ///
    /// # Panics
    /// When a dimension is 0 or `weights` is not `n_out * n_in` long.
    pub fn from_row_major(cpu: &Cpu, n_out: usize, n_in: usize, weights: &[f32]) -> Self {
        assert_eq!(weights.len(), n_out * n_in, "weights are not [{n_out}, {n_in}]");
        PackedLinear::from_rows(cpu, n_out, n_in, |i, row| {
            row.copy_from_slice(&weights[i * n_in..(i + 1) * n_in]);
        })
    }

    /// Number of outputs.
    pub fn n_out(&self) -> usize {
        self.n_out
    }

    /// Number of inputs.
    pub fn n_in(&self) -> usize {
        self.n_in
    }

    /// Bytes that [`Cpu::linear`] reads.
    pub fn bytes(&self) -> usize {
        match &self.panels {
            Panels::F32(packed) => size_of_val(packed.as_slice()),
            Panels::Quantised(panels) => panels.bytes(),
        }
    }

    /// Reads row `i`, `[n_in]`, back: the embedding of a token where the table
    /// is tied to the output layer.
    ///
    /// # Panics
    /// When there is no such row, or `out` is not `n_in` long.
    pub fn row(&self, i: usize, out: &mut [f32]) {
        assert!(i < self.n_out, "row {i} of {}", self.n_out);
        assert_eq!(out.len(), self.n_in, "a row has {} weights", self.n_in);
        match &self.panels {
            Panels::F32(packed) => {
                let panel = &packed.as_slice()[(i / PANEL) * self.n_in * PANEL..];
                for (value, columns) in out.iter_mut().zip(panel.chunks(PANEL)) {
                    *value = columns[i % PANEL];
                }
            }
            Panels::Quantised(panels) => panels.row(i, out),
        }
    }
}

impl Cpu {
    /// `y = x W^T + bias`: `x` is `[m, n_in]`, `bias` `[n_out]`, `y`
    /// `[m, n_out]`, all `f32` and row-major. `y` is overwritten.
    ///
    /// # Panics
    /// When a shape does not fit.
    pub fn linear(&self, x: &[f32], w: &PackedLinear, bias: Option<&[f32]>, y: &mut [f32]) {
        if let Some(bias) = bias {
            assert_eq!(bias.len(), w.n_out, "bias is not [{}]", w.n_out);
        }
        self.linear_into(x, w, y, bias.map_or(After::Nothing, After::Bias));
    }

    /// `y += x W^T`: as [`linear`](Self::linear), with the chain's result added
    /// to what `y` holds.
    ///
    /// # Panics
    /// When a shape does not fit.
    pub fn linear_add(&self, x: &[f32], w: &PackedLinear, y: &mut [f32]) {
        self.linear_into(x, w, y, After::Residual);
    }

    fn linear_into(&self, x: &[f32], w: &PackedLinear, y: &mut [f32], after: After<'_>) {
        assert!(x.len().is_multiple_of(w.n_in), "x is not [m, {}]", w.n_in);
        let m = x.len() / w.n_in;
        assert_eq!(y.len(), m * w.n_out, "y is not [{m}, {}]", w.n_out);
        if m == 0 {
            return;
        }
        match &w.panels {
            Panels::F32(packed) => self.linear_f32(x, m, w, packed.as_slice(), y, after),
            Panels::Quantised(panels) => self.linear_quantised(x, m, w, panels, y, after),
        }
    }

    fn linear_quantised(
        &self,
        x: &[f32],
        m: usize,
        w: &PackedLinear,
        panels: &QuantisedPanels,
        y: &mut [f32],
        after: After<'_>,
    ) {
        let tiles = self.tiles().filter(|_| QuantisedPanels::suits_tiles(m));
        with_inputs(self, x, w.n_in, tiles.is_some(), |inputs| {
            self.each_item(m, w, y, |rows, columns, y| {
                let (first_row, first_column) = (rows.start, columns.start * PANEL);
                let out = Output { y, first_row, first_column, n_out: w.n_out, after };
                with_scratch([panels.scratch_len(tiles)], |[scratch]| {
                    self.run_dots(QuantisedProduct {
                        inputs,
                        panels,
                        rows,
                        columns,
                        out,
                        tiles,
                        scratch,
                    });
                });
            });
        });
    }

    fn linear_f32(
        &self,
        x: &[f32],
        m: usize,
        w: &PackedLinear,
        packed: &[f32],
        y: &mut [f32],
        after: After<'_>,
    ) {
        let product = |x: Rows<'_>, y: &mut [f32]| {
            self.each_item(m, w, y, |rows, columns, y| {
                self.run(Product { x, w, packed, rows, columns, y, after });
            });
        };
        if m > 1 && w.n_in.is_multiple_of(ALIASING) {
            // Rows this far apart would fall into the same few sets of the cache.
            let stride = w.n_in + LANES;
            with_scratch([m * stride], |[copy]| {
                for (to, from) in copy.chunks_mut(stride).zip(x.chunks(w.n_in)) {
                    to[..w.n_in].copy_from_slice(from);
                }
                product(Rows { data: copy, stride }, y);
            });
        } else {
            product(Rows { data: x, stride: w.n_in }, y);
        }
    }

    /// Cuts the work into items of some rows and some panels.
    fn each_item(
        &self,
        m: usize,
        w: &PackedLinear,
        y: &mut [f32],
        work: impl Fn(Range<usize>, Range<usize>, Shared<'_, f32>) + Sync,
    ) {
        let n_panels = w.n_out.div_ceil(PANEL);
        let item_panels = if m < ITEM_PANELS { ITEM_PANELS } else { 1 };
        let items_across = n_panels.div_ceil(item_panels);
        let y = Shared::new(y);
        let item = |i: usize| {
            let (row, panel) = (i / items_across * ITEM_ROWS, i % items_across * item_panels);
            let rows = row..m.min(row + ITEM_ROWS);
            work(rows, panel..n_panels.min(panel + item_panels), y);
        };
        let n_items = items_across * m.div_ceil(ITEM_ROWS);
        if m * w.n_in * w.n_out < INLINE_MULTIPLICATIONS {
            (0..n_items).for_each(item);
        } else {
            self.threads().for_each(n_items, item);
        }
    }
}

/// A row stride that is a multiple of this many elements puts rows into the
/// same sets of a first-level cache.
const ALIASING: usize = 256;

/// What is done with a chain's result.
#[derive(Clone, Copy)]
pub(crate) enum After<'a> {
    Nothing,
    /// `[n_out]`
    Bias(&'a [f32]),
    Residual,
}

/// Some rows times some panels.
struct Product<'a> {
    x: Rows<'a>,
    w: &'a PackedLinear,
    packed: &'a [f32],
    rows: Range<usize>,
    columns: Range<usize>,
    y: Shared<'a, f32>,
    after: After<'a>,
}

impl Kernel for Product<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let panel_len = self.w.n_in * PANEL;
        let columns = Columns {
            data: &self.packed[self.columns.start * panel_len..self.columns.end * panel_len],
            step: PANEL,
            pair_stride: panel_len,
        };
        let first_column = self.columns.start * PANEL;
        let n_columns = (self.columns.end * PANEL).min(self.w.n_out) - first_column;
        let extent = Extent {
            rows: self.rows.len(),
            inner: self.w.n_in,
            vectors: n_columns.div_ceil(LANES),
        };
        let x =
            Rows { data: &self.x.data[self.rows.start * self.x.stride..], stride: self.x.stride };
        let mut out = Output {
            y: self.y,
            first_row: self.rows.start,
            first_column,
            n_out: self.w.n_out,
            after: self.after,
        };
        product::<L, Floats, _>(x, columns, extent, &mut out);
    }
}

/// Puts results into `y`, `[m, n_out]`.
pub(crate) struct Output<'a> {
    y: Shared<'a, f32>,
    first_row: usize,
    first_column: usize,
    n_out: usize,
    after: After<'a>,
}

impl Output<'_> {
    /// Columns of a row.
    pub(crate) fn n_out(&self) -> usize {
        self.n_out
    }

    #[inline(always)]
    fn apply<L: Lanes>(&self, value: L, column: usize, to: &mut [f32; LANES]) {
        match self.after {
            After::Nothing => value,
            After::Bias(bias) if column + LANES <= bias.len() => {
                value.add(L::load(chunk(bias, column)))
            }
            After::Bias(bias) => value.add(L::load(&padded(bias, column, 0.0))),
            After::Residual => value.add(L::load(to)),
        }
        .store(to);
    }
}

impl Sink for Output<'_> {
    const STREAMS: bool = true;

    #[inline(always)]
    fn start<L: Lanes>(&self, _row: usize, _vector: usize) -> L {
        L::splat(0.0)
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "items write interleaved parts of `y`")]
    fn finish<L: Lanes>(&mut self, row: usize, vector: usize, value: L) {
        let column = self.first_column + vector * LANES;
        let start = (self.first_row + row) * self.n_out + column;
        let len = LANES.min(self.n_out - column);
        // SAFETY: items have disjoint ranges of rows or of panels, and within
        // an item each vector of a row is finished once.
        let to = unsafe { self.y.claim(start, len) };
        if len == LANES {
            self.apply(value, column, chunk_mut(to, 0));
        } else {
            let mut whole = padded(to, 0, 0.0);
            self.apply(value, column, &mut whole);
            to.copy_from_slice(&whole[..len]);
        }
    }
}
