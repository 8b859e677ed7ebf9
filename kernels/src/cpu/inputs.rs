//! Inputs of a product with quantised weights: bytes in blocks of 32.
//!
//! **Invariant:** a block depends on its 32 inputs only: `scale * byte` is each
//! input to half a `scale`, which is the block's largest magnitude over 127.
//!
//! **Refuses:** one scale for a whole row: single inputs of a down-projection
//! reach 700 times their root mean square, and would take the others' bits.

use std::cell::RefCell;

use crate::cpu::dispatch::{Cpu, Kernel};
use crate::cpu::lanes::{LANES, Lanes, ROUND, chunk};
use crate::cpu::shared::Shared;

/// Weights or inputs of a block, which has one scale.
pub(crate) const BLOCK: usize = 32;
/// Words of four bytes in a block.
pub(crate) const BLOCK_WORDS: usize = BLOCK / 4;
/// Rows that one thread quantises at once: those of a tile.
const ITEM_ROWS: usize = 16;

/// Rows of bytes, `[m, n_blocks]` blocks of them.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// Four inputs each, the first in the lowest byte: `[m, n_blocks, 8]`.
    pub(crate) words: Vec<i32>,
    /// `[m, n_blocks]`
    pub(crate) scales: Vec<f32>,
    /// Sums of the bytes of a block: `[m, n_blocks]`.
    pub(crate) sums: Vec<i32>,
    /// The same times their scale: `[m, n_blocks]`.
    pub(crate) totals: Vec<f32>,
    /// The same for tiles, sixteen rows and two blocks at a time:
    /// `[m / 16, n_blocks / 2]`, or nothing.
    pub(crate) tiles: Vec<InputTile>,
}

/// Two blocks of sixteen rows. What is not there is anything.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct InputTile {
    pub(crate) words: [[i32; 2 * BLOCK_WORDS]; ITEM_ROWS],
    /// For each block the scales of the rows.
    pub(crate) scales: [[f32; ITEM_ROWS]; 2],
    /// For each block the totals of the rows.
    pub(crate) totals: [[f32; ITEM_ROWS]; 2],
}

impl InputTile {
    const ZERO: InputTile = InputTile {
        words: [[0; 2 * BLOCK_WORDS]; ITEM_ROWS],
        scales: [[0.0; ITEM_ROWS]; 2],
        totals: [[0.0; ITEM_ROWS]; 2],
    };
}

thread_local! {
    static SCRATCH: RefCell<Inputs> = RefCell::default();
}

/// Calls `work` with `x`, `[m, n_in]`, in bytes, and in tiles if they are wanted.
/// The memory is kept for the thread's next call.
pub(crate) fn with_inputs(
    cpu: &Cpu,
    x: &[f32],
    n_in: usize,
    in_tiles: bool,
    work: impl FnOnce(&Inputs),
) {
    // Taken out, so that a kernel inside a kernel gets scratch of its own.
    let mut inputs = SCRATCH.take();
    inputs.fill(cpu, x, n_in, in_tiles);
    work(&inputs);
    SCRATCH.set(inputs);
}

