//! The kernels on a CPU.
//!
//! | module | what |
//! |---|---|
//! | `dispatch` | [`Cpu`]: instruction set and threads; where a kernel enters the instruction set |
//! | `lanes` | sixteen lanes, an implementation for each instruction set |
//! | `tile`, `amx` | the one inner loop of all matrix products; tile registers instead of it |
//! | `quantised`, `inputs` | weights in four and eight bits, and what they are multiplied with |
//! | `linear`, `attention`, `elementwise`, `kv` | the operations, methods of [`Cpu`] |
//! | `threads`, `shared`, `buffer` | work on several threads, memory for it |
//!
//! **Invariant:** row and boundary invariance, as the crate's documentation
//! states it.
//!
//! **Refuses:** knowing about models, files or sessions.
#![expect(
    clippy::inline_always,
    reason = "what is not inlined into `Cpu::run` is compiled without the instruction set"
)]

mod amx;
mod attention;
mod buffer;
mod dispatch;
mod elementwise;
mod inputs;
mod kv;
mod lanes;
mod linear;
mod quantised;
mod rotate;
mod shared;
mod threads;
mod tile;

pub use attention::{AttentionSegment, AttentionShape};
pub use buffer::AlignedBuffer;
pub use dispatch::{AttentionFactors, Cpu, Isa};
pub use elementwise::Gate;
pub use kv::{KvShape, KvSource, KvTarget};
pub use linear::PackedLinear;
pub use quantised::{Coding, WeightBlock};
pub use rotate::HeadRows;
pub use threads::Threads;
