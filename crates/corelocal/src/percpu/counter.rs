//! The statistics counter: one sum (`machinery/sums.rs`) that is added to, read and taken.

use core::fmt;

use super::machinery::sums::Sum;
use crate::cid::{Cid, SlotIndex};

/// A counter that threads on different cores add to without contention.
///
/// Its value is an `i64` that wraps. An addition costs about as much as an increment of a plain variable, whatever
/// the number of threads. Reading costs a cache miss for each core that has added. This suits statistics: updated all
/// the time, read now and then.
///
/// `I` chooses what indexes the slots. The default is right unless the number of the cpu matters.
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
/// In any thread, in signal handlers, before `main` and during thread exit, and in the child after `fork`. Its
/// methods do not block, panic, or allocate from a heap. Without critical sections (see [`crate::sys::Refusal`]) an
/// addition is an atomic add on a line that few threads share.
///
/// One exception: additions in a child of `vfork` may be lost, if another thread of the parent runs under the same id
/// meanwhile. The child has the parent's memory but no rseq registration.
///
/// # Memory
/// 24 bytes, and 8 bytes on each core that used it. A counter that was never added to takes no further memory.
///
/// # Memory ordering
/// All operations are relaxed. A reader sees every addition that happens before the read, for instance those of
/// threads that it has joined.
#[repr(C)]
pub struct Counter<I: SlotIndex = Cid> {
    sum: Sum<I>,
}

impl<I: SlotIndex> Counter<I> {
    const_fn! {
        /// Creates a counter of value 0.
        pub const fn new() -> Self {
            Counter { sum: Sum::new() }
        }
    }

    /// Adds `n`, wrapping.
    ///
    /// Constant time; wait-free, with a bounded number of retries. Async-signal-safe.
    #[inline]
    pub fn add(&self, n: i64) {
        self.sum.add(n);
    }

    /// Adds 1, wrapping. Like [`add`](Counter::add), with one register less: a loop that counts several things may be
    /// faster (by a sixth with eight counters on a Zen 5).
    #[inline]
    pub fn increment(&self) {
        self.sum.increment();
    }

    /// Subtracts `n`, wrapping. Like [`add`](Counter::add).
    #[inline]
    pub fn sub(&self, n: i64) {
        self.add(n.wrapping_neg());
    }

    /// Returns the value.
    ///
    /// It includes every addition that happens before the call. Each concurrent addition is included once or not at
    /// all; those that are missed are included by later calls. Linear in the slots in use. Async-signal-safe.
    pub fn get(&self) -> i64 {
        self.sum.get(0)
    }

    /// Takes the value, leaving 0.
    ///
    /// A concurrent addition is either part of the result or stays. Any number of threads may take at once: each
    /// addition goes to exactly one of them. Linear in the slots in use; retried while other threads take.
    /// Async-signal-safe.
    pub fn take(&self) -> i64 {
        self.sum.exchange(0, 0)
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
        counter.sub(1);
        assert_eq!(counter.get(), i64::MAX);
        counter.increment();
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
