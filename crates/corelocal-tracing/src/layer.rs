//! A layer that records the events and spans of the crate `tracing` by corelocal's tracer.
//!
//! # Data flow
//! ```text
//!   a call site of `tracing`  ─▶  a site of ours: made at its first event, and found by its address from then on
//!   a field                   ─▶  a value of a type that is known at run time
//!   a span                    ─▶  a span of a task: begin, enter, leave, end
//! ```
//! # Invariants
//! 1. A site that was made stays. There are as many as call sites.
//! 2. The spans that a thread has entered are on a list of its own, so they may be left in any order.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelocal::trace::format::{FieldType, Kind, Type};
use corelocal::trace::{
    Begun, Encoder, Level, Place, Site, SpanId, Wanted, current_span, record, record_encoded,
};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// A layer for [`tracing-subscriber`](tracing_subscriber) that records events and spans by
/// [`corelocal::trace`].
///
/// It records while a recording runs, which is started as always. An event has the name `TARGET:LINE`, a span
/// `TARGET::NAME`; both have their level. The target is the module unless the program names another one. Nothing is
/// allocated for an event. A text is cut where the record is full.
///
/// Values that are [recorded later](tracing_core::span::Record) are in an event `TARGET::NAME:record` in the span. A span
/// that follows from others has an event `tracing::follows_from` for each, with the other one's id.
///
/// ```
/// use corelocal::trace::{self, Options};
/// use corelocal_tracing::TraceLayer;
/// use tracing_subscriber::prelude::*;
///
/// trace::start(Options::flight_recorder())?;
/// tracing_subscriber::registry().with(TraceLayer::new()).init();
/// tracing::info_span!("request", path = "/").in_scope(|| tracing::info!(bytes = 512, "parsed"));
/// # Ok::<(), trace::StartError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceLayer {
    _private: (),
}

impl TraceLayer {
    /// Creates a layer.
    #[must_use]
    pub fn new() -> TraceLayer {
        TraceLayer::default()
    }
}

/// The extension of a span of the registry.
#[derive(Clone, Copy)]
struct OfSpan(Begun);

/// A span that this thread has entered, and the place that ends when it is left.
type EnteredSpan = (Id, Option<Place>);

thread_local! {
    /// The spans that this thread has entered, the inner one last.
    static ENTERED: RefCell<Vec<EnteredSpan>> = const { RefCell::new(Vec::new()) };
}

/// The site of events that tell which span follows from which.
static FOLLOWS_FROM: Site = Site::new(Kind::Event, "tracing::follows_from");

impl<S> Layer<S> for TraceLayer
where
    S: Subscriber + for<'l> LookupSpan<'l>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let Some((site, wanted)) = wanted(attributes.metadata()) else { return };
        let Some(span) = cx.span(id) else { return };
        let parent = match attributes.is_contextual() {
            true => None,
            // An explicit parent, or none.
            false => Some(span.parent().map_or(SpanId::NONE, |parent| {
                parent.extensions().get::<OfSpan>().map_or(SpanId::NONE, |of| of.0.id())
            })),
        };
        let mut encoder = Encoder::new();
        let begun = Begun::new(site, parent, &mut encoder);
        encode(attributes.metadata(), &mut encoder, |visitor| attributes.record(visitor));
        record_encoded(site, wanted, &mut encoder);
        span.extensions_mut().insert(OfSpan(begun));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: Context<'_, S>) {
        let Some(span) = cx.span(id) else { return };
        let Some(of) = span.extensions().get::<OfSpan>().copied() else { return };
        let Some((site, wanted)) = later(span.metadata()) else { return };
        let mut encoder = Encoder::new();
        encode(span.metadata(), &mut encoder, |visitor| values.record(visitor));
        let place = of.0.enter();
        record_encoded(site, wanted, &mut encoder);
        place.leave();
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, cx: Context<'_, S>) {
        let (Some(begun), Some(follows)) = (begun(id, &cx), begun(follows, &cx)) else { return };
        if let Some(wanted) = FOLLOWS_FROM.wanted() {
            let wanted = wanted.registered(&FOLLOWS_FROM, || [("span", Type::U64.into())]);
            let place = begun.enter();
            record(&FOLLOWS_FROM, wanted, (&follows.id().as_raw(), ()));
            place.leave();
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let Some((site, wanted)) = wanted(event.metadata()) else { return };
        let mut encoder = Encoder::new();
        encode(event.metadata(), &mut encoder, |visitor| event.record(visitor));
        // An explicit parent, or none.
        let parent = (!event.is_contextual()).then(|| {
            let begun = event.parent().and_then(|id| begun(id, &cx));
            begun.map_or(SpanId::NONE, |begun| begun.id())
        });
        let place = parent.filter(|parent| *parent != current_span());
        let place = place.map(|parent| Place::new(site, parent));
        record_encoded(site, wanted, &mut encoder);
        if let Some(place) = place {
            place.leave();
        }
    }

    fn on_enter(&self, id: &Id, cx: Context<'_, S>) {
        // A thread that ends has no list any more, and enters no span.
        let _ = ENTERED.try_with(|list| {
            let place = begun(id, &cx).map(|begun| begun.enter());
            list.borrow_mut().push((id.clone(), place));
        });
    }

    fn on_exit(&self, id: &Id, _cx: Context<'_, S>) {
        let left = ENTERED.try_with(|list| {
            let mut list = list.borrow_mut();
            let nth = list.iter().rposition(|(entered, _)| entered == id)?;
            list.remove(nth).1
        });
        if let Some(place) = left.ok().flatten() {
            place.leave();
        }
    }

    fn on_close(&self, id: Id, cx: Context<'_, S>) {
        if let Some(begun) = begun(&id, &cx) {
            begun.end(corelocal::trace::current_span());
        }
    }
}

