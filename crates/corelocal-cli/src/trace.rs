//! `corelocal trace`: recordings of the library's tracer.
//!
//! ```text
//!   live.rs      the recording of a running process
//!   linked.rs    its sites that were not reached yet
//!   record.rs    a program that is started for it, to disk
//!   view.rs      text or JSON lines
//!   text.rs      a line of text
//!   stats.rs     a table of events and spans
//!   export.rs    other formats
//!   report/      a page about it
//!   recover.rs   a whole file from a damaged one
//! ```
//!
//! Exit codes: that of the program, if one was run; else 0 done; 1 failed; 2 the command line is wrong; 3 the file could
//! not be read, or parts of it were left out.

pub mod args;
pub(crate) mod export;
mod linked;
mod live;
mod record;
mod recover;
mod report;
mod stats;
mod text;
mod view;

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use clap::ValueEnum as _;
use corelocal::trace::matches;
use corelocal_symbols::input;
use corelocal_trace::{Event, Events, Recording, What};

use args::{FilterArgs, Level, TraceArgs, TraceCommand};
use corelocal_support::output::{self, complain, remark};

const UNREADABLE: u8 = 3;
/// The number of problems that are shown one by one.
const TOLD: usize = 10;

/// Runs the command.
pub fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        TraceCommand::Record(args) => record::run(args),
        TraceCommand::Status(args) => live::status(args),
        TraceCommand::List(args) => live::list(args),
        TraceCommand::Dump(args) => live::dump(args),
        TraceCommand::Enable(args) => live::switch(&args.switch, args.every),
        TraceCommand::Disable(args) => live::switch(args, 0),
        TraceCommand::View(args) => view::run(args),
        TraceCommand::Export(args) => export::run(args),
        TraceCommand::Report(args) => report::run(args),
        TraceCommand::Recover(args) => recover::run(args),
    }
}

/// Reads a recording, or complains.
fn open(path: &Path) -> Option<Recording> {
    let opened = match path.is_file() {
        // Its buffers are read when they are needed.
        true => Recording::open(path).map_err(|error| error.to_string()),
        false => input::read(path, input::MOST)
            .map_err(|error| error.to_string())
            .and_then(|bytes| Recording::parse(bytes).map_err(|error| error.to_string())),
    };
    opened
        .inspect_err(|why| complain(format_args!("cannot read {}: {why}", output::path_line(path))))
        .ok()
}

/// A filter of events. It sees all events in order, since a span is known by its begin.
struct Filter<'a> {
    args: &'a FilterArgs,
    /// The pattern of names.
    name: Option<String>,
    span: Option<String>,
    /// The names of open spans, if spans are wanted.
    spans: HashMap<u64, String>,
}

impl Filter<'_> {
    fn new(args: &FilterArgs) -> Filter<'_> {
        // A name without `*` is the beginning of names.
        let pattern = |name: &String| match name.contains('*') {
            true => name.clone(),
            false => format!("{name}*"),
        };
        let (name, span) = (args.name.as_ref().map(pattern), args.span.as_ref().map(pattern));
        Filter { args, name, span, spans: HashMap::new() }
    }

    fn is_wanted(&mut self, event: &Event<'_>) -> bool {
        let is_in_span = self.is_in_span(event);
        let FilterArgs { thread, since, until, field, level, .. } = self.args;
        let is_named =
            self.name.as_ref().is_none_or(|name| matches(name.as_bytes(), event.name.as_bytes()));
        let is_by = thread.as_ref().is_none_or(|thread| {
            **thread == *event.thread_name || *thread == event.thread.to_string()
        });
        let time = jiff::Timestamp::from_nanosecond(event.time.into()).unwrap_or_default();
        let is_in_time =
            since.is_none_or(|since| since <= time) && until.is_none_or(|until| time <= until);
        let has = |wanted: &String| {
            let (name, value) = wanted.split_once('=').unwrap_or((wanted, ""));
            event.present_fields().any(|(field, found)| field == name && found.text() == value)
        };
        let is_severe =
            level.is_none_or(|least| level_of(event).is_some_and(|level| level <= least));
        is_named && is_by && is_in_time && is_in_span && is_severe && field.iter().all(has)
    }

    /// Returns `true` if the span that is wanted begins or ends, or the event is in it.
    fn is_in_span(&mut self, event: &Event<'_>) -> bool {
        let Some(wanted) = &self.span else { return true };
        if event.what == What::Begin {
            self.spans.insert(event.span, event.name.to_owned());
        }
        let id = event.span.to_string();
        let name = self.spans.get(&event.span);
        let is_it = self.args.span.as_deref() == Some(&*id)
            || name.is_some_and(|name| matches(wanted.as_bytes(), name.as_bytes()));
        if event.what == What::End {
            self.spans.remove(&event.span);
        }
        is_it
    }
}

/// Returns the level of an event, or a field of that name.
fn level_of(event: &Event<'_>) -> Option<Level> {
    let (_, level) = event.present_fields().find(|(name, _)| *name == "level")?;
    Level::from_str(&level.text(), true).ok()
}

/// Says on standard error what was lost, and what of the file was left out.
fn tell_problems(path: &Path, recording: &Recording, events: &Events<'_>) -> ExitCode {
    let name = output::path_line(path);
    for line in recording.remarks() {
        remark(format_args!("{line}\n"));
    }
    let problems: Vec<_> = recording.problems().iter().chain(events.problems()).collect();
    for problem in problems.iter().take(TOLD) {
        complain(format_args!("{name}, {problem}"));
    }
    if problems.len() > TOLD {
        complain(format_args!("{name}: and {} more", problems.len() - TOLD));
    }
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(UNREADABLE) }
}
