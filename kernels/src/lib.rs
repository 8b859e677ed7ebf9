//! The arithmetic of skillgraft: segmented attention with query-side rotation,
//! relocation of K, RoPE tables, and what else a decoder needs.
//!
//! [`Cpu`] is the backend on a CPU, and the operations are its methods; another
//! backend is a folder beside `cpu/` that passes the same contract,
//! `tests/it/contract.rs`. [`mod@reference`] is the slow, obvious version of each
//! operation in `f64` that backends are compared with.
//!
//! **Invariant: row and boundary invariance.** What a token's row comes to is
//! the same, to the bit, whatever other rows are in the call, wherever the
//! context is cut into segments of one delta, and however many threads work.
//! A block compiled behind the prefix it is used after therefore gives the very
//! logits of an ordinary prefill, and chunking a prefill changes nothing. It
//! rests on three rules:
//!
//! - each output of a matrix product is one chain in ascending order, whose steps
//!   are counted from its beginning;
//! - a reduction over a row (norm, softmax) has a fixed order of its own;
//! - the softmax of a row is one softmax over the whole context, its scores kept
//!   until all are known. An online softmax would rescale partial sums at the
//!   boundaries of its tiles, and a boundary moved is then a result changed.
//!
//! Results of two instruction sets may differ in the last bits, and those of two
//! kinds of [`AttentionFactors`] in more; their names are part of a block's
//! identity for that reason.
//!
//! **Refuses:** errors. A wrong shape is a bug of the caller and panics; nothing
//! here reads files or can fail otherwise.

mod cpu;
pub mod reference;
mod rope;

pub use cpu::{
    AlignedBuffer, AttentionFactors, AttentionSegment, AttentionShape, Coding, Cpu, Gate, HeadRows,
    Isa, KvShape, KvSource, KvTarget, PackedLinear, Threads, WeightBlock,
};
pub use rope::{Angles, QueryFrames, RopeTable};
