//! The gauge: one sum (`sums.rs`) that goes up and down and can be set.

use core::fmt;

use super::sums::Sum;
use crate::cid::{Cid, SlotIndex};

/// A value that goes up and down, such as the requests in flight or the bytes in a cache.
///
/// What changes it often, [`add`](Gauge::add) and [`sub`](Gauge::sub), costs what it costs a
/// [`Counter`](super::Counter); one thread may add what another subtracts. [`set`](Gauge::set) is meant
/// for now and then: it reads every core's part. Where several threads set a value all the time, a
/// plain atomic is the better gauge.
///
/// ```
/// use corelocal::percpu::Gauge;
///
/// static IN_FLIGHT: Gauge = Gauge::new();
///
/// IN_FLIGHT.add(3);
/// IN_FLIGHT.sub(1);
/// assert_eq!(IN_FLIGHT.get(), 2);
/// assert_eq!(IN_FLIGHT.set(10), 2);
/// IN_FLIGHT.sub(1);
/// assert_eq!(IN_FLIGHT.get(), 9);
/// ```
///
/// Its value is an `i64` that wraps.
///
/// # Where it may be used, memory, memory ordering, vfork
/// As [`Counter`](super::Counter).
pub struct Gauge<I: SlotIndex = Cid> {
    sum: Sum<I>,
}

impl<I: SlotIndex> Gauge<I> {
    /// A gauge of value 0.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Gauge { sum: Sum::new() }
    }

    /// A gauge of value 0.
    #[cfg(loom)]
    pub fn new() -> Self {
        Gauge { sum: Sum::new() }
    }

    /// Adds `n`, wrapping.
    ///
    /// Constant time, wait-free but for a capped number of retries. Async-signal-safe.
    #[inline]
    pub fn add(&self, n: i64) {
        self.sum.add(n);
    }

    /// Subtracts `n`, wrapping; as [`add`](Gauge::add).
    #[inline]
    pub fn sub(&self, n: i64) {
        self.add(n.wrapping_neg());
    }

    /// Sets the value, and returns what it was.
    ///
    /// What others add meanwhile is either part of the result or comes on top of `value`: nothing is
    /// lost. Linear in the slots in use; retried while others set. Async-signal-safe.
    pub fn set(&self, value: i64) -> i64 {
        self.sum.exchange(0, value)
    }

    /// The value.
    ///
    /// Exact once those who change it are done and ordered before the call (joined, say). While they
    /// do not rest it may be a value that the gauge never had: an addition on one core is missed and a
    /// later subtraction on another seen. Linear in the slots in use. Async-signal-safe.
    pub fn get(&self) -> i64 {
        self.sum.get(0)
    }
}

impl<I: SlotIndex> Default for Gauge<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: SlotIndex> fmt::Debug for Gauge<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&self.get()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cid::CpuId;
    use std::format;

    #[test]
    fn goes_up_and_down_and_is_set() {
        let gauge = Gauge::<CpuId>::default();
        gauge.add(3);
        gauge.sub(5);
        assert_eq!(gauge.get(), -2);
        assert_eq!(gauge.set(i64::MAX), -2);
        gauge.add(2);
        assert_eq!(gauge.get(), i64::MIN + 1);
        assert_eq!(gauge.set(0), i64::MIN + 1);
        assert_eq!(format!("{gauge:?}"), "Gauge(0)");
    }
}
