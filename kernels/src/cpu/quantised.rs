//! Weights in four or eight bits, and products with them.
//!
//! Panels of 32 output columns, as those of `f32`. A panel is a sequence of
//! records, one for each block of 32 inputs, each in whole cache lines: a line of
//! 32 scales (binary16); where a block has an offset of its own a line of those;
//! then the codes. A line of codes holds four inputs for each of 16 columns in
//! eight bits, or two such groups of four in its low and high nibbles.
//!
//! A weight is `scale * (code - zero)`, or `scale * code + offset`.
//!
//! **Invariant:** inputs become bytes row by row ([`Inputs`]); a block's sum of
//! products is a whole number and exact; an output is one chain of `fma` over
//! the blocks in ascending order. Rows, chunks and threads change no bit.
//!
//! **Refuses:** widths that are no multiple of 32.

use std::ops::Range;

use crate::cpu::amx::Tiles;
use crate::cpu::dispatch::{Cpu, DotKernel};
use crate::cpu::inputs::{BLOCK, BLOCK_WORDS, Inputs};
use crate::cpu::lanes::{DOT_BYTES, Dots, LANES, Lanes, f16_from_f32, f32_from_f16};
use crate::cpu::linear::Output;
use crate::cpu::tile::{PANEL, Sink};

mod tiles;

/// Groups of four inputs in a block.
const GROUPS: usize = BLOCK / 4;
/// Vectors of columns in a panel.
const VECTORS: usize = PANEL / LANES;
/// How far ahead lines are asked for: 4 KiB.
const PREFETCH_LINES: usize = 64;

/// How a weight is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Coding {
    /// Codes of 4 bits, `scale * (code - zero)`.
    FourBits {
        /// The code that stands for 0.
        zero: u8,
    },
    /// Codes of 4 bits, `scale * code + offset`.
    FourBitsOffset,
    /// Codes of 8 bits, `scale * (code - zero)`.
    EightBits {
        /// The code that stands for 0.
        zero: u8,
    },
    /// Codes of 8 bits, `scale * code + offset`.
    EightBitsOffset,
}

impl Coding {
    const fn is_wide(self) -> bool {
        matches!(self, Coding::EightBits { .. } | Coding::EightBitsOffset)
    }

    const fn has_offset(self) -> bool {
        matches!(self, Coding::FourBitsOffset | Coding::EightBitsOffset)
    }

    const fn zero(self) -> i32 {
        match self {
            Coding::FourBits { zero } | Coding::EightBits { zero } => zero as i32,
            Coding::FourBitsOffset | Coding::EightBitsOffset => 0,
        }
    }

    /// Lines before the codes of a record.
    const fn head_lines(self) -> usize {
        if self.has_offset() { 2 } else { 1 }
    }

    /// Lines of a record.
    const fn lines(self) -> usize {
        let groups_a_line = if self.is_wide() { 1 } else { 2 };
        self.head_lines() + VECTORS * GROUPS / groups_a_line
    }
}

/// Thirty-two weights of a row, as they were read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightBlock {
    /// The codes, in order. Where the coding has a zero, a code less that fits
    /// into a signed byte.
    pub codes: [u8; BLOCK],
    /// Kept as binary16.
    pub scale: f32,
    /// Kept as binary16; of no meaning where the coding has none.
    pub offset: f32,
}

impl Default for WeightBlock {
    fn default() -> Self {
        WeightBlock { codes: [0; BLOCK], scale: 0.0, offset: 0.0 }
    }
}

impl WeightBlock {
    /// Rounds weights to eight bits: `scale * (code - 128)` with the largest
    /// magnitude at 127.
    pub fn rounded(weights: &[f32; BLOCK]) -> Self {
        let largest = weights.iter().fold(0.0_f32, |largest, weight| largest.max(weight.abs()));
        // The scale as it will be kept, so that codes fit it.
        let scale = f32_from_f16(f16_from_f32(largest / 127.0));
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        let code = |weight: f32| ((weight * inverse).round().clamp(-127.0, 127.0) + 128.0) as u8;
        WeightBlock { codes: weights.map(code), scale, offset: 0.0 }
    }

    /// The coding of [`rounded`](Self::rounded).
    pub const ROUNDED: Coding = Coding::EightBits { zero: 128 };
}

/// A cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Line([u16; PANEL]);

impl Line {
    const ZERO: Line = Line([0; PANEL]);

    #[inline(always)]
    fn bytes(&self) -> &[u8; DOT_BYTES] {
        bytemuck::must_cast_ref(&self.0)
    }

    fn bytes_mut(&mut self) -> &mut [u8; DOT_BYTES] {
        bytemuck::must_cast_mut(&mut self.0)
    }

