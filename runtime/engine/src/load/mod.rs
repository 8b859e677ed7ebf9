//! Model files to data: metadata, dequantised tensors, a fingerprint.

mod gguf;

pub(crate) use gguf::GgufFile;
