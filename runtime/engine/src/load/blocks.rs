//! Quantised tensors of GGUF files as blocks of 32 weights, for kernels that
//! multiply with them as they are.
//!
//! The layouts are those of `ggml-common.h`: a block of 32 weights begins with
//! its scale (binary16) and, in the `_1` formats, its offset; a super-block of
//! 256 has two of them and eight pairs of 6-bit factors.
//!
//! **Invariant:** a block's numbers are the file's, to the rounding of a product
//! to binary16 where a scale is the product of two.
//!
//! **Refuses:** formats whose scales cover 16 weights (`Q6_K` and others) and
//! those below four bits: they are unpacked, and rounded to eight bits.

use candle_core::quantized::GgmlDType;
use half::f16;
use skillgraft_kernels::{Coding, WeightBlock};

/// Weights of a block.
pub(crate) const BLOCK: usize = 32;

/// Whether a type holds plain numbers, which nobody has quantised.
pub(crate) fn is_float(dtype: GgmlDType) -> bool {
    matches!(dtype, GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16)
}

/// A format that is read block by block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockFormat {
    dtype: GgmlDType,
    pub(crate) coding: Coding,
}

impl BlockFormat {
    /// The format of tensors of a type; `None` for those that are read otherwise.
    pub(crate) fn of(dtype: GgmlDType) -> Option<Self> {
        let coding = match dtype {
            GgmlDType::Q4_0 => Coding::FourBits { zero: 8 },
            GgmlDType::Q4_1 | GgmlDType::Q4K => Coding::FourBitsOffset,
            GgmlDType::Q5_0 => Coding::EightBits { zero: 16 },
            GgmlDType::Q5_1 | GgmlDType::Q5K => Coding::EightBitsOffset,
            GgmlDType::Q8_0 => Coding::EightBits { zero: 128 },
            _ => return None,
        };
        Some(BlockFormat { dtype, coding })
    }

    /// Reads a row of a tensor.
    ///
    /// # Panics
    /// When `bytes` is not as long as the blocks want.
    pub(crate) fn read(self, bytes: &[u8], blocks: &mut [WeightBlock]) {
        let blocks_at_once = self.dtype.block_size() / BLOCK;
        let units = bytes.chunks_exact(self.dtype.type_size());
        assert_eq!(units.len() * blocks_at_once, blocks.len(), "a row has other blocks");
        for (unit, blocks) in units.zip(blocks.chunks_exact_mut(blocks_at_once)) {
            match self.dtype {
                GgmlDType::Q4_0 => four_bits(&unit[2..], float(unit, 0), 0.0, &mut blocks[0]),
                GgmlDType::Q4_1 => {
                    four_bits(&unit[4..], float(unit, 0), float(unit, 2), &mut blocks[0]);
                }
                GgmlDType::Q5_0 => five_bits(&unit[2..], float(unit, 0), 0.0, &mut blocks[0]),
                GgmlDType::Q5_1 => {
                    five_bits(&unit[4..], float(unit, 0), float(unit, 2), &mut blocks[0]);
                }
                GgmlDType::Q8_0 => eight_bits(unit, &mut blocks[0]),
                GgmlDType::Q4K => super_block(unit, None, &unit[16..], blocks),
                GgmlDType::Q5K => super_block(unit, Some(&unit[16..48]), &unit[48..], blocks),
                other => unreachable!("`of` gives no format for {other:?}"),
            }
        }
    }
}

