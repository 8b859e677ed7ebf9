//! Products with many rows, in tile registers.
//!
//! A panel's codes are unpacked once into bytes and multiplied by all rows of the
//! work item, sixteen at a time. A block's sum of products is exact here too, and
//! scales are applied in the same order as everywhere, so the bits are those of
//! the other ways.

use super::{GROUPS, Line, QuantisedPanels, QuantisedProduct, VECTORS};
use crate::cpu::amx::{ByteTiles, SumTile, TILE_ROWS, Tiles, WeightLines};
use crate::cpu::inputs::InputTile;
use crate::cpu::lanes::{DOT_BYTES, Dots, LANES, Lanes};
use crate::cpu::tile::Sink;

/// Rows from which on unpacking codes into memory pays.
const ROWS_MIN: usize = 8;

/// Sums of products of a pair of blocks: for each vector and each block.
type PairDots = [[SumTile; 2]; VECTORS];

/// Outputs of sixteen rows.
type Sums = [[[f32; LANES]; TILE_ROWS]; VECTORS];

/// Numbers of scratch that the codes of a pair of blocks take.
const PAIR_LEN: usize = size_of::<WeightLines>() / size_of::<f32>();

impl QuantisedPanels {
    /// Whether a product of so many rows is one for tiles.
    pub(crate) fn suits_tiles(n_rows: usize) -> bool {
        n_rows >= ROWS_MIN
    }

    /// Numbers of scratch that a work item needs.
    pub(crate) fn scratch_len(&self, tiles: Option<Tiles>) -> usize {
        if tiles.is_none() {
            return 0;
        }
        let sums_len = (size_of::<Sums>() + size_of::<PairDots>()) / size_of::<f32>();
        self.n_blocks.div_ceil(2) * PAIR_LEN + sums_len
    }

    /// The codes of a panel as bytes: signed ones less `zero`, or unsigned ones
    /// where blocks have an offset. The second block of the last pair keeps
    /// whatever was there if there is none.
    #[inline(always)]
    fn unpack<const WIDE: bool>(&self, panel: usize, pairs: &mut [WeightLines]) {
        let coding = self.coding;
        let zero = coding.zero() as u8;
        let lines = self.panel_lines();
        let records = self.lines[panel * lines..(panel + 1) * lines].chunks_exact(coding.lines());
        for (i, record) in records.enumerate() {
            let codes = &record[coding.head_lines()..];
            let vectors = pairs[i / 2].as_chunks_mut::<{ 2 * GROUPS }>().0;
            for (vector, blocks) in vectors.iter_mut().enumerate() {
                let block = &mut blocks[i % 2 * GROUPS..][..GROUPS];
                if WIDE {
                    for (to, line) in block.iter_mut().zip(&codes[vector * GROUPS..]) {
                        for (to, code) in to.iter_mut().zip(line.bytes()) {
                            *to = code.wrapping_sub(zero);
                        }
                    }
                } else {
                    let groups = block.as_chunks_mut::<2>().0;
                    for ([low, high], line) in groups.iter_mut().zip(&codes[vector * GROUPS / 2..])
                    {
                        for ((low, high), codes) in low.iter_mut().zip(high).zip(line.bytes()) {
                            *low = (codes & 15).wrapping_sub(zero);
                            *high = (codes >> 4).wrapping_sub(zero);
                        }
                    }
                }
            }
        }
    }
}

