//! Random selection of objects for sampling and guard pages.
//!
//! Each object is judged independently of others: it is guarded with probability `1 / N`, otherwise sampled with
//! probability `1 - exp(-size / rate)`. That is as if one byte of `rate` were marked on average, and an object with a
//! marked byte were sampled. An object of `rate` bytes or more always is.
//!
//! No random number is needed for each object. The [distance](Odds::distance) to the next candidate is drawn in
//! advance, for objects of the class's size. When it is reached, the [outcome](Odds::at_last) depends on the object's
//! size: a smaller object may be left alone. An object that was not counted on the way is [judged](Odds::at_once) on
//! its own. Both give the same distribution, since distances are memoryless.
//!
//! # Invariants
//! 1. `at_last`, for an object that [`distance`](Odds::distance) has led to, and `at_once`, for any object, yield
//!    each outcome with the same probability, as long as the object is no larger than its class.

use super::profile;
use crate::alloc::random;

/// The purpose for which an object is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::alloc) enum Lot {
    Plain,
    Guarded,
    Sampled,
}

/// The probabilities.
#[derive(Clone, Copy, Debug)]
pub(in crate::alloc) struct Odds {
    /// One object in this many is guarded.
    pub(in crate::alloc) guard: Option<u32>,
    /// One byte in this many is marked.
    pub(in crate::alloc) rate: Option<u64>,
}

/// The distance if nothing is selected. Counts of objects are exact to this.
const NEVER: u64 = 1 << 16;
/// More would not be counted down in a year.
const MOST: f64 = (1u64 << 60) as f64;

impl Odds {
    /// For objects that cannot be guarded.
    pub(in crate::alloc) fn without_guard(self) -> Odds {
        Odds { guard: None, ..self }
    }

    /// Returns the probability that an object of this size is sampled.
    fn of_a_size(self, size: usize) -> f64 {
        self.rate.map_or(0.0, |rate| profile::odds(size as u64, rate))
    }

    fn of_guard(self) -> f64 {
        self.guard.map_or(0.0, |guard| 1.0 / f64::from(guard.max(1)))
    }

    /// Returns the probability that an object of this size is selected.
    fn of_any(self, size: usize) -> f64 {
        let guard = self.of_guard();
        guard + (1.0 - guard) * self.of_a_size(size)
    }

    /// Returns the number of objects of this size up to and including the next candidate.
    pub(in crate::alloc) fn distance(self, size: usize) -> u64 {
        self.distance_of(size, random::next())
    }

    fn distance_of(self, size: usize, random: u64) -> u64 {
        let by_size = match self.rate {
            Some(rate) if size as u64 >= rate => return 1,
            Some(rate) => size as f64 / rate as f64,
            None => 0.0,
        };
        let by_guard = match self.guard {
            Some(..=1) => return 1,
            Some(_) => minus_log_of_rest(self.of_guard()),
            None => 0.0,
        };
        if self.guard.is_none() && self.rate.is_none() {
            return NEVER;
        }
        // The integer part of an exponential number is geometrically distributed.
        let times = random::nats(random) as f64 / 65_536.0 / (by_size + by_guard);
        times.min(MOST) as u64 + 1
    }

    /// Returns the outcome for the candidate that the distance has led to; the distance was for objects of the class's
    /// size.
    pub(in crate::alloc) fn at_last(self, of_class: usize, size: usize) -> Lot {
        self.lot(size, fraction(random::next()) * self.of_any(of_class))
    }

    /// Returns the outcome for an object that was not counted.
    pub(in crate::alloc) fn at_once(self, size: usize) -> Lot {
        match self.guard.is_some() || self.rate.is_some() {
            true => self.lot(size, fraction(random::next())),
            false => Lot::Plain,
        }
    }

    fn lot(self, size: usize, drawn: f64) -> Lot {
        match drawn {
            drawn if drawn < self.of_guard() => Lot::Guarded,
            drawn if drawn < self.of_any(size) => Lot::Sampled,
            _ => Lot::Plain,
        }
    }
}

/// Returns a uniform number below 1.
fn fraction(random: u64) -> f64 {
    (random >> 11) as f64 / (1u64 << 53) as f64
}

/// `-ln(1 - p)` of a probability of at most 1/2, by a series whose terms fall by a factor of 9.
fn minus_log_of_rest(p: f64) -> f64 {
    let z = p / (2.0 - p);
    let terms = (0..10).rev();
    2.0 * z * terms.fold(0.0, |sum, nth| sum * z * z + 1.0 / f64::from(2 * nth + 1))
}

#[cfg(test)]
mod tests;
