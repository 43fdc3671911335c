//! Events and spans of `tracing` in a recording.

use std::fmt::Write as _;

use corelocal::trace::{self, Options};
use corelocal_trace::{Event, Recording, Value, What};
use corelocal_tracing::TraceLayer;
use tracing::field::Empty;
use tracing::{Level, debug, error, info, info_span, span};
use tracing_subscriber::prelude::*;

/// A process records once, so all is in one test.
#[test]
fn events_and_spans() {
    tracing_subscriber::registry().with(TraceLayer::new()).init();
    {
        for _ in 0..2 {
            debug!(early = true);
        }
        trace::start(Options::flight_recorder().max_bytes(1 << 20)).expect("a recording");
        trace::switch("layer:*", true).expect("a recording");
        let outer = info_span!("outer", path = "/x", later = Empty, count = 3_u8);
        let inner = outer.in_scope(|| {
            info!(bytes = 512_u64, ratio = 0.5, name = "ä", list = ?[1, 2], "parsed {}", "well");
            span!(Level::TRACE, "inner")
        });
        outer.record("later", -7_i64);
        std::thread::spawn(move || {
            // Its parent is the span in which it was made, on another thread.
            inner.in_scope(|| error!("in another thread"));
        })
        .join()
        .expect("no panic");
        let root = span!(parent: None, Level::INFO, "root");
        let child = span!(parent: &root, Level::INFO, "child");
        drop((root, child));
        let long = "x".repeat(1000);
        info!(long, after = 1);
        others();
    }
    let mut bytes = Vec::new();
    trace::dump_to(&mut bytes).expect("a dump");
    let recording = Recording::parse(bytes).expect("a recording");
    others_are_right(&recording);
    let events: Vec<Event<'_>> =
        recording.events().filter(|event| event.name.starts_with("layer")).collect();
    let of = |id: u64| {
        let begin = events.iter().find(|event| event.what == What::Begin && event.span == id);
        begin.map_or("-", |begin| &begin.name["layer::".len()..])
    };
    let mut shown = String::new();
    for event in &events {
        let name = event.name.trim_end_matches(|c: char| c.is_ascii_digit());
        write!(shown, "{:?} {name} in {} parent {}", event.what, of(event.span), of(event.parent))
            .expect("text");
        for (name, value) in event.present_fields() {
            let value = value.to_json().to_string();
            write!(shown, " {name}={}", if value.len() > 100 { "long" } else { &value })
                .expect("text");
        }
        shown.push('\n');
    }
    assert_eq!(
        shown,
        r#"Begin layer::outer in outer parent - level="INFO" path="/x" count=3
Event layer: in outer parent - level="INFO" message="parsed well" bytes=512 ratio=0.5 name="ä" list="[1, 2]"
Begin layer::inner in inner parent outer level="TRACE"
Event layer::outer:record in outer parent - level="INFO" later=-7
Event layer: in inner parent - level="ERROR" message="in another thread"
End layer::inner in inner parent -
Begin layer::root in root parent - level="INFO"
Begin layer::child in child parent root level="INFO"
End layer::child in child parent -
End layer::root in root parent -
Event layer: in - parent - level="INFO" long=long
End layer::outer in outer parent -
"#
    );
    let long = &events[10].fields;
    assert!(matches!(&long[1].1, Value::Str(_, true)), "{long:?}");
}

/// Events that name their spans: by explicit parents, by spans that are left in another order, by odd names. Each `want` is
/// the name of the span that the event is in.
fn others() {
    let explicit = info_span!(target: "others", "explicit");
    let other = info_span!(target: "others", "other");
    let entered = other.enter();
    info!(target: "others", parent: &explicit, want = "explicit");
    info!(target: "others", want = "other");
    info!(target: "others", parent: None, want = "");
    info!(target: "others", want = "other");
    drop(entered);
    let [a, b] = [info_span!(target: "others", "a"), info_span!(target: "others", "b")];
    let [first, second] = [a.clone().entered(), b.clone().entered()];
    info!(target: "others", want = "b");
    drop(first);
    info!(target: "others", want = "b");
    drop(second);
    info!(target: "others", want = "");
    {
        let _outer = a.enter();
        {
            let _inner = a.enter();
            info!(target: "others", want = "a");
        }
        info!(target: "others", want = "a");
    }
    info!(target: "others", want = "");
    b.follows_from(&a);
    info!(target: "audit::login", user = "joe");
    let odd = info_span!(target: "others", "a \"name\" with ünïcode\n and more");
    odd.in_scope(|| info!(target: "others", want = "a \"name\" with ünïcode  and more"));
}

fn others_are_right(recording: &Recording) {
    let events: Vec<Event<'_>> = recording.events().collect();
    let of = |id: u64| {
        let begin = events.iter().find(|event| event.what == What::Begin && event.span == id);
        begin.map_or("", |begin| begin.name.strip_prefix("others::").unwrap_or(begin.name))
    };
    let mut count = 0;
    for event in &events {
        for (_, value) in event.present_fields().filter(|(name, _)| *name == "want") {
            assert_eq!(*value, Value::Str(of(event.span).into(), false), "{event:?}");
            count += 1;
        }
    }
    assert_eq!(count, 11);
    assert_eq!(recording.problems(), []);
    let named = |name: &str| {
        let found = events.iter().find(|event| event.name.starts_with(name));
        found.unwrap_or_else(|| panic!("no {name}"))
    };
    let follows = named("tracing::follows_from");
    let (_, id) = follows.present_fields().next().expect("a field");
    let Value::Unsigned(id) = *id else { panic!("{follows:?}") };
    assert_eq!((of(follows.span), of(id)), ("b", "a"));
    assert_eq!(named("audit::login:").fields[1].0, "user");
}
