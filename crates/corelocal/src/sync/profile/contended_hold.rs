//! For how long a holder has kept others waiting.
//!
//! A stretch is a time in which somebody waits and nobody who waited gets the lock. It begins when the first one
//! comes to wait, when one that waited has it, or when somebody lets go to the benefit of those who wait; and it
//! ends when the next one lets go. That one held the lock last in it, mostly all the time.
//!
//! ```text
//!   waits       A begins           A has it    B begins               B has it
//!   lets go            |-------- C |           |------- A lets go
//! ```
//!
//! # Invariants
//! 1. `since` only grows. It is at least the time at which the first of those who wait now began: that is
//!    there before the wait is counted. So no stretch is told that is longer than somebody waited.
//! 2. Counts match: each wait that begins ends.

use crate::primitive::atomic::{AtomicU64, Ordering};

/// All bytes 0 is: nobody waits.
#[repr(C)]
pub(super) struct Stretch {
    /// How many wait now.
    waiting: AtomicU64,
    /// When the stretch began.
    since: AtomicU64,
}

impl Stretch {
    #[cfg(all(test, loom))]
    fn new(since: u64) -> Self {
        Stretch { waiting: AtomicU64::new(0), since: AtomicU64::new(since) }
    }

    /// Somebody begins to wait.
    pub(super) fn begin(&self, now: u64) {
        // Acquire: partner is the Release in `end`. Where the last one had the lock, that is in `since`.
        if self.waiting.load(Ordering::Acquire) == 0 {
            self.since.fetch_max(now, Ordering::Relaxed);
        }
        // Release: partner is the Acquire in `let_go` (invariant 1).
        self.waiting.fetch_add(1, Ordering::Release);
    }

    /// One that waited goes on, with the lock if `got`.
    pub(super) fn end(&self, now: u64, got: bool) {
        if got {
            self.since.fetch_max(now, Ordering::Relaxed);
        }
        // Release: partner is the Acquire in `begin` and `let_go`.
        self.waiting.fetch_sub(1, Ordering::Release);
    }

    /// Somebody lets go: how long the stretch was that ends so, if anybody waits.
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
        // One of them has it from 165 to 200; the other one waits on.
        stretch.end(165, true);
        assert_eq!(stretch.let_go(200), Some(35));
        stretch.end(210, true);
        assert_eq!((stretch.waiting(), stretch.let_go(300)), (0, None));
        // Nobody waited since 210.
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
        // Clocks of two cpus may be a little apart.
        assert_eq!(stretch.let_go(199), None);
    }
}

#[cfg(all(test, loom))]
#[path = "contended_hold_loom.rs"]
mod loom_tests;
