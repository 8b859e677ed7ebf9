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
