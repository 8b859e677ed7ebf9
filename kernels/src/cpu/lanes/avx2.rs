//! Lanes in two AVX registers, with AVX2, FMA and F16C.
//!
//! **Invariant:** named only by [`Cpu::run`](crate::cpu::dispatch::Cpu), which
//! enables the instruction sets around every use. That is what each `SAFETY`
//! note below rests on.
#![expect(unsafe_code, reason = "the instructions exist only on some machines")]
#![expect(clippy::cast_ptr_alignment, reason = "the loads and stores need no alignment")]

use std::arch::x86_64::{
    __m128i, __m256, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _mm_loadu_ps, _mm_loadu_si128,
    _mm_prefetch, _mm_storeu_si128, _mm256_add_epi32, _mm256_add_ps, _mm256_castps_si256,
    _mm256_castps128_ps256, _mm256_castsi256_ps, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_div_ps,
    _mm256_fmadd_ps, _mm256_insertf128_ps, _mm256_loadu_ps, _mm256_max_ps, _mm256_min_ps,
    _mm256_mul_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_shuffle_ps, _mm256_slli_epi32,
    _mm256_storeu_ps, _mm256_sub_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};

use super::{LANES, Lanes};

/// Lanes 0 to 7 and 8 to 15.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(pub(super) __m256, pub(super) __m256);

/// Wraps an intrinsic that needs nothing but the instruction set.
macro_rules! avx2 {
    ($call:expr) => {
        // SAFETY: this type is used only where `Cpu::run` has enabled AVX2,
        // FMA and F16C.
        unsafe { $call }
    };
}

/// Applies a two-operand intrinsic to both halves.
macro_rules! halves {
    ($intrinsic:ident, $a:expr, $b:expr) => {
        Avx2(avx2!($intrinsic($a.0, $b.0)), avx2!($intrinsic($a.1, $b.1)))
    };
}

const HALF: usize = LANES / 2;

#[inline(always)]
fn load_half(from: &[f32; LANES], half: usize) -> __m256 {
    let eight: &[f32] = &from[half * HALF..half * HALF + HALF];
    // SAFETY: the slice is eight elements; the load needs no alignment.
    unsafe { _mm256_loadu_ps(eight.as_ptr()) }
}

#[inline(always)]
fn store_half(value: __m256, to: &mut [f32; LANES], half: usize) {
    let eight: &mut [f32] = &mut to[half * HALF..half * HALF + HALF];
    // SAFETY: the slice is eight elements; the store needs no alignment.
    unsafe { _mm256_storeu_ps(eight.as_mut_ptr(), value) }
}

#[inline(always)]
fn widen_half(from: &[u16; LANES], half: usize) -> __m256 {
    let eight: &[u16] = &from[half * HALF..half * HALF + HALF];
    // SAFETY: the slice is 16 bytes; the load needs no alignment.
    let bits = unsafe { _mm_loadu_si128(eight.as_ptr().cast::<__m128i>()) };
    avx2!(_mm256_cvtph_ps(bits))
}

#[inline(always)]
fn narrow_half(value: __m256, to: &mut [u16; LANES], half: usize) {
    let bits = avx2!(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value));
    let eight: &mut [u16] = &mut to[half * HALF..half * HALF + HALF];
    // SAFETY: the slice is 16 bytes; the store needs no alignment.
    unsafe { _mm_storeu_si128(eight.as_mut_ptr().cast::<__m128i>(), bits) }
}

#[inline(always)]
fn exp2_half(rounded: __m256) -> __m256 {
    let bits = avx2!(_mm256_castps_si256(rounded));
    let shifted = avx2!(_mm256_slli_epi32::<23>(bits));
    let bias = avx2!(_mm256_set1_epi32(127 << 23));
    let sum = avx2!(_mm256_add_epi32(shifted, bias));
    avx2!(_mm256_castsi256_ps(sum))
}

/// Elements `4 * quarter..4 * quarter + 4` of rows `row` and `row + 4`.
#[inline(always)]
fn two_quarters(rows: &[&[f32; LANES]; LANES], row: usize, quarter: usize) -> __m256 {
    let low: &[f32] = &rows[row][4 * quarter..4 * quarter + 4];
    let high: &[f32] = &rows[row + 4][4 * quarter..4 * quarter + 4];
    // SAFETY: the slice is four elements; the load needs no alignment.
    let low = unsafe { _mm_loadu_ps(low.as_ptr()) };
    // SAFETY: as above.
    let high = unsafe { _mm_loadu_ps(high.as_ptr()) };
    avx2!(_mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high))
}

