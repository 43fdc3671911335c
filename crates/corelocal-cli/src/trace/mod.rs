//! `corelocal trace`: recordings of the library's tracer.
//!
//! Exit codes: 0 shown; 1 standard output failed; 2 the command line is wrong; 3 the file could not be read, or parts of it
//! were left out.

mod export;
mod view;

use std::path::Path;
use std::process::ExitCode;

use corelocal_lab::input;
use corelocal_trace::{Events, Recording};

use crate::cli::{TraceArgs, TraceCommand};
use crate::output::{self, complain, remark};

const UNREADABLE: u8 = 3;
/// Problems that are told one by one.
const TOLD: usize = 10;

/// The command.
pub fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        TraceCommand::View(args) => view::run(args),
        TraceCommand::Export(args) => export::run(args),
    }
}

/// Reads a recording, or complains.
fn open(path: &Path) -> Option<Recording> {
    let read = input::read(path, input::MOST).map_err(|error| error.to_string());
    let parsed = read.and_then(|bytes| Recording::parse(bytes).map_err(|error| error.to_string()));
    parsed
        .inspect_err(|why| complain(format_args!("cannot read {}: {why}", output::path_line(path))))
        .ok()
}

/// Says on standard error what was lost, and what of the file was left out.
fn tell_problems(path: &Path, recording: &Recording, events: &Events<'_>) -> ExitCode {
    let name = output::path_line(path);
    if recording.lost() > 0 {
        remark(format_args!(
            "{} events were lost: all buffers were in use; start with more bytes\n",
            recording.lost()
        ));
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
