//! The recorder itself, and the handle that renders what it has recorded.
//!
//! # Data's way
//! `counter!` → the core's cache (`cache.rs`) → at a core's first use of a key, the registry
//! (`registry.rs`). `Handle::render` → a copy of the list of series → each series read and written as text
//! (`text.rs`), without a lock that a recording thread takes.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use metrics::{Key, KeyName, Metadata, SharedString, Unit};

use crate::builder::{Builder, Settings};
use crate::cache::{Cache, Own};
use crate::counter::Counter;
use crate::gauge::Gauge;
use crate::histogram::{Histogram, Parts, Reading, Shape};
use crate::registry::{Family, Group, Kind, Names};
use crate::text;

/// A recorder for the crate `metrics` whose counters, gauges and histograms are local to the core that uses
/// them.
///
/// Most programs only want [`install`](crate::install). As a value it serves tests and libraries:
///
/// ```
/// let recorder = corelocal_metrics::Recorder::builder().build()?;
/// metrics::with_local_recorder(&recorder, || metrics::counter!("hits").increment(2));
/// assert_eq!(recorder.handle().render(), "# TYPE hits counter\nhits 2\n");
/// # Ok::<(), corelocal_metrics::Error>(())
/// ```
///
/// Clones are the same recorder. Its handles, and the counters, gauges and histograms it gave, stay valid
/// after it is dropped.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
}

/// Reads what a [`Recorder`] has recorded. Clones read the same.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Settings,
    names: Names,
    counters: Group<Counter>,
    gauges: Group<Gauge>,
    histograms: Group<Histogram>,
    counter_handles: Cache<metrics::Counter>,
    gauge_handles: Cache<metrics::Gauge>,
    histogram_handles: Cache<metrics::Histogram>,
}

impl Recorder {
    /// For a recorder that is not as it comes.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn new(settings: Settings) -> Self {
        let shared = Shared {
            settings,
            names: Names::default(),
            counters: Group::new(),
            gauges: Group::new(),
            histograms: Group::new(),
            counter_handles: Cache::new(),
            gauge_handles: Cache::new(),
            histogram_handles: Cache::new(),
        };
        Recorder { shared: Arc::new(shared) }
    }

    /// Returns what reads this recorder.
    pub fn handle(&self) -> Handle {
        Handle { shared: self.shared.clone() }
    }
}

/// With the defaults of [`Builder`].
impl Default for Recorder {
    fn default() -> Self {
        Recorder::new(Settings::default())
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.shared.counters.describe(key.as_str(), unit, &description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.shared.gauges.describe(key.as_str(), unit, &description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.shared.histograms.describe(key.as_str(), unit, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        let Shared { counters, names, counter_handles, .. } = &*self.shared;
        counter_handles.get(key, || {
            let counter = counters.get(key, names, |_| Kind::Counter, |_| Counter::default());
            metrics::Counter::from_arc(Arc::new(Own(counter)))
        })
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        let Shared { gauges, names, gauge_handles, .. } = &*self.shared;
        gauge_handles.get(key, || {
            let gauge = gauges.get(key, names, |_| Kind::Gauge, |_| Gauge::default());
            metrics::Gauge::from_arc(Arc::new(Own(gauge)))
        })
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        let Shared { histograms, names, histogram_handles, settings, .. } = &*self.shared;
        histogram_handles.get(key, || {
            let kind = |name: &str| match settings.shape(name) {
                Shape::Buckets(_) => Kind::Histogram,
                Shape::Quantiles(..) => Kind::Summary,
            };
            let make = |name: &str| Histogram::new(settings.shape(name));
            metrics::Histogram::from_arc(Arc::new(Own(histograms.get(key, names, kind, make))))
        })
    }
}

impl Handle {
    /// The `Content-Type` of what [`render`](Handle::render) renders.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Returns all series as Prometheus text, version 0.0.4: counters, gauges and histograms, sorted by name and then
    /// by labels.
    ///
    /// A count includes every recording that happens before the call. Concurrent recordings may be included or not.
    /// Counters and counts never fall, except that a counter restarts at 0 after 2^64 - 1. Threads that record do not
    /// wait for it. Linear in the series times the cores in use.
    pub fn render(&self) -> String {
        let Shared { counters, gauges, histograms, .. } = &*self.shared;
        let (mut out, now) = (String::new(), Instant::now());
        write(&mut out, counters, |out, name, labels, counter| {
            text::sample(out, name, "", labels, None, &counter.get().to_string());
        });
        write(&mut out, gauges, |out, name, labels, gauge| {
            text::sample(out, name, "", labels, None, &text::number(gauge.get()));
        });
        write(&mut out, histograms, |out, name, labels, histogram| {
            write_histogram(out, name, labels, histogram.read(now));
        });
        out
    }
}

fn write<S>(out: &mut String, group: &Group<S>, series: impl Fn(&mut String, &str, &str, &S)) {
    for Family { name, kind, help, series: all } in group.families() {
        text::family(out, &name, kind.as_str(), help.as_deref());
        for (labels, one) in all {
            series(out, &name, &labels, &one);
        }
    }
}

fn write_histogram(out: &mut String, name: &str, labels: &str, reading: Reading) {
    let count = reading.count.to_string();
    match reading.parts {
        Parts::Buckets(buckets) => {
            for (bound, upto) in buckets {
                let label = Some(("le", bound));
                text::sample(out, name, "_bucket", labels, label, &upto.to_string());
            }
            text::sample(out, name, "_bucket", labels, Some(("le", f64::INFINITY)), &count);
        }
        Parts::Quantiles(quantiles) => {
            for (quantile, value) in quantiles {
                let label = Some(("quantile", quantile));
                text::sample(out, name, "", labels, label, &text::number(value));
            }
        }
    }
    text::sample(out, name, "_sum", labels, None, &text::number(reading.sum));
    text::sample(out, name, "_count", labels, None, &count);
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}
