//! `corelocal trace`: recordings of the library's tracer.
//!
//! ```text
//!   live.rs      the recording of a running process
//!   linked.rs    its sites that were not reached yet
//!   record.rs    a program that is started for it, to disk
//!   view.rs      text or JSON lines
//!   text.rs      a line of text
//!   export.rs    other formats
//!   report/      a page about it
//!   recover.rs   a whole file from a damaged one
//! ```
//!
//! Exit codes: that of the program, if one was run; else 0 done; 1 failed; 2 the command line is wrong; 3 the file could
//! not be read, or parts of it were left out.

mod export;
mod linked;
mod live;
mod record;
mod recover;
mod report;
mod text;
mod view;

use std::path::Path;
use std::process::ExitCode;

use corelocal::trace::matches;
use corelocal_lab::input;
use corelocal_trace::{Event, Events, Recording};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{FilterArgs, TraceArgs, TraceCommand};
use crate::output::{self, complain, remark};

const UNREADABLE: u8 = 3;
/// Problems that are told one by one.
const TOLD: usize = 10;

/// The command.
pub fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        TraceCommand::Record(args) => record::run(args),
        TraceCommand::Status(args) => live::status(args),
        TraceCommand::List(args) => live::list(args),
        TraceCommand::Dump(args) => live::dump(args),
        TraceCommand::Enable(args) => live::switch(args, true),
        TraceCommand::Disable(args) => live::switch(args, false),
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

/// Progress of unknown length.
fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("  {spinner} {wide_msg}");
    ProgressBar::new_spinner()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

/// Which events are wanted.
struct Filter<'a> {
    args: &'a FilterArgs,
    /// As a pattern.
    name: Option<String>,
}

impl Filter<'_> {
    fn new(args: &FilterArgs) -> Filter<'_> {
        // A name without `*` is the beginning of names.
        let name = args.name.as_ref().map(|name| match name.contains('*') {
            true => name.clone(),
            false => format!("{name}*"),
        });
        Filter { args, name }
    }

    fn is_wanted(&self, event: &Event<'_>) -> bool {
        let FilterArgs { thread, since, until, .. } = self.args;
        let is_named =
            self.name.as_ref().is_none_or(|name| matches(name.as_bytes(), event.name.as_bytes()));
        let is_by = thread.as_ref().is_none_or(|thread| {
            **thread == *event.thread_name || *thread == event.thread.to_string()
        });
        let time = jiff::Timestamp::from_nanosecond(event.time.into()).unwrap_or_default();
        let is_in_time =
            since.is_none_or(|since| since <= time) && until.is_none_or(|until| time <= until);
        is_named && is_by && is_in_time
    }
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
