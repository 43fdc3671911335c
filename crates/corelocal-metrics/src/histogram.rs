//! A histogram of the crate `metrics`, in one of two shapes: buckets whose bounds are given, counted
//! exactly, or quantiles of the recent past.
//!
//! # Data's way
//! `record` → the bucket: by binary search of the bounds (`Bounds`), or from the bits of the value
//! (`loglinear.rs`) → section `add_at` on its word in this core's slot → the sum (`sum.rs`). Readers derive
//! the count from the buckets, so it never disagrees with them; the sum may be a value behind.
//!
//! # Invariants
//! 1. A value that is a number is counted in one bucket and added to the sum; one that is not changes nothing.
//! 2. A bucket counts up to 2^63 - 1. Counts of several buckets are added up to 2^64 - 1 and stay there.

mod loglinear;
mod sum;
mod window;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use corelocal::percpu::CounterVec;

use self::loglinear::LogLinear;
use self::sum::Sum;
use self::window::Window;

/// Counters for buckets with bounds: the last one is for what exceeds all of them.
const COUNTERS: usize = 64;
/// The most bounds a histogram may have.
pub(crate) const MAX_BOUNDS: usize = COUNTERS - 1;

/// The form in which a histogram is rendered.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Buckets up to and including these bounds, finite and ascending, at most `MAX_BOUNDS`.
    Buckets(Arc<[f64]>),
    /// Quantiles over a time of this length.
    Quantiles(Arc<[f64]>, Duration),
}

/// A histogram of the crate `metrics`.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Counts,
    sum: Sum,
}

#[derive(Debug)]
enum Counts {
    Buckets(Arc<[f64]>, Box<CounterVec<COUNTERS>>),
    Quantiles(Arc<[f64]>, Duration, Box<LogLinear>, Mutex<Window>),
}

/// The content of a histogram at one moment.
#[derive(Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) parts: Parts,
    pub(crate) sum: f64,
    pub(crate) count: u64,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Parts {
    /// The number of values that do not exceed each bound.
    Buckets(Vec<(f64, u64)>),
    /// The value of each quantile; NaN where no value is recent.
    Quantiles(Vec<(f64, f64)>),
}

impl Histogram {
    pub(crate) fn new(shape: Shape) -> Self {
        let counts = match shape {
            Shape::Buckets(bounds) => Counts::Buckets(bounds, Box::default()),
            Shape::Quantiles(quantiles, length) => {
                let window = Mutex::new(Window::new(Instant::now()));
                Counts::Quantiles(quantiles, length, Box::default(), window)
            }
        };
        Histogram { counts, sum: Sum::default() }
    }

    #[inline]
    fn record_n(&self, value: f64, n: i64) {
        match &self.counts {
            Counts::Buckets(bounds, counts) => {
                // At most the number of bounds, which is below the number of counters.
                let _ = counts.add(bounds.partition_point(|&bound| bound < value), n);
            }
            Counts::Quantiles(_, _, counts, _) => counts.record(value, n),
        }
    }

    /// Returns what it holds now, where quantiles are those of the time before `now`.
    pub(crate) fn read(&self, now: Instant) -> Reading {
        match &self.counts {
            Counts::Buckets(bounds, counts) => {
                let mut count: u64 = 0;
                let mut counts = counts.iter();
                let mut upto = || {
                    // A trim may show less than nothing for a moment.
                    let next = counts.next().unwrap_or(0).max(0) as u64;
                    count = count.saturating_add(next); // (2)
                    count
                };
                let buckets = bounds.iter().map(|&bound| (bound, upto())).collect();
                Reading { parts: Parts::Buckets(buckets), count: upto(), sum: self.sum.get() }
            }
            Counts::Quantiles(quantiles, length, counts, window) => {
                // One reader at a time, so that what is kept grows.
                let mut window = window.lock().unwrap_or_else(PoisonError::into_inner);
                let all = counts.counts();
                let recent = window.recent(&all, *length, now);
                drop(window);
                let value = |&q| (q, loglinear::quantile(&recent, q).unwrap_or(f64::NAN));
                Reading {
                    parts: Parts::Quantiles(quantiles.iter().map(value).collect()),
                    count: loglinear::total(&all),
                    sum: self.sum.get(),
                }
            }
        }
    }
}

impl metrics::HistogramFn for Histogram {
    #[inline]
    fn record(&self, value: f64) {
        if !value.is_nan() {
            self.record_n(value, 1);
            self.sum.add(value);
        }
    }

    fn record_many(&self, value: f64, count: usize) {
        if !value.is_nan() && count > 0 {
            self.record_n(value, i64::try_from(count).unwrap_or(i64::MAX));
            self.sum.add(value * count as f64);
        }
    }
}

#[cfg(test)]
mod tests;
