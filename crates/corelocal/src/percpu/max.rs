//! The largest value seen.
//!
//! # Data's way
//! `record` → section `store_greater` on the slot's word: a load and a compare, and a store when the
//! value is a new maximum of this core. Where sections are unavailable: one atomic maximum on a shared
//! slot's word, or on `rest` where there is no memory for slots. `get` takes the maximum of all three.
//!
//! # Invariant
//! Words only grow, and none exceeds the largest value recorded; one of them is that value.

use core::fmt;

use super::owned::{Fallback, Owned};
use crate::cid::{Cid, SlotIndex};
use crate::primitive::atomic::{AtomicI64, Ordering};
use crate::rseq::{self, Slots};

/// The largest value that any thread has recorded: a high-water mark.
///
/// Recording a value that is no new maximum, which is nearly always so, costs a load and a compare
/// on a line of this core's own. Use it as [`Counter`](super::Counter): in statics, from any thread,
/// in signal handlers.
///
/// ```
/// use corelocal::percpu::Max;
///
/// static LONGEST_NS: Max = Max::new();
///
/// LONGEST_NS.record(170);
/// LONGEST_NS.record(90);
/// assert_eq!(LONGEST_NS.get(), Some(170));
/// ```
///
/// Values of 2^63 - 2 and more count as 2^63 - 2.
///
/// # Memory, memory ordering, vfork
/// As [`Counter`](super::Counter).
pub struct Max<I: SlotIndex = Cid> {
    words: Owned<AtomicI64, I>,
    rest: AtomicI64,
}

impl<I: SlotIndex> Max<I> {
    /// Nothing recorded.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Max { words: Owned::new(), rest: AtomicI64::new(0) }
    }

    /// Nothing recorded.
    #[cfg(loom)]
    pub fn new() -> Self {
        Max { words: Owned::new(), rest: AtomicI64::new(0) }
    }

    /// Records a value.
    ///
    /// Constant time, wait-free but for a capped number of retries. Async-signal-safe.
    #[inline]
    pub fn record(&self, value: u64) {
        let stored = encode(value);
        let section = move |index, slots: &Slots| {
            // SAFETY: `run` gives slots of one word each, used by sections indexed by `I`.
            unsafe { rseq::store_greater(index, slots, stored) }
        };
        match self.words.run(section) {
            Ok(_) => {}
            Err(fallback) => self.record_cold(stored, fallback),
        }
    }

    /// The largest value recorded so far; `None` if there is none.
    ///
    /// Sees every value whose recording happens before the call. Linear in the ids in use.
    pub fn get(&self) -> Option<u64> {
        let rest = self.rest.load(Ordering::Relaxed);
        let words = self.words.slots().chain(self.words.shared());
        decode(words.fold(rest, |largest, word| largest.max(word.load(Ordering::Relaxed))))
    }

    #[cold]
    fn record_cold(&self, stored: i64, fallback: Fallback<AtomicI64>) {
        match fallback {
            Fallback::Shared(word) => word.fetch_max(stored, Ordering::Relaxed),
            Fallback::Unbound => self.rest.fetch_max(stored, Ordering::Relaxed),
        };
    }
}

/// Words start out as 0, which must mean "nothing": values are stored one higher.
#[inline(always)]
fn encode(value: u64) -> i64 {
    value.min(i64::MAX as u64 - 1) as i64 + 1
}

fn decode(stored: i64) -> Option<u64> {
    (stored > 0).then(|| stored as u64 - 1)
}

impl<I: SlotIndex> Default for Max<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: SlotIndex> fmt::Debug for Max<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Max").field(&self.get()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn keeps_the_largest() {
        let max: Max = Max::new();
        assert_eq!(max.get(), None);
        max.record(0);
        assert_eq!(max.get(), Some(0));
        for (value, largest) in [(7, 7), (3, 7), (7, 7), (8, 8)] {
            max.record(value);
            assert_eq!(max.get(), Some(largest));
        }
        max.record(u64::MAX);
        assert_eq!(max.get(), Some(i64::MAX as u64 - 1));
        assert_eq!(format!("{max:?}"), format!("Max(Some({}))", i64::MAX - 1));
    }

    #[test]
    fn every_word_counts() {
        let max: Max = Max::new();
        max.record(5);
        max.record_cold(encode(6), Fallback::Unbound);
        assert_eq!(max.get(), Some(6));
        let word = max.words.share().expect("memory");
        max.record_cold(encode(9), Fallback::Shared(word));
        assert_eq!(max.get(), Some(9));
    }

    #[test]
    fn threads_lose_nothing() {
        static MAX: Max = Max::new();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || (0..10_000).for_each(|n| MAX.record(n * 8 + thread)));
            }
        });
        assert_eq!(MAX.get(), Some(79_999));
    }
}
