//! The vocabulary of skillgraft.
//!
//! Positions, element types, KV geometry, RoPE parameters, block identities and
//! headers, the ledger of a context, and the [`BlockStore`] port. Every other
//! package speaks in these words.
//!
//! **Invariant:** pure values. No I/O, no threads, no tensor arithmetic, no
//! dependencies. Anything that decides bytes on disk or in a cache is spelled
//! out here, so that a mismatch is a miss and never a guess.
//!
//! Next: `skillgraft-kernels` computes with these values, `skillgraft-store`
//! keeps blocks, `skillgraft-engine` runs the model.
#![forbid(unsafe_code)]

mod block;
mod dtype;
mod geometry;
mod header;
mod ledger;
mod position;
mod rope;
mod store;

pub use block::{AnchorKind, BlockIdentity, BlockKey, CompiledBlock, KvBlock, VerifiedBlock};
pub use dtype::{KvBuffer, KvDtype, KvView};
pub use geometry::KvGeometry;
pub use header::{BlockHeader, FORMAT_VERSION, HeaderError};
pub use ledger::{Ledger, LedgerError, Segment, SegmentOrigin};
pub use position::{LayerIdx, Position, PositionDelta, TokenId, TokenSpan};
pub use rope::{LayerAttention, Relocatability, RopePairing, RopeScaling, RopeSpec};
pub use store::{BlockStore, Kept, Lookup, MissReason, StoreStats, Stored, Tier};
