//! The threads that share a kernel's work.
//!
//! Idle threads park after some microseconds, so a runtime that waits for its
//! user costs nothing and machines that are shared are not slowed. The caller
//! works too, and waits for no thread that has not begun.
//!
//! **Invariant:** which thread does an item, and when, changes no result:
//! items write disjoint memory and read none that another writes.
//!
//! **Refuses:** an item count that depends on the number of threads; how work
//! is cut is the kernel's business.
#![expect(unsafe_code, reason = "chunks of one slice are handed to several threads")]

use std::fmt;

use crate::cpu::shared::Shared;

mod pool;

use pool::Pool;

/// A set of threads. With one, everything runs on the caller's.
pub struct Threads {
    /// All but the caller's; `None` when the caller's is the only one.
    helpers: Option<Pool>,
    count: usize,
}

impl Threads {
    /// `count` threads, the caller's among them; 0 is taken as 1. When the
    /// system refuses to start that many, the caller works alone, and
    /// [`count`](Self::count) says so.
    pub fn new(count: usize) -> Self {
        if count <= 1 {
            return Threads { helpers: None, count: 1 };
        }
        let helpers = Pool::new(count - 1);
        let count = if helpers.is_some() { count } else { 1 };
        Threads { helpers, count }
    }

    /// One thread for each processor that this process may use, limits of
    /// containers included.
    pub fn available() -> Self {
        Threads::new(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// Number of threads, the caller's among them.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Calls `work` once with each of `0..n_items`, on any thread, in any
    /// order, and returns when all calls have.
    ///
    /// # Panics
    /// When a call does.
    pub fn for_each(&self, n_items: usize, work: impl Fn(usize) + Sync) {
        match &self.helpers {
            Some(helpers) if n_items > 1 => helpers.run(n_items, &work),
            _ => (0..n_items).for_each(work),
        }
    }

    /// Cuts `data` into chunks of `chunk_len` elements, the last one shorter,
    /// and calls `work` once with each and its index.
    ///
    /// # Panics
    /// When `chunk_len` is 0, or a call panics.
    pub fn for_each_chunk<T: Send>(
        &self,
        data: &mut [T],
        chunk_len: usize,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        assert!(chunk_len > 0, "chunks must not be empty");
        let len = data.len();
        let shared = Shared::new(data);
        self.for_each(len.div_ceil(chunk_len), |i| {
            let start = i * chunk_len;
            let n = chunk_len.min(len - start);
            // SAFETY: `for_each` gives each index once, and the chunks of two
            // indices do not overlap.
            work(i, unsafe { shared.claim(start, n) });
        });
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Default for Threads {
    fn default() -> Self {
        Threads::available()
    }
}

#[cfg(test)]
mod tests;
