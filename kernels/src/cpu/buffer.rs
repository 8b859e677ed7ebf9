//! Buffers of `f32` that start on a cache line, and scratch that is reused.
//!
//! **Invariant:** the first element of a slice from here lies on a 64-byte
//! boundary, so a load of sixteen lanes at a multiple of sixteen touches one
//! cache line.
//!
//! **Refuses:** handing out scratch with known contents: it holds whatever was
//! left there.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

const ALIGN_BYTES: usize = 64;
const ALIGN_ELEMENTS: usize = ALIGN_BYTES / size_of::<f32>();

/// An owned buffer whose first element lies on a cache line. For activations it
/// matters because threads write neighbouring columns: where these do not begin on
/// a line, two threads take the same line from each other.
#[derive(Debug, Default)]
pub struct AlignedBuffer {
    /// Longer than `len`, for the elements before the first boundary.
    data: Vec<f32>,
    len: usize,
}

impl AlignedBuffer {
    /// `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        AlignedBuffer { data: vec![0.0; len + ALIGN_ELEMENTS], len }
    }

    fn start(&self) -> usize {
        // An offset of `f32` to a 64-byte boundary always exists; were it not
        // found, slices would be right and slower.
        let spare = self.data.len() - self.len;
        self.data.as_ptr().align_offset(ALIGN_BYTES).min(spare)
    }

    pub(crate) fn as_slice(&self) -> &[f32] {
        let start = self.start();
        &self.data[start..start + self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [f32] {
        let start = self.start();
        &mut self.data[start..start + self.len]
    }
}

impl Deref for AlignedBuffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.as_slice()
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        self.as_mut_slice()
    }
}

thread_local! {
    static SCRATCH: RefCell<AlignedBuffer> = RefCell::default();
}

/// Calls `work` with scratch for each of `lens`, all aligned, with arbitrary
/// contents. It is kept for the thread's next call, which allocates only when
/// it needs more.
pub(crate) fn with_scratch<const N: usize>(lens: [usize; N], work: impl FnOnce([&mut [f32]; N])) {
    let padded = lens.map(|len| len.next_multiple_of(ALIGN_ELEMENTS));
    let total = padded.iter().sum();
    // Taken out, so that a kernel inside a kernel gets scratch of its own.
    let mut buffer = SCRATCH.take();
    if buffer.len < total {
        buffer = AlignedBuffer::zeroed(total);
    }
    let mut rest = buffer.as_mut_slice();
    let mut next = 0;
    let parts = std::array::from_fn(|_| {
        let (part, tail) = std::mem::take(&mut rest).split_at_mut(padded[next]);
        rest = tail;
        let part = &mut part[..lens[next]];
        next += 1;
        part
    });
    work(parts);
    SCRATCH.set(buffer);
}

#[cfg(test)]
mod tests;
