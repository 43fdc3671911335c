//! Tests of `histogram.rs`.

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
