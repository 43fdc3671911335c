//! Histogram of waiting times, with four buckets for each doubling.
//!
//! Invariants:
//! 1. Bucket 0 is for all times up to its end, the last one for all times from its start.
//! 2. Buckets are in ascending order, and each time belongs to exactly one.

use core::time::Duration;

/// Buckets for each doubling, as a power of two.
const PARTS_BITS: u32 = 2;
const PARTS: u64 = 1 << PARTS_BITS;
/// Times below 2^this nanoseconds are not distinguished: reading the clock takes as long.
const FIRST_BITS: u32 = 6;
const DOUBLINGS: u32 = 28;
pub(super) const BUCKETS: usize = (DOUBLINGS as usize) << PARTS_BITS;

/// Returns the bucket of a time in nanoseconds.
pub(super) fn bucket(nanos: u64) -> usize {
    if nanos >> FIRST_BITS == 0 {
        return 0;
    }
    let doubling = nanos.ilog2();
    let part = nanos >> (doubling - PARTS_BITS) & (PARTS - 1);
    let at = u64::from(doubling - FIRST_BITS) * PARTS + part;
    (at as usize).min(BUCKETS - 1)
}

/// Returns the first time that belongs to the next bucket.
fn end(bucket: usize) -> u64 {
    let (doubling, part) = (bucket as u32 >> PARTS_BITS, bucket as u64 & (PARTS - 1));
    (PARTS + part + 1) << (doubling + FIRST_BITS - PARTS_BITS)
}

fn start(bucket: usize) -> u64 {
    bucket.checked_sub(1).map_or(0, end)
}

/// A histogram of waiting times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitTimes {
    pub(super) counts: [u64; BUCKETS],
}

impl WaitTimes {
    pub(super) const NONE: WaitTimes = WaitTimes { counts: [0; BUCKETS] };

    /// The number of waits.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the time that this share (0 to 1) of the waits did not exceed, rounded up to the end of a bucket: at
    /// most a quarter too long, and never too short except for waits over 17 s. Zero if there were no waits.
    ///
    /// ```
    /// use core::time::Duration;
    /// use corelocal::sync::profile::WaitTimes;
    ///
    /// let times: WaitTimes = [100, 110, 5000].map(Duration::from_nanos).into_iter().collect();
    /// let median = times.quantile(0.5);
    /// assert!(median >= Duration::from_nanos(110) && median <= Duration::from_nanos(138));
    /// ```
    pub fn quantile(&self, share: f64) -> Duration {
        let count = self.count();
        // The number of waits within it: at least one, if there are any.
        let within = ((count as f64 * share) as u64).max(1);
        let within = within + u64::from((within as f64) < count as f64 * share);
        let mut sum = 0_u64;
        for (bucket, count) in self.counts.iter().enumerate() {
            sum = sum.saturating_add(*count);
            if sum >= within {
                return Duration::from_nanos(end(bucket));
            }
        }
        Duration::ZERO
    }

    /// Returns the non-empty buckets: start, end (exclusive), number of waits.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, Duration, u64)> + '_ {
        let some = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        some.map(|(bucket, count)| {
            (Duration::from_nanos(start(bucket)), Duration::from_nanos(end(bucket)), *count)
        })
    }

    /// Returns the end of the last non-empty bucket.
    pub(super) fn longest(&self) -> u64 {
        self.counts.iter().rposition(|count| *count > 0).map_or(0, end)
    }

    pub(super) fn since(&self, earlier: &WaitTimes) -> WaitTimes {
        let mut counts = self.counts;
        for (count, before) in counts.iter_mut().zip(&earlier.counts) {
            *count = count.saturating_sub(*before);
        }
        WaitTimes { counts }
    }
}

impl FromIterator<Duration> for WaitTimes {
    fn from_iter<I: IntoIterator<Item = Duration>>(waits: I) -> Self {
        let mut times = WaitTimes::NONE;
        for wait in waits {
            times.counts[bucket(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))] += 1;
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_has_its_bucket() {
        for at in 0..BUCKETS {
            assert!(start(at) < end(at));
            assert_eq!(bucket(end(at) - 1), at);
            assert_eq!(bucket(end(at)), (at + 1).min(BUCKETS - 1));
            // Invariant 2, and the width of buckets.
            assert!(at == 0 || (end(at) - start(at)) * 4 <= start(at).max(end(at) - start(at)) * 4);
            assert!(at == 0 || (end(at) - start(at)) as f64 <= start(at) as f64 * 0.2501);
        }
        assert_eq!((bucket(0), bucket(63), bucket(79), bucket(80)), (0, 0, 0, 1));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!(Duration::from_nanos(start(BUCKETS - 1)) > Duration::from_secs(14));
    }

    #[test]
    fn quantiles() {
        assert_eq!(WaitTimes::NONE.quantile(0.5), Duration::ZERO);
        let times: WaitTimes = (1..=1000).map(Duration::from_micros).collect();
        assert_eq!(times.count(), 1000);
        for share in [0.001, 0.25, 0.5, 0.9, 0.99, 1.0] {
            let (told, right) = (times.quantile(share).as_nanos() as f64, share * 1e6);
            assert!(told >= right && told <= right * 1.26, "{share}: {told}");
        }
        assert_eq!(times.quantile(0.0), times.quantile(0.001));
        assert!(times.longest() >= 1_000_000 && times.longest() <= 1_260_000);
        let buckets: std::vec::Vec<_> = times.buckets().collect();
        assert_eq!(buckets.iter().map(|(_, _, count)| count).sum::<u64>(), 1000);
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        assert_eq!(times.since(&times), WaitTimes::NONE);
    }
}
