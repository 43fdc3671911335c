//! Which objects chance takes out, for those who watch: to be guarded, or to be sampled.
//!
//! Each object by itself, whatever became of others: guarded with probability `1 / N`, else sampled with probability
//! `1 - exp(-size / rate)`, as if one byte of `rate` were marked on average, and whoever gets a marked byte were
//! sampled. One of `rate` bytes or more always is.
//!
//! Chance need not be asked each time. The [distance](Odds::distance) to the next object that may be taken out is
//! drawn beforehand, for objects of a class's own size; when it is there, what it [is taken out for](Odds::at_last)
//! depends on its size: a smaller one may be left alone after all. An object that was not counted on the way is
//! [judged](Odds::at_once) by itself. Both come to the same, since distances know nothing of what was before.
//!
//! # Invariants
//! 1. `at_last`, for an object that [`distance`](Odds::distance) has led to, and `at_once`, for any, have the same
//!    result with the same probability, as long as the object is no larger than its class.

use super::profile;
use super::random;

/// What an object is taken out for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lot {
    Plain,
    Guarded,
    Sampled,
}

/// How likely it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Odds {
    /// Of so many objects one is guarded.
    pub(super) guard: Option<u32>,
    /// Of so many bytes one is marked.
    pub(super) rate: Option<u64>,
}

/// The distance where nothing is taken out: what is counted is known to that.
const NEVER: u64 = 1 << 16;
/// More would not be counted down in a year.
const MOST: f64 = (1u64 << 60) as f64;

impl Odds {
    /// For what cannot be guarded.
    pub(super) fn without_guard(self) -> Odds {
        Odds { guard: None, ..self }
    }

    /// That one of so many bytes is sampled.
    fn of_a_size(self, size: usize) -> f64 {
        self.rate.map_or(0.0, |rate| profile::odds(size as u64, rate))
    }

    fn of_guard(self) -> f64 {
        self.guard.map_or(0.0, |guard| 1.0 / f64::from(guard.max(1)))
    }

    /// That one of so many bytes is taken out.
    fn of_any(self, size: usize) -> f64 {
        let guard = self.of_guard();
        guard + (1.0 - guard) * self.of_a_size(size)
    }

    /// Objects of this size until the next one that may be taken out, that one included.
    pub(super) fn distance(self, size: usize) -> u64 {
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
        // The whole part of an exponential number is a geometric one.
        let times = random::nats(random) as f64 / 65_536.0 / (by_size + by_guard);
        times.min(MOST) as u64 + 1
    }

    /// What becomes of the object that the distance has led to, for objects of the class's size.
    pub(super) fn at_last(self, of_class: usize, size: usize) -> Lot {
        self.lot(size, fraction(random::next()) * self.of_any(of_class))
    }

    /// What becomes of an object that was not counted.
    pub(super) fn at_once(self, size: usize) -> Lot {
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

/// Below 1, and each as likely as any other.
fn fraction(random: u64) -> f64 {
    (random >> 11) as f64 / (1u64 << 53) as f64
}

/// `-ln(1 - p)` of a probability of at most a half, by a series whose terms are a ninth of the ones before.
fn minus_log_of_rest(p: f64) -> f64 {
    let z = p / (2.0 - p);
    let terms = (0..10).rev();
    2.0 * z * terms.fold(0.0, |sum, nth| sum * z * z + 1.0 / f64::from(2 * nth + 1))
}

#[cfg(test)]
#[path = "sampling_tests.rs"]
mod tests;
