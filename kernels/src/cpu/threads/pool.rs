//! Threads that wait for short pieces of work: they spin for some microseconds,
//! since the next piece usually follows at once, and then park.
//!
//! **Invariant:** a borrowed job is reachable while its state is open or a helper
//! is inside, and [`Pool::run`] returns only when neither is the case.
//!
//! **Refuses:** to wait for helpers that have not begun. On a machine whose
//! processors are busy with other work, a helper that does not get one is done
//! without; a barrier of all threads would wait for its turn.
#![expect(unsafe_code, reason = "threads that outlive a call work on what it borrows")]

use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

/// Pauses before a helper parks: with some 40 to 140 cycles each, 10 to 50
/// microseconds.
const SPINS: usize = 1000;
/// Pauses before the caller, which waits for helpers that are inside, lets
/// others have the processor.
const CALLER_SPINS: usize = 200;

/// The state's bit for a job that helpers may enter.
const OPEN: u64 = 1 << 63;
/// The state's unit of jobs so far; below it helpers inside are counted.
const JOB: u64 = 1 << 32;

/// What is called with each item.
type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// Some threads, which help whoever calls [`run`](Self::run).
pub(super) struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// Held by the caller that has the helpers.
    caller: Mutex<()>,
}

struct Shared {
    /// [`OPEN`], the number of jobs so far, and how many helpers are inside.
    state: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    next: AtomicUsize,
    /// What a helper panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    n_parked: AtomicUsize,
    parking: Mutex<()>,
    wake: Condvar,
    is_over: AtomicBool,
}

#[derive(Clone, Copy)]
struct Job {
    work: *const Work<'static>,
    n_items: usize,
}

// SAFETY: `job` is written only while the state is closed and nobody is inside,
// by the one caller that holds `Pool::caller`, and read only from inside; what it
// points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is used only while its target is borrowed.
unsafe impl Send for Shared {}

impl Pool {
    /// Starts threads; `None` when the system refuses to.
    pub(super) fn new(n_helpers: usize) -> Option<Self> {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            panic: Mutex::new(None),
            n_parked: AtomicUsize::new(0),
            parking: Mutex::new(()),
            wake: Condvar::new(),
            is_over: AtomicBool::new(false),
        });
        let mut pool = Pool { shared, helpers: Vec::new(), caller: Mutex::new(()) };
        for i in 0..n_helpers {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new().name(format!("skillgraft-kernel-{i}"));
            // The threads that did start end with the pool.
            pool.helpers.push(thread.spawn(move || shared.help()).ok()?);
        }
        Some(pool)
    }

    /// Calls `work` with each of `0..n_items`, on the helpers too unless another
    /// caller has them.
    ///
    /// # Panics
    /// When a call does.
    pub(super) fn run(&self, n_items: usize, work: &Work<'_>) {
        let caller = match self.caller.try_lock() {
            Ok(caller) => caller,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return (0..n_items).for_each(work),
        };
        self.shared.open(work, n_items);
        let own = catch_unwind(AssertUnwindSafe(|| self.shared.drain(work, n_items)));
        if own.is_err() {
            // Nothing further is begun.
            self.shared.next.store(n_items, Ordering::Relaxed);
        }
        self.shared.close();
        let panic = lock(&self.shared.panic).take();
        drop(caller);
        if let Some(panic) = own.err().or(panic) {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.shared.wake_all();
        for helper in self.helpers.drain(..) {
            // A helper's panics were handed to callers.
            let _ = helper.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is whole whoever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Lets helpers in.
    #[expect(clippy::transmute_ptr_to_ptr, reason = "a cast cannot lengthen a lifetime")]
    fn open(&self, work: &Work<'_>, n_items: usize) {
        let work: *const Work<'_> = work;
        // SAFETY: only the lifetime changes; the pointer is followed only between
        // `open` and the end of `close`, within the borrow of `run`.
        let work = unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
        self.next.store(0, Ordering::Relaxed);
        // SAFETY: the state is closed and nobody is inside, so nobody reads it.
        unsafe { *self.job.get() = Some(Job { work, n_items }) };
        let jobs = (self.state.load(Ordering::Relaxed) & !OPEN) + JOB;
        self.state.store(jobs & !OPEN | OPEN, Ordering::SeqCst);
        // A helper counts itself as parked before it looks at the state for the
        // last time, and both are in one order: one of the two is seen.
        if self.n_parked.load(Ordering::SeqCst) > 0 {
            self.wake_all();
        }
    }

    /// Lets nobody in any more, and waits for those inside.
    fn close(&self) {
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut n_spins = 0;
        while self.state.load(Ordering::Acquire) & (JOB - 1) > 0 {
            n_spins += 1;
            if n_spins < CALLER_SPINS { spin_loop() } else { std::thread::yield_now() }
        }
    }

    fn wake_all(&self) {
        let _parking = lock(&self.parking);
        self.wake.notify_all();
    }

    fn drain(&self, work: &Work<'_>, n_items: usize) {
        loop {
            let item = self.next.fetch_add(1, Ordering::Relaxed);
            if item >= n_items {
                return;
            }
            work(item);
        }
    }

    /// A helper's life.
    fn help(&self) {
        let mut seen = 0;
        while self.wait(seen) {
            let Some(job) = self.enter(&mut seen) else { continue };
            // SAFETY: this helper is inside, so the job is there and borrowed.
            let work = unsafe { &*job.work };
            let done = catch_unwind(AssertUnwindSafe(|| self.drain(work, job.n_items)));
            if let Err(panic) = done {
                self.next.store(job.n_items, Ordering::Relaxed);
                lock(&self.panic).get_or_insert(panic);
            }
            self.state.fetch_sub(1, Ordering::Release);
        }
    }

    /// Whether there is a job that has not been seen.
    fn is_news(&self, seen: u64, order: Ordering) -> bool {
        let state = self.state.load(order);
        state & OPEN != 0 && state / JOB != seen
    }

    /// Waits for a job; `false` when there will be none any more.
    fn wait(&self, seen: u64) -> bool {
        for _ in 0..SPINS {
            if self.is_news(seen, Ordering::Relaxed) {
                return true;
            }
            spin_loop();
        }
        let mut parking = lock(&self.parking);
        self.n_parked.fetch_add(1, Ordering::SeqCst);
        while !self.is_news(seen, Ordering::SeqCst) && !self.is_over.load(Ordering::SeqCst) {
            parking = self.wake.wait(parking).unwrap_or_else(PoisonError::into_inner);
        }
        self.n_parked.fetch_sub(1, Ordering::SeqCst);
        !self.is_over.load(Ordering::SeqCst)
    }

    /// Goes inside, unless the job has been closed meanwhile.
    fn enter(&self, seen: &mut u64) -> Option<Job> {
        let state = self.state.load(Ordering::Relaxed);
        if state & OPEN == 0 {
            return None;
        }
        let entered =
            self.state.compare_exchange(state, state + 1, Ordering::Acquire, Ordering::Relaxed);
        entered.ok()?;
        *seen = state / JOB;
        // SAFETY: this helper is inside, so nobody writes it.
        unsafe { *self.job.get() }
    }
}
