//! A snapshot of a histogram: a plain value that computes quantiles, and that other snapshots can be merged into.
//!
//! # Invariants
//! 1. There is a count for each bucket (`bucket.rs`). Counts are added with saturation.
//! 2. Results about values are computed from buckets, in ascending order. So they are exact up to the width of one
//!    bucket.

use core::fmt;

use super::bucket::private::Sealed;
use super::bucket::{Bits, Bucket, Precision};

/// The counts of a [`Histogram`](super::Histogram) at one moment.
///
/// It is as large as its counts: 15 KiB at the default precision, 864 KiB at the highest. For a large one use
/// [`snapshot_into`](super::Histogram::snapshot_into) and memory of your own.
///
/// ```
/// use corelocal::percpu::Histogram;
/// use corelocal::percpu::histogram::Snapshot;
///
/// let (reads, writes) = (Histogram::<7>::new(), Histogram::<7>::new());
/// reads.record(120);
/// writes.record_n(70_000, 2);
///
/// let mut all: Snapshot<7> = reads.snapshot();
/// all.merge(&writes.snapshot());
/// assert_eq!((all.count(), all.min()), (3, Some(120)));
/// assert!(all.quantile(0.99).unwrap().abs_diff(70_000) <= 70_000 / 256);
/// ```
///
/// # Accuracy
/// Of a value its bucket is known, whose width is at most 2^-`PRECISION` of the value. [`quantile`], [`mean`] and
/// [`sum`] use the middle of a bucket for its values, so their error is at most 2^-(`PRECISION`+1) of the result: 1.6
/// % at the default precision. Values below 2^(`PRECISION`+1) are exact. [`min`] and [`max`] are bounds: all values
/// lie between them.
///
/// [`quantile`]: Snapshot::quantile
/// [`mean`]: Snapshot::mean
/// [`sum`]: Snapshot::sum
/// [`min`]: Snapshot::min
/// [`max`]: Snapshot::max
#[derive(Clone)]
pub struct Snapshot<const PRECISION: u32 = 5>
where
    Bits<PRECISION>: Precision,
{
    counts: <Bits<PRECISION> as Sealed>::Counts,
}

impl<const PRECISION: u32> Snapshot<PRECISION>
where
    Bits<PRECISION>: Precision,
{
    /// Creates an empty snapshot.
    pub const fn new() -> Self {
        Snapshot { counts: <Bits<PRECISION> as Sealed>::EMPTY }
    }

    pub(super) fn counts_mut(&mut self) -> &mut [u64] {
        self.counts.as_mut()
    }

    /// Returns the number of values recorded, at most `u64::MAX`. Linear in the buckets, like all methods here.
    pub fn count(&self) -> u64 {
        u64::try_from(total(self.buckets())).unwrap_or(u64::MAX)
    }

    /// Returns `true` if it is empty.
    pub fn is_empty(&self) -> bool {
        self.counts.as_ref().iter().all(|&count| count == 0)
    }

    /// Returns the buckets that are not empty, from low to high.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let counts = self.counts.as_ref().iter().enumerate();
        counts
            .filter(|&(_, &count)| count != 0)
            .map(|(index, &count)| Bucket::new::<PRECISION>(index, count))
    }

    /// Returns a lower bound of the values. `None` if there are none.
    pub fn min(&self) -> Option<u64> {
        self.buckets().next().map(|bucket| bucket.low)
    }

    /// Returns an upper bound of the values. `None` if there are none.
    pub fn max(&self) -> Option<u64> {
        self.buckets().last().map(|bucket| bucket.high)
    }

    /// Returns an estimate of the sum of the values.
    pub fn sum(&self) -> u128 {
        self.buckets().fold(0, |sum: u128, bucket| {
            sum.saturating_add(u128::from(bucket.mid()) * u128::from(bucket.count))
        })
    }

    /// Returns an estimate of the mean of the values. `None` if there are none.
    pub fn mean(&self) -> Option<f64> {
        let total = total(self.buckets());
        (total > 0).then(|| self.sum() as f64 / total as f64)
    }

    /// Returns the value that a share `q` of all values does not exceed: 0.5 is the median, 0.99 the 99th percentile.
    /// It is the middle of its [`quantile_bucket`](Snapshot::quantile_bucket).
    ///
    /// `None` if there are no values, or `q` is NaN.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        self.quantile_bucket(q).map(|bucket| bucket.mid())
    }

    /// Returns the bucket of the value at rank `q` times the count, rounded up, when the values are sorted. A `q` below
    /// 0 or above 1 counts as 0 or 1, which stand for the smallest and the largest value.
    ///
    /// This is exactly the bucket of that value, as far as `q` times the count is exact in `f64`.
    pub fn quantile_bucket(&self, q: f64) -> Option<Bucket> {
        at_rank(self.buckets(), rank(q, total(self.buckets()))?)
    }

    /// Adds the counts of another snapshot. The order of merges does not matter.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.as_mut().iter_mut().zip(other.counts.as_ref()) {
            *count = count.saturating_add(*more);
        }
    }
}

/// Returns the number of values in these buckets.
fn total(buckets: impl Iterator<Item = Bucket>) -> u128 {
    buckets.map(|bucket| u128::from(bucket.count)).sum()
}

