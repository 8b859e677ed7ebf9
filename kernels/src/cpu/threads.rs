//! The threads that share a kernel's work.
//!
//! Idle threads park, so a runtime that waits for its user costs nothing and
//! machines that are shared are not slowed. The caller works too.
//!
//! **Invariant:** which thread does an item, and when, changes no result:
//! items write disjoint memory and read none that another writes.
//!
//! **Refuses:** an item count that depends on the number of threads; how work
//! is cut is the kernel's business.
#![expect(unsafe_code, reason = "chunks of one slice are handed to several threads")]

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cpu::shared::Shared;

/// A set of threads. With one, everything runs on the caller's.
pub struct Threads {
    /// All but the caller's; `None` when the caller's is the only one.
    helpers: Option<rayon::ThreadPool>,
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
        let helpers = rayon::ThreadPoolBuilder::new()
            .num_threads(count - 1)
            .thread_name(|i| format!("skillgraft-kernel-{i}"))
            .build()
            .ok();
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
        let helpers = match &self.helpers {
            Some(helpers) if n_items > 1 => helpers,
            _ => return (0..n_items).for_each(work),
        };
        let next = AtomicUsize::new(0);
        let drain = || {
            loop {
                let item = next.fetch_add(1, Ordering::Relaxed);
                if item >= n_items {
                    break;
                }
                work(item);
            }
        };
        helpers.in_place_scope(|scope| {
            for _ in 1..self.count.min(n_items) {
                scope.spawn(|_| drain());
            }
            drain();
        });
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
