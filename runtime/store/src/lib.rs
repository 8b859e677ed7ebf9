//! KV blocks on disk.
//!
//! [`DirStore`] keeps blocks as safetensors files in one directory, written
//! atomically and handed out as checked memory maps; [`MemoryStore`] keeps them
//! for the life of the process. Both implement
//! [`BlockStore`](skillgraft_kv::BlockStore) and pass the same contract suite.
//! The file is described in `docs/block-format.md`.
//!
//! **Invariant:** a block that is handed out has the bytes that were compiled
//! under its key. Whatever does not check is a miss, logged and counted; it
//! never fails a request. A file under a block's name is complete, and is
//! replaced as a whole or not at all.
//!
//! It refuses to guess: no file of another version, shape or key is converted
//! or used in part. It knows nothing of models, skills or contexts.
//!
//! ```
//! use skillgraft_kv::{BlockKey, BlockStore, Lookup, MissReason};
//! use skillgraft_store::DirStore;
//!
//! let dir = tempfile::tempdir()?;
//! let store = DirStore::open(dir.path().join("blocks"));
//! assert_eq!(store.degraded(), None);
//! // Nothing was compiled under this key yet, so the caller compiles and `put`s.
//! assert!(matches!(store.get(&BlockKey([7; 32])), Lookup::Miss(MissReason::Absent)));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Next: the engine grafts what [`get`](skillgraft_kv::BlockStore::get) returns.

// K and V are mapped as they lie in the file, and the file is little-endian.
#[cfg(target_endian = "big")]
compile_error!("block files are little-endian and cannot be mapped on this target");

mod collect;
mod dir;
mod error;
mod format;
mod mapped;
mod memory;
mod mmap;
#[cfg(test)]
#[path = "../tests/samples/mod.rs"]
mod samples;
mod write;

pub use collect::{Collected, Limits, Reason, Removed};
pub use dir::{DirStore, Entry};
pub use error::{Error, Fault};
pub use mapped::{Access, MappedBlock};
pub use memory::MemoryStore;
