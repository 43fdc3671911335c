//! What is said of a domain in reports, and how long one of its grace periods has been waiting.
//!
//! Invariant:
//! 1. `since` belongs to the grace period of `number`: both are set by the thread that exchanges `number`. A thread that
//!    comes in between sees a time that is too early or too late, so a report may be early by one grace period. Reports
//!    decide nothing.

use core::panic::Location;
use core::time::Duration;

use crate::primitive::global::{AtomicU32, AtomicU64, Ordering};
use crate::sys::kernel_clock;

const DEFAULT_LIMIT: u64 = 1_000_000_000;

/// The name of a domain and the limit after which a stall is reported.
pub(super) struct About {
    pub(super) name: &'static str,
    pub(super) location: &'static Location<'static>,
    /// The limit in nanoseconds.
    pub(super) limit: AtomicU64,
    pub(super) stalls: AtomicU64,
}

impl About {
    #[track_caller]
    pub(super) const fn new(name: &'static str) -> About {
        About {
            name,
            location: Location::caller(),
            limit: AtomicU64::new(DEFAULT_LIMIT),
            stalls: AtomicU64::new(0),
        }
    }
}

/// The watch over a grace period that waits for guards. All bytes 0 means that none waits.
#[derive(Debug)]
pub(super) struct Watch {
    /// The number of the grace period. (1)
    number: AtomicU64,
    /// The time at which a thread first found guards in the way, in nanoseconds.
    since: AtomicU64,
    reports: AtomicU32,
}

impl Watch {
    pub(super) const fn new() -> Watch {
        Watch { number: AtomicU64::new(0), since: AtomicU64::new(0), reports: AtomicU32::new(0) }
    }

    /// A thread has found guards in the way of this grace period. Tells how long it has been waiting, if that is to be
    /// reported, and by this thread.
    pub(super) fn look(&self, number: u64, limit: Duration) -> Option<Duration> {
        let now = kernel_clock::nanoseconds(libc::CLOCK_MONOTONIC);
        let known = self.number.load(Ordering::Relaxed);
        if known != number {
            let exchange =
                self.number.compare_exchange(known, number, Ordering::Relaxed, Ordering::Relaxed);
            if exchange.is_ok() {
                self.since.store(now, Ordering::Relaxed);
                self.reports.store(0, Ordering::Relaxed);
            }
            return None;
        }
        let waited = Duration::from_nanos(now.saturating_sub(self.since.load(Ordering::Relaxed)));
        let reports = self.reports.load(Ordering::Relaxed);
        let due = limit.saturating_mul(1u32.checked_shl(reports).unwrap_or(u32::MAX));
        let is_mine = waited >= due
            && self
                .reports
                .compare_exchange(reports, reports + 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        is_mine.then_some(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_double() {
        let watch = Watch::new();
        let look = |number| watch.look(number, Duration::ZERO).is_some();
        assert!(!look(4) && look(4));
        let watch = Watch::new();
        let limit = Duration::from_millis(20);
        let (mut last, mut reports) = (Duration::ZERO, 0);
        while reports < 3 {
            if let Some(waited) = watch.look(4, limit) {
                assert!(waited >= limit * (1 << reports) && waited > last);
                (last, reports) = (waited, reports + 1);
            }
        }
        // The next one begins anew.
        assert!(watch.look(8, limit).is_none() && watch.look(8, Duration::MAX).is_none());
    }
}
