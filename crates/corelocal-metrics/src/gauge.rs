//! A gauge of the crate `metrics`: a number in `f64` that goes up and down and is set.
//!
//! # Data's way
//! Steps by whole numbers (requests in flight, bytes held), which are what a gauge is stepped by nearly
//! always → one section on this core's word, in integers. All else, being set and stepped by fractions →
//! `base`, under a lock.
//!
//! # Invariants
//! 1. The value is `base.value` plus what the steps have become since `base.steps`.
//! 2. `base` is what one thread at a time makes of it, in `f64`. So whole steps are exact in any order, and
//!    fractions are rounded once for each operation, as those of a plain `f64` variable are.
//! 3. A whole step is at most `LONGEST`, so that 2^31 of them go into the 64 bits of the sum.
//!
//! A fixed point instead of both would round what is set; one `f64` for each core would round small
//! steps by what the core has summed up since the start, even after the gauge was set to 0.

use std::sync::{Mutex, MutexGuard, PoisonError};

use corelocal::percpu;

/// The longest step that is taken in integers: 4 GiB.
const LONGEST: u64 = 1 << 32;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    steps: percpu::Gauge,
    base: Mutex<Base>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Base {
    value: f64,
    /// What the steps were when `value` was set.
    steps: i64,
}

impl Gauge {
    /// The value. It includes every change that happens before the call.
    pub(crate) fn get(&self) -> f64 {
        let base = self.lock();
        base.value + self.steps.get().wrapping_sub(base.steps) as f64
    }

    fn add(&self, value: f64) {
        match whole(value) {
            Some(step) => self.steps.add(step),
            None => self.add_fraction(value),
        }
    }

    #[cold]
    fn add_fraction(&self, value: f64) {
        self.lock().value += value;
    }

    fn lock(&self) -> MutexGuard<'_, Base> {
        // Nothing panics while it is held.
        self.base.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The value as an integer, if it is one and not too long.
#[inline]
fn whole(value: f64) -> Option<i64> {
    // Saturates; what is no number becomes 0.
    let step = value as i64;
    (step as f64 == value && step.unsigned_abs() <= LONGEST).then_some(step)
}

impl metrics::GaugeFn for Gauge {
    #[inline]
    fn increment(&self, value: f64) {
        self.add(value);
    }

    #[inline]
    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, value: f64) {
        let mut base = self.lock();
        *base = Base { value, steps: self.steps.get() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::GaugeFn as _;
    use proptest::prelude::*;
    use std::thread;

    #[test]
    fn whole_numbers() {
        for (value, step) in [
            (0.0, Some(0)),
            (-0.0, Some(0)),
            (-3.0, Some(-3)),
            (4294967296.0, Some(1 << 32)),
            (-4294967296.0, Some(-(1 << 32))),
            (4294967297.0, None),
            (0.5, None),
            (f64::NAN, None),
            (f64::INFINITY, None),
            (f64::NEG_INFINITY, None),
            (f64::MIN_POSITIVE, None),
            (9.3e18, None),
        ] {
            assert_eq!(whole(value), step, "{value}");
        }
    }

    /// Setting a fraction after many steps leaves no rounding error of theirs.
    #[test]
    fn set_is_exact() {
        let gauge = Gauge::default();
        gauge.increment(4e9);
        gauge.increment(1e18);
        gauge.set(0.1);
        assert_eq!(gauge.get(), 0.1);
        gauge.increment(1.0);
        gauge.decrement(1.0);
        assert_eq!(gauge.get(), 0.1);
        gauge.set(f64::INFINITY);
        gauge.decrement(7.0);
        assert_eq!(gauge.get(), f64::INFINITY);
        gauge.set(-0.0);
        assert_eq!(gauge.get(), 0.0);
        gauge.set(f64::NAN);
        assert!(gauge.get().is_nan());
    }

    #[test]
    fn threads_lose_no_step() {
        let gauge = Gauge::default();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        gauge.increment(5.0);
                        gauge.decrement(2.0);
                        gauge.increment(0.25);
                    }
                });
            }
        });
        assert_eq!(gauge.get(), 4.0 * 1000.0 * 3.25);
    }

    /// Sets among steps: each step is on top of one of the values, or gone with it.
    #[test]
    fn sets_among_steps() {
        let gauge = Gauge::default();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..1000).for_each(|_| gauge.increment(1.0)));
                scope.spawn(|| (0..100).for_each(|_| gauge.set(0.5)));
            }
        });
        let left = gauge.get();
        assert!((0.5..=2000.5).contains(&left) && left.fract() == 0.5, "{left}");
        gauge.set(3.0);
        assert_eq!(gauge.get(), 3.0);
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Increment(f64),
        Decrement(f64),
        Set(f64),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        // Multiples of 1/8 whose sums a plain `f64` holds exactly.
        let value = || (-1_000_000i32..1_000_000).prop_map(|n| f64::from(n) / 8.0);
        let whole = || (-1_000_000i32..1_000_000).prop_map(f64::from);
        prop_oneof![
            prop_oneof![value(), whole()].prop_map(Operation::Increment),
            prop_oneof![value(), whole()].prop_map(Operation::Decrement),
            value().prop_map(Operation::Set),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn as_a_plain_number(operations in prop::collection::vec(operation(), 0..50)) {
            let (gauge, mut naive) = (Gauge::default(), 0.0);
            for operation in operations {
                match operation {
                    Operation::Increment(by) => { gauge.increment(by); naive += by; }
                    Operation::Decrement(by) => { gauge.decrement(by); naive -= by; }
                    Operation::Set(to) => { gauge.set(to); naive = to; }
                }
                prop_assert_eq!(gauge.get(), naive);
            }
        }
    }
}
