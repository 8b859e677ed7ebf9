//! Lanes in one AVX-512 register.
//!
//! **Invariant:** named only by [`Cpu::run`](crate::cpu::dispatch::Cpu), which
//! enables the instruction set around every use. That is what each `SAFETY`
//! note below rests on.
#![expect(unsafe_code, reason = "the instructions exist only on some machines")]
#![expect(clippy::cast_ptr_alignment, reason = "the loads and stores need no alignment")]

use std::arch::x86_64::{
    __m128i, __m256i, __m512, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _mm_loadu_ps, _mm_prefetch,
    _mm_storeu_si128, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_add_epi32, _mm512_add_ps,
    _mm512_castps_si512, _mm512_castps128_ps512, _mm512_castsi512_ps, _mm512_cvtepi32_epi8,
    _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_div_ps, _mm512_fmadd_ps, _mm512_insertf32x4,
    _mm512_loadu_ps, _mm512_max_ps, _mm512_min_ps, _mm512_mul_ps, _mm512_reduce_add_ps,
    _mm512_reduce_max_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_shuffle_ps, _mm512_slli_epi32,
    _mm512_storeu_ps, _mm512_sub_ps, _mm512_unpackhi_ps, _mm512_unpacklo_ps,
};

use super::{LANES, Lanes};

/// Sixteen values in one register.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(pub(super) __m512);

/// Wraps an intrinsic that needs nothing but the instruction set.
macro_rules! avx512 {
    ($call:expr) => {
        // SAFETY: this type is used only where `Cpu::run` has enabled AVX-512F.
        unsafe { $call }
    };
}

impl Avx512 {
    /// Elements `offset..offset + 4` of rows `row`, `row + 4`, `row + 8` and
    /// `row + 12`, one row to each quarter of the register.
    #[inline(always)]
    fn quarters(rows: &[&[f32; LANES]; LANES], row: usize, quarter: usize) -> __m512 {
        let part = |row: usize| -> *const f32 {
            let four: &[f32] = &rows[row][4 * quarter..4 * quarter + 4];
            four.as_ptr()
        };
        // SAFETY: the pointer is to four elements of a row.
        let first = unsafe { _mm_loadu_ps(part(row)) };
        // SAFETY: as above.
        let second = unsafe { _mm_loadu_ps(part(row + 4)) };
        // SAFETY: as above.
        let third = unsafe { _mm_loadu_ps(part(row + 8)) };
        // SAFETY: as above.
        let fourth = unsafe { _mm_loadu_ps(part(row + 12)) };
        let all = avx512!(_mm512_castps128_ps512(first));
        let all = avx512!(_mm512_insertf32x4::<1>(all, second));
        let all = avx512!(_mm512_insertf32x4::<2>(all, third));
        avx512!(_mm512_insertf32x4::<3>(all, fourth))
    }
}

impl Lanes for Avx512 {
    // 24 accumulators, 2 columns and a broadcast of 32 registers.
    const ROWS: usize = 12;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Avx512(avx512!(_mm512_set1_ps(value)))
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        // SAFETY: `from` is sixteen elements; the load needs no alignment.
        Avx512(unsafe { _mm512_loadu_ps(from.as_ptr()) })
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        // SAFETY: `to` is sixteen elements; the store needs no alignment.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn load_f16(from: &[u16; LANES]) -> Self {
        // SAFETY: `from` is 32 bytes; the load needs no alignment.
        let bits = unsafe { _mm256_loadu_si256(from.as_ptr().cast::<__m256i>()) };
        Avx512(avx512!(_mm512_cvtph_ps(bits)))
    }

    #[inline(always)]
    fn store_f16(self, to: &mut [u16; LANES]) {
        let bits = avx512!(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0));
        // SAFETY: `to` is 32 bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast::<__m256i>(), bits) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Avx512(avx512!(_mm512_add_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Avx512(avx512!(_mm512_sub_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Avx512(avx512!(_mm512_mul_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        Avx512(avx512!(_mm512_div_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn fma(self, factor: Self, addend: Self) -> Self {
        Avx512(avx512!(_mm512_fmadd_ps(self.0, factor.0, addend.0)))
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Avx512(avx512!(_mm512_max_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Avx512(avx512!(_mm512_min_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn exp2_of_rounded(self) -> Self {
        let bits = avx512!(_mm512_castps_si512(self.0));
        let shifted = avx512!(_mm512_slli_epi32::<23>(bits));
        let bias = avx512!(_mm512_set1_epi32(127 << 23));
        let sum = avx512!(_mm512_add_epi32(shifted, bias));
        Avx512(avx512!(_mm512_castsi512_ps(sum)))
    }

    /// Loads of quarters do the half of a 16 x 16 transpose that moves whole
    /// quarters; two steps of shuffles inside them do the rest.
    #[inline(always)]
    fn transpose(rows: [&[f32; LANES]; LANES]) -> [Self; LANES] {
        let mut out = [Self::splat(0.0); LANES];
        for quarter in 0..4 {
            let a = Self::quarters(&rows, 0, quarter);
            let b = Self::quarters(&rows, 1, quarter);
            let c = Self::quarters(&rows, 2, quarter);
            let d = Self::quarters(&rows, 3, quarter);
            let ab_low = avx512!(_mm512_unpacklo_ps(a, b));
            let ab_high = avx512!(_mm512_unpackhi_ps(a, b));
            let cd_low = avx512!(_mm512_unpacklo_ps(c, d));
            let cd_high = avx512!(_mm512_unpackhi_ps(c, d));
            let first = 4 * quarter;
            out[first] = Avx512(avx512!(_mm512_shuffle_ps::<0x44>(ab_low, cd_low)));
            out[first + 1] = Avx512(avx512!(_mm512_shuffle_ps::<0xee>(ab_low, cd_low)));
            out[first + 2] = Avx512(avx512!(_mm512_shuffle_ps::<0x44>(ab_high, cd_high)));
            out[first + 3] = Avx512(avx512!(_mm512_shuffle_ps::<0xee>(ab_high, cd_high)));
        }
        out
    }

    #[inline(always)]
    fn bytes_of_rounded(self, to: &mut [u8; LANES]) {
        let bytes = avx512!(_mm512_cvtepi32_epi8(_mm512_castps_si512(self.0)));
        // SAFETY: `to` is 16 bytes; the store needs no alignment.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast::<__m128i>(), bytes) }
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        avx512!(_mm512_reduce_max_ps(self.0))
    }

    #[inline(always)]
    fn whole_sum(self) -> f32 {
        avx512!(_mm512_reduce_add_ps(self.0))
    }

    #[inline(always)]
    fn prefetch<T>(data: &[T], offset: usize) {
        let address = data.as_ptr().wrapping_add(offset);
        avx512!(_mm_prefetch::<_MM_HINT_T0>(address.cast()));
    }
}