fn begun<S>(id: &Id, cx: &Context<'_, S>) -> Option<Begun>
where
    S: Subscriber + for<'l> LookupSpan<'l>,
{
    cx.span(id)?.extensions().get::<OfSpan>().map(|of| of.0)
}

/// Encodes each field of the call site, in its order.
fn encode(metadata: &Metadata<'_>, encoder: &mut Encoder, visit: impl FnOnce(&mut dyn Visit)) {
    let mut visitor = Visitor { encoder, next: 0 };
    visit(&mut visitor);
    visitor.skip_to(metadata.fields().len());
}

struct Visitor<'e> {
    encoder: &'e mut Encoder,
    /// The field that comes next.
    next: usize,
}

impl Visitor<'_> {
    fn skip_to(&mut self, field: usize) {
        (self.next..field).for_each(|_| self.encoder.put_missing());
        self.next = self.next.max(field);
    }

    /// Puts the value of a field, unless a later one was put already.
    fn put(&mut self, field: &Field, put: impl FnOnce(&mut Encoder)) {
        if field.index() >= self.next {
            self.skip_to(field.index());
            put(self.encoder);
            self.next += 1;
        }
    }
}

impl Visit for Visitor<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, |encoder| encoder.put_any(&value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, |encoder| encoder.put_any(&value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, |encoder| encoder.put_any(&value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, |encoder| encoder.put_any(&value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, |encoder| encoder.put_any(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, |encoder| encoder.put_any_text(format_args!("{value:?}")));
    }
}

/// Returns the site of a call site, if it is on.
#[inline]
fn wanted(metadata: &'static Metadata<'static>) -> Option<(&'static Site, Wanted)> {
    registered(&sites(metadata)?.own, metadata)
}

/// Returns the site of values that are recorded later in a span.
fn later(metadata: &'static Metadata<'static>) -> Option<(&'static Site, Wanted)> {
    registered(&sites(metadata)?.later, metadata)
}

#[inline]
fn registered(
    site: &'static Site,
    metadata: &'static Metadata<'static>,
) -> Option<(&'static Site, Wanted)> {
    if site.is_new() {
        register(site, metadata);
    }
    site.wanted().map(|wanted| (site, wanted))
}

/// The sites of a call site.
struct Sites {
    own: Site,
    later: Site,
}

/// Call sites, in a table by their addresses.
const PLACES: usize = 1 << 13;
static KEYS: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
static SITES: [OnceLock<Box<Sites>>; PLACES] = [const { OnceLock::new() }; PLACES];

/// Finds the sites of a call site, or makes them. `None` if there are too many.
#[inline]
fn sites(metadata: &'static Metadata<'static>) -> Option<&'static Sites> {
    let key = std::ptr::from_ref(metadata) as usize;
    let first = (key >> 3).wrapping_mul(0x9e37_79b9) % PLACES;
    for nth in 0..PLACES {
        let at = (first + nth) % PLACES;
        // Relaxed: the table only grows, and what is in it is published by its lock.
        let there = KEYS[at].load(Ordering::Relaxed);
        let is_ours = there == key
            || there == 0
                && KEYS[at]
                    .compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed)
                    .map_or_else(|other| other == key, |_| true);
        if is_ours {
            return Some(SITES[at].get_or_init(|| Box::new(make(metadata))));
        }
    }
    None
}

fn make(metadata: &Metadata<'_>) -> Sites {
    let target = metadata.target();
    let (kind, name) = match metadata.is_span() {
        true => (Kind::TaskSpan, format!("{target}::{}", metadata.name())),
        false => (Kind::Event, format!("{target}:{}", metadata.line().unwrap_or(0))),
    };
    let later: &'static str = format!("{name}:record").leak();
    let level = level(*metadata.level());
    Sites {
        own: Site::new(kind, name.leak()).with_level(level),
        later: Site::new(Kind::Event, later).with_level(level),
    }
}

fn level(level: tracing_core::Level) -> Level {
    match level {
        tracing_core::Level::ERROR => Level::Error,
        tracing_core::Level::WARN => Level::Warn,
        tracing_core::Level::INFO => Level::Info,
        tracing_core::Level::DEBUG => Level::Debug,
        tracing_core::Level::TRACE => Level::Trace,
    }
}

/// Registers a site with the fields of its call site.
fn register(site: &'static Site, metadata: &Metadata<'_>) {
    let of = FieldType { of: Type::Any, is_array: false };
    let names = metadata.fields().iter().map(|field| (field.name(), of));
    site.register(&names.collect::<Vec<_>>());
}
