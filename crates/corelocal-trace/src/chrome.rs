//! Chrome's JSON: opens in ui.perfetto.dev and chrome://tracing.
//!
//! An event is an instant on its thread, a span a slice there; a span of a task is a slice of its own. Times are in
//! microseconds since the first event, with three decimals: since 1970 they would not fit into a number of JSON.
//! `otherData` has the time of the first event.
//!
//! # Invariant
//! 1. Events are written as they come: the memory in use does not grow with their number.
//!
//! Source: "Trace Event Format", Google, 2016.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use crate::spans::{Spans, Track};
use crate::{Event, Recording, Site, What};

/// Writes the events as Chrome's JSON.
///
/// Linear in the number of events.
///
/// # Errors
/// The writer fails.
pub fn write<'r>(
    recording: &'r Recording,
    events: &mut dyn Iterator<Item = Event<'r>>,
    to: &mut dyn Write,
) -> io::Result<()> {
    let mut threads: BTreeMap<u32, Arc<str>> = BTreeMap::new();
    let mut spans = Spans::new(recording);
    let (mut first, mut last) = (None, 0);
    write!(to, "{{\"traceEvents\":[")?;
    let mut out = Out { to, process: recording.process(), first: 0, comma: "" };
    for event in events {
        out.first = *first.get_or_insert(event.time);
        last = event.time;
        if threads.get(&event.thread).is_none_or(|name| *name != event.thread_name) {
            out.name_thread(event.thread, &event.thread_name)?;
            threads.insert(event.thread, Arc::clone(&event.thread_name));
        }
        for open in spans.settle(&event) {
            out.end(open.site, Track::Thread(event.thread), event.thread, event.time)?;
        }
        match event.what {
            What::Event => {
                out.line(
                    "i",
                    event.site,
                    Track::Thread(event.thread),
                    event.thread,
                    event.time,
                    Some(args(&event)),
                )?;
            }
            What::Begin => {
                let track = spans.begin(&event);
                let phase = if let Track::Task(_) = track { "b" } else { "B" };
                out.line(phase, event.site, track, event.thread, event.time, Some(args(&event)))?;
            }
            What::End => {
                let (track, ended) = spans.end(&event);
                for open in ended {
                    out.end(open.site, track, event.thread, event.time)?;
                }
            }
        }
    }
    for (track, open) in spans.open().into_iter().rev() {
        out.end(open.site, track, open.thread, last)?;
    }
    let other = json!({ "first_event_ns": first, "lost": recording.lost() });
    writeln!(to, "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{other}}}")
}

fn args(event: &Event<'_>) -> Map<String, Json> {
    let mut args: Map<String, Json> = Map::new();
    for (name, value) in event.present_fields() {
        args.insert(name.to_owned(), value.to_json());
    }
    args.insert("cpu".to_owned(), event.cpu.into());
    if event.what == What::Begin && event.parent != 0 {
        args.insert("parent".to_owned(), format!("{:#x}", event.parent).into());
    }
    args
}

struct Out<'w> {
    to: &'w mut dyn Write,
    process: u64,
    first: u64,
    comma: &'static str,
}

impl Out<'_> {
    fn name_thread(&mut self, thread: u32, name: &str) -> io::Result<()> {
        let name = json!({
            "ph": "M", "name": "thread_name", "pid": self.process, "tid": thread, "args": { "name": name },
        });
        write!(self.to, "{}\n{name}", self.comma)?;
        self.comma = ",";
        Ok(())
    }

    fn end(&mut self, site: &Site, track: Track, thread: u32, time: u64) -> io::Result<()> {
        let phase = if let Track::Task(_) = track { "e" } else { "E" };
        self.line(phase, site, track, thread, time, None)
    }

    fn line(
        &mut self,
        phase: &str,
        site: &Site,
        track: Track,
        thread: u32,
        time: u64,
        args: Option<Map<String, Json>>,
    ) -> io::Result<()> {
        let nanos = time.saturating_sub(self.first);
        let name = Json::from(site.name.as_str());
        // Three decimals are written by hand: a float has no room for them after some hours.
        write!(
            self.to,
            "{}\n{{\"ph\":\"{phase}\",\"name\":{name},\"pid\":{},\"tid\":{thread},\"ts\":{}.{:03}",
            self.comma,
            self.process,
            nanos / 1000,
            nanos % 1000,
        )?;
        self.comma = ",";
        match track {
            Track::Task(id) => write!(self.to, ",\"cat\":\"task\",\"id\":\"{id:#x}\"")?,
            Track::Thread(_) if phase == "i" => write!(self.to, ",\"s\":\"t\"")?,
            Track::Thread(_) => {}
        }
        match args {
            Some(args) => write!(self.to, ",\"args\":{}}}", Json::from(args)),
            None => write!(self.to, "}}"),
        }
    }
}
