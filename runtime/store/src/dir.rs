//! A directory of block files.
//!
//! Blocks lie flat in the root as `<key in hex>.safetensors`; skills are counted
//! in hundreds, which needs no subdirectories. Any number of processes may use
//! one root: files appear by rename, complete, and equal names hold
//! interchangeable blocks, so there is no lock.
//!
//! **Invariant:** a look-up answers from memory, or from a file that was checked
//! to the last byte just now. A file that does not check is left where it is, for
//! the next [`put`](BlockStore::put) to replace.
//!
//! What a directory may take is in its [`Limits`]; blocks that were not used for
//! long go first.
//!
//! It never fails: without a usable directory it keeps blocks in memory and says
//! so ([`DirStore::degraded`], [`Kept::InMemory`]).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use skillgraft_kv::{
    BlockHeader, BlockKey, BlockStore, CompiledBlock, Kept, KvBlock as _, Lookup, MissReason,
    StoreStats, Stored, Tier, VerifiedBlock,
};

use crate::collect::{self, Candidate, Collected, Limits, Reason, Removed};
use crate::error::{Error, Fault};
use crate::format;
use crate::mapped::{Access, MappedBlock};
use crate::memory::{MemoryStore, assert_whole};
use crate::mmap::BlockBytes;
use crate::write::{self, Disk, RealDisk};

const EXTENSION: &str = "safetensors";

/// Blocks in a directory, and those already open in memory before them.
#[derive(Debug)]
pub struct DirStore {
    root: PathBuf,
    degraded: Option<String>,
    memory: MemoryStore,
    disk: Box<dyn Disk>,
    access: Access,
    /// What `put` keeps to; `None` for no limit.
    limits: Option<Limits>,
    /// Bytes that may still be written before the limits are looked at.
    until_eviction: AtomicU64,
}

/// The limits are looked at with the first write of a process and then each time
/// that this part of them has been written: listing a directory takes some time.
const EVICTION_STEPS: u64 = 16;

/// A block file, as its header describes it. Its tensors have not been checked.
#[derive(Debug)]
pub struct Entry {
    /// The file.
    pub path: PathBuf,
    /// The key that its name says.
    pub key: BlockKey,
    /// Its size in bytes.
    pub file_bytes: u64,
    /// When it was used last, as far as the file system knows.
    pub used: SystemTime,
    /// Its header, or why it is not usable.
    pub header: Result<BlockHeader, Error>,
}

impl DirStore {
    /// Opens the directory `root`, which is created when it is missing.
    ///
    /// A root that cannot be created or written to is no error: the store then
    /// keeps new blocks in memory, still reads the files that are there, and
    /// gives the reason in [`degraded`](Self::degraded).
    pub fn open(root: impl Into<PathBuf>) -> Self {
        Self::open_on(root.into(), Box::new(RealDisk))
    }

    fn open_on(root: PathBuf, disk: Box<dyn Disk>) -> Self {
        let usable = write::create_dir(&root).and_then(|()| write::create_temp(&root).map(drop));
        let degraded = match usable {
            Ok(()) => {
                write::remove_stale(&root);
                None
            }
            Err(error) => {
                let reason = error.with_causes();
                tracing::warn!(%reason, "blocks are kept in memory only");
                Some(reason)
            }
        };
        DirStore {
            root,
            degraded,
            memory: MemoryStore::new(),
            disk,
            access: Access::Map,
            limits: None,
            until_eviction: AtomicU64::new(0),
        }
    }

