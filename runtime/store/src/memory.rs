//! Blocks kept for the life of the process.
//!
//! [`MemoryStore`] is a store of its own, for tests and for running without a
//! cache, and the first tier of [`DirStore`](crate::DirStore).
//!
//! **Invariant:** what is found under a key is what was kept there last, the
//! very same allocation. It refuses blocks whose buffers are not what their
//! header says, which only a mistake in this program can produce.
//!
//! Blocks are held strongly. A mapped block costs address space only: its pages
//! are clean and the operating system takes them back when it needs them, while
//! letting it go with its last session would mean hashing the file again for the
//! next one. A block that could not be written has no other home. Nothing is
//! evicted.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use skillgraft_kv::{
    BlockKey, BlockStore, CompiledBlock, Kept, Lookup, MissReason, StoreStats, Stored, Tier,
    VerifiedBlock,
};

/// A store that ends with the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    blocks: Mutex<HashMap<BlockKey, VerifiedBlock>>,
    stats: Mutex<StoreStats>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn find(&self, key: &BlockKey) -> Option<VerifiedBlock> {
        lock(&self.blocks).get(key).cloned()
    }

    /// Keeps `block`, in place of what was there.
    pub(crate) fn replace(&self, block: &VerifiedBlock) {
        lock(&self.blocks).insert(block.header().key, block.clone());
    }

    /// Keeps `block` unless another thread was faster, and returns the one that
    /// is kept, so that all sessions share one.
    pub(crate) fn keep_first(&self, block: VerifiedBlock) -> VerifiedBlock {
        lock(&self.blocks).entry(block.header().key).or_insert(block).clone()
    }

    pub(crate) fn forget(&self, key: &BlockKey) {
        lock(&self.blocks).remove(key);
    }

    pub(crate) fn clear(&self) {
        lock(&self.blocks).clear();
    }

    pub(crate) fn count_hit(&self) {
        lock(&self.stats).hits += 1;
    }

    pub(crate) fn count_miss(&self, reason: MissReason) {
        *lock(&self.stats).misses.entry(reason).or_default() += 1;
    }

    pub(crate) fn count_write_failure(&self) {
        lock(&self.stats).write_failures += 1;
    }
}

impl BlockStore for MemoryStore {
    fn get(&self, key: &BlockKey) -> Lookup {
        if let Some(block) = self.find(key) {
            self.count_hit();
            return Lookup::Hit(block, Tier::Memory);
        }
        self.count_miss(MissReason::Absent);
        Lookup::Miss(MissReason::Absent)
    }

    /// # Panics
    /// When the block is empty or not as its header describes it.
    fn put(&self, block: CompiledBlock) -> Stored {
        let block = self.keep(block);
        let reason = "this store keeps blocks in memory only".to_owned();
        Stored { block, kept: Kept::InMemory { reason } }
    }

    /// # Panics
    /// As [`put`](Self::put).
    fn keep(&self, block: CompiledBlock) -> VerifiedBlock {
        assert_whole(&block);
        let block = VerifiedBlock::from_compiled(block);
        self.replace(&block);
        block
    }

    fn stats(&self) -> StoreStats {
        lock(&self.stats).clone()
    }
}

/// Compares a block's buffers with its header, before they are kept.
///
/// # Panics
/// When they differ, or when there is nothing to graft.
pub(crate) fn assert_whole(block: &CompiledBlock) {
    let geometry = block.header.geometry;
    let tensor_len = geometry.tensor_len(block.header.n_tokens());
    assert!(tensor_len > 0 && geometry.n_layers > 0, "a block holds at least one token");
    for (name, buffers) in [("K", &block.k), ("V", &block.v)] {
        assert_eq!(buffers.len(), geometry.n_layers, "layers of {name}");
        for buffer in buffers {
            assert_eq!(buffer.len(), tensor_len, "elements of {name} in a layer");
            assert_eq!(buffer.dtype(), geometry.dtype, "element type of {name}");
        }
    }
}

/// Takes a lock. A thread that panicked while it held one has not left a map or
/// a count half changed, so its poison says nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
