//! Model files to data: metadata, tensors as numbers or as blocks, a fingerprint.

mod blocks;
mod gguf;

pub(crate) use blocks::{BLOCK, BlockFormat, is_float, widen};
pub(crate) use gguf::GgufFile;
mod requantize;

pub use requantize::{Requantized, WeightFormat, requantize};
