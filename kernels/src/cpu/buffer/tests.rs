//! Where buffers and scratch lie.
#![expect(clippy::float_cmp, reason = "what is compared is exact")]

use super::{ALIGN_BYTES, AlignedBuffer, with_scratch};

fn is_aligned(slice: &[f32]) -> bool {
    slice.as_ptr().addr().is_multiple_of(ALIGN_BYTES)
}

#[test]
fn buffers_start_on_a_cache_line() {
    for len in [0, 1, 17, 1000] {
        let mut buffer = AlignedBuffer::zeroed(len);
        assert_eq!((buffer.as_slice().len(), buffer.as_mut_slice().len()), (len, len));
        assert!(is_aligned(buffer.as_slice()));
    }
}

#[test]
fn scratch_is_apart_even_when_nested() {
    with_scratch([5, 0, 33], |[a, b, c]| {
        assert_eq!((a.len(), b.len(), c.len()), (5, 0, 33));
        assert!(is_aligned(a) && is_aligned(c));
        a.fill(1.0);
        c.fill(3.0);
        with_scratch([50], |[inner]| inner.fill(9.0));
        assert!(a.iter().all(|&x| x == 1.0) && c.iter().all(|&x| x == 3.0));
    });
    // What a call left is not reallocated for a smaller one.
    let mut first = std::ptr::null();
    with_scratch([100], |[a]| first = a.as_ptr());
    with_scratch([100], |[a]| assert_eq!(a.as_ptr(), first));
}
