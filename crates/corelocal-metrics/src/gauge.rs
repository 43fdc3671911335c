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

/// A gauge of the crate `metrics`.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    steps: percpu::Gauge,
    base: Mutex<Base>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Base {
    value: f64,
    /// The sum of the steps at the moment when `value` was set.
    steps: i64,
}

impl Gauge {
    /// Returns the value. It includes every change that happens before the call.
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

/// Returns the value as an integer, if it is one and not too long.
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
mod tests;
