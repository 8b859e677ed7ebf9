//! Which blocks have to go: those that are of no use, too old, or too many.
//!
//! **Invariant:** a file goes whole, by being unlinked; who has it open keeps it.
//! When a block was used last is the time of its file, which every process renews
//! when it opens one. Where that cannot be written, the block seems older than it is,
//! and is compiled again some day.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use skillgraft_kv::BlockKey;

use crate::error::Error;

/// What the blocks of a directory may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all of them.
    pub max_bytes: u64,
    /// Time since the last use.
    pub max_age: Duration,
}

impl Default for Limits {
    /// 4 GiB, which is some 200,000 tokens of a small model, and 90 days.
    fn default() -> Self {
        Limits { max_bytes: 4 << 30, max_age: Duration::from_secs(90 * 24 * 3600) }
    }
}

/// Why a file was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is not a block that this program could use.
    Unusable,
    /// It was not used for longer than [`Limits::max_age`].
    Old,
    /// It was used least recently, and there were more than
    /// [`Limits::max_bytes`].
    Size,
}

impl Reason {
    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Unusable => "unusable",
            Reason::Old => "old",
            Reason::Size => "size",
        }
    }
}

/// A file that was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Why.
    pub reason: Reason,
}

/// What a collection did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// Block files that were removed.
    pub removed: Vec<Removed>,
    /// Unfinished files of processes that died, removed as well.
    pub stale: usize,
    /// Blocks that are left.
    pub kept: usize,
    /// Their size.
    pub kept_bytes: u64,
}

/// A block file with what the file system knows of it.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) path: PathBuf,
    pub(crate) key: BlockKey,
    pub(crate) bytes: u64,
    pub(crate) used: SystemTime,
}

impl Candidate {
    /// `None` when the file has gone.
    pub(crate) fn of(path: PathBuf, key: BlockKey) -> Option<Self> {
        let metadata = fs::metadata(&path).ok()?;
        Some(Candidate { bytes: metadata.len(), used: last_use(&metadata), path, key })
    }
}

/// When a block was used last, as far as its file says.
pub(crate) fn last_use(metadata: &Metadata) -> SystemTime {
    metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Removes what exceeds the limits, the least recently used first, but not `spared`.
///
/// # Errors
/// [`Error::Io`] when a file cannot be removed; those before it are gone then.
pub(crate) fn shrink(
    mut candidates: Vec<Candidate>,
    limits: &Limits,
    now: SystemTime,
    spared: Option<&BlockKey>,
) -> Result<Collected, Error> {
    let mut collected = Collected::default();
    candidates.sort_by(|a, b| a.used.cmp(&b.used).then_with(|| a.path.cmp(&b.path)));
    let mut total: u64 = candidates.iter().map(|candidate| candidate.bytes).sum();
    for candidate in candidates {
        // A time in the future is no age.
        let age = now.duration_since(candidate.used).unwrap_or_default();
        let reason = match () {
            () if spared == Some(&candidate.key) => None,
            () if age > limits.max_age => Some(Reason::Old),
            () if total > limits.max_bytes => Some(Reason::Size),
            () => None,
        };
        let Some(reason) = reason else {
            collected.kept += 1;
            collected.kept_bytes += candidate.bytes;
            continue;
        };
        total -= candidate.bytes;
        if remove(&candidate.path)? {
            let Candidate { path, bytes, .. } = candidate;
            collected.removed.push(Removed { path, bytes, reason });
        }
    }
    Ok(collected)
}

/// Removes a file; `false` when another process was faster.
///
/// # Errors
/// [`Error::Io`] when it is there and cannot be removed.
pub(crate) fn remove(path: &Path) -> Result<bool, Error> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("remove", path)(error)),
    }
}
