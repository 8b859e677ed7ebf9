//! The bytes of block files, mapped read-only or copied: the only unsafe code of
//! this crate.
//!
//! **Invariant:** the bytes of a map do not change and do not vanish while the
//! map lives. That rests on one assumption, which the operating system does not
//! enforce: nobody writes to or shortens a block file in place. This program
//! never does; it writes a new file and renames it, which leaves the mapped one
//! as it was. Where other programs may, [`BlockBytes::is_intact`] notices a shorter
//! file before it is read, but for the moment between; and a copy depends on
//! nobody. A map refuses nothing else: what the bytes mean is checked by `format`,
//! and no byte is believed before.
#![expect(unsafe_code, reason = "mapping a file is unsafe because others may change it")]

use std::fs::File;
use std::io::{self, Read as _};

/// The bytes of one file; the first lies on a boundary of 8 bytes at least.
#[derive(Debug)]
pub(crate) enum BlockBytes {
    /// Mapped, with the file.
    Mapped(memmap2::Mmap, File),
    /// Read into memory: the bytes, and how many of them are the file's.
    Copied(Vec<u64>, usize),
}

impl BlockBytes {
    /// Maps the whole of `file`, as long as it is now.
    ///
    /// # Errors
    /// When the operating system cannot map it, as with a directory.
    pub(crate) fn map(file: File) -> io::Result<Self> {
        // SAFETY: The file is a block file or one about to become one. Those are
        // written once, by their creator, before they are mapped, and afterwards
        // only replaced by rename or removed, neither of which changes the mapped
        // inode; see the module's assumption. The map is read-only, so this
        // process does not write through it either.
        let map = unsafe { memmap2::Mmap::map(&file) }?;
        Ok(BlockBytes::Mapped(map, file))
    }

    /// Reads the whole of `file`, as long as it is now.
    ///
    /// # Errors
    /// When it cannot be read, or is shorter by then.
    pub(crate) fn copy(mut file: File) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut words = vec![0_u64; len.div_ceil(8)];
        file.read_exact(&mut bytemuck::cast_slice_mut(&mut words)[..len])?;
        Ok(BlockBytes::Copied(words, len))
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            BlockBytes::Mapped(map, _) => map,
            BlockBytes::Copied(words, len) => &bytemuck::cast_slice(words)[..*len],
        }
    }

    /// Whether all bytes are still there.
    pub(crate) fn is_intact(&self) -> bool {
        match self {
            BlockBytes::Mapped(map, file) => {
                file.metadata().is_ok_and(|metadata| metadata.len() >= map.len() as u64)
            }
            BlockBytes::Copied(..) => true,
        }
    }
}
