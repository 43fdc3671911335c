//! Chrome's JSON: opens in ui.perfetto.dev and chrome://tracing.
//!
//! Each event is an instant on its thread. Times are in microseconds since the first event, with three decimals: since 1970
//! they would not fit into a number of JSON. `otherData` has the time of the first event.
//!
//! # Invariant
//! 1. Events are written as they come: the memory in use does not grow with their number.
//!
//! Source: "Trace Event Format", Google, 2016.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use crate::{Events, Recording, Value};

/// Writes the events as Chrome's JSON. Returns their iterator, which knows the records that were left out.
///
/// Linear in the number of events.
///
/// # Errors
/// The writer fails.
pub fn write<'r>(recording: &'r Recording, to: &mut dyn Write) -> io::Result<Events<'r>> {
    let mut events = recording.events();
    let mut threads: BTreeMap<u32, String> = BTreeMap::new();
    let mut first = None;
    write!(to, "{{\"traceEvents\":[")?;
    let mut comma = "";
    for event in events.by_ref() {
        let first = *first.get_or_insert(event.time);
        if threads.get(&event.thread).is_none_or(|name| *name != event.thread_name) {
            let name = json!({
                "ph": "M", "name": "thread_name", "pid": recording.process(), "tid": event.thread,
                "args": { "name": event.thread_name },
            });
            write!(to, "{comma}\n{name}")?;
            comma = ",";
            threads.insert(event.thread, event.thread_name.clone());
        }
        let nanos = event.time.saturating_sub(first);
        let mut args: Map<String, Json> = Map::new();
        for (name, value) in &event.fields {
            args.insert((*name).to_owned(), json(value));
        }
        args.insert("cpu".to_owned(), event.cpu.into());
        // Three decimals are written by hand: a float has no room for them after some hours.
        write!(
            to,
            "{comma}\n{{\"ph\":\"i\",\"s\":\"t\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{}.{:03},\"args\":{}}}",
            Json::from(event.name),
            recording.process(),
            event.thread,
            nanos / 1000,
            nanos % 1000,
            Json::from(args),
        )?;
        comma = ",";
    }
    let other = json!({ "first_event_ns": first, "lost": recording.lost() });
    writeln!(to, "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{other}}}")?;
    Ok(events)
}

/// A field's value. A blob is written in hexadecimal digits.
fn json(value: &Value<'_>) -> Json {
    match value {
        Value::Unsigned(number) => (*number).into(),
        Value::Signed(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Bool(is) => (*is).into(),
        Value::Str(text) => text.as_ref().into(),
        Value::Bytes(bytes, _) => {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
        }
    }
}
