//! Unpacks a zip archive.
//!
//! **Invariant:** every entry is checked by its name, kind and size before the
//! first is written, and what is written is counted again: what an archive says
//! of its sizes is not believed.

use std::fs;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use ::zip::ZipArchive;
use ::zip::result::ZipError;

use super::{ImportError, ImportLimits, Imported, import_with, is_left_behind};

/// Parts of one name.
const PARTS_MAX: usize = 32;

/// A file of the archive, and its path from the archive's top.
struct Entry {
    index: usize,
    name: String,
    below: PathBuf,
    is_executable: bool,
}

/// Takes the skills of a zip archive into the folder `into`. `name` is that of
/// the archive: a skill at its top that has no name is called so.
///
/// # Errors
/// Any [`ImportError`]; nothing has come in then.
pub fn import_zip<R: Read + Seek>(
    reader: R,
    name: &str,
    into: &Path,
    limits: &ImportLimits,
) -> Result<Imported, ImportError> {
    let mut archive = ZipArchive::new(reader).map_err(|error| unreadable(&error))?;
    let entries = check(&mut archive, limits)?;
    import_with(into, name, |target| {
        let mut left = limits.total_bytes_max;
        for entry in &entries {
            left -= unpack(&mut archive, entry, target, left.min(limits.file_bytes_max))?;
        }
        Ok(())
    })
}

fn unreadable(error: &ZipError) -> ImportError {
    ImportError::NotAnArchive { reason: error.to_string() }
}

/// All files of the archive that are taken along.
fn check<R: Read + Seek>(
    archive: &mut ZipArchive<R>,
    limits: &ImportLimits,
) -> Result<Vec<Entry>, ImportError> {
    let too_large = |what: String, limit| Err(ImportError::TooLarge { what, limit });
    if archive.len() > limits.entries_max {
        return too_large("the number of files".to_owned(), limits.entries_max as u64);
    }
    let mut entries = Vec::new();
    let mut n_bytes = 0_u64;
    for index in 0..archive.len() {
        let file = archive.by_index_raw(index).map_err(|error| unreadable(&error))?;
        let name = String::from_utf8_lossy(file.name_raw()).into_owned();
        let below = place(&name)?;
        let mode = file.unix_mode();
        if file.is_symlink() || mode.is_some_and(is_special) {
            return Err(ImportError::Link { entry: name });
        }
        if file.encrypted() {
            return Err(ImportError::Encrypted { entry: name });
        }
        let (size, packed) = (file.size(), file.compressed_size());
        if size > limits.file_bytes_max {
            return too_large(format!("`{}`", name.escape_debug()), limits.file_bytes_max);
        }
        if size > limits.ratio_from_bytes && size / packed.max(1) > limits.ratio_max {
            let what = format!("the compression of `{}`", name.escape_debug());
            return too_large(what, limits.ratio_max);
        }
        n_bytes += size;
        if n_bytes > limits.total_bytes_max {
            return too_large("the size of all files".to_owned(), limits.total_bytes_max);
        }
        let is_folder = name.ends_with(['/', '\\']);
        let Some(below) = below.filter(|_| !is_folder) else { continue };
        let is_executable = mode.is_some_and(|mode| mode & 0o100 != 0);
        entries.push(Entry { index, name, below, is_executable });
    }
    Ok(entries)
}

/// Whether a Unix mode is of neither a file nor a folder.
fn is_special(mode: u32) -> bool {
    !matches!(mode & 0o170_000, 0 | 0o040_000 | 0o100_000)
}

/// Where an entry goes; `None` for one that is left behind.
fn place(name: &str) -> Result<Option<PathBuf>, ImportError> {
    let slip = || ImportError::Slip { entry: name.to_owned() };
    if name.contains('\0') || name.starts_with(['/', '\\']) {
        return Err(slip());
    }
    let mut below = PathBuf::new();
    let mut is_taken = true;
    for part in name.split(['/', '\\']) {
        // A colon is a drive or a stream on Windows, and is in no skill's path.
        if part == ".." || part.contains(':') {
            return Err(slip());
        }
        if !matches!(part, "" | ".") {
            is_taken &= !is_left_behind(part);
            below.push(part);
        }
    }
    if below.components().count() > PARTS_MAX {
        let what = format!("the depth of `{}`", name.escape_debug());
        return Err(ImportError::TooLarge { what, limit: PARTS_MAX as u64 });
    }
    Ok((is_taken && !below.as_os_str().is_empty()).then_some(below))
}

/// Writes one file of at most `bytes_max` bytes, and gives its size.
fn unpack<R: Read + Seek>(
    archive: &mut ZipArchive<R>,
    entry: &Entry,
    target: &Path,
    bytes_max: u64,
) -> Result<u64, ImportError> {
    let to = target.join(&entry.below);
    let failed = |source| ImportError::Write { path: to.clone(), source };
    let file = archive.by_index(entry.index).map_err(|error| unreadable(&error))?;
    fs::create_dir_all(to.parent().unwrap_or(target)).map_err(failed)?;
    // Two entries of one name are an archive that shows a reader one and a
    // program the other.
    let mut out =
        fs::File::options().write(true).create_new(true).open(&to).map_err(
            |source| match source.kind() {
                io::ErrorKind::AlreadyExists => {
                    ImportError::NotAnArchive { reason: format!("`{}` is in it twice", entry.name) }
                }
                _ => failed(source),
            },
        )?;
    let n_bytes = io::copy(&mut file.take(bytes_max + 1), &mut out).map_err(|error| {
        ImportError::NotAnArchive { reason: format!("`{}`: {error}", entry.name.escape_debug()) }
    })?;
    if n_bytes > bytes_max {
        let what = format!("`{}`", entry.name.escape_debug());
        return Err(ImportError::TooLarge { what, limit: bytes_max });
    }
    #[cfg(unix)]
    if entry.is_executable {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    }
    Ok(n_bytes)
}
