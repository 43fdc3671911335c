//! A sum in `f64` that every core adds to: the `_sum` of a histogram.
//!
//! # Invariants
//! 1. A core's word holds the bits of an `f64`, which only additions to it replace, one after another.
//!    Sums of whole numbers are exact up to 2^53; others are rounded once for each addition, as those of
//!    one `f64` variable are, and then once for each core.

use corelocal::percpu::Word;

/// A sum in `f64` that every core adds to.
#[derive(Debug, Default)]
pub(crate) struct Sum(Word);

impl Sum {
    /// Adds a value. Lock-free.
    #[inline]
    pub(crate) fn add(&self, value: f64) {
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // It always wants another value.
        let _ = self.0.fetch_update(add);
    }

    /// Returns the sum. It includes every addition that happens before the call, up to rounding.
    pub(crate) fn get(&self) -> f64 {
        self.0.iter().fold(0.0, |sum, (_, bits)| sum + f64::from_bits(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn threads_lose_nothing() {
        let sum = Sum::default();
        assert_eq!(sum.get().to_bits(), 0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| sum.add(0.25)));
            }
        });
        assert_eq!(sum.get(), 10_000.0);
        sum.add(-20_000.5);
        assert_eq!(sum.get(), -10_000.5);
        sum.add(f64::INFINITY);
        assert_eq!(sum.get(), f64::INFINITY);
    }
}
