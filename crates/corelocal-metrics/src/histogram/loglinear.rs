//! Which value is counted where, when quantiles are asked for: log-linear in the bits of `f64`.
//!
//! The bits of a positive `f64`, read as an integer, grow with it: first the exponent, then the mantissa.
//! So the exponent with the first 6 bits of the mantissa numbers buckets of which there are 64 in each
//! octave, from a power of two to the next, none wider than 1/64 of what is in it. Buckets exclude their
//! lower end and include the upper one, as Prometheus has it: the number is that of the bits less one. Two
//! operations, and no configuration: the 128 octaves from 2^-64 to 2^64 serve nanoseconds in seconds and
//! exabytes in bytes alike.
//!
//! # Data's way
//! `record` → sign, octave, bucket → section `add_at` on that bucket's word in this core's slot. The 64
//! counters of an octave are made at its first value: memory follows the values that occur, here and on
//! each core.
//!
//! # Invariants
//! 1. A value that is a number is counted once: the sign tells the side, the bits the octave and bucket.
//! 2. A key names one bucket; keys order buckets as their values are ordered.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use corelocal::percpu::{Counter, CounterVec};

/// Bits of the mantissa that count.
const PRECISION: u32 = 6;
const BUCKETS: usize = 1 << PRECISION;
const OCTAVES: usize = 128;
/// Bits of the mantissa that do not count.
const REST: u32 = f64::MANTISSA_DIGITS - 1 - PRECISION;
/// The number of the first bucket: the one above 2^-64.
const FIRST: u64 = (1023 - 64) << PRECISION;

/// The name of a bucket: 0 for values about zero, else one more than its number, with the value's sign.
pub(crate) type Key = i16;

/// How many values are in which bucket, where there are any.
pub(crate) type Counts = BTreeMap<Key, u64>;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct LogLinear {
    zero: Counter,
    positive: Side,
    /// Few histograms have any.
    negative: OnceLock<Box<Side>>,
}

/// The values of one sign.
#[derive(Debug)]
struct Side([OnceLock<Box<CounterVec<BUCKETS>>>; OCTAVES]);

impl LogLinear {
    /// Counts a value `n` times. One that is no number is not counted.
    #[inline]
    pub(crate) fn record(&self, value: f64, n: i64) {
        if value > 0.0 {
            self.record_at(&self.positive, value, n);
        } else if value < 0.0 {
            self.record_at(self.negative.get_or_init(Box::default), -value, n);
        } else if value == 0.0 {
            self.zero.add(n);
        }
    }

    #[inline]
    fn record_at(&self, side: &Side, magnitude: f64, n: i64) {
        let Some(number) = number(magnitude) else { return self.zero.add(n) };
        if let Some(octave) = side.0.get(number / BUCKETS) {
            // Below the length, by the modulo.
            let _ = octave.get_or_init(Box::default).add(number % BUCKETS, n);
        }
    }

    /// What has been counted. Linear in the octaves in use times the slots in use.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        let mut insert = |key, count: i64| {
            // A trim may show less than nothing for a moment.
            if count > 0 {
                counts.insert(key, count as u64);
            }
        };
        self.positive.visit(&mut insert);
        insert(0, self.zero.get());
        if let Some(negative) = self.negative.get() {
            negative.visit(|key, count| insert(-key, count));
        }
        counts
    }
}

impl Side {
    fn visit(&self, mut visit: impl FnMut(Key, i64)) {
        for (octave, counters) in self.0.iter().enumerate() {
            let counts = counters.get().into_iter().flat_map(|counters| counters.iter());
            for (bucket, count) in counts.enumerate() {
                visit((octave * BUCKETS + bucket + 1) as Key, count);
            }
        }
    }
}

impl Default for Side {
    fn default() -> Self {
        Side([const { OnceLock::new() }; OCTAVES])
    }
}

/// The number of the bucket of a positive value, from 0 at 2^-64, at most the last; `None` up to there.
#[inline]
fn number(magnitude: f64) -> Option<usize> {
    let number = ((magnitude.to_bits() - 1) >> REST).checked_sub(FIRST)?;
    Some((number as usize).min(OCTAVES * BUCKETS - 1))
}

