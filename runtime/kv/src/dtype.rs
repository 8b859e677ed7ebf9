//! The element types in which K and V are kept, and buffers of them.

use std::fmt;
use std::str::FromStr;

/// Element type of cached K and V: the one list of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KvDtype {
    /// IEEE binary16.
    F16,
    /// IEEE binary32.
    F32,
}

impl KvDtype {
    /// Bytes of one element.
    pub const fn size_bytes(self) -> usize {
        match self {
            KvDtype::F16 => 2,
            KvDtype::F32 => 4,
        }
    }

    /// The name used in block files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            KvDtype::F16 => "f16",
            KvDtype::F32 => "f32",
        }
    }
}

impl fmt::Display for KvDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KvDtype {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [KvDtype::F16, KvDtype::F32]
            .into_iter()
            .find(|dtype| dtype.name() == name)
            .ok_or_else(|| format!("unknown KV dtype `{name}`"))
    }
}

/// An owned buffer of K or V elements. Half floats are their bit patterns, so
/// that this package needs no arithmetic.
#[derive(Debug, Clone, PartialEq)]
pub enum KvBuffer {
    /// binary16 bit patterns.
    F16(Vec<u16>),
    /// binary32 values.
    F32(Vec<f32>),
}

/// A borrowed buffer of K or V elements; see [`KvBuffer`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KvView<'a> {
    /// binary16 bit patterns.
    F16(&'a [u16]),
    /// binary32 values.
    F32(&'a [f32]),
}

impl KvBuffer {
    /// A buffer of `len` zero elements.
    pub fn zeroed(dtype: KvDtype, len: usize) -> Self {
        match dtype {
            KvDtype::F16 => KvBuffer::F16(vec![0; len]),
            KvDtype::F32 => KvBuffer::F32(vec![0.0; len]),
        }
    }

    /// The whole buffer, borrowed.
    pub fn view(&self) -> KvView<'_> {
        match self {
            KvBuffer::F16(bits) => KvView::F16(bits),
            KvBuffer::F32(values) => KvView::F32(values),
        }
    }

    /// Element type.
    pub fn dtype(&self) -> KvDtype {
        self.view().dtype()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.view().len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> KvView<'a> {
    /// Element type.
    pub fn dtype(self) -> KvDtype {
        match self {
            KvView::F16(_) => KvDtype::F16,
            KvView::F32(_) => KvDtype::F32,
        }
    }

    /// Number of elements.
    pub fn len(self) -> usize {
        match self {
            KvView::F16(bits) => bits.len(),
            KvView::F32(values) => values.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Elements `start..end`.
    ///
    /// # Panics
    /// When the range is out of bounds.
    #[must_use]
    pub fn slice(self, start: usize, end: usize) -> KvView<'a> {
        match self {
            KvView::F16(bits) => KvView::F16(&bits[start..end]),
            KvView::F32(values) => KvView::F32(&values[start..end]),
        }
    }
}
