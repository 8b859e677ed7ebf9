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
/// Rows that one thread quantises at once.
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
}

thread_local! {
    static SCRATCH: RefCell<Inputs> = RefCell::default();
}

/// Calls `work` with `x`, `[m, n_in]`, in bytes. The memory is kept for the
/// thread's next call.
pub(crate) fn with_inputs(cpu: &Cpu, x: &[f32], n_in: usize, work: impl FnOnce(&Inputs)) {
    // Taken out, so that a kernel inside a kernel gets scratch of its own.
    let mut inputs = SCRATCH.take();
    inputs.fill(cpu, x, n_in);
    work(&inputs);
    SCRATCH.set(inputs);
}

impl Inputs {
    fn fill(&mut self, cpu: &Cpu, x: &[f32], n_in: usize) {
        let (m, n_blocks) = (x.len() / n_in, n_in / BLOCK);
        self.words.resize(m * n_blocks * BLOCK_WORDS, 0);
        self.scales.resize(m * n_blocks, 0.0);
        self.sums.resize(m * n_blocks, 0);
        let (words, scales, sums) = (
            Shared::new(&mut self.words),
            Shared::new(&mut self.scales),
            Shared::new(&mut self.sums),
        );
        let item = |i: usize| {
            let start = i * ITEM_ROWS * n_blocks;
            let n = (ITEM_ROWS * n_blocks).min(m * n_blocks - start);
            cpu.run(Quantise {
                x: &x[start * BLOCK..(start + n) * BLOCK],
                words: claim(&words, start * BLOCK_WORDS, n * BLOCK_WORDS),
                scales: claim(&scales, start, n),
                sums: claim(&sums, start, n),
            });
        };
        if m <= ITEM_ROWS {
            item(0);
        } else {
            cpu.threads().for_each(m.div_ceil(ITEM_ROWS), item);
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
        }
    }
}