/// The value that stands for those in a bucket: the end that is farther from zero. None is farther, and
/// none is nearer by more than 1/64 of it.
pub(crate) fn value(key: Key) -> f64 {
    let number = u64::from(key.unsigned_abs());
    match key.signum() {
        0 => 0.0,
        // The upper end of a bucket is the lower end of the next, whose number is one higher, as is the key.
        sign => f64::from(sign) * f64::from_bits((FIRST + number) << REST),
    }
}

/// How many values there are, 2^64 - 1 at most.
pub(crate) fn total(counts: &Counts) -> u64 {
    counts.values().copied().fold(0, u64::saturating_add)
}

/// The value that the part `q` of all counted values does not exceed; `None` if there is none.
pub(crate) fn quantile(counts: &Counts, q: f64) -> Option<f64> {
    let rank = (q * total(counts) as f64).ceil().max(1.0) as u64;
    let mut seen: u64 = 0;
    let mut found = None;
    for (&key, count) in counts {
        found = Some(value(key));
        seen = seen.saturating_add(*count);
        if seen >= rank {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(values: &[f64]) -> Counts {
        let histogram = LogLinear::default();
        values.iter().for_each(|&value| histogram.record(value, 1));
        histogram.counts()
    }

    fn stands_for(recorded: f64) -> f64 {
        let counts = counts(&[recorded]);
        assert_eq!(counts.values().copied().collect::<Vec<_>>(), [1]);
        quantile(&counts, 0.5).unwrap()
    }

    fn next_up(positive: f64) -> f64 {
        f64::from_bits(positive.to_bits() + 1)
    }

    #[test]
    fn what_few_bits_tell_is_exact() {
        for whole in -128..=128 {
            assert_eq!(stands_for(f64::from(whole)), f64::from(whole));
        }
        for power in -63..=64 {
            assert_eq!(stands_for(2f64.powi(power)), 2f64.powi(power));
            assert_eq!(stands_for(-1.25 * 2f64.powi(power - 1)), -1.25 * 2f64.powi(power - 1));
        }
    }

    #[test]
    fn the_ends() {
        let (smallest, largest) = (2f64.powi(-64), 2f64.powi(64));
        for tiny in [0.0, -0.0, smallest, -smallest, f64::MIN_POSITIVE, 5e-324, -5e-324] {
            assert_eq!(stands_for(tiny), 0.0, "{tiny}");
        }
        assert_eq!(stands_for(next_up(smallest)), smallest * (1.0 + 1.0 / 64.0));
        for huge in [largest, next_up(largest), f64::MAX, f64::INFINITY] {
            assert_eq!(stands_for(huge), largest, "{huge}");
            assert_eq!(stands_for(-huge), -largest, "{huge}");
        }
        assert!(counts(&[f64::NAN, -f64::NAN]).is_empty());
    }

    #[test]
    fn memory_follows_the_values() {
        let histogram = LogLinear::default();
        (1..=1000).for_each(|n| histogram.record(f64::from(n), 1));
        let made = histogram.positive.0.iter().filter(|octave| octave.get().is_some()).count();
        // From (1/2, 1] to (512, 1024].
        assert_eq!(made, 11);
        assert!(histogram.negative.get().is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_quantile_is_that_of_the_sorted_values(
            mut values in prop::collection::vec(
                prop_oneof![-1e6..1e6f64, -1e-6..1e-6f64, -1e18..1e18f64, Just(0.0)], 1..200),
            q in 0.0..=1.0f64,
        ) {
            let found = quantile(&counts(&values), q).unwrap();
            values.sort_by(f64::total_cmp);
            let rank = ((q * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            if exact.abs() <= 2f64.powi(-64) {
                prop_assert_eq!(found, 0.0);
            } else {
                prop_assert_eq!(found.signum(), exact.signum());
                prop_assert!(found.abs() >= exact.abs(), "{} for {}", found, exact);
                prop_assert!((found - exact).abs() <= found.abs() / 64.0, "{} for {}", found, exact);
            }
        }

        #[test]
        fn keys_keep_the_order(a: f64, b: f64) {
            let key = |value: f64| counts(&[value]).keys().next().copied();
            if let (Some(a_key), Some(b_key)) = (key(a), key(b)) {
                prop_assert!(a_key == b_key || (a_key < b_key) == (a < b));
            }
        }
    }
}
