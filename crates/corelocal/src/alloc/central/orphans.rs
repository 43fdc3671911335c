//! Orphans: freed objects that could not be moved to the middle end, on a lock-free list. The next holder of the
//! class's lock empties it.
//!
//! # Invariants
//! 1. The objects on the list are free; the first word of each is the next object, or 0.
//! 2. Objects leave the list all at once, so a compare-exchange of the head has no ABA problem.

use crate::primitive::atomic::{AtomicU64, Ordering};

/// The list. An object is an address other than 0.
pub(in crate::alloc) struct Orphans {
    head: AtomicU64,
}

impl Orphans {
    const_fn! {
        pub(in crate::alloc) const fn new() -> Orphans {
            Orphans { head: AtomicU64::new(0) }
        }
    }

    /// Returns `true` if the list seems empty.
    #[inline]
    pub(in crate::alloc) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) == 0
    }

    /// Adds an object that belongs to the caller. `link(object, next)` writes `next` into the object's first word.
    #[cold]
    pub(in crate::alloc) fn leave(&self, object: u64, link: impl Fn(u64, u64)) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link(object, head);
            // Release: partner is the Acquire in `adopt`, which sees the links of all objects on the list, since each
            // exchange continues the release sequence of the one before.
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

    /// Takes all objects, which belong to the caller from here on. `next` reads the first word of an object. An
    /// object may be reused as soon as the iterator has returned it.
    #[cold]
    pub(in crate::alloc) fn adopt(&self, next: impl Fn(u64) -> u64) -> impl Iterator<Item = u64> {
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
mod loom;
