//! The model: loading, tokenizer, chat template, decoder, segmented KV cache,
//! compile, graft, decode.
//!
//! **Invariant:** synchronous; no network, no skills, no tools, no files but the
//! model's. Blocks come and go through the [`BlockStore`](skillgraft_kv::BlockStore)
//! port. Approximate KV never enters a block: blocks are made of live tokens
//! only.
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
mod sample;
mod session;
mod text;

pub use activate::{Activated, Activation, BlockOrigin, Mode, activate};
pub use backend::{
    AttentionSpec, Backend, BackendOptions, CpuBackend, CpuPage, HeadSpan, PageRead, Sequence,
    Turns,
};
pub use cache::{CacheSegment, LivePage, PAGE_TOKENS, SegmentedCache, Storage};
pub use compile::{BlockSource, compile, compile_from, take_block};
pub use decode::{DecodeOptions, Decoded, StopReason, decode};
pub use error::EngineError;
pub use load::{Requantized, WeightFormat, requantize};
pub use model::{
    Decoder, DecoderSpec, LogitRows, Model, ModelOptions, QkRowOrder, Step, supported_architectures,
};
pub use sample::{Sampler, SamplingOptions, arg_max};
pub use session::{Interrupt, Session, uninterrupted};
pub use text::{ChatTemplate, Frame, Message, Role, TextStream, TextTokenizer};
