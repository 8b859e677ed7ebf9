//! A block that lies in the bytes of its file, mapped or copied.
//!
//! **Invariant:** a `MappedBlock` exists only when every byte it gives out has
//! been compared with its digest, so it may be grafted. K and V are slices of
//! them: of a map nothing is copied, and all sessions and processes share the pages.

use std::fs::File;
use std::path::Path;

use skillgraft_kv::{BlockHeader, BlockKey, KvBlock, KvDtype, KvView, LayerIdx};

use crate::error::Error;
use crate::format::{self, Head, Part};
use crate::mmap::BlockBytes;

/// How files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Through a memory map: nothing is copied, and processes share the pages. What
    /// shortens a file in place while it is read ends the process.
    #[default]
    Map,
    /// Into memory: for directories that other programs write to, and network file
    /// systems.
    Copy,
}

/// The KV of one block, read-only.
#[derive(Debug)]
pub struct MappedBlock {
    bytes: BlockBytes,
    head: Head,
}

impl MappedBlock {
    /// Opens a file and checks that all of it is the block `key`.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be read, [`Error::Block`] when anything in it is
    /// not as it was written.
    pub(crate) fn check(
        file: File,
        path: &Path,
        key: &BlockKey,
        access: Access,
    ) -> Result<Self, Error> {
        let bytes = match access {
            Access::Map => BlockBytes::map(file).map_err(Error::io("map", path))?,
            Access::Copy => BlockBytes::copy(file).map_err(Error::io("read", path))?,
        };
        let head = format::check(bytes.bytes(), key).map_err(Error::block(path))?;
        Ok(MappedBlock { bytes, head })
    }

    /// Size of the file.
    pub(crate) fn n_bytes(&self) -> u64 {
        self.bytes.bytes().len() as u64
    }

    fn tensor(&self, part: Part, layer: LayerIdx) -> KvView<'_> {
        let bytes = &self.bytes.bytes()[self.head.layout.range(part, layer.index())];
        // The casts cannot fail: the bytes start on a boundary of 8, tensor data on
        // one of 64, and all tensors are of one type and a whole number of elements.
        match self.head.header.geometry.dtype {
            KvDtype::F16 => KvView::F16(bytemuck::cast_slice(bytes)),
            KvDtype::F32 => KvView::F32(bytemuck::cast_slice(bytes)),
        }
    }
}

impl KvBlock for MappedBlock {
    fn header(&self) -> &BlockHeader {
        &self.head.header
    }

    fn k(&self, layer: LayerIdx) -> KvView<'_> {
        self.tensor(Part::K, layer)
    }

    fn v(&self, layer: LayerIdx) -> KvView<'_> {
        self.tensor(Part::V, layer)
    }

    fn is_intact(&self) -> bool {
        self.bytes.is_intact()
    }
}
