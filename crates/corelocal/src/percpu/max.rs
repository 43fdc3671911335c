//! The largest value seen, and the smallest.
//!
//! # Data flow
//! `record` → critical section `store_greater` on the slot's word: a load and a compare, and a store if the value is
//! a new maximum of this core. Where critical sections are unavailable: one atomic maximum on a shared slot's word,
//! or on `rest` if there is no memory for slots. `get` takes the maximum of all three.
//!
//! # Invariant
//! Words only grow, and none exceeds the largest value recorded; one of them is that value.
//!
//! [`Min`] is a [`Max`] of the differences from the largest possible value.

use core::fmt;

use super::machinery::lazy_block::{Fallback, Owned};
use super::machinery::slot::{Kind, Zeroed};
use crate::cid::{Cid, SlotIndex};
use crate::primitive::atomic::{AtomicI64, Ordering};
use crate::rseq::{self, Ended, Exit, Index, Slots};

/// A core's part: one more than the largest value, 0 before any.
#[repr(transparent)]
struct Largest(AtomicI64);

// SAFETY: an integer, of which the larger one counts.
unsafe impl Zeroed for Largest {
    const KIND: Kind = Kind::Maxima;

    #[cfg(loom)]
    fn zeroed() -> Self {
        Largest(AtomicI64::new(0))
    }
}

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
/// Values above 2^63 - 2 count as 2^63 - 2.
///
/// # Where it may be used, memory, memory ordering, vfork
/// Like [`Counter`](super::Counter).
pub struct Max<I: SlotIndex = Cid> {
    words: Owned<Largest, I>,
    rest: AtomicI64,
}

impl<I: SlotIndex> Max<I> {
    const_fn! {
        /// Creates one without values.
        pub const fn new() -> Self {
            Max { words: Owned::new(), rest: AtomicI64::new(0) }
        }
    }

    /// Records a value.
    ///
    /// Constant time, wait-free but for a capped number of retries. Async-signal-safe.
    #[inline]
    pub fn record(&self, value: u64) {
        let stored = encode(value);
        // SAFETY: the slots of `self.words`, which hold one word each.
        let first = self.words.run_once(unsafe { section(stored) });
        if !first.is_done() {
            self.record_cold(stored, first);
        }
    }

    #[cold]
    #[inline(never)]
    fn record_cold(&self, stored: i64, first: Exit) {
        // SAFETY: the slots of `self.words`, which hold one word each.
        if let Err(fallback) = self.words.run_cold(first, unsafe { section(stored) }) {
            self.fall_back(stored, fallback);
        }
    }

    /// Returns the largest value recorded so far. `None` if none was.
    ///
    /// Includes every value whose recording happens before the call. Linear in the slots in use.
    pub fn get(&self) -> Option<u64> {
        let rest = self.rest.load(Ordering::Relaxed);
        let words = self.words.slots().chain(self.words.shared());
        // Acquire: partner is the Release of a trim. A thread that finds a slot emptied finds its value in the shared
        // slot, which is read later.
        decode(words.fold(rest, |largest, word| largest.max(word.0.load(Ordering::Acquire))))
    }

    fn fall_back(&self, stored: i64, fallback: Fallback<Largest>) {
        match fallback {
            Fallback::Shared(word) => word.0.fetch_max(stored, Ordering::Relaxed),
            Fallback::Unbound => self.rest.fetch_max(stored, Ordering::Relaxed),
        };
    }
}

/// Runs the critical section `store_greater`.
///
/// # Safety
/// - It is run by an `Owned` of one word.
#[inline(always)]
unsafe fn section(stored: i64) -> impl Fn(Index, &Slots) -> Exit {
    // SAFETY: the caller runs it by an `Owned` of one word, whose slots are used by sections of one kind of id.
    move |ids, slots| unsafe { rseq::store_greater(ids, slots, stored) }
}

/// The largest value that can be distinguished.
const LARGEST: u64 = i64::MAX as u64 - 1;

/// Returns the words start as 0, which must mean "no value". So values are stored incremented by one.
#[inline(always)]
fn encode(value: u64) -> i64 {
    value.min(LARGEST) as i64 + 1
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

/// The smallest value that any thread has recorded. See [`Max`].
///
/// ```
/// use corelocal::percpu::Min;
///
/// static SHORTEST_NS: Min = Min::new();
///
/// SHORTEST_NS.record(170);
/// SHORTEST_NS.record(90);
/// assert_eq!(SHORTEST_NS.get(), Some(90));
/// ```
///
/// Values above 2^63 - 2 count as 2^63 - 2.
///
/// # Where it may be used, memory, memory ordering, vfork
/// Like [`Counter`](super::Counter).
pub struct Min<I: SlotIndex = Cid> {
    missing: Max<I>,
}

impl<I: SlotIndex> Min<I> {
    const_fn! {
        /// Creates one without values.
        pub const fn new() -> Self {
            Min { missing: Max::new() }
        }
    }

    /// Records a value, like [`Max::record`].
    #[inline]
    pub fn record(&self, value: u64) {
        self.missing.record(LARGEST - value.min(LARGEST));
    }

    /// Returns the smallest value recorded so far. `None` if none was. Like [`Max::get`].
    pub fn get(&self) -> Option<u64> {
        self.missing.get().map(|missing| LARGEST - missing)
    }
}

impl<I: SlotIndex> Default for Min<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: SlotIndex> fmt::Debug for Min<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Min").field(&self.get()).finish()
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
    fn keeps_the_smallest() {
        let min: Min = Min::default();
        assert_eq!(min.get(), None);
        min.record(u64::MAX);
        assert_eq!(min.get(), Some(i64::MAX as u64 - 1));
        for (value, smallest) in [(7, 7), (9, 7), (7, 7), (3, 3), (0, 0), (1, 0)] {
            min.record(value);
            assert_eq!(min.get(), Some(smallest));
        }
        assert_eq!(format!("{min:?}"), "Min(Some(0))");
    }

    #[test]
    fn every_word_counts() {
        let max: Max = Max::new();
        max.record(5);
        max.fall_back(encode(6), Fallback::Unbound);
        assert_eq!(max.get(), Some(6));
        let word = max.words.share().expect("memory");
        max.fall_back(encode(9), Fallback::Shared(word));
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
