//! What a pull tells while it runs.
//!
//! **Invariant:** events describe, they decide nothing: a caller that ignores
//! all of them gets the same result. Refuses to format; that is the caller's.

use std::path::PathBuf;

/// One event of a pull, in the order in which things happen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Another process is pulling the same model; this one waits for it.
    WaitingForLock {
        /// The lock file.
        path: PathBuf,
    },
    /// A source is being asked.
    SourceStarted {
        /// The source, as shown to the user.
        source: String,
    },
    /// Bytes fetched so far from the source that was started last.
    Bytes {
        /// Bytes fetched, counting those kept from an earlier try.
        done: u64,
        /// Bytes to fetch, where they are known beforehand.
        total: Option<u64>,
    },
    /// A source did not deliver the model; the next one is tried.
    SourceRefused {
        /// The source, as shown to the user.
        source: String,
        /// Why, in one line.
        reason: String,
    },
    /// The bytes are there and are being unpacked or checked.
    Verifying,
    /// The model is in place. Always the last event of a successful pull.
    Done {
        /// The checked model file.
        path: PathBuf,
    },
}
