//! A recorder for the crate `metrics`, for rows that record through its macros: the registry of `metrics-util`, in
//! which the Prometheus exporter and others keep their values.
//!
//! Invariant: one recorder for the process, as the macros require. So totals continue from row to row, and a check
//! compares with the total before its row.

use std::sync::{Arc, OnceLock};

use anyhow::anyhow;
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    set_global_recorder,
};
use metrics_util::registry::{AtomicStorage, Registry};
use metrics_util::storage::AtomicBucket;

struct InRegistry(Registry<Key, AtomicStorage>);

impl Recorder for InRegistry {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.0.get_or_create_counter(key, |counter| Counter::from_arc(counter.clone()))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.0.get_or_create_gauge(key, |gauge| Gauge::from_arc(gauge.clone()))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.0.get_or_create_histogram(key, |bucket| Histogram::from_arc(bucket.clone()))
    }
}

/// Returns the registry that the macros record into, from now on at the latest.
fn registry() -> anyhow::Result<&'static Registry<Key, AtomicStorage>> {
    static RECORDER: OnceLock<Option<&InRegistry>> = OnceLock::new();
    let recorder = RECORDER.get_or_init(|| {
        let recorder: &InRegistry = Box::leak(Box::new(InRegistry(Registry::atomic())));
        set_global_recorder(recorder).is_ok().then_some(recorder)
    });
    let recorder = recorder.ok_or_else(|| anyhow!("this process has another metrics recorder"))?;
    Ok(&recorder.0)
}

/// Returns what the counter of this name holds.
///
/// # Errors
///
/// When the process has another recorder.
pub fn counted(name: &'static str) -> anyhow::Result<u64> {
    let key = Key::from_static_name(name);
    let value = |counter: &Arc<metrics::atomics::AtomicU64>| {
        // Relaxed: the threads that counted have been joined.
        counter.load(std::sync::atomic::Ordering::Relaxed)
    };
    Ok(registry()?.get_or_create_counter(&key, value))
}

/// Returns the histogram with this name, which keeps its values until they are taken.
///
/// # Errors
///
/// When the process has another recorder.
pub fn bucket(name: &'static str) -> anyhow::Result<Arc<AtomicBucket<f64>>> {
    Ok(registry()?.get_or_create_histogram(&Key::from_static_name(name), Arc::clone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_record_here() {
        const NAME: &str = "corelocal_recorder_test";
        let before = counted(NAME).unwrap();
        metrics::counter!(NAME).increment(3);
        assert_eq!(counted(NAME).unwrap(), before + 3);
        let values = bucket(NAME).unwrap();
        metrics::histogram!(NAME).record(2.5);
        assert_eq!(values.data(), [2.5]);
    }
}
