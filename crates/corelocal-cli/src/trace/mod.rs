//! `corelocal trace`: recordings of the library's tracer.
//!
//! Exit codes: 0 shown; 1 standard output failed; 2 the command line is wrong; 3 the file could not be read, or parts of it
//! were left out.

mod view;

use std::process::ExitCode;

use crate::cli::{TraceArgs, TraceCommand};

/// The command.
pub fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        TraceCommand::View(args) => view::run(args),
    }
}
