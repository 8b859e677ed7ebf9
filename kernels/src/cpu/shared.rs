//! Memory that several threads write at once, each its own part of it.
//!
//! **Invariant:** every part handed out lies within the borrowed slice.
//!
//! **Refuses:** checking that parts are disjoint; that is its callers' proof.
#![expect(unsafe_code, reason = "strided parts of one slice cannot be split off safely")]

use std::marker::PhantomData;

/// A mutable slice that can be sent to several threads.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: the pointer comes from a `&mut [T]`, whose elements may be sent. Use
// from several threads is ruled by the contract of `claim`.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// Borrows `slice` for as long as parts of it are in use.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Shared { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Elements `start..start + len`.
    ///
    /// # Panics
    /// When they are not all there.
    ///
    /// # Safety
    /// While the result is in use, no other part that overlaps it is.
    #[inline(always)]
    pub(crate) unsafe fn claim(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.len && len <= self.len - start, "part out of bounds");
        // SAFETY: `start` is within the slice, by the assertion.
        let first = unsafe { self.start.add(start) };
        // SAFETY: the assertion puts the range within the slice, and the caller
        // promises that nothing else uses it.
        unsafe { std::slice::from_raw_parts_mut(first, len) }
    }
}
