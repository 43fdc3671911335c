//! JSON lines: an object for each event, and for the begin and the end of each span.
//!
//! `absent` has the names of fields for which the record had no room, and `cut` those of strings, blobs and arrays of which only
//! the beginning was recorded; both are there if there are such fields.
//!
//! ```json
//! {"time":1764151768201446891,"what":"event","name":"server::request","thread":16718,"thread_name":"worker","cpu":0,"span":0,"parent":0,"fields":{"number":999}}
//! ```

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use crate::Event;

/// Returns an event as a line, without its end.
pub fn line(event: &Event<'_>) -> String {
    let fields = event.present_fields().map(|(name, value)| (name.to_owned(), value.to_json()));
    let fields: Map<String, Json> = fields.collect();
    let Event { time, what, thread, cpu, thread_name, name, span, parent, .. } = event;
    let mut line = json!({
        "time": time, "what": what, "name": name, "thread": thread, "thread_name": &**thread_name, "cpu": cpu, "span": span,
        "parent": parent, "fields": fields,
    });
    let (absent, cut): (Vec<_>, Vec<_>) =
        (event.absent_fields().collect(), event.cut_fields().collect());
    for (name, fields) in [("absent", absent), ("cut", cut)] {
        if !fields.is_empty() {
            line[name] = fields.into();
        }
    }
    line.to_string()
}

/// Writes the events.
///
/// # Errors
/// The writer fails.
pub fn write<'r>(
    events: &mut dyn Iterator<Item = Event<'r>>,
    to: &mut dyn Write,
) -> io::Result<()> {
    for event in events {
        writeln!(to, "{}", line(&event))?;
    }
    Ok(())
}
