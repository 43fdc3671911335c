//! Deferred return of held objects to their spans: a lock-free list, for threads that cannot have the class's lock.
//!
//! While the kernel takes back pages of a span, all objects in those parts of the span are held (`thinning.rs`).
//! Releasing them needs the class's lock, whose holder may not be running: preempted, or of a lower priority. Instead
//! of waiting, the thread leaves the span on this list, and the next holder of the lock releases the objects.
//!
//! # Invariants
//! 1. A span is on the list at most once: the thread that changes the span's word from 0 puts it there.
//! 2. The set bits of a span's word are the parts whose held objects are on the list. The thread that clears the bits
//!    gets these objects.

use super::orphans::Orphans;
use crate::primitive::atomic::{AtomicU64, Ordering};

/// The list. A span is a number other than 0.
pub(in crate::alloc) struct Returned {
    spans: Orphans,
}

impl Returned {
    const_fn! {
        pub(in crate::alloc) const fn new() -> Returned {
            Returned { spans: Orphans::new() }
        }
    }

    /// Returns `true` if the list seems empty.
    #[inline]
    pub(in crate::alloc) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Leaves the held objects of `parts`, which is not 0. `word` is the span's word; `link(span, next)` records
    /// `next` as the list's successor of `span`.
    #[cold]
    pub(in crate::alloc) fn leave(
        &self,
        span: u64,
        word: &AtomicU64,
        parts: u64,
        link: impl Fn(u64, u64),
    ) {
        // Release: partner is the Acquire in `adopt`; the kernel has the pages before the objects are allocated
        // again. Acquire: partner is the Release in `adopt`; `link` overwrites what `adopt` has read.
        if word.fetch_or(parts, Ordering::AcqRel) == 0 {
            self.spans.leave(span, link);
        }
    }

    /// Takes all spans, each with the parts whose objects now belong to the caller. `next` returns a span's
    /// successor, `word` a span's word.
    #[cold]
    pub(in crate::alloc) fn adopt<'a>(
        &self,
        next: impl Fn(u64) -> u64,
        word: impl Fn(u64) -> &'a AtomicU64,
    ) -> impl Iterator<Item = (u64, u64)> {
        // AcqRel: partner is the AcqRel in `leave`. The span may be left again from here on; its successor has been
        // read already.
        self.spans.adopt(next).map(move |span| (span, word(span).swap(0, Ordering::AcqRel)))
    }
}

#[cfg(all(test, loom))]
mod loom;
