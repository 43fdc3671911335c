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
/// How many bounds there may be.
pub(crate) const MAX_BOUNDS: usize = COUNTERS - 1;

/// What a histogram is rendered as.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Buckets up to and including these bounds, finite and ascending, at most `MAX_BOUNDS`.
    Buckets(Arc<[f64]>),
    /// Quantiles over a time of this length.
    Quantiles(Arc<[f64]>, Duration),
}

/// See the module's text.
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

/// What a histogram holds at some time.
#[derive(Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) parts: Parts,
    pub(crate) sum: f64,
    pub(crate) count: u64,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Parts {
    /// How many values do not exceed each bound.
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

    /// What it holds now, where quantiles are those of the time before `now`.
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
mod tests {
    use super::*;
    use metrics::HistogramFn as _;

    #[test]
    fn buckets_are_exact() {
        let histogram = Histogram::new(Shape::Buckets(Arc::new([-1.0, 0.1, 5.0])));
        let above = |value: f64| f64::from_bits(value.to_bits() + 1);
        for value in [-2.0, -1.0, 0.1, above(0.1), 5.0, above(5.0), f64::NAN] {
            histogram.record(value);
        }
        histogram.record_many(100.0, 3);
        histogram.record_many(1.0, 0);
        let reading = histogram.read(Instant::now());
        assert_eq!(reading.parts, Parts::Buckets(vec![(-1.0, 2), (0.1, 3), (5.0, 5)]));
        assert_eq!(reading.count, 9);
        assert!((reading.sum - 307.2).abs() < 1e-12, "{}", reading.sum);
    }

    /// Only `record_many` gets there.
    #[test]
    fn counts_end_at_the_highest() {
        let quantiles = Shape::Quantiles(Arc::new([0.5, 1.0]), Duration::from_secs(60));
        for shape in [Shape::Buckets(Arc::new([1.0, 2.0])), quantiles] {
            let histogram = Histogram::new(shape);
            for value in [1.0, 2.0, 3.0] {
                histogram.record_many(value, usize::MAX);
            }
            let most = i64::MAX as u64;
            let reading = histogram.read(Instant::now());
            assert_eq!(reading.count, u64::MAX);
            match reading.parts {
                Parts::Buckets(buckets) => assert_eq!(buckets, [(1.0, most), (2.0, 2 * most)]),
                Parts::Quantiles(quantiles) => assert_eq!(quantiles, [(0.5, 2.0), (1.0, 3.0)]),
            }
        }
    }

    #[test]
    fn as_many_bounds_as_there_may_be() {
        let bounds: Arc<[f64]> = (0..MAX_BOUNDS).map(|n| n as f64).collect();
        let histogram = Histogram::new(Shape::Buckets(bounds));
        (0..MAX_BOUNDS + 1).for_each(|n| histogram.record(n as f64));
        let reading = histogram.read(Instant::now());
        let Parts::Buckets(buckets) = reading.parts else { panic!("no buckets") };
        assert_eq!(reading.count, COUNTERS as u64);
        assert_eq!(buckets.last(), Some(&(62.0, 63)));
    }

    #[test]
    fn quantiles_of_the_recent_past() {
        let shape = Shape::Quantiles(Arc::new([0.0, 0.5, 1.0]), Duration::from_secs(60));
        let histogram = Histogram::new(shape);
        let start = Instant::now();
        let quantiles = |seconds| histogram.read(start + Duration::from_secs(seconds));
        let Parts::Quantiles(none) = quantiles(0).parts else { panic!("no quantiles") };
        assert!(none.iter().all(|(_, value)| value.is_nan()), "{none:?}");
        (1..=5).for_each(|n| histogram.record(f64::from(n)));
        let reading = |values: [f64; 3], count, sum| Reading {
            parts: Parts::Quantiles([0.0, 0.5, 1.0].into_iter().zip(values).collect()),
            count,
            sum,
        };
        assert_eq!(quantiles(61), reading([1.0, 3.0, 5.0], 5, 15.0));
        histogram.record_many(100.0, 2);
        assert_eq!(quantiles(122), reading([100.0; 3], 7, 215.0));
    }
}