/// `q * total`, rounded up, from 1 to `total`. `None` if there is no such rank.
fn rank(q: f64, total: u128) -> Option<u128> {
    if total == 0 || q.is_nan() {
        return None;
    }
    let exact = q * total as f64;
    // Saturates at 0 and at the maximum.
    let floor = exact as u128;
    let rank = if (floor as f64) < exact { floor.saturating_add(1) } else { floor };
    // For `q` of 1 or more the total itself, since `f64` may have rounded it.
    Some(if q >= 1.0 { total } else { rank.clamp(1, total) })
}

/// Returns the bucket of the value at this rank, counted from 1. If there are fewer values, because they were taken
/// meanwhile, the last one.
fn at_rank(buckets: impl Iterator<Item = Bucket>, rank: u128) -> Option<Bucket> {
    let (mut last, mut seen) = (None, 0);
    for bucket in buckets {
        seen += u128::from(bucket.count);
        last = Some(bucket);
        if seen >= rank {
            break;
        }
    }
    last
}

/// Returns the count and a few quantiles, for `Debug`.
pub(super) fn summarize<B: Iterator<Item = Bucket>>(
    name: &str,
    buckets: impl Fn() -> B,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let count = total(buckets());
    let mut shown = f.debug_struct(name);
    shown.field("count", &count);
    let mut show = |name, q, value: fn(&Bucket) -> u64| {
        if let Some(bucket) = rank(q, count).and_then(|rank| at_rank(buckets(), rank)) {
            shown.field(name, &value(&bucket));
        }
    };
    show("min", 0.0, |bucket| bucket.low);
    show("p50", 0.5, Bucket::mid);
    show("p90", 0.9, Bucket::mid);
    show("p99", 0.99, Bucket::mid);
    show("max", 1.0, |bucket| bucket.high);
    shown.finish()
}

impl<const PRECISION: u32> Default for Snapshot<PRECISION>
where
    Bits<PRECISION>: Precision,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<const PRECISION: u32> PartialEq for Snapshot<PRECISION>
where
    Bits<PRECISION>: Precision,
{
    fn eq(&self, other: &Self) -> bool {
        self.counts.as_ref() == other.counts.as_ref()
    }
}

impl<const PRECISION: u32> Eq for Snapshot<PRECISION> where Bits<PRECISION>: Precision {}

/// The count and a few quantiles.
impl<const PRECISION: u32> fmt::Debug for Snapshot<PRECISION>
where
    Bits<PRECISION>: Precision,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        summarize("Snapshot", || self.buckets(), f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn of(counts: &[(usize, u64)]) -> Snapshot {
        let mut snapshot = Snapshot::new();
        for &(index, count) in counts {
            snapshot.counts_mut()[index] = count;
        }
        snapshot
    }

    #[test]
    fn nothing() {
        let empty: Snapshot = Snapshot::default();
        assert!(empty.is_empty());
        assert_eq!((empty.count(), empty.sum(), empty.mean()), (0, 0, None));
        assert_eq!((empty.min(), empty.max(), empty.quantile(0.5)), (None, None, None));
    }

    #[test]
    fn ranks() {
        let ranks = |q| rank(q, 10);
        assert_eq!(
            [0.0, 0.05, 0.1, 0.11, 0.2, 0.95, 1.0].map(ranks),
            [Some(1), Some(1), Some(1), Some(2), Some(2), Some(10), Some(10)]
        );
        assert_eq!([-1.0, f64::NEG_INFINITY].map(ranks), [Some(1); 2]);
        assert_eq!([1.5, f64::INFINITY].map(ranks), [Some(10); 2]);
        assert_eq!((ranks(f64::NAN), rank(0.5, 0)), (None, None));
        // More than an `f64` can distinguish.
        assert_eq!(rank(1.0, u128::MAX - 1), Some(u128::MAX - 1));
        assert_eq!(rank(1.0, (1 << 53) + 1), Some((1 << 53) + 1));
    }

    #[test]
    fn counts_do_not_overflow() {
        let mut snapshot = of(&[(1, u64::MAX), (3, 5)]);
        assert_eq!(snapshot.count(), u64::MAX);
        assert_eq!((snapshot.quantile(0.5), snapshot.quantile(1.0)), (Some(1), Some(3)));
        snapshot.merge(&snapshot.clone());
        assert_eq!(snapshot, of(&[(1, u64::MAX), (3, 10)]));
        let mut full = Snapshot::<5>::new();
        full.counts_mut().fill(u64::MAX);
        assert_eq!((full.sum(), full.count()), (u128::MAX, u64::MAX));
        assert_eq!(full.mean().map(|mean| mean > 0.0), Some(true));
    }

    #[test]
    fn answers() {
        // 10 values of 2, one of 64 or 65.
        let snapshot = of(&[(2, 10), (64, 1)]);
        assert_eq!((snapshot.min(), snapshot.max()), (Some(2), Some(65)));
        assert_eq!((snapshot.count(), snapshot.sum()), (11, 84));
        assert_eq!(snapshot.mean(), Some(84.0 / 11.0));
        assert_eq!((snapshot.quantile(0.9), snapshot.quantile(0.91)), (Some(2), Some(64)));
        assert_eq!(snapshot.quantile_bucket(1.0), Some(Bucket { low: 64, high: 65, count: 1 }));
        assert!(!snapshot.is_empty());
    }
}