    /// One vector's half of 32 binary16 numbers.
    #[inline(always)]
    fn numbers(&self, vector: usize) -> &[u16; LANES] {
        let halves = self.0.as_chunks::<LANES>().0;
        &halves[vector]
    }
}

/// Packed weights, `[n_out, n_in]`.
#[derive(Debug)]
pub(crate) struct QuantisedPanels {
    coding: Coding,
    n_blocks: usize,
    lines: Vec<Line>,
}

impl QuantisedPanels {
    /// Packs rows; `fill(i, row)` writes the blocks of row `i`.
    pub(crate) fn pack(
        cpu: &Cpu,
        [n_out, n_in]: [usize; 2],
        coding: Coding,
        fill: impl Fn(usize, &mut [WeightBlock]) + Sync,
    ) -> Self {
        assert!(n_in.is_multiple_of(BLOCK), "{n_in} inputs are not in blocks of {BLOCK}");
        let n_blocks = n_in / BLOCK;
        let panel_lines = n_blocks * coding.lines();
        let mut lines = vec![Line::ZERO; n_out.div_ceil(PANEL) * panel_lines];
        cpu.threads().for_each_chunk(&mut lines, panel_lines, |i, panel| {
            let mut row = vec![WeightBlock::default(); n_blocks];
            for column in 0..PANEL.min(n_out - i * PANEL) {
                fill(i * PANEL + column, &mut row);
                for (record, block) in panel.chunks_exact_mut(coding.lines()).zip(&row) {
                    write(coding, record, column, block);
                }
            }
        });
        QuantisedPanels { coding, n_blocks, lines }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
    }

    fn panel_lines(&self) -> usize {
        self.n_blocks * self.coding.lines()
    }

    /// Reads row `i` back, `[n_in]`.
    pub(crate) fn row(&self, i: usize, out: &mut [f32]) {
        let (panel, column) = (i / PANEL, i % PANEL);
        let records = self.lines[panel * self.panel_lines()..].chunks_exact(self.coding.lines());
        for (out, record) in out.chunks_exact_mut(BLOCK).zip(records) {
            let block = read(self.coding, record, column);
            for (weight, code) in out.iter_mut().zip(block.codes) {
                let centred = f32::from(i16::from(code) - self.coding.zero() as i16);
                *weight = block.scale * centred + block.offset;
            }
        }
    }
}

/// Where the code of a column's input is: line of the codes, byte, whether it is
/// the high nibble.
fn place(coding: Coding, column: usize, input: usize) -> (usize, usize, bool) {
    let (vector, lane) = (column / LANES, column % LANES);
    let (group, byte) = (input / 4, 4 * lane + input % 4);
    if coding.is_wide() {
        (vector * GROUPS + group, byte, false)
    } else {
        (vector * GROUPS / 2 + group / 2, byte, group % 2 == 1)
    }
}

fn write(coding: Coding, record: &mut [Line], column: usize, block: &WeightBlock) {
    if !coding.has_offset() {
        let most = coding.zero() + i32::from(i8::MAX);
        let largest = block.codes.iter().copied().max().map_or(0, i32::from);
        assert!(largest <= most, "code {largest} is too far from {}", coding.zero());
    }
    record[0].0[column] = f16_from_f32(block.scale);
    if coding.has_offset() {
        record[1].0[column] = f16_from_f32(block.offset);
    }
    let (vector, start) = (column / LANES, 4 * (column % LANES));
    let codes = &mut record[coding.head_lines()..];
    let groups = block.codes.as_chunks::<4>().0;
    if coding.is_wide() {
        let lines = &mut codes[vector * GROUPS..][..GROUPS];
        for (line, group) in lines.iter_mut().zip(groups) {
            line.bytes_mut()[start..start + 4].copy_from_slice(group);
        }
    } else {
        let lines = &mut codes[vector * GROUPS / 2..][..GROUPS / 2];
        for (line, [low, high]) in lines.iter_mut().zip(groups.as_chunks::<2>().0) {
            let both = std::array::from_fn::<u8, 4, _>(|i| low[i] | high[i] << 4);
            line.bytes_mut()[start..start + 4].copy_from_slice(&both);
        }
    }
}

fn read(coding: Coding, record: &[Line], column: usize) -> WeightBlock {
    let mut block =
        WeightBlock { scale: f32_from_f16(record[0].0[column]), ..WeightBlock::default() };
    if coding.has_offset() {
        block.offset = f32_from_f16(record[1].0[column]);
    }
    let codes = &record[coding.head_lines()..];
    for (input, code) in block.codes.iter_mut().enumerate() {
        let (line, byte, is_high) = place(coding, column, input);
        let found = codes[line].bytes()[byte];
        *code = match (coding.is_wide(), is_high) {
            (true, _) => found,
            (false, false) => found & 15,
            (false, true) => found >> 4,
        };
    }
    block
}

