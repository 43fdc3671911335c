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

/// The number of values in each bucket that has any.
pub(crate) type Counts = BTreeMap<Key, u64>;

/// The buckets of a histogram that is asked for quantiles.
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

    /// Returns what has been counted. Linear in the octaves in use times the slots in use.
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

/// Returns the number of the bucket of a positive value, from 0 at 2^-64, at most the last; `None` up to there.
#[inline]
fn number(magnitude: f64) -> Option<usize> {
    let number = ((magnitude.to_bits() - 1) >> REST).checked_sub(FIRST)?;
    Some((number as usize).min(OCTAVES * BUCKETS - 1))
}

/// Returns the value that stands for those in a bucket: the end that is farther from zero. None is farther, and
/// none is nearer by more than 1/64 of it.
pub(crate) fn value(key: Key) -> f64 {
    let number = u64::from(key.unsigned_abs());
    match key.signum() {
        0 => 0.0,
        // The upper end of a bucket is the lower end of the next, whose number is one higher, as is the key.
        sign => f64::from(sign) * f64::from_bits((FIRST + number) << REST),
    }
}

/// Returns how many values there are, 2^64 - 1 at most.
pub(crate) fn total(counts: &Counts) -> u64 {
    counts.values().copied().fold(0, u64::saturating_add)
}

/// Returns the value that the part `q` of all counted values does not exceed; `None` if there is none.
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
mod tests;
