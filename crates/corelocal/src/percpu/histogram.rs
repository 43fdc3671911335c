//! The histogram: how often values occur, at nearly the cost of a counter.
//!
//! # Data flow
//! `record` → the value's bucket, by a bit scan and two shifts (`bucket.rs`) → critical section `add_at` on that
//! bucket's word in this core's slot. Buckets are sums (`machinery/sums.rs`), so fallbacks and takes are those of every
//! sum. Readers walk the buckets, or copy them into a [`Snapshot`] (`snapshot.rs`).
//!
//! # Invariants
//! 1. There is one sum for each bucket, and each value has one bucket.
//! 2. No count is negative. A reader may find a sum below 0 while a trim moves part of it (`machinery/sums.rs`). It reads such
//!    a sum as 0 and does not take it.

mod bucket;
mod snapshot;

pub use bucket::{Bits, Bucket, Precision};
pub use snapshot::Snapshot;

use core::fmt;

use self::bucket::private::Sealed;
use super::machinery::sums::{LINE, Sums};
use crate::cid::{Cid, SlotIndex};

/// The most that a bucket counts: so little that several threads may add as much at once.
const MOST: i64 = 1 << 61;
/// From this number on a bucket is read before it is added to.
const CHECKED: u64 = 1 << 16;

/// A histogram of `u64` values, such as latencies in nanoseconds or sizes in bytes. Threads on different cores record
/// without contention.
///
/// ```
/// use corelocal::percpu::Histogram;
///
/// static LATENCY_NS: Histogram = Histogram::new();
///
/// for ns in 1..=1000 {
///     LATENCY_NS.record(ns); // from any thread, from a signal handler
/// }
///
/// let seen = LATENCY_NS.snapshot();
/// assert_eq!(seen.count(), 1000);
/// let median = seen.quantile(0.5).unwrap();
/// assert!((492..=508).contains(&median)); // 500, within 1.6 %
/// for bucket in seen.buckets() {
///     println!("{} to {}: {}", bucket.low, bucket.high, bucket.count);
/// }
/// ```
///
/// # Precision
/// Buckets are log-linear, as in HDR histograms, and cover all of `u64`: there is no range to configure, and no value
/// is refused. `PRECISION` is a number of bits, 0 to 11. Values below 2^(`PRECISION`+1) have a bucket each; of a
/// larger value this many bits after the highest one are significant. It alone determines the error of a quantile:
///
/// | `PRECISION` | buckets | bytes of all | width of a bucket, at most | error of a quantile, at most |
/// |---|---|---|---|---|
/// | 0 | 65 | 520 | 100 % | 50 % |
/// | 3 | 496 | 4 KiB | 12.5 % | 6.3 % |
/// | 5 (default) | 1920 | 15 KiB | 3.1 % | 1.6 % |
/// | 7 | 7424 | 58 KiB | 0.78 % | 0.39 % |
/// | 10 | 56320 | 440 KiB | 0.098 % | 0.049 % |
/// | 11 | 110592 | 864 KiB | 0.049 % | 0.024 % |
///
/// ```compile_fail
/// # use corelocal::percpu::Histogram;
/// static TOO_PRECISE: Histogram<12> = Histogram::new(); // the part of a core is at most 1 MiB
/// ```
///
/// A bucket counts to 2^61 and stays there: [`record_n`](Histogram::record_n) does not wrap.
///
/// # Where it may be used
/// Like [`Counter`](super::Counter): in any thread, in signal handlers, before `main` and during thread exit, in the
/// child after `fork`; with the same exception of `vfork`. It does not block, panic, or allocate from a heap. Without
/// critical sections, recording is one atomic add on a line that few threads share.
///
/// # Memory
/// The bytes of all buckets in the histogram itself, and as many on each core that used it. Only touched pages are
/// resident: values that spread over ten octaves touch one or two pages of a core at the default precision. Those in
/// the histogram itself are touched only by a take, so a static costs address space. A precise histogram is large for
/// a stack: put it in a static, or in a box.
///
/// # Memory ordering
/// All operations are relaxed. A reader sees every value whose recording happens before the read, for instance those
/// of threads that it has joined.
pub struct Histogram<const PRECISION: u32 = 5, I: SlotIndex = Cid>
where
    Bits<PRECISION>: Precision,
{
    sums: Sums<<Bits<PRECISION> as Sealed>::Words, I>,
}