    /// The same store, which reads files like this.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        DirStore { access, ..self }
    }

    /// The same store, which removes blocks when others are written and the limits
    /// are exceeded.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        DirStore { limits: Some(limits), ..self }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Why nothing can be written, with path and cause; `None` when it can.
    pub fn degraded(&self) -> Option<&str> {
        self.degraded.as_deref()
    }

    /// The block files in the directory, in order of their names. Reads headers
    /// only: a whole header says nothing about the tensors behind it.
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be listed. A bad file is an entry
    /// with the error in its header.
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        Ok(self.block_files()?.into_iter().map(|(path, key)| entry(path, &key)).collect())
    }

    /// Checks a block file to the last byte. That is no use of it.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn check(&self, entry: &Entry) -> Result<(), Error> {
        let file = File::open(&entry.path).map_err(Error::io("open", &entry.path))?;
        MappedBlock::check(file, &entry.path, &entry.key, Access::Copy).map(drop)
    }

    /// Removes all block files and forgets all open blocks; those in use stay
    /// usable. Returns the number of files removed.
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be listed or a file cannot be
    /// removed; the remaining files are still there then.
    pub fn clear(&self) -> Result<usize, Error> {
        self.memory.clear();
        let mut n_removed = 0;
        for (path, _) in self.block_files()? {
            n_removed += usize::from(collect::remove(&path)?);
        }
        Ok(n_removed)
    }

    /// Checks every block to the last byte and removes those that are of no use,
    /// then those that exceed the limits, the least recently used first. Blocks that
    /// are open, here or in other processes, stay usable to them.
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be listed or a file cannot be
    /// removed; those before it are gone then.
    pub fn collect(&self, limits: &Limits) -> Result<Collected, Error> {
        let stale = write::remove_stale(&self.root);
        let (mut candidates, mut unusable) = (Vec::new(), Vec::new());
        for (path, key) in self.block_files()? {
            let Some(candidate) = Candidate::of(path, key) else { continue };
            match self.check(&entry(candidate.path.clone(), &key)) {
                // What cannot be read may be fine: it is not this program's to judge.
                Ok(()) | Err(Error::Io { .. }) => candidates.push(candidate),
                Err(error) => {
                    tracing::info!(error = %error.with_causes(), "removing an unusable block");
                    if collect::remove(&candidate.path)? {
                        let Candidate { path, bytes, .. } = candidate;
                        unusable.push(Removed { path, bytes, reason: Reason::Unusable });
                    }
                }
            }
        }
        let mut collected = collect::shrink(candidates, limits, SystemTime::now(), None)?;
        collected.removed.splice(0..0, unusable);
        collected.stale = stale;
        Ok(collected)
    }

    /// Keeps to the limits after a block was written.
    fn evict(&self, written: &BlockKey, n_bytes: u64) {
        let Some(limits) = &self.limits else { return };
        let take = |left: u64| left.checked_sub(n_bytes);
        if self.until_eviction.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return;
        }
        self.until_eviction.store(limits.max_bytes / EVICTION_STEPS, Ordering::Relaxed);
        let shrunk = self.block_files().and_then(|files| {
            let of = |(path, key)| Candidate::of(path, key);
            let candidates = files.into_iter().filter_map(of).collect();
            collect::shrink(candidates, limits, SystemTime::now(), Some(written))
        });
        match shrunk {
            Ok(collected) if collected.removed.is_empty() => {}
            Ok(collected) => tracing::info!(n = collected.removed.len(), "evicted blocks"),
            Err(error) => tracing::warn!(error = %error.with_causes(), "cannot evict blocks"),
        }
    }

    fn path(&self, key: &BlockKey) -> PathBuf {
        self.root.join(format!("{key}.{EXTENSION}"))
    }

    /// Files with a block's name, sorted.
    fn block_files(&self) -> Result<Vec<(PathBuf, BlockKey)>, Error> {
        let refused = |error| Error::io("list", &self.root)(error);
        let files = match fs::read_dir(&self.root) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(refused(error)),
        };
        let mut found = Vec::new();
        for file in files {
            let path = file.map_err(refused)?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let key = stem.and_then(BlockKey::from_hex);
            if let Some(key) = key.filter(|key| self.path(key) == path) {
                found.push((path, key));
            }
        }
        found.sort();
        Ok(found)
    }

    fn open_block(&self, key: &BlockKey) -> Result<VerifiedBlock, Error> {
        let path = self.path(key);
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        // Its last use: where that cannot be noted, it seems older than it is.
        if let Err(error) = file.set_modified(SystemTime::now()) {
            tracing::debug!(%key, %error, "the use of a block is not noted");
        }
        let block = MappedBlock::check(file, &path, key, self.access)?;
        Ok(VerifiedBlock::from_checked(Arc::new(block)))
    }

    fn write_block(&self, block: &CompiledBlock) -> Result<VerifiedBlock, Error> {
        if let Some(reason) = &self.degraded {
            return Err(Error::Degraded { reason: reason.clone() });
        }
        let path = self.path(&block.header.key);
        let block = write::write_block(&*self.disk, &self.root, &path, block, self.access)?;
        self.evict(&block.header().key, block.n_bytes());
        Ok(VerifiedBlock::from_checked(Arc::new(block)))
    }
}

impl BlockStore for DirStore {
    fn get(&self, key: &BlockKey) -> Lookup {
        if let Some(block) = self.memory.find(key) {
            if block.get().is_intact() {
                self.memory.count_hit();
                return Lookup::Hit(block, Tier::Memory);
            }
            tracing::warn!(%key, "the file of an open block has been shortened");
            self.memory.forget(key);
        }
        match self.open_block(key) {
            Ok(block) => {
                self.memory.count_hit();
                Lookup::Hit(self.memory.keep_first(block), Tier::Disk)
            }
            Err(error) => {
                let reason = error.miss_reason();
                self.memory.count_miss(reason);
                if reason == MissReason::Absent {
                    tracing::debug!(%key, "no block");
                } else {
                    let cause = error.with_causes();
                    tracing::warn!(reason = reason.name(), %cause, "block not used");
                }
                Lookup::Miss(reason)
            }
        }
    }

    /// # Panics
    /// When the block is empty or not as its header describes it.
    fn put(&self, block: CompiledBlock) -> Stored {
        assert_whole(&block);
        let (block, kept) = match self.write_block(&block) {
            Ok(mapped) => (mapped, Kept::OnDisk),
            Err(error) => {
                let reason = error.with_causes();
                self.memory.count_write_failure();
                tracing::warn!(%reason, "block kept in memory only");
                (VerifiedBlock::from_compiled(block), Kept::InMemory { reason })
            }
        };
        self.memory.replace(&block);
        Stored { block, kept }
    }

    /// # Panics
    /// As [`put`](Self::put).
    fn keep(&self, block: CompiledBlock) -> VerifiedBlock {
        self.memory.keep(block)
    }

    fn stats(&self) -> StoreStats {
        self.memory.stats()
    }
}

fn entry(path: PathBuf, key: &BlockKey) -> Entry {
    let (mut file_bytes, mut used) = (0, SystemTime::UNIX_EPOCH);
    if let Ok(metadata) = fs::metadata(&path) {
        (file_bytes, used) = (metadata.len(), collect::last_use(&metadata));
    }
    let header = File::open(&path)
        .and_then(BlockBytes::map)
        .map_err(Error::io("open", &path))
        .and_then(|map| {
            let head = format::read_head(map.bytes()).map_err(Error::block(&path))?;
            match head.header {
                header if header.key == *key => Ok(header),
                header => {
                    let fault = Fault::Foreign { expected: *key, found: header.key };
                    Err(Error::block(&path)(fault))
                }
            }
        });
    Entry { path, key: *key, file_bytes, used, header }
}

#[cfg(test)]
mod tests;
