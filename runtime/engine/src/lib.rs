//! The model: loading, tokenizer, chat template, decoder, segmented KV cache,
//! compile, graft, repair, verify, decode.
//!
//! **Invariant:** synchronous; no network, no skills, no tools, no files but the
//! model's. Blocks come and go through the [`BlockStore`](skillgraft_kv::BlockStore)
//! port. Approximate KV never enters a block, but for the one that
//! [`compile_edited`] makes: blocks are made of live tokens.
//!
//! Start reading at [`activate()`]; the forward pass is [`Decoder::forward`].
#![forbid(unsafe_code)]

mod activate;
mod backend;
mod cache;
mod compile;
mod decode;
mod error;
mod load;
mod model;
mod patch;
mod repair;
mod sample;
mod session;
mod text;
mod verify;

pub use activate::{Activated, Activation, BlockOrigin, Mode, activate};
pub use backend::{
    AttentionSpec, Backend, BackendOptions, CpuBackend, CpuPage, HeadSpan, Run, SegmentCopy,
    Sequence, Turns,
};
pub use cache::{CacheSegment, LivePage, PAGE_TOKENS, SegmentedCache, Storage};
pub use compile::{BlockSource, compile, compile_edited, compile_from, take_block};
pub use decode::{DecodeOptions, Decoded, StopReason, decode};
pub use error::EngineError;
pub use load::{Requantized, WeightFormat, requantize};
pub use model::{
    Decoder, DecoderSpec, LogitRows, Model, ModelOptions, QkRowOrder, Step, supported_architectures,
};
pub use patch::{Hunk, hunks};
pub use repair::{REPAIR_SHARE, tokens_to_repair};
pub use sample::{Sampler, SamplingOptions, arg_max};
pub use session::{Interrupt, Session, uninterrupted};
pub use text::{ChatTemplate, Frame, Message, Role, TextStream, TextTokenizer};
pub use verify::{AnswerEvent, Verified, decode_verified};
