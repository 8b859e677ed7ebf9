//! Whether a file or folder is as it was, told without reading it.
//!
//! **Invariant:** a stamp that is equal and settled belongs to unchanged content.
//! The time of the last change of the inode is part of it, which no program can
//! set back, so that a file written again with its old size and old time differs.
//!
//! **Refuses:** to trust a stamp taken shortly after a change: a second change
//! within the clock's step would leave it equal.

use std::fs::Metadata;
use std::time::{Duration, SystemTime};

/// The coarsest clock of a file system in use.
const CLOCK_STEP: Duration = Duration::from_secs(2);

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
    /// Seconds and nanoseconds of the inode's last change; 0 where there is none.
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp, and whether it is settled at `now`.
    pub(super) fn of(metadata: &Metadata, now: SystemTime) -> (Self, bool) {
        let modified = metadata.modified().ok();
        #[cfg(unix)]
        let (device, inode, changed) = {
            use std::os::unix::fs::MetadataExt;
            (metadata.dev(), metadata.ino(), (metadata.ctime(), metadata.ctime_nsec()))
        };
        #[cfg(not(unix))]
        let (device, inode, changed) = (0, 0, (0, 0));
        let stamp = Stamp { device, inode, bytes: metadata.len(), modified, changed };
        let latest = match changed {
            (0, 0) => modified,
            (seconds, _) => {
                // A second later, so that the nanoseconds need not count.
                let since = Duration::from_secs(u64::try_from(seconds).unwrap_or(0) + 1);
                SystemTime::UNIX_EPOCH.checked_add(since)
            }
        };
        let age = latest.and_then(|latest| now.duration_since(latest).ok());
        (stamp, age.is_some_and(|age| age > CLOCK_STEP))
    }

    /// What is the same for two paths to one file; `None` where it cannot be told.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        (self.inode != 0).then_some((self.device, self.inode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_stamp_is_not_settled() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "x").unwrap();
        let metadata = std::fs::metadata(&file).unwrap();
        let now = SystemTime::now();
        let (stamp, settled) = Stamp::of(&metadata, now);
        assert!(!settled);
        assert_eq!((stamp, true), Stamp::of(&metadata, now + Duration::from_secs(9)));
        // A clock that lags behind the file's proves nothing.
        assert!(!Stamp::of(&metadata, SystemTime::UNIX_EPOCH).1);
    }

    #[cfg(unix)]
    #[test]
    fn the_same_size_and_time_is_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "old").unwrap();
        let before = std::fs::metadata(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        std::fs::write(folder.path().join("b"), "").unwrap();
        std::fs::write(&file, "new").unwrap();
        let handle = std::fs::File::options().write(true).open(&file).unwrap();
        handle.set_modified(before.modified().unwrap()).unwrap();
        let after = std::fs::metadata(&file).unwrap();
        let now = SystemTime::now();
        let (old, new) = (Stamp::of(&before, now).0, Stamp::of(&after, now).0);
        assert_eq!((old.bytes, old.modified), (new.bytes, new.modified));
        assert_ne!(old, new);
    }
}
