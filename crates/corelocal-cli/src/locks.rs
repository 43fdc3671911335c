//! `corelocal locks`: lock contention, with waiters and owners, in a running process or in a program that is started
//! for it.
//!
//! ```text
//!   launch.rs       a program, and the profiles of all processes that it starts
//!   attach.rs       a process: where its profile is, and what to do if there is none
//!   summary.rs      converts a profile to numbers, names and places
//!   call_stacks.rs  converts stacks to names of functions
//!   text.rs         the table
//!   order/          the same for a record of the order of locks: cycles in it, and deadlocks
//! ```
//!
//! Exit codes: that of the program, if one was run; otherwise 0 done, 3 the process cannot be read.
//!
//! Invariants:
//! - Recording that was switched on is switched off again, also after Ctrl-C.
//! - Progress is drawn on standard error, and only when that is a terminal.

pub mod args;
mod attach;
mod call_stacks;
pub(crate) mod launch;
mod order;
mod summary;
pub(crate) mod text;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use corelocal::sync::profile::Profile;
use serde::Serialize;

use args::LocksArgs;
use corelocal_support::console;
use corelocal_support::output::complain;
use corelocal_support::place::{self, Place};
use corelocal_support::process::signals;
use summary::Process;

const UNABLE: u8 = 3;

/// The output of `--json`.
#[derive(Serialize)]
struct Answer {
    version: &'static str,
    /// The time that was recorded, in seconds.
    seconds: f64,
    processes: Vec<Process>,
}

/// Runs the command.
pub fn run(args: &LocksArgs) -> anyhow::Result<ExitCode> {
    if args.order {
        return order::run(args);
    }
    signals::note();
    let looked = match process_number(&args.target) {
        Some(process) => attach::look(process, args.time).map(|looked| (looked, ExitCode::SUCCESS)),
        None => launched(args),
    };
    signals::note_no_more();
    let ((mut processes, seconds), code) = match looked {
        Ok(looked) => looked,
        Err(why) => {
            complain(format_args!("{why:#}"));
            return Ok(ExitCode::from(UNABLE));
        }
    };
    if !args.json {
        processes.iter_mut().for_each(|process| process.keep(args.top));
    }
    let answer = Answer { version: env!("CARGO_PKG_VERSION"), seconds, processes };
    let is_of_program = process_number(&args.target).is_none();
    let place = Place::of(args.output.as_deref(), is_of_program, args.json);
    if args.json {
        return place::report(place, serde_json::to_string_pretty(&answer)? + "\n", code);
    }
    place::report(place, text::all(&answer.processes, answer.seconds, console::width()), code)
}

/// Returns `true` if the program's output goes to standard error, as JSON goes to standard output.
fn is_moved(args: &LocksArgs) -> bool {
    args.json && args.output.is_none()
}

/// Returns a program that is run for it.
fn launched(args: &LocksArgs) -> anyhow::Result<((Vec<Process>, f64), ExitCode)> {
    let read = |path: &Path, maps| {
        let profile = <Profile as crate::kept::Kept>::open(path).ok()?;
        Some(Process::of(&profile, None, &[], None, maps)).filter(|process| !process.is_empty())
    };
    let looked = launch::look(&args.target, args.time, is_moved(args), ("CORELOCAL_LOCKS", read))?;
    let ((mut processes, seconds), code) = looked;
    processes.sort_by_key(|process| process.process);
    Ok(((processes, seconds), code))
}

/// Returns the process that is meant, if no program is: a number, and nothing else.
fn process_number(target: &[impl AsRef<OsStr>]) -> Option<u32> {
    match target {
        [one] => one.as_ref().to_str()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant() {
        assert_eq!(process_number(&["123"]), Some(123));
        for program in [&["true"][..], &["./123"], &["123", "4"], &["-1"], &["99999999999"]] {
            assert_eq!(process_number(program), None, "{program:?}");
        }
    }
}
