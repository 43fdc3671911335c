//! Chrome's JSON: opens in ui.perfetto.dev and chrome://tracing.
//!
//! An event is an instant on its thread, a span a slice there. The task spans of a tree share a track as long as they nest. Times are in
//! microseconds since the first event, with three decimals: since 1970 they would not fit into a number of JSON.
//! `otherData` has the time of the first event. Beside its fields an event has arguments whose names begin with `corelocal.`:
//! its cpu, its parent, the names of fields without room and of those that were cut.
//!
//! # Invariant
//! 1. Events are written as they come: the memory in use does not grow with their number.
//!
//! Source: "Trace Event Format", Google, 2016.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use crate::spans::{Spans, Step, Track};
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
        for step in spans.settle(&event) {
            out.step(step, &event)?;
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
                let (track, of_parent) = spans.begin(&event);
                if let Some(Track::Thread(_)) = of_parent {
                    // From the slice of the thread.
                    out.flow(&event)?;
                }
                let phase = if let Track::Task(..) = track { "b" } else { "B" };
                out.line(phase, event.site, track, event.thread, event.time, Some(args(&event)))?;
            }
            What::End => {
                for step in spans.end(&event) {
                    out.step(step, &event)?;
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
    args.insert("corelocal.cpu".to_owned(), event.cpu.into());
    if event.what == What::Begin && event.parent != 0 {
        args.insert("corelocal.parent".to_owned(), format!("{:#x}", event.parent).into());
    }
    let (absent, cut): (Vec<_>, Vec<_>) =
        (event.absent_fields().collect(), event.cut_fields().collect());
    for (name, fields) in [("corelocal.absent", absent), ("corelocal.cut", cut)] {
        if !fields.is_empty() {
            args.insert(name.to_owned(), fields.into());
        }
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

    fn step(&mut self, step: Step<'_>, event: &Event<'_>) -> io::Result<()> {
        match step {
            Step::End(track, open) => self.end(open.site, track, event.thread, event.time),
            Step::GoOn(track, open) => {
                self.line("b", open.site, track, event.thread, event.time, None)
            }
        }
    }

    /// Draws an arrow from the slice of the thread to the one of a task that begins: a step of a flow on both.
    fn flow(&mut self, event: &Event<'_>) -> io::Result<()> {
        let nanos = event.time.saturating_sub(self.first);
        for (phase, end) in [("s", ""), ("f", ",\"bp\":\"e\"")] {
            write!(
                self.to,
                "{}\n{{\"ph\":\"{phase}\",\"name\":\"starts\",\"cat\":\"task\",\"id\":\"{:#x}\",\"pid\":{},\"tid\":{},\"ts\":{}.{:03}{end}}}",
                self.comma,
                event.span,
                self.process,
                event.thread,
                nanos / 1000,
                nanos % 1000,
            )?;
            self.comma = ",";
        }
        Ok(())
    }

    fn end(&mut self, site: &Site, track: Track, thread: u32, time: u64) -> io::Result<()> {
        let phase = if let Track::Task(..) = track { "e" } else { "E" };
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
            Track::Task(tree, 0) => {
                write!(self.to, ",\"cat\":\"task\",\"id\":\"{tree:#x}\"")?;
            }
            Track::Task(tree, nth) => {
                write!(self.to, ",\"cat\":\"task\",\"id\":\"{tree:#x}.{nth}\"")?;
            }
            Track::Thread(_) if phase == "i" => write!(self.to, ",\"s\":\"t\"")?,
            Track::Thread(_) => {}
        }
        match args {
            Some(args) => write!(self.to, ",\"args\":{}}}", Json::from(args)),
            None => write!(self.to, "}}"),
        }
    }
}
