//! The gauge: one sum (`machinery/sums.rs`) that goes up and down and can be set.

use core::fmt;

use super::machinery::sums::Sum;
use crate::cid::{Cid, SlotIndex};

/// A value that goes up and down, such as the requests in flight or the bytes in a cache.
///
/// [`add`](Gauge::add) and [`sub`](Gauge::sub) cost as much as those of a [`Counter`](super::Counter). One thread may
/// add what another one subtracts. [`set`](Gauge::set) reads every core's shard, so call it rarely. Where several
/// threads set a value all the time, a plain atomic is the better gauge.
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
/// Like [`Counter`](super::Counter).
pub struct Gauge<I: SlotIndex = Cid> {
    sum: Sum<I>,
}

impl<I: SlotIndex> Gauge<I> {
    const_fn! {
        /// Creates a gauge of value 0.
        pub const fn new() -> Self {
            Gauge { sum: Sum::new() }
        }
    }

    /// Adds `n`, wrapping.
    ///
    /// Constant time; wait-free, with a bounded number of retries. Async-signal-safe.
    #[inline]
    pub fn add(&self, n: i64) {
        self.sum.add(n);
    }

    /// Subtracts `n`, wrapping. Like [`add`](Gauge::add).
    #[inline]
    pub fn sub(&self, n: i64) {
        self.add(n.wrapping_neg());
    }

    /// Adds 1, and subtracts it when the result is dropped. Counts operations in flight.
    ///
    /// ```
    /// use corelocal::percpu::Gauge;
    ///
    /// static IN_FLIGHT: Gauge = Gauge::new();
    ///
    /// fn handle() {
    ///     let _in_flight = IN_FLIGHT.enter();
    ///     assert_eq!(IN_FLIGHT.get(), 1);
    /// }
    ///
    /// handle();
    /// assert_eq!(IN_FLIGHT.get(), 0); // also after an early return or a panic
    /// ```
    #[inline]
    pub fn enter(&self) -> InFlight<'_, I> {
        self.add(1);
        InFlight { gauge: self }
    }

    /// Sets the value, and returns the old one.
    ///
    /// A concurrent addition is either part of the result or added to `value`: none is lost. Linear in the slots in
    /// use; retried while other threads set. Async-signal-safe.
    pub fn set(&self, value: i64) -> i64 {
        self.sum.exchange(0, value)
    }

    /// Returns the value.
    ///
    /// It includes every change that happens before the call. During concurrent changes it may be a value that the
    /// gauge never had, if an addition on one core is missed and a later subtraction on another one is seen. Linear
    /// in the slots in use. Async-signal-safe.
    pub fn get(&self) -> i64 {
        self.sum.get(0)
    }
}

/// The 1 that [`Gauge::enter`] added. It is subtracted when this is dropped, by any thread, so a task may take it
/// from core to core. If it is forgotten (`mem::forget`), the 1 stays.
#[derive(Debug)]
#[must_use = "the gauge goes down when it is dropped"]
pub struct InFlight<'a, I: SlotIndex = Cid> {
    gauge: &'a Gauge<I>,
}

impl<I: SlotIndex> Drop for InFlight<'_, I> {
    #[inline]
    fn drop(&mut self) {
        self.gauge.sub(1);
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
    fn what_is_in_flight_is_counted() {
        let gauge = Gauge::<crate::cid::Cid>::default();
        let (first, second) = (gauge.enter(), gauge.enter());
        assert_eq!(gauge.get(), 2);
        std::thread::scope(|scope| {
            scope.spawn(move || drop(first));
        });
        assert_eq!(gauge.get(), 1);
        let panicked = std::panic::catch_unwind(|| {
            let _third = gauge.enter();
            panic!("for the test");
        });
        assert!(panicked.is_err());
        assert_eq!(gauge.get(), 1);
        core::mem::forget(second);
        assert_eq!(gauge.get(), 1);
    }

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
