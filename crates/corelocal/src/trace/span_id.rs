//! Ids of spans.
//!
//! Invariant:
//! 1. Two spans of a process that are open at once have different ids: a thread's number, and how many spans that thread
//!    has begun before. A thread begins 2^32 spans before an id comes again.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::sys::arch::{self, own_words};
use crate::sys::thread::serial;

/// The id of a span; 0 stands for no span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SpanId(u64);

impl SpanId {
    /// The id that stands for no span.
    pub const NONE: SpanId = SpanId(0);

    /// Returns it as a number, to be passed on.
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.0
    }

    /// Makes one from such a number.
    #[must_use]
    pub const fn from_raw(raw: u64) -> SpanId {
        SpanId(raw)
    }

    /// Returns a new one.
    #[inline(always)]
    pub(super) fn draw() -> SpanId {
        // Threads without words of their own share the numbers of thread 0.
        static OTHERS: AtomicU64 = AtomicU64::new(1);
        match serial::current() {
            Some(thread) => {
                let nth = arch::take_number_of_own_word::<{ own_words::SPANS_BEGUN }>();
                SpanId(thread << 32 | u64::from(nth))
            }
            None => SpanId(OTHERS.fetch_add(1, Ordering::Relaxed)),
        }
    }
}
