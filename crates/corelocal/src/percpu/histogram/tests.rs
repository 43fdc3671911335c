//! Tests of `histogram.rs`.

use super::*;
use crate::cid::CpuId;
use std::format;
use std::vec::Vec;

#[test]
fn records_reads_and_takes() {
    let histogram: Histogram = Histogram::default();
    assert_eq!((histogram.count(), histogram.buckets().next()), (0, None));
    for value in [0, 1, 1, 63, 64, 65, u64::MAX] {
        histogram.record(value);
    }
    histogram.record_n(1 << 40, 1000);
    let bucket = |low, high, count| Bucket { low, high, count };
    let expected = [
        bucket(0, 0, 1),
        bucket(1, 1, 2),
        bucket(63, 63, 1),
        bucket(64, 65, 2),
        bucket(1 << 40, (1 << 40) + (1 << 35) - 1, 1000),
        bucket(0b11_1111 << 58, u64::MAX, 1),
    ];
    assert_eq!(histogram.buckets().collect::<Vec<_>>(), expected);
    let snapshot = histogram.snapshot();
    assert_eq!(snapshot.buckets().collect::<Vec<_>>(), expected);
    assert_eq!((snapshot.count(), histogram.count()), (1007, 1007));
    assert_eq!(histogram.take(), snapshot);
    assert_eq!(histogram.take(), Snapshot::new());
    histogram.record(7);
    histogram.reset();
    assert_eq!(histogram.count(), 0);
    histogram.record(9);
    assert_eq!(histogram.buckets().collect::<Vec<_>>(), [bucket(9, 9, 1)]);
}

#[test]
fn large_numbers_saturate() {
    let histogram: Histogram = Histogram::new();
    for n in [u64::MAX, u64::MAX, 1 << 62, 1 << 61, CHECKED, 5, 1] {
        histogram.record_n(5, n);
    }
    histogram.record_n(7, 1);
    let snapshot = histogram.snapshot();
    // The small ones are not checked.
    assert_eq!(snapshot.count(), MOST as u64 + 6 + 1);
    assert_eq!((snapshot.quantile(0.5), snapshot.quantile(1.0)), (Some(5), Some(7)));
    let mut sum = snapshot.clone();
    (0..20).for_each(|_| sum.merge(&snapshot));
    assert_eq!((sum.count(), sum.quantile(0.5)), (u64::MAX, Some(5)));
    let below = Histogram::<3>::new();
    below.record_n(9, (1 << 61) - 1);
    below.record_n(9, 1 << 40);
    assert_eq!(below.count(), MOST as u64);
}

#[test]
#[cfg(not(miri))]
fn large_numbers_of_many_threads() {
    static HISTOGRAM: Histogram = Histogram::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..10_000).for_each(|_| HISTOGRAM.record_n(5, 1 << 60)));
        }
    });
    HISTOGRAM.record_n(5, u64::MAX);
    assert_eq!(HISTOGRAM.count(), MOST as u64);
}

#[test]
fn debug_shows_quantiles() {
    let histogram = Histogram::<3, CpuId>::new();
    assert_eq!(format!("{histogram:?}"), "Histogram { count: 0 }");
    (1..=10).for_each(|value| histogram.record(value));
    let shown = "count: 10, min: 1, p50: 5, p90: 9, p99: 10, max: 10";
    assert_eq!(format!("{histogram:?}"), format!("Histogram {{ {shown} }}"));
    assert_eq!(format!("{:?}", histogram.snapshot()), format!("Snapshot {{ {shown} }}"));
}

/// The sizes in the documentation.
#[test]
fn sizes() {
    assert_eq!(size_of::<Histogram<0>>(), 16 + 520);
    assert_eq!(size_of::<Histogram<3>>(), 16 + 496 * 8);
    assert_eq!(size_of::<Histogram>(), 16 + 1920 * 8);
    assert_eq!(size_of::<Histogram<7>>(), 16 + 7424 * 8);
    assert_eq!(size_of::<Snapshot<11>>(), 110_592 * 8);
}

/// The highest precision, without a copy on the stack.
#[test]
fn the_largest() {
    static HISTOGRAM: Histogram<11> = Histogram::new();
    for value in [0, 4095, 4096, u64::MAX] {
        HISTOGRAM.record(value);
    }
    let buckets: Vec<_> = HISTOGRAM.buckets().map(|bucket| (bucket.low, bucket.high)).collect();
    assert_eq!(buckets, [(0, 0), (4095, 4095), (4096, 4097), (0xfff << 52, u64::MAX)]);
}

fn assert_sync<T: Send + Sync>() {}

#[test]
fn threads_may_share_it() {
    assert_sync::<Histogram>();
    assert_sync::<Histogram<11, CpuId>>();
    assert_sync::<Snapshot>();
}
