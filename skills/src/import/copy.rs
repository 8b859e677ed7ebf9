//! Copies a folder.
//!
//! **Invariant:** the whole list is checked before the first file is written.
//!
//! **Refuses:** links, and whatever is neither file nor folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::{ImportError, ImportLimits, is_left_behind};

/// Folders below the source that are looked into.
const DEPTH_MAX: usize = 32;

/// A file to copy, and its path from the source.
#[derive(Debug)]
pub(super) struct Source {
    file: PathBuf,
    below: PathBuf,
}

/// The files of a folder.
pub(super) fn list(folder: &Path, limits: &ImportLimits) -> Result<Vec<Source>, ImportError> {
    let taken = |entry: &walkdir::DirEntry| {
        entry.depth() == 0 || !is_left_behind(&entry.file_name().to_string_lossy())
    };
    let too_large = |what: &str, limit| Err(ImportError::TooLarge { what: what.to_owned(), limit });
    let mut sources = Vec::new();
    let (mut n_entries, mut n_bytes) = (0, 0);
    for entry in WalkDir::new(folder).max_depth(DEPTH_MAX).into_iter().filter_entry(taken) {
        let entry = entry.map_err(|error| ImportError::Source {
            path: error.path().unwrap_or(folder).to_owned(),
            source: io::Error::from(error),
        })?;
        n_entries += 1;
        if n_entries > limits.entries_max {
            return too_large("the number of files", limits.entries_max as u64);
        }
        // The source itself may be a link: the user named it.
        if entry.depth() == 0 || entry.file_type().is_dir() {
            continue;
        }
        let below = entry.path().strip_prefix(folder).unwrap_or(entry.path()).to_owned();
        if !entry.file_type().is_file() {
            return Err(ImportError::Link { entry: below.display().to_string() });
        }
        let metadata = entry.metadata().map_err(|error| ImportError::Source {
            path: entry.path().to_owned(),
            source: io::Error::from(error),
        })?;
        if metadata.len() > limits.file_bytes_max {
            return too_large(&format!("`{}`", below.display()), limits.file_bytes_max);
        }
        n_bytes += metadata.len();
        if n_bytes > limits.total_bytes_max {
            return too_large("the size of all files", limits.total_bytes_max);
        }
        sources.push(Source { file: entry.into_path(), below });
    }
    Ok(sources)
}

/// Writes the files below `target`.
pub(super) fn write(sources: &[Source], target: &Path) -> Result<(), ImportError> {
    for Source { file, below } in sources {
        let to = target.join(below);
        let folder = to.parent().unwrap_or(target);
        let failed = |source| ImportError::Write { path: to.clone(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        fs::copy(file, &to).map_err(failed)?;
    }
    Ok(())
}
