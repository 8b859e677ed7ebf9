//! Sixteen `f32` lanes, one implementation for each instruction set.
//!
//! Every kernel is written once over [`Lanes`] and instantiated by
//! [`Cpu::run`](crate::cpu::dispatch::Cpu) inside a function that enables the
//! instruction set, into which all of it is inlined.
//!
//! **Invariant:** a lane's result depends on that lane's inputs only, so the
//! place of an element in a vector never changes its value.
//!
//! **Refuses:** reassociation. There is no horizontal operation except
//! [`reduce_add`], whose tree is fixed.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod dots;
mod operands;
mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) use dots::{Avx2Dots, Avx512Dots};
pub(crate) use dots::{DOT_BYTES, Dots, PortableDots};
#[cfg(target_arch = "x86_64")]
pub(crate) use operands::{Bf16Pairs, Bf16Tiles};
pub(crate) use operands::{Floats, Operands, Vectors};
pub(crate) use portable::{Portable, f16_from_f32, f32_from_f16};

/// Number of lanes, whatever the width of the machine's registers.
pub(crate) const LANES: usize = 16;

/// Sixteen `f32` values in registers.
///
/// Implementations other than [`Portable`] may execute instructions that the
/// machine lacks; [`Cpu::run`](crate::cpu::dispatch::Cpu) is the only place
/// that names them, behind a check.
pub(crate) trait Lanes: Copy {
    /// Rows of the tile whose accumulators fill the registers.
    const ROWS: usize;

    fn splat(value: f32) -> Self;
    fn load(from: &[f32; LANES]) -> Self;
    fn store(self, to: &mut [f32; LANES]);
    /// Widens binary16 bit patterns.
    fn load_f16(from: &[u16; LANES]) -> Self;
    /// Narrows to binary16 bit patterns, rounding to nearest even.
    fn store_f16(self, to: &mut [u16; LANES]);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    /// `self * factor + addend`; one rounding where the machine has it.
    fn fma(self, factor: Self, addend: Self) -> Self;
    /// The larger of the two; `other` when either is NaN.
    fn max(self, other: Self) -> Self;
    /// The smaller of the two; `other` when either is NaN.
    fn min(self, other: Self) -> Self;
    /// `2^n` for each lane `ROUND + n`, `-127 <= n <= 128`, with `2^-127`
    /// taken as 0 and `2^128` as infinity.
    fn exp2_of_rounded(self) -> Self;
    /// Lane `j` of result `i` is element `i` of row `j`.
    fn transpose(rows: [&[f32; LANES]; LANES]) -> [Self; LANES];
    /// The lowest byte of each lane `ROUND + n`: `n`, for -128 <= n <= 127.
    fn bytes_of_rounded(self, to: &mut [u8; LANES]);
    /// The largest of all lanes, none of them NaN.
    fn largest(self) -> f32;
    /// The sum of all lanes, which are whole numbers whose sums are exact in any
    /// order.
    fn whole_sum(self) -> f32;
    /// Asks for the cache line of `data[offset]`, which may lie past the end.
    fn prefetch<T>(data: &[T], offset: usize);
}

/// Adding `1.5 * 2^23` leaves an `f32`'s integer part in its low mantissa bits.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// `e^x` within 2 units in the last place; exactly 0 below -88, so
/// `exp(-inf)` is 0; infinity above 88.37; NaN stays NaN.
///
/// Cody-Waite reduction to `|r| <= ln(2) / 2`, then `1 + r + r^2 q(r)` with a
/// minimax `q` of degree 4 (relative error 3e-9 before rounding).
#[inline(always)]
pub(crate) fn exp<L: Lanes>(x: L) -> L {
    // ln(2) in two parts; the first has 10 significant bits, so n times it is exact.
    const LN2_HIGH: f32 = 0.692_382_8;
    const LN2_LOW: f32 = 7.643_680_4e-4;
    const Q: [f32; 5] = [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_745, 0.001_381_454];

    let x = L::splat(-88.0).max(x);
    let x = L::splat(89.0).min(x);
    let rounded = x.fma(L::splat(std::f32::consts::LOG2_E), L::splat(ROUND));
    let n = rounded.sub(L::splat(ROUND));
    let r = n.fma(L::splat(-LN2_HIGH), x);
    let r = n.fma(L::splat(-LN2_LOW), r);
    let mut q = L::splat(Q[4]);
    q = q.fma(r, L::splat(Q[3]));
    q = q.fma(r, L::splat(Q[2]));
    q = q.fma(r, L::splat(Q[1]));
    q = q.fma(r, L::splat(Q[0]));
    let tail = r.mul(r).fma(q, r);
    tail.add(L::splat(1.0)).mul(rounded.exp2_of_rounded())
}

