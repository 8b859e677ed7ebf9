//! Lanes in plain Rust, for machines without the others.
//!
//! **Invariant:** defines what the other implementations compute, but for the
//! single rounding of their `fma`.
//!
//! **Refuses:** `f32::mul_add`, which is a slow library call where the machine
//! lacks the instruction.

use super::{LANES, Lanes};

/// Sixteen values in whatever registers the compiler finds.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; LANES]);

impl Portable {
    #[inline(always)]
    fn zip(self, other: Self, op: impl Fn(f32, f32) -> f32) -> Self {
        let mut out = self.0;
        for (lane, &other) in out.iter_mut().zip(&other.0) {
            *lane = op(*lane, other);
        }
        Portable(out)
    }
}

impl Lanes for Portable {
    const ROWS: usize = 2;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Portable([value; LANES])
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        Portable(*from)
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        *to = self.0;
    }

    #[inline(always)]
    fn load_f16(from: &[u16; LANES]) -> Self {
        let mut out = [0.0; LANES];
        for (lane, &bits) in out.iter_mut().zip(from) {
            *lane = f32_from_f16(bits);
        }
        Portable(out)
    }

    #[inline(always)]
    fn store_f16(self, to: &mut [u16; LANES]) {
        for (bits, &lane) in to.iter_mut().zip(&self.0) {
            *bits = f16_from_f32(lane);
        }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }

    #[inline(always)]
    fn fma(self, factor: Self, addend: Self) -> Self {
        self.mul(factor).add(addend)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn exp2_of_rounded(self) -> Self {
        let mut out = self.0;
        for lane in &mut out {
            *lane = f32::from_bits((lane.to_bits() << 23).wrapping_add(127 << 23));
        }
        Portable(out)
    }

    #[inline(always)]
    fn transpose(rows: [&[f32; LANES]; LANES]) -> [Self; LANES] {
        let mut out = [Portable([0.0; LANES]); LANES];
        for (j, row) in rows.into_iter().enumerate() {
            for (lanes, &value) in out.iter_mut().zip(row) {
                lanes.0[j] = value;
            }
        }
        out
    }

    #[inline(always)]
    fn bytes_of_rounded(self, to: &mut [u8; LANES]) {
        for (byte, lane) in to.iter_mut().zip(&self.0) {
            *byte = lane.to_bits() as u8;
        }
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        self.0[1..].iter().fold(self.0[0], |largest, &lane| largest.max(lane))
    }

    #[inline(always)]
    fn whole_sum(self) -> f32 {
        self.0.iter().sum()
    }

    #[inline(always)]
    fn prefetch<T>(_data: &[T], _offset: usize) {}
}

/// Widens one binary16 bit pattern; every value is exact.
#[inline(always)]
pub(crate) fn f32_from_f16(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff);
    let value = if magnitude >= 0x7c00 {
        // Infinity, or a NaN made quiet.
        let quiet = if magnitude > 0x7c00 { 0x0040_0000 } else { 0 };
        0x7f80_0000 | quiet | ((magnitude & 0x3ff) << 13)
    } else {
        // The multiplication re-biases the exponent and normalises subnormals.
        let rebias = f32::from_bits((127 + 112) << 23);
        (f32::from_bits(magnitude << 13) * rebias).to_bits()
    };
    f32::from_bits(sign | value)
}

/// Narrows to one binary16 bit pattern, rounding to nearest even.
#[inline(always)]
pub(crate) fn f16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let narrow = if magnitude > 0x7f80_0000 {
        0x7e00 | ((magnitude >> 13) as u16 & 0x3ff)
    } else if magnitude >= 0x477f_f000 {
        // From 65520 on the nearest binary16 is infinity.
        0x7c00
    } else if magnitude < 0x3880_0000 {
        // A subnormal of the result: adding 0.5 lets the addition round at
        // the place of binary16's last bit, 2^-24.
        ((f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()) as u16
    } else {
        let odd = (magnitude >> 13) & 1;
        ((magnitude - (112 << 23) + 0xfff + odd) >> 13) as u16
    };
    sign | narrow
}
