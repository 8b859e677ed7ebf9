//! Putting a file under a block's name, whole or not at all.
//!
//! The bytes go to a temporary file beside it, which is fsynced, mapped and
//! checked like any block that is read, renamed, and made durable by an fsync of
//! the directory.
//!
//! **Invariant:** whenever the process or the machine stops, the name holds what
//! it held before or the whole new block. At worst a temporary file is left,
//! which [`remove_stale`] takes away. A file is never opened for writing under
//! its final name.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use skillgraft_kv::{BlockHeader, CompiledBlock};
use tempfile::{NamedTempFile, TempPath};

use crate::error::Error;
use crate::format;
use crate::mapped::{Access, MappedBlock};

const TEMP_PREFIX: &str = ".block-";
const TEMP_SUFFIX: &str = ".tmp";

/// A temporary file that nobody has written to for this long was left by a
/// process that died: writing even a large block takes seconds, and each write
/// renews the file's time.
const TEMP_AGE_MAX: Duration = Duration::from_secs(600);

/// The steps that a disk may refuse. Tests stand in for the disk here.
pub(crate) trait Disk: Send + Sync + fmt::Debug {
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, temp: TempPath, to: &Path) -> io::Result<()> {
        temp.persist(to).map_err(|refused| refused.error)
    }
}

/// The operating system's disk.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {}

/// Writes a block to `path` in the existing directory `dir`, and maps it.
///
/// # Errors
/// [`Error::Io`] with the step that failed; [`Error::Block`] when the file does
/// not read back as it was written. `path` is as it was before then.
pub(crate) fn write_block(
    disk: &dyn Disk,
    dir: &Path,
    path: &Path,
    block: &CompiledBlock,
    access: Access,
) -> Result<MappedBlock, Error> {
    let mut temp = create_temp(dir)?;
    write_and_sync(disk, temp.as_file_mut(), &block.header, &format::tensors(block))
        .map_err(Error::io("write", path))?;
    let written = temp.reopen().map_err(Error::io("open", temp.path()))?;
    let mapped = MappedBlock::check(written, temp.path(), &block.header.key, access)?;
    disk.rename(temp.into_temp_path(), path).map_err(Error::io("rename a new block to", path))?;
    if let Err(error) = sync_dir(disk, dir) {
        // The block is there for all to read. Only a power cut may still lose
        // it, and then as a whole.
        tracing::warn!(dir = %dir.display(), %error, "cannot fsync the block directory");
    }
    Ok(mapped)
}

fn write_and_sync(
    disk: &dyn Disk,
    file: &mut File,
    header: &BlockHeader,
    tensors: &[&[u8]],
) -> io::Result<()> {
    disk.write(file, &format::encode(header, tensors))?;
    for tensor in tensors {
        disk.write(file, tensor)?;
    }
    disk.sync(file)
}

/// Creates an empty temporary file in `dir`, mode 0600 on Unix.
///
/// # Errors
/// [`Error::Io`] when nothing can be created there.
pub(crate) fn create_temp(dir: &Path) -> Result<NamedTempFile, Error> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMP_PREFIX).suffix(TEMP_SUFFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(fs::Permissions::from_mode(0o600));
    }
    builder.tempfile_in(dir).map_err(Error::io("create a file in", dir))
}

/// Creates `dir` and what is missing above it, mode 0700 on Unix.
///
/// # Errors
/// [`Error::Io`] when it cannot be created.
pub(crate) fn create_dir(dir: &Path) -> Result<(), Error> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(dir).map_err(Error::io("create directory", dir))
}

/// Removes temporary files that a dead process left in `dir`, and returns how many.
/// What cannot be removed is logged and stays: it is never read.
pub(crate) fn remove_stale(dir: &Path) -> usize {
    let Ok(files) = fs::read_dir(dir) else { return 0 };
    let mut n_removed = 0;
    for file in files.flatten() {
        let name = file.file_name();
        let is_temp =
            name.to_str().is_some_and(|n| n.starts_with(TEMP_PREFIX) && n.ends_with(TEMP_SUFFIX));
        // A time in the future is no age, so such a file stays.
        let age = || file.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_temp && age().is_some_and(|age| age > TEMP_AGE_MAX) {
            let path = file.path();
            match fs::remove_file(&path) {
                Ok(()) => {
                    n_removed += 1;
                    tracing::debug!(path = %path.display(), "removed a stale file");
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot remove a stale file");
                }
            }
        }
    }
    n_removed
}

#[cfg(unix)]
fn sync_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    disk.sync(&File::open(dir)?)
}

/// Directories cannot be fsynced here; the file system's journal has to do.
#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "the same signature on all systems")]
fn sync_dir(_disk: &dyn Disk, _dir: &Path) -> io::Result<()> {
    Ok(())
}
