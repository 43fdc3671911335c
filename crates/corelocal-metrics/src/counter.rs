//! A counter of the crate `metrics`, on a core-local one.
//!
//! # Data flow
//! `increment` → one critical section on this core's word. `absolute`, which is rare → the difference is added to
//! `ahead`, one atomic for all cores. Readers add both up.
//!
//! # Invariants
//! 1. The value is `ahead` plus the sum, modulo 2^64. Neither ever falls, except from 2^64 - 1 to 0, so the value
//!    does not.
//! 2. After `absolute(n)` the value is at least `n`. It is exactly `n` if it was less and there was no concurrent
//!    increment. Concurrent increments count as later, and are added.

use std::sync::atomic::{AtomicU64, Ordering};

use corelocal::percpu;

/// A counter of the crate `metrics`.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    sum: percpu::Counter,
    ahead: AtomicU64,
}

impl Counter {
    /// Returns the value. It includes every increment that happens before the call.
    pub(crate) fn get(&self) -> u64 {
        // Acquire: partner is the Release in `absolute`. A thread that sees its addition sees words that are at least
        // as new as those it was computed from.
        let ahead = self.ahead.load(Ordering::Acquire);
        ahead.wrapping_add(self.sum.get() as u64)
    }
}

impl metrics::CounterFn for Counter {
    #[inline]
    fn increment(&self, value: u64) {
        // Modulo 2^64 it is the same number.
        self.sum.add(value as i64);
    }

    fn absolute(&self, value: u64) {
        let mut ahead = self.ahead.load(Ordering::Acquire);
        loop {
            let missing = value.saturating_sub(ahead.wrapping_add(self.sum.get() as u64));
            if missing == 0 {
                return;
            }
            let new = ahead.wrapping_add(missing);
            // Release: partner is the Acquire in `get`; Acquire where it failed: as there.
            match self.ahead.compare_exchange(ahead, new, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return,
                Err(seen) => ahead = seen,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::CounterFn as _;
    use std::thread;

    #[test]
    fn absolute_is_a_lower_bound() {
        let counter = Counter::default();
        counter.absolute(10);
        assert_eq!(counter.get(), 10);
        counter.increment(1);
        assert_eq!(counter.get(), 11);
        counter.absolute(7);
        assert_eq!(counter.get(), 11);
        counter.absolute(12);
        counter.absolute(12);
        assert_eq!(counter.get(), 12);
    }

    #[test]
    fn all_of_u64() {
        let counter = Counter::default();
        counter.increment(u64::MAX - 1);
        assert_eq!(counter.get(), u64::MAX - 1);
        counter.absolute(u64::MAX);
        assert_eq!(counter.get(), u64::MAX);
        counter.increment(3);
        assert_eq!(counter.get(), 2);
    }

    /// Several callers follow one foreign counter, and others increment: nothing is counted twice.
    #[test]
    fn absolutes_among_increments() {
        let counter = Counter::default();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (1..=1000).for_each(|n| counter.absolute(n)));
            }
            scope.spawn(|| {
                let mut last = 0;
                for _ in 0..1000 {
                    let seen = counter.get();
                    assert!(seen >= last, "{seen} after {last}");
                    last = seen;
                }
            });
        });
        assert_eq!(counter.get(), 1000);
        thread::scope(|scope| {
            scope.spawn(|| counter.absolute(1_000_000));
            scope.spawn(|| (0..1000).for_each(|_| counter.increment(1)));
        });
        assert!((1_000_000..=1_001_000).contains(&counter.get()), "{}", counter.get());
    }
}
