//! What a product multiplies: words of one `f32`, or of two bfloat16.
//!
//! Where the machine adds pairs of bfloat16 products in one instruction,
//! attention is twice as fast with them. A bfloat16 has 8 significant bits, so
//! each factor is off by at most 1 part in 512; sums stay `f32`.
//!
//! **Invariant:** a chain's elements are paired by their index in the chain, so a
//! chain gives the same bits wherever it is cut between words.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the instructions exist only on some machines")
)]

use super::Lanes;
use crate::cpu::tile::{Columns, Extent, Matrix, Multiply, Rows, product};

/// Elements in vectors of sixteen.
pub(crate) trait Vectors<L: Lanes> {
    /// Elements `16 * i..16 * i + 16`, 0 for those that are not there.
    fn vector(&self, i: usize) -> L;
}

/// How the elements of a chain lie in words, and how words are multiplied.
///
/// As with [`Lanes`], implementations are named only by
/// [`Cpu::run_product`](crate::cpu::dispatch::Cpu), behind a check.
pub(crate) trait Operands<L: Lanes> {
    /// Elements of a word.
    const PER_WORD: usize;
    /// Words `16 * i..16 * i + 16` of one chain.
    fn along(chain: &impl Vectors<L>, i: usize) -> L;
    /// One word each of the sixteen chains of vector `i`; the elements of the
    /// word are those of `steps`, of which there are [`PER_WORD`](Self::PER_WORD).
    fn across(steps: &[impl Vectors<L>], i: usize) -> L;
    /// Computes all of `extent`, whose `inner` counts words. Columns up to the
    /// next multiple of 32 may be written too, and words up to the next multiple
    /// of 16 read.
    fn product(&mut self, x: Rows<'_>, w: Columns<'_>, extent: Extent, out: &mut Matrix<'_>);
}

/// A word is an `f32`.
pub(crate) struct Floats;

impl<L: Lanes> Operands<L> for Floats {
    const PER_WORD: usize = 1;

    #[inline(always)]
    fn along(chain: &impl Vectors<L>, i: usize) -> L {
        chain.vector(i)
    }

    #[inline(always)]
    fn across(steps: &[impl Vectors<L>], i: usize) -> L {
        steps[0].vector(i)
    }

    #[inline(always)]
    fn product(&mut self, x: Rows<'_>, w: Columns<'_>, extent: Extent, out: &mut Matrix<'_>) {
        product::<L, Self, _>(x, w, extent, out);
    }
}

impl<L: Lanes> Multiply<L> for Floats {
    #[inline(always)]
    fn multiply(x: L, w: L, sum: L) -> L {
        x.fma(w, sum)
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Bf16Pairs, Bf16Tiles};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m512, __m512bh, __m512i, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_permutexvar_epi16,
        _mm512_set_epi16,
    };
    use std::mem::transmute;

    use super::super::{Avx512, LANES};
    use super::{Operands, Vectors};
    use crate::cpu::amx::{PairProduct, PairTiles, TILE_ROWS, Tiles};
    use crate::cpu::tile::{Columns, Extent, Matrix, Multiply, PANEL, Rows, product};

    /// Wraps an intrinsic that needs nothing but the instruction set, or a
    /// change of a register's type.
    macro_rules! machine {
        ($call:expr) => {
            // SAFETY: this type is used only where `Cpu::run_product` has enabled
            // AVX-512 BF16 and BW; all types of a register are plain bits.
            unsafe { $call }
        };
    }

    /// A word is two bfloat16, the lower first.
    pub(crate) struct Bf16Pairs;

    impl Bf16Pairs {
        /// Thirty-two bfloat16, rounded to nearest even: `low`, then `high`.
        #[inline(always)]
        fn rounded(low: Avx512, high: Avx512) -> __m512bh {
            machine!(_mm512_cvtne2ps_pbh(high.0, low.0))
        }
    }

    impl Operands<Avx512> for Bf16Pairs {
        const PER_WORD: usize = 2;

        #[inline(always)]
        fn along(chain: &impl Vectors<Avx512>, i: usize) -> Avx512 {
            let both = Self::rounded(chain.vector(2 * i), chain.vector(2 * i + 1));
            Avx512(machine!(transmute::<__m512bh, __m512>(both)))
        }

        #[inline(always)]
        fn across(steps: &[impl Vectors<Avx512>], i: usize) -> Avx512 {
            let both = Self::rounded(steps[0].vector(i), steps[1].vector(i));
            let both = machine!(transmute::<__m512bh, __m512i>(both));
            // Element `d` of the first beside element `d` of the second.
            #[rustfmt::skip]
            let places = machine!(_mm512_set_epi16(
                31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0,
            ));
            let paired = machine!(_mm512_permutexvar_epi16(places, both));
            Avx512(machine!(transmute::<__m512i, __m512>(paired)))
        }

        #[inline(always)]
        fn product(&mut self, x: Rows<'_>, w: Columns<'_>, extent: Extent, out: &mut Matrix<'_>) {
            product::<Avx512, Self, _>(x, w, extent, out);
        }
    }

    impl Multiply<Avx512> for Bf16Pairs {
        #[inline(always)]
        fn multiply(x: Avx512, w: Avx512, sum: Avx512) -> Avx512 {
            let x = machine!(transmute::<__m512, __m512bh>(x.0));
            let w = machine!(transmute::<__m512, __m512bh>(w.0));
            Avx512(machine!(_mm512_dpbf16_ps(sum.0, x, w)))
        }
    }

    /// Words as in [`Bf16Pairs`], multiplied in tile registers: 32 elements of a
    /// chain are added up among themselves, those of even and of odd index apart,
    /// and then to the chain's sum.
    pub(crate) struct Bf16Tiles {
        tiles: PairTiles,
    }

    impl Bf16Tiles {
        pub(crate) fn new(tiles: Tiles) -> Self {
            Bf16Tiles { tiles: tiles.pairs(TILE_ROWS) }
        }
    }

    impl Operands<Avx512> for Bf16Tiles {
        const PER_WORD: usize = 2;

        #[inline(always)]
        fn along(chain: &impl Vectors<Avx512>, i: usize) -> Avx512 {
            Bf16Pairs::along(chain, i)
        }

        #[inline(always)]
        fn across(steps: &[impl Vectors<Avx512>], i: usize) -> Avx512 {
            Bf16Pairs::across(steps, i)
        }

        #[inline(always)]
        fn product(&mut self, x: Rows<'_>, w: Columns<'_>, extent: Extent, out: &mut Matrix<'_>) {
            assert_eq!(w.pair_stride, PANEL, "vectors of columns lie beside each other");
            let product = PairProduct {
                left_stride: x.stride,
                right_stride: w.step,
                out_stride: out.stride,
                n_steps: extent.inner.div_ceil(LANES),
                adds: out.adds,
            };
            let mut row = 0;
            while row < extent.rows {
                let left = &x.data[row * x.stride..];
                let rows = (extent.rows - row).min(TILE_ROWS);
                let is_pair = extent.rows - row >= 2 * TILE_ROWS;
                self.tiles.set_rows(rows);
                for column in (0..extent.vectors * LANES).step_by(PANEL) {
                    let right = &w.data[column..];
                    let to = &mut out.rows[row * out.stride + out.at + column..];
                    if is_pair {
                        self.tiles.two_by_two(left, right, to, &product);
                    } else {
                        self.tiles.one_by_two(left, right, to, &product);
                    }
                }
                row += if is_pair { 2 * TILE_ROWS } else { rows };
            }
        }
    }
}
