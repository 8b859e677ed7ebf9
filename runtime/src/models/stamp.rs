//! Deciding whether a file in place has to be hashed again.
//!
//! A model is hashed when it is pulled. Beside it a stamp records the SHA-256,
//! size and modification time that were found then. While all three agree with
//! the manifest and the file, the file is trusted; otherwise it is hashed.
//! So a changed or exchanged file is found, and an unchanged one costs two
//! small reads at start. A change that restores the modification time is only
//! found by an explicit verification.
//!
//! **Invariant:** a stamp can only save work, never make a wrong file right:
//! it is written after a full hash, and anything odd about it means hashing.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes read at a time when hashing and copying: large enough that the system
/// calls do not show, small enough to stay in the second-level cache.
pub(super) const CHUNK_BYTES: usize = 128 << 10;

/// What was true of a file when it was hashed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    sha256: String,
    bytes: u64,
    mtime_s: u64,
    mtime_ns: u32,
}

impl Stamp {
    /// `None` where the system tells no usable modification time.
    fn of(metadata: &Metadata, sha256: &str) -> Option<Self> {
        let mtime = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(Stamp {
            sha256: sha256.to_owned(),
            bytes: metadata.len(),
            mtime_s: mtime.as_secs(),
            mtime_ns: mtime.subsec_nanos(),
        })
    }
}

/// Whether the stamp at `stamp_path` vouches that the file described by
/// `metadata` has this SHA-256.
pub(super) fn vouches(stamp_path: &Path, metadata: &Metadata, sha256: &str) -> bool {
    let Ok(text) = fs::read(stamp_path) else { return false };
    let Ok(stamp) = serde_json::from_slice::<Stamp>(&text) else { return false };
    Stamp::of(metadata, sha256).is_some_and(|now| now == stamp)
}

/// Records that the file described by `metadata` was found to have this
/// SHA-256. Without a stamp the next start hashes again, so failing to write
/// one (in a read-only folder) is only logged.
pub(super) fn write(stamp_path: &Path, metadata: &Metadata, sha256: &str) {
    let Some(stamp) = Stamp::of(metadata, sha256) else { return };
    let text = serde_json::to_vec(&stamp).expect("a stamp has only string and number fields");
    if let Err(error) = fs::write(stamp_path, text) {
        tracing::debug!(path = %stamp_path.display(), %error, "no stamp written");
    }
}

/// SHA-256 of a whole file, lower-case hexadecimal.
pub(super) fn sha256_of_file(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    hash_into(&mut hasher, &mut File::open(path)?)?;
    Ok(hex(&hasher.finalize()))
}

/// Feeds all of `reader` to `hasher` and returns how many bytes that was.
pub(super) fn hash_into(hasher: &mut Sha256, reader: &mut dyn Read) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut total = 0;
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => return Ok(total),
            Ok(n) => {
                hasher.update(&chunk[..n]);
                total += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}
