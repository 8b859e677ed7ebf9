//! Sums of products of bytes: four unsigned weights times four signed inputs
//! for each of sixteen lanes.
//!
//! **Invariant:** exact. No intermediate result saturates, whatever the bytes,
//! so all implementations give the same numbers.
//!
//! **Refuses:** `maddubs` on whole bytes: two products of 255 x 127 exceed its
//! sixteen bits. Where the machine has no instruction of its own, bytes are cut
//! into nibbles, whose products fit.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the instructions exist only on some machines")
)]
#![cfg_attr(
    target_arch = "x86_64",
    expect(clippy::cast_ptr_alignment, reason = "the loads need no alignment")
)]

use super::{LANES, Lanes, Portable};

/// Bytes of a vector: four for each lane.
pub(crate) const DOT_BYTES: usize = 4 * LANES;

/// Sixteen running sums of 32 bits.
///
/// As with [`Lanes`], implementations are named only by
/// [`Cpu::run_dots`](crate::cpu::dispatch::Cpu), behind a check.
pub(crate) trait Dots: Copy {
    type Lanes: Lanes;
    /// Weights in registers.
    type Bytes: Copy;
    /// Rows of a tile of two vectors whose sums fill the registers.
    const ROWS: usize;

    fn load(from: &[u8; DOT_BYTES]) -> Self::Bytes;
    fn low_nibbles(bytes: Self::Bytes) -> Self::Bytes;
    fn high_nibbles(bytes: Self::Bytes) -> Self::Bytes;
    fn splat(value: i32) -> Self;
    fn of(sums: &[i32; LANES]) -> Self;
    /// Adds the products of each lane's four weights with the four inputs, the
    /// first of which is the lowest byte.
    fn dot(self, weights: Self::Bytes, inputs: i32) -> Self;
    /// The same for weights of at most 15.
    fn dot_nibbles(self, weights: Self::Bytes, inputs: i32) -> Self;
    fn to_lanes(self) -> Self::Lanes;
}

/// Sums in plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct PortableDots([i32; LANES]);

impl Dots for PortableDots {
    type Lanes = Portable;
    type Bytes = [u8; DOT_BYTES];
    const ROWS: usize = 1;

    #[inline(always)]
    fn load(from: &[u8; DOT_BYTES]) -> Self::Bytes {
        *from
    }

    #[inline(always)]
    fn low_nibbles(bytes: Self::Bytes) -> Self::Bytes {
        bytes.map(|byte| byte & 15)
    }

    #[inline(always)]
    fn high_nibbles(bytes: Self::Bytes) -> Self::Bytes {
        bytes.map(|byte| byte >> 4)
    }

    #[inline(always)]
    fn splat(value: i32) -> Self {
        PortableDots([value; LANES])
    }

    #[inline(always)]
    fn of(sums: &[i32; LANES]) -> Self {
        PortableDots(*sums)
    }

    #[inline(always)]
    fn dot(mut self, weights: Self::Bytes, inputs: i32) -> Self {
        let inputs = inputs.to_le_bytes();
        for (sum, weights) in self.0.iter_mut().zip(weights.chunks_exact(4)) {
            for (&weight, &input) in weights.iter().zip(&inputs) {
                *sum += i32::from(weight) * i32::from(input.cast_signed());
            }
        }
        self
    }

    #[inline(always)]
    fn dot_nibbles(self, weights: Self::Bytes, inputs: i32) -> Self {
        self.dot(weights, inputs)
    }

