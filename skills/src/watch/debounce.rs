//! Many events to one moment to act.
//!
//! **Invariant:** it acts once after events, when it has been quiet or when it
//! has waited long enough; never without an event. It reads no clock.

use std::time::{Duration, Instant};

/// Puts off acting on events.
#[derive(Debug, Clone)]
pub(super) struct Debouncer {
    quiet: Duration,
    wait_max: Duration,
    /// Times of the first and the last event since it acted.
    pending: Option<(Instant, Instant)>,
}

impl Debouncer {
    pub(super) fn new(quiet: Duration, wait_max: Duration) -> Self {
        Debouncer { quiet, wait_max, pending: None }
    }

    /// Something has happened.
    pub(super) fn event(&mut self, now: Instant) {
        let first = self.pending.map_or(now, |(first, _)| first);
        self.pending = Some((first, now));
    }

    /// When to act; `None` when nothing has happened.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pending.map(|(first, last)| (last + self.quiet).min(first + self.wait_max))
    }

    /// Whether to act now; then nothing is pending any more.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let is_due = self.due().is_some_and(|due| due <= now);
        if is_due {
            self.pending = None;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUIET: Duration = Duration::from_millis(100);
    const WAIT_MAX: Duration = Duration::from_secs(1);

    #[test]
    fn events_that_come_together_are_one() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut debouncer = Debouncer::new(QUIET, WAIT_MAX);
        assert!(!debouncer.take(at(0)) && debouncer.due().is_none());
        for ms in [10, 50, 90] {
            debouncer.event(at(ms));
            assert!(!debouncer.take(at(ms + 1)));
        }
        assert_eq!(debouncer.due(), Some(at(190)));
        assert!(!debouncer.take(at(189)) && debouncer.take(at(190)) && !debouncer.take(at(999)));
    }

    #[test]
    fn noise_without_end_does_not_put_it_off_for_ever() {
        let start = Instant::now();
        let mut debouncer = Debouncer::new(QUIET, WAIT_MAX);
        let times: Vec<u64> = (0..40).map(|n| n * 50).collect();
        let mut acted = Vec::new();
        for &ms in &times {
            let now = start + Duration::from_millis(ms);
            debouncer.event(now);
            if debouncer.take(now) {
                acted.push(ms);
            }
        }
        assert_eq!(acted, [1000], "the next would be at 2050");
    }

    proptest! {
        #[test]
        fn every_event_is_acted_on_in_time(gaps in proptest::collection::vec(0..300_u64, 1..60)) {
            let start = Instant::now();
            let mut debouncer = Debouncer::new(QUIET, WAIT_MAX);
            let mut now = start;
            for gap in gaps {
                let next = now + Duration::from_millis(gap);
                while let Some(due) = debouncer.due().filter(|&due| due <= next) {
                    prop_assert!(debouncer.take(due));
                }
                now = next;
                debouncer.event(now);
                prop_assert!(debouncer.due().is_some_and(|due| due <= now + QUIET));
            }
        }
    }
}
