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
//! It never fails: without a usable directory it keeps blocks in memory and says
//! so ([`DirStore::degraded`], [`Kept::InMemory`]).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use skillgraft_kv::{
    BlockHeader, BlockKey, BlockStore, CompiledBlock, Kept, Lookup, MissReason, StoreStats, Stored,
    Tier, VerifiedBlock,
};

use crate::error::{Error, Fault};
use crate::format;
use crate::mapped::MappedBlock;
use crate::memory::{MemoryStore, assert_whole};
use crate::mmap::BlockMap;
use crate::write::{self, Disk, RealDisk};

const EXTENSION: &str = "safetensors";

/// Blocks in a directory, and those already open in memory before them.
#[derive(Debug)]
pub struct DirStore {
    root: PathBuf,
    degraded: Option<String>,
    memory: MemoryStore,
    disk: Box<dyn Disk>,
}

/// A block file, as its header describes it. Its tensors have not been checked.
#[derive(Debug)]
pub struct Entry {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub file_bytes: u64,
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
        DirStore { root, degraded, memory: MemoryStore::new(), disk }
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
            match fs::remove_file(&path) {
                Ok(()) => n_removed += 1,
                // Another process cleared it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("remove", &path)(error)),
            }
        }
        Ok(n_removed)
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
        let block = MappedBlock::check(&file, &path, key)?;
        Ok(VerifiedBlock::from_checked(Arc::new(block)))
    }

    fn write_block(&self, block: &CompiledBlock) -> Result<VerifiedBlock, Error> {
        if let Some(reason) = &self.degraded {
            return Err(Error::Degraded { reason: reason.clone() });
        }
        let path = self.path(&block.header.key);
        let block = write::write_block(&*self.disk, &self.root, &path, block)?;
        Ok(VerifiedBlock::from_checked(Arc::new(block)))
    }
}

impl BlockStore for DirStore {
    fn get(&self, key: &BlockKey) -> Lookup {
        if let Some(block) = self.memory.find(key) {
            self.memory.count_hit();
            return Lookup::Hit(block, Tier::Memory);
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

    fn stats(&self) -> StoreStats {
        self.memory.stats()
    }
}

fn entry(path: PathBuf, key: &BlockKey) -> Entry {
    let mut file_bytes = 0;
    let header = File::open(&path)
        .and_then(|file| BlockMap::new(&file))
        .map_err(Error::io("open", &path))
        .and_then(|map| {
            file_bytes = map.bytes().len() as u64;
            let head = format::read_head(map.bytes()).map_err(Error::block(&path))?;
            match head.header {
                header if header.key == *key => Ok(header),
                header => {
                    let fault = Fault::Foreign { expected: *key, found: header.key };
                    Err(Error::block(&path)(fault))
                }
            }
        });
    Entry { path, file_bytes, header }
}

#[cfg(test)]
mod tests;