impl<const PRECISION: u32, I: SlotIndex> Histogram<PRECISION, I>
where
    Bits<PRECISION>: Precision,
{
    const_fn! {
        /// Creates an empty histogram.
        pub const fn new() -> Self {
            Histogram { sums: Sums::new() }
        }
    }

    /// Records a value.
    ///
    /// Constant time; wait-free, with a bounded number of retries. Async-signal-safe.
    #[inline]
    pub fn record(&self, value: u64) {
        self.record_n(value, 1);
    }

    /// Records a value `n` times at the cost of one. From 65,536 times on the bucket is read as well, and what would
    /// exceed 2^61 is not counted; smaller numbers take two days of calls to get there.
    #[inline]
    pub fn record_n(&self, value: u64, n: u64) {
        let at = bucket::index::<PRECISION>(value);
        match n {
            0..CHECKED => self.add_at(at, n as i64),
            _ => self.record_many(at, n),
        }
    }

    #[cold]
    fn record_many(&self, at: usize, n: u64) {
        let room = || MOST - self.sums.read::<LINE>(at / LINE * LINE)[at % LINE];
        let n = n.min(room().max(0) as u64) as i64;
        self.add_at(at, n);
        // Other threads have done the same at the same time.
        if room() < 0 {
            self.add_at(at, -n);
        }
    }

    /// Adds to the sum of a bucket.
    #[inline]
    fn add_at(&self, at: usize, n: i64) {
        // SAFETY: a bucket's index is below the number of buckets (invariant 1 of `bucket.rs`), which is the number
        // of sums.
        unsafe { self.sums.add_at(at, n) }
    }

    /// Returns a copy of what has been recorded: 15 KiB at the default precision.
    ///
    /// Every bucket includes the values whose recording happens before the call. Values recorded meanwhile may be
    /// included or not, each on its own.
    ///
    /// Linear in the buckets times the slots in use: some 10 microseconds where two cores have recorded.
    /// Async-signal-safe.
    pub fn snapshot(&self) -> Snapshot<PRECISION> {
        let mut snapshot = Snapshot::new();
        self.snapshot_into(&mut snapshot);
        snapshot
    }

    /// Does what [`snapshot`](Histogram::snapshot) does, in the caller's memory, whose former content is lost.
    pub fn snapshot_into(&self, snapshot: &mut Snapshot<PRECISION>) {
        copy(snapshot.counts_mut(), |first| self.sums.read(first));
    }

    /// Takes what has been recorded and leaves the histogram empty: a snapshot and a reset in one.
    ///
    /// A value recorded meanwhile is either part of the result or stays. Any number of threads may take at once: each
    /// value goes to exactly one of them. Otherwise like [`snapshot`](Histogram::snapshot); retried while other
    /// threads take.
    ///
    /// ```
    /// use corelocal::percpu::Histogram;
    ///
    /// let sizes: Histogram = Histogram::new();
    /// sizes.record(4096);
    /// assert_eq!(sizes.take().count(), 1);
    /// assert_eq!(sizes.take().count(), 0);
    /// ```
    pub fn take(&self) -> Snapshot<PRECISION> {
        let mut snapshot = Snapshot::new();
        self.take_into(&mut snapshot);
        snapshot
    }

    /// Does what [`take`](Histogram::take) does, into the caller's memory, whose former content is lost.
    pub fn take_into(&self, snapshot: &mut Snapshot<PRECISION>) {
        copy(snapshot.counts_mut(), |first| self.sums.take(first, i64::is_positive));
    }

    /// Discards what has been recorded. A value recorded meanwhile is either discarded or stays.
    pub fn reset(&self) {
        for first in (0..self.sums.len()).step_by(LINE) {
            let _: [i64; LINE] = self.sums.take(first, i64::is_positive);
        }
    }

    /// Returns the buckets that are not empty, from low to high, read in place, without the memory of a
    /// [`snapshot`](Histogram::snapshot). Each cache line of eight is read when the iterator reaches it.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let lines = (0..self.sums.len()).step_by(LINE);
        let counts = lines.flat_map(|first| self.sums.read::<LINE>(first)).enumerate();
        counts
            .filter(|&(_, count)| count > 0)
            .map(|(index, count)| Bucket::new::<PRECISION>(index, count as u64))
    }

    /// Returns the number of values recorded, at most `u64::MAX`. Costs as much as a [`snapshot`](Histogram::snapshot).
    pub fn count(&self) -> u64 {
        self.buckets().fold(0, |count, bucket| count.saturating_add(bucket.count))
    }
}

/// Fills `counts`, line by line.
fn copy(counts: &mut [u64], line: impl Fn(usize) -> [i64; LINE]) {
    for (number, counts) in counts.chunks_mut(LINE).enumerate() {
        for (count, value) in counts.iter_mut().zip(line(number * LINE)) {
            *count = value.max(0) as u64;
        }
    }
}

impl<const PRECISION: u32, I: SlotIndex> Default for Histogram<PRECISION, I>
where
    Bits<PRECISION>: Precision,
{
    fn default() -> Self {
        Self::new()
    }
}

/// The count and a few quantiles.
impl<const PRECISION: u32, I: SlotIndex> fmt::Debug for Histogram<PRECISION, I>
where
    Bits<PRECISION>: Precision,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        snapshot::summarize("Histogram", || self.buckets(), f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
