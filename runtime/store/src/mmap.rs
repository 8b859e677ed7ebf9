//! Read-only memory maps of block files: the only unsafe code of this crate.
//!
//! **Invariant:** the bytes of a map do not change and do not vanish while the
//! map lives. That rests on one assumption, which the operating system does not
//! enforce: nobody writes to or shortens a block file in place. This program
//! never does; it writes a new file and renames it, which leaves the mapped one
//! as it was. A map refuses nothing else: what the bytes mean is checked by
//! `format`, and no byte is believed before.
#![expect(unsafe_code, reason = "mapping a file is unsafe because others may change it")]

use std::fs::File;
use std::io;

/// The bytes of one file.
#[derive(Debug)]
pub(crate) struct BlockMap(memmap2::Mmap);

impl BlockMap {
    /// Maps the whole of `file`, as long as it is now.
    ///
    /// # Errors
    /// When the operating system cannot map it, as with a directory.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: The file is a block file or one about to become one. Those are
        // written once, by their creator, before they are mapped, and afterwards
        // only replaced by rename or removed, neither of which changes the mapped
        // inode; see the module's assumption. The map is read-only, so this
        // process does not write through it either.
        let map = unsafe { memmap2::Mmap::map(file) }?;
        Ok(BlockMap(map))
    }

    /// The bytes; the first lies on a page boundary.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