impl QuantisedProduct<'_> {
    /// All rows by all panels.
    #[inline(always)]
    pub(super) fn in_tiles<D: Dots, const WIDE: bool, const OFFSET: bool>(mut self, tiles: Tiles) {
        let scratch = std::mem::take(&mut self.scratch);
        let n_pairs = self.panels.n_blocks.div_ceil(2);
        let (codes, sums) = scratch.split_at_mut(n_pairs * PAIR_LEN);
        let (sums, dots) = sums.split_at_mut(VECTORS * TILE_ROWS * LANES);
        let sums = bytemuck::from_bytes_mut(bytemuck::cast_slice_mut(sums));
        let dots = bytemuck::from_bytes_mut(bytemuck::cast_slice_mut(dots));
        let codes: &mut [u8] = bytemuck::cast_slice_mut(codes);
        let lines = codes.as_chunks_mut::<DOT_BYTES>().0;
        let pairs = lines.as_chunks_mut::<{ size_of::<WeightLines>() / DOT_BYTES }>().0;
        let mut set_up = tiles.bytes(TILE_ROWS.min(self.rows.len()));
        for panel in self.columns.clone() {
            self.panels.unpack::<WIDE>(panel, pairs);
            let mut row = self.rows.start;
            while row < self.rows.end {
                let n_rows = TILE_ROWS.min(self.rows.end - row);
                set_up.set_rows(n_rows);
                let inputs = &self.inputs.tiles[row / TILE_ROWS * n_pairs..][..n_pairs];
                let scratch = (&mut *sums, &mut *dots);
                self.panel::<D, OFFSET>(&mut set_up, row, panel, (inputs, pairs), scratch);
                row += n_rows;
            }
        }
    }

    /// The rows that are set up, from `row` on, by one panel.
    #[inline(always)]
    fn panel<D: Dots, const OFFSET: bool>(
        &mut self,
        tiles: &mut ByteTiles,
        row: usize,
        panel: usize,
        (inputs, pairs): (&[InputTile], &[WeightLines]),
        (sums, dots): (&mut Sums, &mut PairDots),
    ) {
        let record_lines = self.panels.coding.lines();
        let lines = self.panels.panel_lines();
        let records = &self.panels.lines[panel * lines..(panel + 1) * lines];
        sums.as_flattened_mut().as_flattened_mut().fill(0.0);
        for (i, (input, weights)) in inputs.iter().zip(pairs).enumerate() {
            if OFFSET {
                tiles.begin::<false>(&input.words, weights);
            } else {
                tiles.begin::<true>(&input.words, weights);
            }
            // What was begun takes long to arrive: meanwhile the pair before it.
            if i > 0 {
                let (first, second) = records[(2 * i - 2) * record_lines..].split_at(record_lines);
                scale::<D, OFFSET, 2>([first, second], &inputs[i - 1], dots, sums);
            }
            tiles.finish(dots);
        }
        if let Some(input) = inputs.last() {
            let (first, second) =
                records[(2 * inputs.len() - 2) * record_lines..].split_at(record_lines);
            if second.is_empty() {
                scale::<D, OFFSET, 1>([first], input, dots, sums);
            } else {
                scale::<D, OFFSET, 2>([first, second], input, dots, sums);
            }
        }
        for (vector, sums) in sums.iter().enumerate() {
            let column = panel * VECTORS + vector;
            if column * LANES < self.out.n_out() {
                let at = column - self.columns.start * VECTORS;
                for (r, sum) in sums[..tiles.rows()].iter().enumerate() {
                    self.out.finish(row + r - self.rows.start, at, D::Lanes::load(sum));
                }
            }
        }
    }
}

/// Adds the sums of products of `N` blocks, each times the scales of its column
/// and its row, and the offset of its column times the total of its row.
#[inline(always)]
fn scale<D: Dots, const OFFSET: bool, const N: usize>(
    records: [&[Line]; N],
    input: &InputTile,
    dots: &PairDots,
    sums: &mut Sums,
) {
    for vector in 0..VECTORS {
        let mut of_columns = [D::Lanes::splat(0.0); N];
        let mut offsets = of_columns;
        for (i, record) in records.iter().enumerate() {
            of_columns[i] = D::Lanes::load_f16(record[0].numbers(vector));
            offsets[i] = D::Lanes::load_f16(record[usize::from(OFFSET)].numbers(vector));
        }
        for (r, to) in sums[vector].iter_mut().enumerate() {
            let mut sum = D::Lanes::load(to);
            for i in 0..N {
                let scale = of_columns[i].mul(D::Lanes::splat(input.scales[i][r]));
                sum = D::of(&dots[vector][i][r]).to_lanes().fma(scale, sum);
                if OFFSET {
                    sum = offsets[i].fma(D::Lanes::splat(input.totals[i][r]), sum);
                }
            }
            sum.store(to);
        }
    }
}
