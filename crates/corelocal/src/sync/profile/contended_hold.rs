//! Measures for how long an owner has kept others waiting.
//!
//! A stretch is a time in which some thread waits and no waiting thread gets the lock. It begins when the first
//! waiter arrives, when a waiter gets the lock, or when an owner unlocks for the benefit of waiters; it ends at the
//! next unlock. The thread that unlocks then held the lock last, mostly for the whole stretch.
//!
//! ```text
//!   waits       A begins           A has it    B begins               B has it
//!   unlocks            |-------- C |           |------- A
//! ```
//!
//! # Invariants
//! 1. `since` only grows. It is at least the time at which the first of the current waiters began to wait, which is
//!    stored before the waiter is counted. So no stretch is reported that is longer than some thread waited.
//! 2. Counts match: each wait that begins ends.

use crate::primitive::atomic::{AtomicU64, Ordering};

/// A time in which a lock has waiters and none acquires it. All bytes 0 is a lock without waiters.
#[repr(C)]
pub(super) struct Stretch {
    /// Number of current waiters.
    waiting: AtomicU64,
    /// The time at which the stretch began.
    since: AtomicU64,
}

impl Stretch {
    #[cfg(all(test, loom))]
    fn new(since: u64) -> Self {
        Stretch { waiting: AtomicU64::new(0), since: AtomicU64::new(since) }
    }

    /// A thread begins to wait.
    pub(super) fn begin(&self, now: u64) {
        // Acquire: partner is the Release in `end`. If the last waiter got the lock, `since` says so.
        if self.waiting.load(Ordering::Acquire) == 0 {
            self.since.fetch_max(now, Ordering::Relaxed);
        }
        // Release: partner is the Acquire in `let_go` (invariant 1).
        self.waiting.fetch_add(1, Ordering::Release);
    }

    /// A waiter continues, with the lock if `got`.
    pub(super) fn end(&self, now: u64, got: bool) {
        if got {
            self.since.fetch_max(now, Ordering::Relaxed);
        }
        // Release: partner is the Acquire in `begin` and `let_go`.
        self.waiting.fetch_sub(1, Ordering::Release);
    }

    /// Notes that an owner unlocks; returns the length of the stretch that ends, if there are waiters.
    pub(super) fn let_go(&self, now: u64) -> Option<u64> {
        // Acquire: partners are the Releases in `begin` and `end`.
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let since = self.since.fetch_max(now, Ordering::Relaxed);
        now.checked_sub(since)
    }

    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn new() -> Stretch {
        Stretch { waiting: AtomicU64::new(0), since: AtomicU64::new(0) }
    }

    #[test]
    fn from_the_first_one_that_waits() {
        let stretch = new();
        assert_eq!(stretch.let_go(50), None);
        stretch.begin(100);
        stretch.begin(130);
        assert_eq!((stretch.waiting(), stretch.let_go(160)), (2, Some(60)));
        // One of them has it from 165 to 200; the other one keeps waiting.
        stretch.end(165, true);
        assert_eq!(stretch.let_go(200), Some(35));
        stretch.end(210, true);
        assert_eq!((stretch.waiting(), stretch.let_go(300)), (0, None));
        // No thread has waited since 210.
        stretch.begin(1000);
        assert_eq!(stretch.let_go(1001), Some(1));
    }

    #[test]
    fn who_gives_up_ends_nothing() {
        let stretch = new();
        stretch.begin(100);
        stretch.begin(110);
        stretch.end(150, false);
        assert_eq!(stretch.let_go(200), Some(100));
        // The clocks of two cpus may differ slightly.
        assert_eq!(stretch.let_go(199), None);
    }
}

#[cfg(all(test, loom))]
mod loom;