/// The sum of all lanes: halves are added until one value is left.
#[inline(always)]
pub(crate) fn reduce_add<L: Lanes>(lanes: L) -> f32 {
    let mut v = [0.0; LANES];
    lanes.store(&mut v);
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            v[i] += v[i + half];
        }
        half /= 2;
    }
    v[0]
}

/// The largest of all lanes.
#[inline(always)]
pub(crate) fn reduce_max<L: Lanes>(lanes: L) -> f32 {
    let mut v = [0.0; LANES];
    lanes.store(&mut v);
    let mut largest = v[0];
    for &value in &v[1..] {
        largest = if largest > value { largest } else { value };
    }
    largest
}

/// Sixteen elements of `data` from `offset` on.
///
/// # Panics
/// When they are not all there.
#[inline(always)]
pub(crate) fn chunk<T>(data: &[T], offset: usize) -> &[T; LANES] {
    data[offset..].first_chunk().expect("sixteen elements from the offset on")
}

/// Sixteen elements of `data` from `offset` on, to be written.
///
/// # Panics
/// When they are not all there.
#[inline(always)]
pub(crate) fn chunk_mut<T>(data: &mut [T], offset: usize) -> &mut [T; LANES] {
    data[offset..].first_chunk_mut().expect("sixteen elements from the offset on")
}

/// [`chunk`] without the check, for the loops where it would cost.
///
/// # Safety
/// `offset + LANES <= data.len()`.
#[inline(always)]
#[expect(unsafe_code, reason = "the bounds check would be a third of the inner loop")]
pub(crate) unsafe fn chunk_unchecked<T>(data: &[T], offset: usize) -> &[T; LANES] {
    debug_assert!(offset + LANES <= data.len(), "chunk out of bounds");
    // SAFETY: the caller promises that the range lies within `data`.
    let found = unsafe { data.get_unchecked(offset..offset + LANES) };
    found.first_chunk().expect("the range has sixteen elements")
}

/// [`chunk_mut`] without the check.
///
/// # Safety
/// `offset + LANES <= data.len()`.
#[inline(always)]
#[expect(unsafe_code, reason = "see `chunk_unchecked`")]
unsafe fn chunk_unchecked_mut<T>(data: &mut [T], offset: usize) -> &mut [T; LANES] {
    debug_assert!(offset + LANES <= data.len(), "chunk out of bounds");
    // SAFETY: the caller promises that the range lies within `data`.
    let found = unsafe { data.get_unchecked_mut(offset..offset + LANES) };
    found.first_chunk_mut().expect("the range has sixteen elements")
}

/// Transposes a 16 x 16 block: element `i` of row `j`, at `from[j * from_stride + i]`,
/// goes to `to[i * to_stride + j]`.
///
/// # Panics
/// When a row or a column is out of bounds.
#[inline(always)]
#[expect(unsafe_code, reason = "thirty-two bounds checks cost as much as the shuffles")]
pub(crate) fn transpose_block<L: Lanes>(
    from: &[f32],
    from_stride: usize,
    to: &mut [f32],
    to_stride: usize,
) {
    let last = LANES - 1;
    assert!(last * from_stride + LANES <= from.len(), "rows out of bounds");
    assert!(last * to_stride + LANES <= to.len(), "columns out of bounds");
    let mut rows = [&[0.0; LANES]; LANES];
    for (j, row) in rows.iter_mut().enumerate() {
        // SAFETY: the first assertion bounds the last row, the others lie before it.
        *row = unsafe { chunk_unchecked(from, j * from_stride) };
    }
    for (i, lanes) in L::transpose(rows).into_iter().enumerate() {
        // SAFETY: the second assertion bounds the last column, the others lie
        // before it.
        lanes.store(unsafe { chunk_unchecked_mut(to, i * to_stride) });
    }
}

/// The elements of `data` from `offset` on, at most sixteen, padded with `pad`.
#[inline(always)]
pub(crate) fn padded<T: Copy>(data: &[T], offset: usize, pad: T) -> [T; LANES] {
    let mut chunk = [pad; LANES];
    let n = (data.len() - offset).min(LANES);
    chunk[..n].copy_from_slice(&data[offset..offset + n]);
    chunk
}

#[cfg(test)]
mod tests;