/// Some rows times some panels.
pub(crate) struct QuantisedProduct<'a> {
    pub(crate) inputs: &'a Inputs,
    pub(crate) panels: &'a QuantisedPanels,
    pub(crate) rows: Range<usize>,
    /// Panels; the last may be cut off by the output's width.
    pub(crate) columns: Range<usize>,
    pub(crate) out: Output<'a>,
    /// Tile registers, if they are to be used; `inputs` has tiles then.
    pub(crate) tiles: Option<Tiles>,
    /// As long as [`QuantisedPanels::scratch_len`] says.
    pub(crate) scratch: &'a mut [f32],
}

impl DotKernel for QuantisedProduct<'_> {
    #[inline(always)]
    fn run<D: Dots>(self) {
        match (self.panels.coding.is_wide(), self.panels.coding.has_offset()) {
            (false, false) => self.all::<D, false, false>(),
            (false, true) => self.all::<D, false, true>(),
            (true, false) => self.all::<D, true, false>(),
            (true, true) => self.all::<D, true, true>(),
        }
    }
}

impl QuantisedProduct<'_> {
    /// Rows in tiles as high as the registers allow; with few rows a tile is
    /// wider instead.
    #[inline(always)]
    fn all<D: Dots, const WIDE: bool, const OFFSET: bool>(mut self) {
        if let Some(tiles) = self.tiles {
            return self.in_tiles::<D, WIDE, OFFSET>(tiles);
        }
        let mut row = self.rows.start;
        while row < self.rows.end {
            let left = (self.rows.end - row).min(D::ROWS);
            if D::ROWS == 6 {
                match left {
                    1 => self.across::<D, WIDE, OFFSET, 1, 4>(row),
                    2 => self.across::<D, WIDE, OFFSET, 2, 4>(row),
                    3 => self.across::<D, WIDE, OFFSET, 3, 2>(row),
                    4 => self.across::<D, WIDE, OFFSET, 4, 2>(row),
                    5 => self.across::<D, WIDE, OFFSET, 5, 2>(row),
                    _ => self.across::<D, WIDE, OFFSET, 6, 2>(row),
                }
            } else if D::ROWS == 2 {
                match left {
                    1 => self.across::<D, WIDE, OFFSET, 1, 2>(row),
                    _ => self.across::<D, WIDE, OFFSET, 2, 1>(row),
                }
            } else {
                self.across::<D, WIDE, OFFSET, 1, 1>(row);
            }
            row += left;
        }
    }

    #[inline(always)]
    fn across<D: Dots, const WIDE: bool, const OFFSET: bool, const R: usize, const C: usize>(
        &mut self,
        row: usize,
    ) {
        let (mut vector, end) = (self.columns.start * VECTORS, self.columns.end * VECTORS);
        while vector + C <= end {
            self.tile::<D, WIDE, OFFSET, R, C>(row, vector);
            vector += C;
        }
        while C > 1 && vector < end {
            self.tile::<D, WIDE, OFFSET, R, 1>(row, vector);
            vector += 1;
        }
    }

    /// `R` rows by `C` vectors from `row` and `vector` on.
    #[inline(always)]
    fn tile<D: Dots, const WIDE: bool, const OFFSET: bool, const R: usize, const C: usize>(
        &mut self,
        row: usize,
        vector: usize,
    ) {
        let n_blocks = self.panels.n_blocks;
        let record_lines = self.panels.coding.lines();
        let zero = self.panels.coding.zero();
        let rows: [RowBlocks<'_>; R] =
            std::array::from_fn(|r| RowBlocks::new(self.inputs, row + r, n_blocks));
        let columns: [(&[Line], usize); C] = std::array::from_fn(|c| {
            let start = (vector + c) / VECTORS * n_blocks * record_lines;
            (&self.panels.lines[start..start + n_blocks * record_lines], (vector + c) % VECTORS)
        });
        let mut sums = [[D::Lanes::splat(0.0); C]; R];
        for block in 0..n_blocks {
            let mut records = columns;
            for (record, _) in &mut records {
                *record = &record[block * record_lines..(block + 1) * record_lines];
            }
            if R <= 3 {
                for (record, of_panel) in records {
                    prefetch::<D>(record, of_panel);
                }
            }
            let words: [&[i32; BLOCK_WORDS]; R] = std::array::from_fn(|r| &rows[r].words[block]);
            let mut dots = [[D::splat(0); C]; R];
            if !OFFSET {
                for r in 0..R {
                    dots[r] = [D::splat(-zero * rows[r].sums[block]); C];
                }
            }
            if WIDE {
                dot_wide::<D, OFFSET, R, C>(&records, &words, &mut dots);
            } else {
                dot_nibbles::<D, OFFSET, R, C>(&records, &words, &mut dots);
            }
            let mut scales = [D::Lanes::splat(0.0); C];
            for c in 0..C {
                let (record, of_panel) = records[c];
                scales[c] = D::Lanes::load_f16(record[0].numbers(of_panel));
            }
            for r in 0..R {
                let of_row = D::Lanes::splat(rows[r].scales[block]);
                for c in 0..C {
                    sums[r][c] = dots[r][c].to_lanes().fma(scales[c].mul(of_row), sums[r][c]);
                }
            }
            if OFFSET {
                let mut offsets = [D::Lanes::splat(0.0); C];
                for c in 0..C {
                    let (record, of_panel) = records[c];
                    offsets[c] = D::Lanes::load_f16(record[1].numbers(of_panel));
                }
                for r in 0..R {
                    let total = rows[r].totals[block];
                    for c in 0..C {
                        sums[r][c] = offsets[c].fma(D::Lanes::splat(total), sums[r][c]);
                    }
                }
            }
        }
        self.finish(row, vector, &sums);
    }

    /// Puts the sums of a tile into the output, but for columns behind its end.
    #[inline(always)]
    fn finish<L: Lanes, const R: usize, const C: usize>(
        &mut self,
        row: usize,
        vector: usize,
        sums: &[[L; C]; R],
    ) {
        let first = self.columns.start * VECTORS;
        for (r, sums) in sums.iter().enumerate() {
            for (c, &sum) in sums.iter().enumerate() {
                if (vector + c) * LANES < self.out.n_out() {
                    self.out.finish(row + r - self.rows.start, vector + c - first, sum);
                }
            }
        }
    }
}