fn float(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Low nibbles are the first sixteen weights, high nibbles the others.
fn four_bits(nibbles: &[u8], scale: f32, offset: f32, block: &mut WeightBlock) {
    for (i, byte) in nibbles[..BLOCK / 2].iter().enumerate() {
        block.codes[i] = byte & 15;
        block.codes[i + BLOCK / 2] = byte >> 4;
    }
    (block.scale, block.offset) = (scale, offset);
}

/// Nibbles as in four bits, behind a word of the fifth bits.
fn five_bits(rest: &[u8], scale: f32, offset: f32, block: &mut WeightBlock) {
    let fifth = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
    four_bits(&rest[4..], scale, offset, block);
    for (i, code) in block.codes.iter_mut().enumerate() {
        *code |= ((fifth >> i & 1) as u8) << 4;
    }
}

fn eight_bits(unit: &[u8], block: &mut WeightBlock) {
    for (code, &byte) in block.codes.iter_mut().zip(&unit[2..]) {
        *code = byte ^ 0x80;
    }
    (block.scale, block.offset) = (float(unit, 0), 0.0);
}

/// Eight blocks: two share 32 bytes of nibbles, the first of them the low ones.
fn super_block(unit: &[u8], fifth: Option<&[u8]>, nibbles: &[u8], blocks: &mut [WeightBlock]) {
    let (scale, least) = (float(unit, 0), float(unit, 2));
    let factors: &[u8; 12] = unit[4..].first_chunk().expect("twelve bytes of factors");
    for (at, block) in blocks.iter_mut().enumerate() {
        let bytes = &nibbles[at / 2 * BLOCK..][..BLOCK];
        for (i, (code, byte)) in block.codes.iter_mut().zip(bytes).enumerate() {
            *code = if at % 2 == 0 { byte & 15 } else { byte >> 4 };
            if let Some(fifth) = fifth {
                *code |= (fifth[i] >> at & 1) << 4;
            }
        }
        let (of_scale, of_least) = six_bits(factors, at);
        block.scale = scale * f32::from(of_scale);
        block.offset = -least * f32::from(of_least);
    }
}

/// The factors of scale and offset of one of eight blocks.
fn six_bits(factors: &[u8; 12], at: usize) -> (u8, u8) {
    if at < 4 {
        return (factors[at] & 63, factors[at + 4] & 63);
    }
    let low = factors[at + 4];
    (low & 15 | factors[at - 4] >> 6 << 4, low >> 4 | factors[at] >> 6 << 4)
}

/// The same weights with eight-bit codes and an offset: the coding that all
/// others can be written in. Zero codes are powers of two, so nothing is lost.
pub(crate) fn widen(coding: Coding, blocks: &mut [WeightBlock]) {
    if let Coding::FourBits { zero } | Coding::EightBits { zero } = coding {
        for block in blocks {
            block.offset = -block.scale * f32::from(zero);
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;
    use candle_core::quantized::ggml_file::qtensor_from_ggml;
    use proptest::prelude::*;

    use super::*;

    /// Weights of a super-block.
    const SUPER: usize = 256;
    const FORMATS: [GgmlDType; 7] = [
        GgmlDType::Q4_0,
        GgmlDType::Q4_1,
        GgmlDType::Q5_0,
        GgmlDType::Q5_1,
        GgmlDType::Q8_0,
        GgmlDType::Q4K,
        GgmlDType::Q5K,
    ];

    /// Bytes as scales that are ordinary numbers: where a unit begins with them.
    fn with_finite_scales(dtype: GgmlDType, bytes: &mut [u8]) {
        for unit in bytes.chunks_exact_mut(dtype.type_size()) {
            for at in [1, 3] {
                // The exponent's upper bits: magnitudes of 2^-7 to 2^1.
                unit[at] = unit[at] & 0x83 | 0x20 | unit[at] & 0x1c;
            }
        }
    }

    fn numbers(coding: Coding, blocks: &[WeightBlock]) -> Vec<f32> {
        let (zero, has_offset) = match coding {
            Coding::FourBits { zero } | Coding::EightBits { zero } => (f32::from(zero), false),
            Coding::FourBitsOffset | Coding::EightBitsOffset => (0.0, true),
        };
        let number = |block: &WeightBlock, code: u8| {
            block.scale * (f32::from(code) - zero) + if has_offset { block.offset } else { 0.0 }
        };
        blocks.iter().flat_map(|block| block.codes.map(|code| number(block, code))).collect()
    }

    proptest! {
        #[test]
        fn blocks_are_the_numbers_that_another_reader_gives(
            format in 0..FORMATS.len(),
            seed in proptest::collection::vec(any::<u8>(), 2 * 1024),
        ) {
            let dtype = FORMATS[format];
            let n_units = 2 * SUPER / dtype.block_size();
            let mut bytes = seed[..n_units * dtype.type_size()].to_vec();
            with_finite_scales(dtype, &mut bytes);
            let tensor = qtensor_from_ggml(dtype, &bytes, vec![2, SUPER], &Device::Cpu).unwrap();
            let expected: Vec<f32> =
                tensor.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
            let format = BlockFormat::of(dtype).unwrap();
            let mut blocks = vec![WeightBlock::default(); 2 * SUPER / BLOCK];
            format.read(&bytes, &mut blocks);
            let got = numbers(format.coding, &blocks);
            widen(format.coding, &mut blocks);
            let widened = numbers(Coding::EightBitsOffset, &blocks);
            for ((got, widened), expected) in got.iter().zip(&widened).zip(&expected) {
                let tolerance = 1e-5 * expected.abs().max(1.0);
                prop_assert!((got - expected).abs() <= tolerance, "{dtype:?} {got} {expected}");
                prop_assert!((widened - expected).abs() <= 20.0 * tolerance, "{dtype:?} {widened}");
            }
        }
    }
}
