//! One process at a time for each model.
//!
//! **Invariant:** while a [`PullLock`] lives, no other process holds one for
//! the same path. The system frees it when its holder dies, so there is no
//! stale lock to clean up. The lock file itself stays: removing it would let
//! two processes lock two files of one name.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::error::ModelError;

/// How often a waiting process looks again. Waiting in the system call would
/// be prompter but could not be cancelled.
const POLL: Duration = Duration::from_millis(50);

/// An exclusive lock, held until dropped.
#[derive(Debug)]
pub(super) struct PullLock {
    _file: File,
}

impl PullLock {
    /// Takes the lock at `path`. When another process holds it, calls
    /// `on_wait` once and then `keep_waiting` before each further look.
    ///
    /// # Errors
    /// [`ModelError::Io`] when the file cannot be opened or locked; whatever
    /// `keep_waiting` returns.
    pub(super) fn acquire(
        path: &Path,
        on_wait: impl FnOnce(),
        keep_waiting: impl Fn() -> Result<(), ModelError>,
    ) -> Result<Self, ModelError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(ModelError::io("create lock file", path))?;
        let mut on_wait = Some(on_wait);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(PullLock { _file: file }),
                Err(TryLockError::WouldBlock) => {
                    if let Some(tell) = on_wait.take() {
                        tell();
                    }
                    keep_waiting()?;
                    thread::sleep(POLL);
                }
                Err(TryLockError::Error(source)) => {
                    return Err(ModelError::io("lock", path)(source));
                }
            }
        }
    }
}
