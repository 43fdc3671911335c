//! Objects that whoever freed them could not take to the store: a list that takes one exchange, and that the
//! next holder of the class's lock empties.
//!
//! # Invariants
//! 1. The objects on the list are nobody's; the first word of each is the next one, or 0.
//! 2. Objects leave the list all at once. So a head that looks the same is the same list.

use crate::primitive::atomic::{AtomicU64, Ordering};

/// See the module's text. Objects are addresses, and never 0.
pub(super) struct Orphans {
    head: AtomicU64,
}

impl Orphans {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Orphans {
        Orphans { head: AtomicU64::new(0) }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Orphans {
        Orphans { head: AtomicU64::new(0) }
    }

    /// Whether there seem to be none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) == 0
    }

    /// Leaves an object of the caller's. `link` writes what is given second into the first word of what is
    /// given first.
    #[cold]
    pub(super) fn leave(&self, object: u64, link: impl Fn(u64, u64)) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link(object, head);
            // Release: partner is the Acquire in `adopt`: the links of all that are on the list by then,
            // since each exchange goes on from the one before.
            match self.head.compare_exchange_weak(
                head,
                object,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes them all: from here on they are the caller's. `next` reads the first word of an object; the
    /// object may be used as soon as the iterator has returned it.
    #[cold]
    pub(super) fn adopt(&self, next: impl Fn(u64) -> u64) -> impl Iterator<Item = u64> {
        // Acquire: partner is the Release in `leave`.
        let mut left = self.head.swap(0, Ordering::Acquire);
        core::iter::from_fn(move || {
            let object = left;
            if object == 0 {
                return None;
            }
            left = next(object);
            Some(object)
        })
    }
}

#[cfg(all(test, loom))]
#[path = "orphans_loom.rs"]
mod loom_tests;
