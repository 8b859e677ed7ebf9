//! The port through which the engine asks for blocks and hands them over.

use std::collections::BTreeMap;

use crate::{BlockKey, CompiledBlock, VerifiedBlock};

/// Where a block was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Already open in this process.
    Memory,
    /// Opened and checked now.
    Disk,
}

/// Why a block was not found. None of these fails a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MissReason {
    /// Never compiled, or evicted.
    Absent,
    /// Cut short, changed, or not a block file.
    Damaged,
    /// Written by another version of the format.
    OtherVersion,
    /// A valid block of something else under this name.
    Foreign,
    /// The file could not be read.
    Unreadable,
}

impl MissReason {
    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            MissReason::Absent => "absent",
            MissReason::Damaged => "damaged",
            MissReason::OtherVersion => "other_version",
            MissReason::Foreign => "foreign",
            MissReason::Unreadable => "unreadable",
        }
    }
}

/// The answer to a look-up.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// The block, ready to graft.
    Hit(VerifiedBlock, Tier),
    /// Compile it.
    Miss(MissReason),
}

/// Where a block ended up that was handed to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Written; later processes will find it.
    OnDisk,
    /// Kept for this process only, and why.
    InMemory {
        /// Shown to the user.
        reason: String,
    },
}

/// What a store made of a block that was handed to it.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The block, ready to graft.
    pub block: VerifiedBlock,
    /// Whether it will outlive the process.
    pub kept: Kept,
}

/// What a store has done since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Look-ups that found a block.
    pub hits: u64,
    /// Look-ups that did not, by reason.
    pub misses: BTreeMap<MissReason, u64>,
    /// Blocks that could not be written.
    pub write_failures: u64,
}

/// Keeps blocks by key. Implementations share one contract suite,
/// `runtime/store/tests/contract.rs`.
pub trait BlockStore: Send + Sync {
    /// Looks a block up. Bytes are checked before a block is handed out;
    /// whatever does not check is a miss.
    fn get(&self, key: &BlockKey) -> Lookup;

    /// Keeps a block under its header's key. It can be used even when it could
    /// not be written.
    fn put(&self, block: CompiledBlock) -> Stored;

    /// Keeps a block under its header's key for this process only: one that will do
    /// until a better one is [`put`](Self::put).
    fn keep(&self, block: CompiledBlock) -> VerifiedBlock;

    /// Counts since the store was opened.
    fn stats(&self) -> StoreStats;
}
