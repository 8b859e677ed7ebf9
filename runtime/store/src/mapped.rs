//! A block that lies in a memory map of its file.
//!
//! **Invariant:** a `MappedBlock` exists only when every byte it gives out has
//! been compared with its digest, so it may be grafted. K and V are slices of
//! the map: nothing is copied, and all sessions and processes share the pages.

use std::fs::File;
use std::path::Path;

use skillgraft_kv::{BlockHeader, BlockKey, KvBlock, KvDtype, KvView, LayerIdx};

use crate::error::Error;
use crate::format::{self, Head, Part};
use crate::mmap::BlockMap;

/// The KV of one block, read-only, in the page cache.
#[derive(Debug)]
pub struct MappedBlock {
    map: BlockMap,
    head: Head,
}

impl MappedBlock {
    /// Maps a file and checks that all of it is the block `key`.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be mapped, [`Error::Block`] when anything
    /// in it is not as it was written.
    pub(crate) fn check(file: &File, path: &Path, key: &BlockKey) -> Result<Self, Error> {
        let map = BlockMap::new(file).map_err(Error::io("map", path))?;
        let head = format::check(map.bytes(), key).map_err(Error::block(path))?;
        Ok(MappedBlock { map, head })
    }

    fn tensor(&self, part: Part, layer: LayerIdx) -> KvView<'_> {
        let bytes = &self.map.bytes()[self.head.layout.range(part, layer.index())];
        // The casts cannot fail: maps start on a page, tensor data on a 64-byte
        // boundary, and all tensors are of one type and a whole number of elements.
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
}
