//! The statistics counter.
//!
//! # Data's way
//! `add` → section `add` on the slot's word → done: no system call, no locked instruction, no line
//! that another core writes. Where sections are unavailable: one atomic add on a shared slot's word.
//! Where there is no memory for slots: one atomic add on `bias`. `get` sums all three.
//!
//! # Invariants
//! 1. The value is `bias` plus the sum of the words of all slots, modulo 2^64. Every operation
//!    changes exactly one of these words, once.
//! 2. `take` moves value from words to caller by a compare-exchange of `bias` alone, so the results
//!    of all takes and of the last `get` add up to everything ever added.

use core::fmt;

use super::owned::{Fallback, Owned};
use crate::cid::{Cid, SlotIndex};
use crate::primitive::atomic::{AtomicI64, Ordering};
use crate::rseq::{self, Slots};

/// A counter that threads on different cores add to without disturbing each other.
///
/// Its value is an `i64` that wraps. Adding costs about as much as an increment of a plain
/// variable, whatever the number of threads; reading costs a cache miss for each core that added.
/// That suits statistics: added to all the time, read now and then.
///
/// `I` chooses what indexes the slots; leave it out unless the number of the cpu matters.
///
/// ```
/// use corelocal::percpu::Counter;
///
/// static REQUESTS: Counter = Counter::new();
///
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| {
///             for _ in 0..1000 {
///                 REQUESTS.add(1);
///             }
///         });
///     }
/// });
/// assert_eq!(REQUESTS.get(), 4000);
/// ```
///
/// # Where it may be used
/// In any thread, in signal handlers, before `main` and during thread exit, in the child after
/// `fork`. Nothing blocks, nothing allocates from a heap, nothing panics. With the kernel's help
/// refused (see [`crate::sys::Refusal`]) an addition is an atomic add on a line that few threads share.
///
/// One exception: additions in a child of `vfork` may be lost, if another thread of the parent runs
/// under the same id meanwhile; the child has the parent's memory but no registration.
///
/// # Memory
/// 32 bytes, plus 8 bytes on each core that used it. A counter that was never added to takes
/// nothing else.
///
/// # Memory ordering
/// All operations are relaxed: they order nothing else. A reader sees every addition that happens
/// before the read, for instance those of threads it has joined.
pub struct Counter<I: SlotIndex = Cid> {
    words: Owned<AtomicI64, I>,
    bias: AtomicI64,
}

impl<I: SlotIndex> Counter<I> {
    /// A counter of value 0.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Counter { words: Owned::new(), bias: AtomicI64::new(0) }
    }

    /// A counter of value 0.
    #[cfg(loom)]
    pub fn new() -> Self {
        Counter { words: Owned::new(), bias: AtomicI64::new(0) }
    }

    /// Adds `n`, wrapping.
    ///
    /// Constant time, wait-free but for a capped number of retries. Async-signal-safe.
    #[inline]
    pub fn add(&self, n: i64) {
        let section = move |index, slots: &Slots| {
            // SAFETY: `run` gives slots of one word each, used by sections indexed by `I`.
            unsafe { rseq::add(index, slots, n) }
        };
        match self.words.run(section) {
            Ok(_) => {}
            Err(fallback) => self.add_cold(n, fallback),
        }
    }

    /// Subtracts `n`, wrapping; as [`add`](Counter::add).
    #[inline]
    pub fn sub(&self, n: i64) {
        self.add(n.wrapping_neg());
    }

    /// The value.
    ///
    /// Exact once those who add are done and ordered before the call (joined, say). While others
    /// add, it is a value the counter had words of at some moments during the call; nothing is
    /// counted twice and what is missed now is seen later. Linear in the ids in use.
    pub fn get(&self) -> i64 {
        // A take in between would make the sum and the bias belong to different epochs; look again
        // then, a few times, and settle for the last look under a storm of takes.
        let mut bias = self.bias.load(Ordering::Relaxed);
        for _ in 0..rseq::MAX_ATTEMPTS {
            let sum = self.sum();
            // Relaxed: a take's compare-exchange is the only change that matters, and coherence
            // shows it here if its sum could have been part of ours.
            let again = self.bias.load(Ordering::Relaxed);
            if again == bias {
                return sum.wrapping_add(bias);
            }
            bias = again;
        }
        self.sum().wrapping_add(bias)
    }

    /// Takes the value, leaving 0.
    ///
    /// What is added meanwhile is either part of the result or stays. Any number of threads may
    /// take at once: each addition goes to exactly one of them. Linear in the ids in use; retried
    /// while others take.
    pub fn take(&self) -> i64 {
        // Acquire: partner is the Release of another take's compare-exchange below.
        let mut bias = self.bias.load(Ordering::Acquire);
        loop {
            let sum = self.sum();
            // Release/Acquire with other takes: the loser sums anew after the winner's sum.
            match self.bias.compare_exchange_weak(
                bias,
                sum.wrapping_neg(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return sum.wrapping_add(bias),
                Err(now) => bias = now,
            }
        }
    }

    /// Of the words of all slots.
    fn sum(&self) -> i64 {
        let words = self.words.slots().chain(self.words.shared());
        words.fold(0, |sum: i64, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
    }

    #[cold]
    fn add_cold(&self, n: i64, fallback: Fallback<AtomicI64>) {
        match fallback {
            Fallback::Shared(word) => word.fetch_add(n, Ordering::Relaxed),
            Fallback::Unbound => self.bias.fetch_add(n, Ordering::Relaxed),
        };
    }
}

impl<I: SlotIndex> Default for Counter<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: SlotIndex> fmt::Debug for Counter<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.get()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cid::CpuId;
    use std::format;

    #[test]
    fn adds_subtracts_and_wraps() {
        let counter: Counter = Counter::new();
        assert_eq!(counter.get(), 0);
        counter.add(5);
        counter.sub(7);
        assert_eq!(counter.get(), -2);
        counter.add(i64::MAX);
        counter.add(3);
        assert_eq!(counter.get(), i64::MIN);
        assert_eq!(format!("{counter:?}"), format!("Counter({})", i64::MIN));
    }

    #[test]
    fn take_leaves_nothing() {
        let counter = Counter::<CpuId>::default();
        counter.add(4);
        assert_eq!(counter.take(), 4);
        assert_eq!(counter.take(), 0);
        counter.add(-1);
        assert_eq!((counter.take(), counter.get()), (-1, 0));
    }

    #[test]
    fn a_counter_starts_at_zero_where_another_ended() {
        for n in 1..100 {
            let counter: Counter = Counter::new();
            assert_eq!(counter.get(), 0);
            counter.add(n);
            assert_eq!(counter.get(), n);
        }
    }

    /// What an unregistered thread does, among others that are registered.
    #[test]
    fn shared_slots_count() {
        let counter: Counter = Counter::new();
        counter.add(2);
        let word = counter.words.share().expect("memory");
        counter.add_cold(40, Fallback::Shared(word));
        assert_eq!(counter.get(), 42);
    }

    /// What a counter without memory does.
    #[test]
    fn the_bias_counts() {
        let counter: Counter = Counter::new();
        counter.add_cold(40, Fallback::Unbound);
        counter.add(2);
        assert_eq!(counter.take(), 42);
        assert_eq!(counter.get(), 0);
    }

    #[test]
    fn threads_lose_nothing() {
        static COUNTER: Counter = Counter::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..10_000).for_each(|_| COUNTER.add(1)));
            }
        });
        assert_eq!(COUNTER.get(), 80_000);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Two threads add for the first time while a third takes: nothing is lost or taken twice,
    /// whoever allocates the cell.
    #[test]
    fn loom_takes_and_value_add_up() {
        loom::model(|| {
            let counter = Arc::new(Counter::<Cid>::new());
            let adders: std::vec::Vec<_> = [1, 2]
                .into_iter()
                .map(|n| {
                    let counter = counter.clone();
                    thread::spawn(move || counter.add(n))
                })
                .collect();
            let taken = counter.take();
            for adder in adders {
                adder.join().unwrap();
            }
            assert_eq!(taken + counter.get(), 3);
        });
    }

    /// Two threads take at once: each addition goes to one of them.
    #[test]
    fn loom_two_takers_share() {
        loom::model(|| {
            let counter = Arc::new(Counter::<Cid>::new());
            counter.add(5);
            let other = counter.clone();
            let taker = thread::spawn(move || other.take());
            let mine = counter.take();
            assert_eq!(mine + taker.join().unwrap(), 5);
            assert_eq!(counter.get(), 0);
        });
    }
}
