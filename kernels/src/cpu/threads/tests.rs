//! Every item once, whatever the number of threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Threads;

#[test]
fn each_item_is_done_once() {
    for count in [0, 1, 2, 5] {
        let threads = Threads::new(count);
        assert_eq!(threads.count(), count.max(1));
        for n_items in [0, 1, 2, 100] {
            let done: Vec<AtomicUsize> = (0..n_items).map(|_| AtomicUsize::new(0)).collect();
            threads.for_each(n_items, |i| {
                done[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(done.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{count} {n_items}");
        }
    }
}

#[test]
fn chunks_cover_a_slice() {
    let threads = Threads::new(3);
    for len in [0, 1, 6, 7, 50] {
        let mut data = vec![0; len];
        threads.for_each_chunk(&mut data, 7, |i, chunk| {
            for (j, value) in chunk.iter_mut().enumerate() {
                *value += 1 + i * 7 + j;
            }
        });
        assert!(data.iter().enumerate().all(|(i, &value)| value == i + 1));
    }
}

#[test]
fn work_may_share_work() {
    let threads = Threads::new(2);
    let done = AtomicUsize::new(0);
    threads.for_each(4, |_| {
        threads.for_each(4, |_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(done.into_inner(), 16);
}

#[test]
fn several_callers_get_all_their_work_done() {
    let threads = Threads::new(3);
    let done: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for caller in &done {
            let threads = &threads;
            scope.spawn(move || {
                for n_items in 0..300 {
                    threads.for_each(n_items, |_| {
                        caller.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert!(done.into_iter().all(|n| n.into_inner() == 299 * 300 / 2));
}

#[test]
fn a_panic_reaches_the_caller_and_ends_nothing_else() {
    let threads = Threads::new(3);
    for bad in [0, 7, 63] {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            threads.for_each(64, |i| assert!(i != bad, "item {bad}"));
        }));
        let panic = outcome.expect_err("an item panics");
        assert_eq!(
            panic.downcast_ref::<String>().map(String::as_str),
            Some(&*format!("item {bad}"))
        );
        let done = AtomicUsize::new(0);
        threads.for_each(64, |_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 64);
    }
}

#[test]
fn threads_that_have_parked_wake_up() {
    let threads = Threads::new(2);
    for _ in 0..20 {
        // Until a helper has spent its spins, a job is there before it parks.
        for _ in 0..100_000 {
            std::hint::spin_loop();
        }
        let done = AtomicUsize::new(0);
        threads.for_each(9, |_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 9);
    }
}