impl Inputs {
    fn fill(&mut self, cpu: &Cpu, x: &[f32], n_in: usize, in_tiles: bool) {
        let (m, n_blocks) = (x.len() / n_in, n_in / BLOCK);
        self.words.resize(m * n_blocks * BLOCK_WORDS, 0);
        self.scales.resize(m * n_blocks, 0.0);
        self.sums.resize(m * n_blocks, 0);
        self.totals.resize(m * n_blocks, 0.0);
        let n_pairs = if in_tiles { n_blocks.div_ceil(2) } else { 0 };
        self.tiles.resize(m.div_ceil(ITEM_ROWS) * n_pairs, InputTile::ZERO);
        let (words, scales, sums, totals, tiles) = (
            Shared::new(&mut self.words),
            Shared::new(&mut self.scales),
            Shared::new(&mut self.sums),
            Shared::new(&mut self.totals),
            Shared::new(&mut self.tiles),
        );
        let item = |i: usize| {
            let start = i * ITEM_ROWS * n_blocks;
            let n = (ITEM_ROWS * n_blocks).min(m * n_blocks - start);
            let (words, scales, totals) = (
                claim(&words, start * BLOCK_WORDS, n * BLOCK_WORDS),
                claim(&scales, start, n),
                claim(&totals, start, n),
            );
            cpu.run(Quantise {
                x: &x[start * BLOCK..(start + n) * BLOCK],
                words,
                scales,
                sums: claim(&sums, start, n),
                totals,
            });
            let tiles = claim(&tiles, i * n_pairs, n_pairs);
            if !tiles.is_empty() {
                fill_tiles(words, scales, totals, n_blocks, tiles);
            }
        };
        if m <= ITEM_ROWS {
            item(0);
        } else {
            cpu.threads().for_each(m.div_ceil(ITEM_ROWS), item);
        }
    }
}

/// Copies at most sixteen rows.
fn fill_tiles(
    words: &[i32],
    scales: &[f32],
    totals: &[f32],
    n_blocks: usize,
    tiles: &mut [InputTile],
) {
    let rows = words.chunks_exact(n_blocks * BLOCK_WORDS);
    let numbers = scales.chunks_exact(n_blocks).zip(totals.chunks_exact(n_blocks));
    for (r, (words, (scales, totals))) in rows.zip(numbers).enumerate() {
        for (i, tile) in tiles.iter_mut().enumerate() {
            let (from, to) = (2 * i, n_blocks.min(2 * i + 2));
            let words = &words[from * BLOCK_WORDS..to * BLOCK_WORDS];
            tile.words[r][..words.len()].copy_from_slice(words);
            for (j, block) in (from..to).enumerate() {
                tile.scales[j][r] = scales[block];
                tile.totals[j][r] = totals[block];
            }
        }
    }
}

#[expect(unsafe_code, reason = "items write disjoint rows of one buffer")]
fn claim<'a, T>(all: &Shared<'a, T>, start: usize, len: usize) -> &'a mut [T] {
    // SAFETY: `fill` claims the rows of each item once, and items have rows of
    // their own.
    unsafe { all.claim(start, len) }
}

/// Some blocks.
struct Quantise<'a> {
    x: &'a [f32],
    words: &'a mut [i32],
    scales: &'a mut [f32],
    sums: &'a mut [i32],
    totals: &'a mut [f32],
}

impl Kernel for Quantise<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let blocks = self.x.chunks_exact(BLOCK).zip(self.words.chunks_exact_mut(BLOCK_WORDS));
        for (i, (x, words)) in blocks.enumerate() {
            let (low, high) = (L::load(chunk(x, 0)), L::load(chunk(x, LANES)));
            let zero = L::splat(0.0);
            let largest = low.max(zero.sub(low)).max(high.max(zero.sub(high)));
            let largest = largest.largest();
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            // The sum's low bits are the nearest integer, ties to even. Two steps, so
            // that a machine without `fma` gives the same.
            let (factor, round) = (L::splat(inverse), L::splat(ROUND));
            let (low, high) = (low.mul(factor).add(round), high.mul(factor).add(round));
            let mut bytes = [0; BLOCK];
            let [first, second] = bytes.as_chunks_mut::<LANES>().0 else {
                unreachable!("a block is two vectors")
            };
            low.bytes_of_rounded(first);
            high.bytes_of_rounded(second);
            for (word, four) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *word = i32::from_le_bytes(*four);
            }
            let sum = low.sub(round).add(high.sub(round)).whole_sum();
            self.scales[i] = largest / 127.0;
            self.sums[i] = sum as i32;
            self.totals[i] = self.scales[i] * sum;
        }
    }
}
