//! Messages of the crate `log`, by the bridge of `tracing-log`.

use corelocal::trace::{self, Options};
use corelocal_trace::{Recording, Value};
use corelocal_tracing::TraceLayer;
use tracing_subscriber::prelude::*;

#[test]
fn messages_of_log() {
    trace::start(Options::flight_recorder().max_bytes(1 << 20)).expect("a recording");
    tracing_log::LogTracer::init().expect("no other logger");
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(TraceLayer::new()))
        .expect("no other subscriber");
    let span = tracing::info_span!("request");
    span.in_scope(|| log::warn!("slow: {}", "/index.html"));
    log::error!(target: "disk", "full");
    let mut bytes = Vec::new();
    trace::dump_to(&mut bytes).expect("a dump");
    let recording = Recording::parse(bytes).expect("a recording");
    let of_log = recording.events().filter(|event| event.name == "log:0");
    let told: Vec<_> = of_log
        .map(|event| {
            let field = |name: &str| {
                let found = event.present_fields().find(|(field, _)| *field == name);
                found.map_or_else(String::new, |(_, value): (_, &Value)| value.text())
            };
            (["level", "message", "log.target"].map(field), event.span != 0)
        })
        .collect();
    let expected = |texts: [&str; 3], is_in_span| (texts.map(str::to_owned), is_in_span);
    assert_eq!(
        told,
        [
            expected(["WARN", "slow: /index.html", "log"], true),
            expected(["ERROR", "full", "disk"], false)
        ]
    );
}
