//! Spans for an OpenTelemetry collector, by OTLP over HTTP.
//!
//! A span that belongs to no trace is the root of one of its own. Events are events of the span that they are in; others are
//! left out.
//!
//! # Invariant
//! 1. The memory in use is that of the open spans with their events, of which each has at most 128, and of one batch.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{
    Event as SpanEvent, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value as Attribute};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};

use crate::{Event, Identity, Recording, Value, What, hex};

/// Spans that are sent at once.
const BATCH: usize = 512;
/// Events that a span has at most: OpenTelemetry's limit.
const MOST_EVENTS: usize = 128;

/// Sends the spans to a collector: `http://localhost:4318/v1/traces`. Returns how many. A span that has not ended ends at the
/// last event, and has an attribute `corelocal.open`.
///
/// # Errors
/// The address is wrong, or the collector refuses or does not answer.
pub fn send<'r>(
    recording: &'r Recording,
    events: &mut dyn Iterator<Item = Event<'r>>,
    to: &str,
    service: &str,
) -> io::Result<usize> {
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(to)
        .with_timeout(Duration::from_secs(10))
        .build()
        .map_err(io::Error::other)?;
    let resource = Resource::builder_empty()
        .with_service_name(service.to_owned())
        .with_attributes([
            KeyValue::new("host.name", recording.host()),
            KeyValue::new("process.pid", recording.process() as i64),
        ])
        .build();
    exporter.set_resource(&resource);
    let mut spans = Spans { open: HashMap::new() };
    let mut batch = Vec::new();
    let mut sent = 0;
    let mut last = 0;
    for event in events {
        last = event.time;
        batch.extend(spans.take(event));
        if batch.len() == BATCH {
            sent += batch.len();
            block_on(exporter.export(std::mem::take(&mut batch))).map_err(io::Error::other)?;
        }
    }
    batch.extend(spans.end_all(last));
    while !batch.is_empty() {
        let rest = batch.split_off(batch.len().min(BATCH));
        sent += batch.len();
        block_on(exporter.export(batch)).map_err(io::Error::other)?;
        batch = rest;
    }
    Ok(sent)
}

/// Spans that are open.
struct Spans<'r> {
    open: HashMap<u64, (Identity, Event<'r>, SpanEvents)>,
}

impl<'r> Spans<'r> {
    /// Takes the next event. Returns the span that ends with it.
    fn take(&mut self, event: Event<'r>) -> Option<SpanData> {
        let mut identity = event.identity;
        match event.what {
            What::Event => {
                let (_, _, events) = self.open.get_mut(&event.span)?;
                if events.events.len() < MOST_EVENTS {
                    let name = event.name.to_owned();
                    events.events.push(SpanEvent::new(
                        name,
                        time(event.time),
                        attributes(&event),
                        0,
                    ));
                } else {
                    events.dropped_count += 1;
                }
                None
            }
            What::Begin => {
                if identity.trace == 0 {
                    // The trace of the span that it is in, or one of its own.
                    let outer = self.open.get(&event.parent).map(|(outer, ..)| outer.trace);
                    identity.trace =
                        outer.unwrap_or(u128::from(identity.span) << 64 | u128::from(event.time));
                }
                self.open.insert(event.span, (identity, event, SpanEvents::default()));
                None
            }
            What::End => {
                let (identity, begin, events) = self.open.remove(&event.span)?;
                Some(span(&identity, &begin, events, event.time))
            }
        }
    }
}

impl Spans<'_> {
    /// Returns the spans that have not ended, as if they did at this time.
    fn end_all(&mut self, time: u64) -> Vec<SpanData> {
        let open = self.open.drain().map(|(_, (identity, begin, events))| {
            let mut span = span(&identity, &begin, events, time);
            span.attributes.push(KeyValue::new("corelocal.open", true));
            span
        });
        let mut open: Vec<SpanData> = open.collect();
        open.sort_by_key(|span| span.start_time);
        open
    }
}

fn span(identity: &Identity, begin: &Event<'_>, events: SpanEvents, end: u64) -> SpanData {
    let trace = TraceId::from(identity.trace);
    let context = SpanContext::new(
        trace,
        SpanId::from(identity.span),
        TraceFlags::SAMPLED,
        false,
        TraceState::NONE,
    );
    SpanData {
        span_context: context,
        parent_span_id: SpanId::from(identity.parent),
        parent_span_is_remote: begin.parent == 0 && identity.parent != 0,
        span_kind: SpanKind::Internal,
        name: Cow::Owned(begin.name.to_owned()),
        start_time: time(begin.time),
        end_time: time(end),
        attributes: attributes(begin),
        dropped_attributes_count: begin.absent_fields().count() as u32,
        events,
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder("corelocal").build(),
    }
}

fn time(nanos: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanos)
}

fn attributes(event: &Event<'_>) -> Vec<KeyValue> {
    let thread = [
        KeyValue::new("thread.id", i64::from(event.thread)),
        KeyValue::new("thread.name", event.thread_name.to_string()),
        KeyValue::new("corelocal.cpu", i64::from(event.cpu)),
    ];
    let fields = event
        .present_fields()
        .map(|(name, value)| KeyValue::new(name.to_owned(), attribute(value)));
    let cut: Vec<StringValue> = event.cut_fields().map(|name| name.to_owned().into()).collect();
    let cut = (!cut.is_empty())
        .then(|| KeyValue::new("corelocal.cut", Attribute::Array(Array::String(cut))));
    fields.chain(thread).chain(cut).collect()
}

fn attribute(value: &Value) -> Attribute {
    match value {
        // OTLP has signed numbers only.
        Value::Unsigned(number) | Value::Duration(number) => match i64::try_from(*number) {
            Ok(number) => Attribute::I64(number),
            Err(_) => Attribute::String(number.to_string().into()),
        },
        Value::Signed(number) => Attribute::I64(*number),
        Value::Float(number) => Attribute::F64(*number),
        Value::Bool(is) => Attribute::Bool(*is),
        Value::Str(..) => Attribute::String(value.text().into()),
        Value::Bytes(bytes, _) => Attribute::String(hex(bytes).into()),
        Value::Array(values, _) => Attribute::Array(array(values)),
        Value::Missing => Attribute::String("".into()),
    }
}

/// Numbers; texts if one does not fit into a signed number.
fn array(values: &[Value]) -> Array {
    let floats = values.iter().map(|value| match value {
        Value::Float(number) => Some(*number),
        _ => None,
    });
    let numbers = values.iter().map(|value| match value {
        Value::Signed(number) => Some(*number),
        Value::Unsigned(number) => i64::try_from(*number).ok(),
        _ => None,
    });
    // An array without elements has numbers, of which there is none.
    if let Some(numbers) = numbers.collect() {
        return Array::I64(numbers);
    }
    if let Some(floats) = floats.collect() {
        return Array::F64(floats);
    }
    let texts = values.iter().map(|value| StringValue::from(value.to_json().to_string()));
    Array::String(texts.collect())
}

/// Waits for a future. The exporter's client blocks, so it is ready at once, or nearly so.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
