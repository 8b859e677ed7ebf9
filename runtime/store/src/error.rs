//! What can be wrong with a block file, split by what the caller can do.
//!
//! [`Fault`] speaks about bytes and knows no path; [`Error`] adds the path or
//! the operating system's answer. Neither leaves this crate through
//! [`BlockStore`](skillgraft_kv::BlockStore), where both become a
//! [`MissReason`] or a reason why a block is kept in memory only.

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};

use skillgraft_kv::{BlockKey, HeaderError, MissReason};

/// Why the bytes of a file are not the block that was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file is not as long as its header says.
    #[error("file has {found} bytes, its header needs {expected}")]
    Length {
        /// Bytes that the header asks for.
        expected: u64,
        /// Bytes in the file.
        found: u64,
    },
    /// The header is longer than any block's.
    #[error("header has {found} bytes, the limit is {limit}")]
    HeaderTooLong {
        /// Bytes of the header, as the file says.
        found: u64,
        /// Most bytes that are read.
        limit: u64,
    },
    /// The tensor data does not start on the boundary that maps rely on.
    #[error("tensor data starts at byte {data_start}, which is no multiple of {alignment}")]
    Misaligned {
        /// Where it starts.
        data_start: usize,
        /// The boundary.
        alignment: usize,
    },
    /// The header is not that of a valid safetensors file.
    #[error("bad safetensors header")]
    Safetensors(#[source] serde_json::Error),
    /// A metadata field is absent or bad, or the version is another.
    #[error("bad block header")]
    Header(#[source] HeaderError),
    /// A digest is absent or is not 64 lower-case hexadecimal digits.
    #[error("missing or bad digest `{field}`")]
    DigestField {
        /// The metadata field.
        field: String,
    },
    /// The metadata does not have the digest that is written beside it.
    #[error("metadata digest differs, expected `{expected}`: `{found}`")]
    MetadataDigest {
        /// Digest in the file.
        expected: String,
        /// Digest of the fields.
        found: String,
    },
    /// The shape has a zero, or more bytes than can be addressed.
    #[error("no block has shape {n_layers} x 2 x {shape:?}")]
    Shape {
        /// Layers in the header.
        n_layers: usize,
        /// `[n_kv_heads, n_tokens, head_dim]` in the header.
        shape: [usize; 3],
    },
    /// The file holds more or fewer tensors than K and V of each layer.
    #[error("file has {found} tensors, {n_layers} layers need {expected}")]
    TensorCount {
        /// Layers in the header.
        n_layers: usize,
        /// Tensors that these layers need.
        expected: usize,
        /// Tensors in the file.
        found: usize,
    },
    /// A tensor is absent, or its type, shape or place is not what the
    /// metadata asks for.
    #[error("tensor `{name}` is missing or not as the metadata describes it")]
    Tensor {
        /// The tensor.
        name: String,
    },
    /// A tensor's bytes have changed.
    #[error("digest of tensor `{name}` differs, expected `{expected}`: `{found}`")]
    TensorDigest {
        /// The tensor.
        name: String,
        /// Digest in the file.
        expected: String,
        /// Digest of the bytes.
        found: String,
    },
    /// A block of something else.
    #[error("file holds another block, expected `{expected}`: `{found}`")]
    Foreign {
        /// The key that was asked for.
        expected: BlockKey,
        /// The key in the file.
        found: BlockKey,
    },
}

impl Fault {
    /// The miss that this fault is.
    pub fn miss_reason(&self) -> MissReason {
        match self {
            Fault::Header(HeaderError::Version { .. }) => MissReason::OtherVersion,
            Fault::Foreign { .. } => MissReason::Foreign,
            Fault::Length { .. }
            | Fault::HeaderTooLong { .. }
            | Fault::Misaligned { .. }
            | Fault::Safetensors(_)
            | Fault::Header(HeaderError::Field(_))
            | Fault::DigestField { .. }
            | Fault::MetadataDigest { .. }
            | Fault::Shape { .. }
            | Fault::TensorCount { .. }
            | Fault::Tensor { .. }
            | Fault::TensorDigest { .. } => MissReason::Damaged,
        }
    }
}

/// Why a block file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was tried, as in `open`.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// The file is there, but it is not the block.
    #[error("unusable block file `{}`", path.display())]
    Block {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Fault,
    },
    /// The store was opened without a usable directory.
    #[error("{reason}")]
    Degraded {
        /// Why, with path and cause.
        reason: String,
    },
}

impl Error {
    /// Joins an answer of the operating system with what was tried.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Error::Io { action, path: path.to_owned(), source }
    }

    /// Joins a fault with the file that has it.
    pub(crate) fn block(path: &Path) -> impl FnOnce(Fault) -> Self {
        move |source| Error::Block { path: path.to_owned(), source }
    }

    /// The miss that this error is when a block is looked up.
    pub fn miss_reason(&self) -> MissReason {
        match self {
            Error::Block { source, .. } => source.miss_reason(),
            Error::Io { source, .. } => match source.kind() {
                // A directory that could not be made holds no block; why it
                // could not be made was said when the store was opened.
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => MissReason::Absent,
                _ => MissReason::Unreadable,
            },
            Error::Degraded { .. } => MissReason::Unreadable,
        }
    }

    /// The message with all its causes, on one line.
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}