    #[inline(always)]
    fn to_lanes(self) -> Portable {
        Portable::load(&self.0.map(|sum| sum as f32))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2Dots, Avx512Dots};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_add_epi32, _mm256_and_si256, _mm256_cvtepi32_ps,
        _mm256_dpbusd_avx_epi32, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16,
        _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_srli_epi16,
        _mm512_add_epi32, _mm512_and_si512, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32,
        _mm512_loadu_si512, _mm512_madd_epi16, _mm512_maddubs_epi16, _mm512_set1_epi8,
        _mm512_set1_epi16, _mm512_set1_epi32, _mm512_srli_epi16,
    };

    use super::super::{Avx2, Avx512};
    use super::{DOT_BYTES, Dots, LANES};

    /// Wraps an intrinsic that needs nothing but the instruction set.
    macro_rules! machine {
        ($call:expr) => {
            // SAFETY: these types are used only where `Cpu::run_dots` has enabled
            // the instruction sets that their parameters tell of.
            unsafe { $call }
        };
    }

    /// Sums in an AVX-512 register; `VNNI` with the instruction for it.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512Dots<const VNNI: bool>(__m512i);

    impl<const VNNI: bool> Avx512Dots<VNNI> {
        /// Products with weights of at most 15, each four of them added.
        #[inline(always)]
        fn of_nibbles(weights: __m512i, inputs: __m512i, factor: i16) -> __m512i {
            let pairs = machine!(_mm512_maddubs_epi16(weights, inputs));
            machine!(_mm512_madd_epi16(pairs, _mm512_set1_epi16(factor)))
        }
    }

    impl<const VNNI: bool> Dots for Avx512Dots<VNNI> {
        type Lanes = Avx512;
        type Bytes = __m512i;
        const ROWS: usize = 6;

        #[inline(always)]
        fn load(from: &[u8; DOT_BYTES]) -> __m512i {
            // SAFETY: `from` is 64 bytes; the load needs no alignment.
            unsafe { _mm512_loadu_si512(from.as_ptr().cast::<__m512i>()) }
        }

        #[inline(always)]
        fn low_nibbles(bytes: __m512i) -> __m512i {
            machine!(_mm512_and_si512(bytes, _mm512_set1_epi8(15)))
        }

        #[inline(always)]
        fn high_nibbles(bytes: __m512i) -> __m512i {
            machine!(_mm512_and_si512(_mm512_srli_epi16::<4>(bytes), _mm512_set1_epi8(15)))
        }

        #[inline(always)]
        fn splat(value: i32) -> Self {
            Avx512Dots(machine!(_mm512_set1_epi32(value)))
        }

        #[inline(always)]
        fn of(sums: &[i32; LANES]) -> Self {
            // SAFETY: `sums` is 64 bytes; the load needs no alignment.
            Avx512Dots(unsafe { _mm512_loadu_si512(sums.as_ptr().cast::<__m512i>()) })
        }

        #[inline(always)]
        fn dot(self, weights: __m512i, inputs: i32) -> Self {
            let inputs = machine!(_mm512_set1_epi32(inputs));
            if VNNI {
                return Avx512Dots(machine!(_mm512_dpbusd_epi32(self.0, weights, inputs)));
            }
            let low = Self::of_nibbles(Self::low_nibbles(weights), inputs, 1);
            let high = Self::of_nibbles(Self::high_nibbles(weights), inputs, 16);
            let both = machine!(_mm512_add_epi32(low, high));
            Avx512Dots(machine!(_mm512_add_epi32(self.0, both)))
        }

        #[inline(always)]
        fn dot_nibbles(self, weights: __m512i, inputs: i32) -> Self {
            if VNNI {
                return self.dot(weights, inputs);
            }
            let inputs = machine!(_mm512_set1_epi32(inputs));
            let sums = Self::of_nibbles(weights, inputs, 1);
            Avx512Dots(machine!(_mm512_add_epi32(self.0, sums)))
        }

        #[inline(always)]
        fn to_lanes(self) -> Avx512 {
            Avx512(machine!(_mm512_cvtepi32_ps(self.0)))
        }
    }

    /// Sums in two AVX registers; `VNNI` with the instruction for it.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2Dots<const VNNI: bool>(__m256i, __m256i);

    impl<const VNNI: bool> Avx2Dots<VNNI> {
        #[inline(always)]
        fn of_nibbles(weights: __m256i, inputs: __m256i, factor: i16) -> __m256i {
            let pairs = machine!(_mm256_maddubs_epi16(weights, inputs));
            machine!(_mm256_madd_epi16(pairs, _mm256_set1_epi16(factor)))
        }

        #[inline(always)]
        fn low_half(bytes: __m256i) -> __m256i {
            machine!(_mm256_and_si256(bytes, _mm256_set1_epi8(15)))
        }

        #[inline(always)]
        fn high_half(bytes: __m256i) -> __m256i {
            machine!(_mm256_and_si256(_mm256_srli_epi16::<4>(bytes), _mm256_set1_epi8(15)))
        }

        #[inline(always)]
        fn dot_half(sum: __m256i, weights: __m256i, inputs: __m256i) -> __m256i {
            if VNNI {
                return machine!(_mm256_dpbusd_avx_epi32(sum, weights, inputs));
            }
            let low = Self::of_nibbles(Self::low_half(weights), inputs, 1);
            let high = Self::of_nibbles(Self::high_half(weights), inputs, 16);
            machine!(_mm256_add_epi32(sum, _mm256_add_epi32(low, high)))
        }
    }

    impl<const VNNI: bool> Dots for Avx2Dots<VNNI> {
        type Lanes = Avx2;
        type Bytes = (__m256i, __m256i);
        const ROWS: usize = 2;

        #[inline(always)]
        fn load(from: &[u8; DOT_BYTES]) -> Self::Bytes {
            let (low, high) = from.split_at(DOT_BYTES / 2);
            // SAFETY: the slice is 32 bytes; the load needs no alignment.
            let low = unsafe { _mm256_loadu_si256(low.as_ptr().cast::<__m256i>()) };
            // SAFETY: as above.
            let high = unsafe { _mm256_loadu_si256(high.as_ptr().cast::<__m256i>()) };
            (low, high)
        }

        #[inline(always)]
        fn low_nibbles(bytes: Self::Bytes) -> Self::Bytes {
            (Self::low_half(bytes.0), Self::low_half(bytes.1))
        }

        #[inline(always)]
        fn high_nibbles(bytes: Self::Bytes) -> Self::Bytes {
            (Self::high_half(bytes.0), Self::high_half(bytes.1))
        }

        #[inline(always)]
        fn splat(value: i32) -> Self {
            let all = machine!(_mm256_set1_epi32(value));
            Avx2Dots(all, all)
        }

        #[inline(always)]
        fn of(sums: &[i32; LANES]) -> Self {
            let [low, high]: &[[i32; 8]; 2] = bytemuck::must_cast_ref(sums);
            // SAFETY: each half is 32 bytes; the load needs no alignment.
            let low = unsafe { _mm256_loadu_si256(low.as_ptr().cast::<__m256i>()) };
            // SAFETY: as above.
            let high = unsafe { _mm256_loadu_si256(high.as_ptr().cast::<__m256i>()) };
            Avx2Dots(low, high)
        }

        #[inline(always)]
        fn dot(self, weights: Self::Bytes, inputs: i32) -> Self {
            let inputs = machine!(_mm256_set1_epi32(inputs));
            Avx2Dots(
                Self::dot_half(self.0, weights.0, inputs),
                Self::dot_half(self.1, weights.1, inputs),
            )
        }

        #[inline(always)]
        fn dot_nibbles(self, weights: Self::Bytes, inputs: i32) -> Self {
            if VNNI {
                return self.dot(weights, inputs);
            }
            let inputs = machine!(_mm256_set1_epi32(inputs));
            let low = Self::of_nibbles(weights.0, inputs, 1);
            let high = Self::of_nibbles(weights.1, inputs, 1);
            let low = machine!(_mm256_add_epi32(self.0, low));
            Avx2Dots(low, machine!(_mm256_add_epi32(self.1, high)))
        }

        #[inline(always)]
        fn to_lanes(self) -> Avx2 {
            Avx2(machine!(_mm256_cvtepi32_ps(self.0)), machine!(_mm256_cvtepi32_ps(self.1)))
        }
    }
}
