//! Spans whose held objects go back later: the list of a class for threads that cannot have the class's lock.
//!
//! Thinning holds all objects of some parts of a span while the kernel takes the pages (`subrelease.rs`). To give the
//! objects back it needs the class's lock, whose holder may be a thread that does not run: preempted, or of a lower
//! priority. So a thread that cannot have the lock does not wait. It leaves the span here, and the next holder of the
//! lock gives the objects back.
//!
//! # Invariants
//! 1. A span is on the list at most once: the thread that changes the span's word from 0 puts it there.
//! 2. The bits in a span's word are parts whose objects are held for the list. The thread that takes the bits has
//!    the objects.

use super::orphans::Orphans;
use crate::primitive::atomic::{AtomicU64, Ordering};

/// See the module's text. Spans are numbers, and never 0.
pub(super) struct Returned {
    spans: Orphans,
}

impl Returned {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Returned {
        Returned { spans: Orphans::new() }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Returned {
        Returned { spans: Orphans::new() }
    }

    /// Whether the list seems to be empty.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Leaves parts of a span, `parts` not being 0, whose objects the caller holds. `word` is the span's; `link`
    /// remembers the second span as the one that follows the first.
    #[cold]
    pub(super) fn leave(&self, span: u64, word: &AtomicU64, parts: u64, link: impl Fn(u64, u64)) {
        // Release: partner is the Acquire in `adopt`; the pages are the kernel's before the objects are given out.
        // Acquire: partner is the Release in `adopt`; `link` overwrites what that has read.
        if word.fetch_or(parts, Ordering::AcqRel) == 0 {
            self.spans.leave(span, link);
        }
    }

    /// Takes the spans, each with the parts whose objects are the caller's from here on. `next` is the span that
    /// follows, `word` the word of a span.
    #[cold]
    pub(super) fn adopt<'a>(
        &self,
        next: impl Fn(u64) -> u64,
        word: impl Fn(u64) -> &'a AtomicU64,
    ) -> impl Iterator<Item = (u64, u64)> {
        // AcqRel: partner is the AcqRel in `leave`. The span may be left again from here on: `next` was read before.
        self.spans.adopt(next).map(move |span| (span, word(span).swap(0, Ordering::AcqRel)))
    }
}

#[cfg(all(test, loom))]
#[path = "deferred_spans_loom.rs"]
mod loom_tests;
