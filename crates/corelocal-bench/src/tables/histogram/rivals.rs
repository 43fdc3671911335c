//! Histograms that others offer, as contestants.
//!
//! Invariant: the total counts values that can be read back, not calls that returned.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use hdrhistogram::sync::Recorder;
use hdrhistogram::{Histogram, SyncHistogram};
use metrics_util::storage::{AtomicBucket, Summary};

use super::value;
use crate::tables::checked::{Made, SHARDS, Subject, agree};
use crate::tables::recorder;

/// Buckets are so much wider than the one below.
const WIDTH: f64 = 0.01;

/// Calls `record(data, value)` in a loop; `total(data)` counts what is there.
pub fn recording<D: Send + Sync + 'static>(
    data: D,
    record: impl Fn(&D, u64) + Send + Sync + 'static,
    total: impl Fn(&D) -> u64 + Send + Sync + 'static,
) -> Made {
    struct Recording<D, R, T>(D, R, T);
    impl<D, R, T> Subject for Recording<D, R, T>
    where
        D: Send + Sync,
        R: Fn(&D, u64) + Send + Sync,
        T: Fn(&D) -> u64 + Send + Sync,
    {
        fn work(&self, _: usize, operations: u64) {
            for nth in 0..operations {
                (self.1)(&self.0, value(nth));
            }
        }

        fn check(&self, asked: u64) -> anyhow::Result<()> {
            agree(asked, (self.2)(&self.0))
        }
    }
    Ok(Arc::new(Recording(data, record, total)))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns two significant digits, which is a width of 1 %, and room for all values, so that none makes it
/// grow.
fn hdr() -> anyhow::Result<Histogram<u64>> {
    Histogram::new_with_max(1 << 25, 2).context("hdrhistogram refuses its settings")
}

pub fn hdr_in_mutex() -> Made {
    // A value that is refused falls short in the total.
    let record = |hdr: &Mutex<Histogram<u64>>, value| {
        let _ = locked(hdr).record(value);
    };
    recording(Mutex::new(hdr()?), record, |hdr| locked(hdr).len())
}

/// Returns its shared kind: threads record into their own histograms, which are merged when they are read.
pub fn hdr_recorders() -> Made {
    struct Recorders {
        shared: Mutex<SyncHistogram<u64>>,
        /// Taken once in a batch by the one thread it belongs to.
        of_thread: Vec<Mutex<Option<Recorder<u64>>>>,
    }
    impl Subject for Recorders {
        fn work(&self, thread: usize, operations: u64) {
            let mut mine = locked(&self.of_thread[thread % SHARDS]);
            let recorder = mine.get_or_insert_with(|| locked(&self.shared).recorder());
            for nth in 0..operations {
                // As above.
                let _ = recorder.record(value(nth));
            }
        }

        fn check(&self, asked: u64) -> anyhow::Result<()> {
            // A reader waits for every recorder there is, and these are at rest.
            self.of_thread.iter().for_each(|recorder| *locked(recorder) = None);
            let mut shared = locked(&self.shared);
            shared.refresh();
            agree(asked, shared.len())
        }
    }
    let shared = Mutex::new(hdr()?.into_sync());
    let of_thread = (0..SHARDS).map(|_| Mutex::new(None)).collect();
    Ok(Arc::new(Recorders { shared, of_thread }))
}

pub fn summary_in_mutex() -> Made {
    let summary = Mutex::new(Summary::new(WIDTH, 4096, 1e-9));
    let record = |summary: &Mutex<Summary>, value| locked(summary).add(value as f64);
    recording(summary, record, |summary| locked(summary).count() as u64)
}

pub fn bucket() -> Made {
    let taken = AtomicU64::new(0);
    let total = move |bucket: &AtomicBucket<f64>| take(bucket, &taken);
    recording(AtomicBucket::new(), |bucket, value| bucket.push(value as f64), total)
}

pub fn by_macro() -> Made {
    const METRIC: &str = "corelocal_bench_values";
    let bucket = recorder::bucket(METRIC)?;
    bucket.clear();
    let taken = AtomicU64::new(0);
    let record = |_: &Arc<_>, value| metrics::histogram!(METRIC).record(value as f64);
    recording(bucket, record, move |bucket| take(bucket, &taken))
}

/// Takes all values and tells how many that made since the beginning.
fn take(bucket: &AtomicBucket<f64>, taken: &AtomicU64) -> u64 {
    bucket.clear_with(|values| {
        // Relaxed: one thread takes, and reads it below.
        taken.fetch_add(values.len() as u64, Ordering::Relaxed);
    });
    taken.load(Ordering::Relaxed)
}