/// The four columns from `4 * quarter` on of the eight rows from `row` on.
#[inline(always)]
fn four_columns(rows: &[&[f32; LANES]; LANES], row: usize, quarter: usize) -> [__m256; 4] {
    let a = two_quarters(rows, row, quarter);
    let b = two_quarters(rows, row + 1, quarter);
    let c = two_quarters(rows, row + 2, quarter);
    let d = two_quarters(rows, row + 3, quarter);
    let ab_low = avx2!(_mm256_unpacklo_ps(a, b));
    let ab_high = avx2!(_mm256_unpackhi_ps(a, b));
    let cd_low = avx2!(_mm256_unpacklo_ps(c, d));
    let cd_high = avx2!(_mm256_unpackhi_ps(c, d));
    [
        avx2!(_mm256_shuffle_ps::<0x44>(ab_low, cd_low)),
        avx2!(_mm256_shuffle_ps::<0xee>(ab_low, cd_low)),
        avx2!(_mm256_shuffle_ps::<0x44>(ab_high, cd_high)),
        avx2!(_mm256_shuffle_ps::<0xee>(ab_high, cd_high)),
    ]
}

impl Lanes for Avx2 {
    // 12 accumulators, a vector of columns and a broadcast: 15 of 16 registers.
    const ROWS: usize = 6;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Avx2(avx2!(_mm256_set1_ps(value)), avx2!(_mm256_set1_ps(value)))
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        Avx2(load_half(from, 0), load_half(from, 1))
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        store_half(self.0, to, 0);
        store_half(self.1, to, 1);
    }

    #[inline(always)]
    fn load_f16(from: &[u16; LANES]) -> Self {
        Avx2(widen_half(from, 0), widen_half(from, 1))
    }

    #[inline(always)]
    fn store_f16(self, to: &mut [u16; LANES]) {
        narrow_half(self.0, to, 0);
        narrow_half(self.1, to, 1);
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        halves!(_mm256_add_ps, self, other)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        halves!(_mm256_sub_ps, self, other)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        halves!(_mm256_mul_ps, self, other)
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        halves!(_mm256_div_ps, self, other)
    }

    #[inline(always)]
    fn fma(self, factor: Self, addend: Self) -> Self {
        Avx2(
            avx2!(_mm256_fmadd_ps(self.0, factor.0, addend.0)),
            avx2!(_mm256_fmadd_ps(self.1, factor.1, addend.1)),
        )
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        halves!(_mm256_max_ps, self, other)
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        halves!(_mm256_min_ps, self, other)
    }

    #[inline(always)]
    fn exp2_of_rounded(self) -> Self {
        Avx2(exp2_half(self.0), exp2_half(self.1))
    }

    #[inline(always)]
    fn transpose(rows: [&[f32; LANES]; LANES]) -> [Self; LANES] {
        let mut out = [Self::splat(0.0); LANES];
        for quarter in 0..4 {
            let upper = four_columns(&rows, 0, quarter);
            let lower = four_columns(&rows, 8, quarter);
            for i in 0..4 {
                out[4 * quarter + i] = Avx2(upper[i], lower[i]);
            }
        }
        out
    }

    #[inline(always)]
    fn bytes_of_rounded(self, to: &mut [u8; LANES]) {
        let mut bits = [0.0; LANES];
        self.store(&mut bits);
        for (byte, lane) in to.iter_mut().zip(&bits) {
            *byte = lane.to_bits() as u8;
        }
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        let four = avx2!(_mm256_max_ps(self.0, self.1));
        let mut lanes = [0.0_f32; HALF];
        // SAFETY: the array is eight elements; the store needs no alignment.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), four) }
        let pairs =
            [0, 1, 2, 3].map(|i| if lanes[i] > lanes[i + 4] { lanes[i] } else { lanes[i + 4] });
        pairs[0].max(pairs[1]).max(pairs[2].max(pairs[3]))
    }

    #[inline(always)]
    fn whole_sum(self) -> f32 {
        let sums = avx2!(_mm256_add_ps(self.0, self.1));
        let mut lanes = [0.0_f32; HALF];
        // SAFETY: the array is eight elements; the store needs no alignment.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sums) }
        (lanes[0] + lanes[1])
            + (lanes[2] + lanes[3])
            + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))
    }

    #[inline(always)]
    fn prefetch<T>(data: &[T], offset: usize) {
        let address = data.as_ptr().wrapping_add(offset);
        avx2!(_mm_prefetch::<_MM_HINT_T0>(address.cast()));
    }
}
