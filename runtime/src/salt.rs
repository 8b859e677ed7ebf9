//! The per-user salt of block keys.
//!
//! It keeps a block's name from being computed by somebody who knows a skill's
//! text, which matters once blocks are shared. Losing it costs a recompile.

use std::io::{self, Read, Write};
use std::path::Path;

/// File in the cache folder.
const FILE: &str = "salt";

/// Reads the salt of a cache folder, or makes one. Where it cannot be kept, a
/// salt of this process serves, and the reason is returned with it.
pub(crate) fn load_or_create(cache_dir: &Path) -> ([u8; 16], Option<String>) {
    let path = cache_dir.join(FILE);
    let made = read(&path).or_else(|_| create(cache_dir, &path));
    match made {
        Ok(salt) => (salt, None),
        Err(error) => (fresh(), Some(format!("cannot keep `{}`: {error}", path.display()))),
    }
}

fn read(path: &Path) -> io::Result<[u8; 16]> {
    let mut salt = [0; 16];
    std::fs::File::open(path)?.read_exact(&mut salt)?;
    Ok(salt)
}

fn create(cache_dir: &Path, path: &Path) -> io::Result<[u8; 16]> {
    std::fs::create_dir_all(cache_dir)?;
    // Readable by its owner only, as temporary files are.
    let mut draft = tempfile::NamedTempFile::new_in(cache_dir)?;
    let salt = fresh();
    draft.write_all(&salt)?;
    match draft.persist_noclobber(path) {
        Ok(_) => Ok(salt),
        // Another process was first, or the file was cut short.
        Err(_) => read(path).or_else(|_| {
            std::fs::write(path, salt)?;
            Ok(salt)
        }),
    }
}

/// Random bytes from the keys that the standard library draws for hash maps:
/// unpredictable from outside, which is all that is asked of a salt.
fn fresh() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    let mut salt = [0; 16];
    for (half, state) in salt.chunks_exact_mut(8).zip([RandomState::new(), RandomState::new()]) {
        half.copy_from_slice(&state.hash_one(std::process::id()).to_le_bytes());
    }
    salt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (first, problem) = load_or_create(dir.path());
        assert_eq!(problem, None);
        assert_eq!(load_or_create(dir.path()).0, first);
        assert_ne!(load_or_create(tempfile::tempdir().unwrap().path()).0, first);
    }

    #[test]
    fn a_cut_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), b"short").unwrap();
        let (salt, problem) = load_or_create(dir.path());
        assert_eq!(problem, None);
        assert_eq!(load_or_create(dir.path()).0, salt);
    }

    #[test]
    fn an_impossible_folder_is_reported() {
        let (_, problem) = load_or_create(Path::new("/dev/null/nowhere"));
        assert!(problem.unwrap().contains("/dev/null/nowhere/salt"));
    }
}