/// One row of inputs, block by block.
#[derive(Clone, Copy)]
struct RowBlocks<'a> {
    words: &'a [[i32; BLOCK_WORDS]],
    scales: &'a [f32],
    sums: &'a [i32],
    totals: &'a [f32],
}

impl<'a> RowBlocks<'a> {
    #[inline(always)]
    fn new(inputs: &'a Inputs, row: usize, n_blocks: usize) -> Self {
        let (start, end) = (row * n_blocks, (row + 1) * n_blocks);
        RowBlocks {
            words: &inputs.words.as_chunks().0[start..end],
            scales: &inputs.scales[start..end],
            sums: &inputs.sums[start..end],
            totals: &inputs.totals[start..end],
        }
    }
}

/// Adds the products of a block in eight bits: `R` rows times `C` vectors.
#[inline(always)]
fn dot_wide<D: Dots, const OFFSET: bool, const R: usize, const C: usize>(
    records: &[(&[Line], usize); C],
    words: &[&[i32; BLOCK_WORDS]; R],
    dots: &mut [[D; C]; R],
) {
    let codes: [&[Line]; C] = std::array::from_fn(|c| {
        let (record, vector) = records[c];
        &record[if OFFSET { 2 } else { 1 } + vector * GROUPS..][..GROUPS]
    });
    for group in 0..GROUPS {
        for c in 0..C {
            let weights = D::load(codes[c][group].bytes());
            for r in 0..R {
                dots[r][c] = dots[r][c].dot(weights, words[r][group]);
            }
        }
    }
}

/// Adds the products of a block in four bits: `R` rows times `C` vectors.
#[inline(always)]
fn dot_nibbles<D: Dots, const OFFSET: bool, const R: usize, const C: usize>(
    records: &[(&[Line], usize); C],
    words: &[&[i32; BLOCK_WORDS]; R],
    dots: &mut [[D; C]; R],
) {
    const PAIRS: usize = GROUPS / 2;
    let codes: [&[Line]; C] = std::array::from_fn(|c| {
        let (record, vector) = records[c];
        &record[if OFFSET { 2 } else { 1 } + vector * PAIRS..][..PAIRS]
    });
    for pair in 0..PAIRS {
        for c in 0..C {
            let both = D::load(codes[c][pair].bytes());
            let (low, high) = (D::low_nibbles(both), D::high_nibbles(both));
            for r in 0..R {
                dots[r][c] = dots[r][c].dot_nibbles(low, words[r][2 * pair]);
            }
            for r in 0..R {
                dots[r][c] = dots[r][c].dot_nibbles(high, words[r][2 * pair + 1]);
            }
        }
    }
}

/// Asks for what is needed some records later.
#[inline(always)]
fn prefetch<D: Dots>(record: &[Line], vector: usize) {
    let half = record.len().div_ceil(VECTORS);
    for line in vector * half..(vector + 1) * half {
        D::Lanes::prefetch(record, line + PREFETCH_LINES);
    }
}
