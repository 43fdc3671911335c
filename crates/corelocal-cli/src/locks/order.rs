//! `corelocal locks --order`: deadlocks, and orders of locks that may end in one.
//!
//! ```text
//!   analysis.rs     a record of the library becomes names, places and cycles
//!   cycles.rs   the shortest cycles of a graph
//!   text.rs     the table
//! ```
//!
//! Exit codes: as of `corelocal locks`; with `--strict` 1 for what was found, unless the program's own is another.
//!
//! Invariant: a deadlock is shown only if it is the same in two looks, or its process has ended.

mod analysis;
mod cycles;
mod text;

use std::cell::OnceCell;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use corelocal::sync::profile::order::LockOrder;
use corelocal_support::console;
use corelocal_support::output::complain;
use corelocal_support::place::{self, Place};
use corelocal_support::process::proc_files;
use corelocal_support::process::signals;
use serde::Serialize;

use super::attach;
use super::{UNABLE, is_moved, launch, process_number};
use crate::kept::{self, Kept};
use crate::locks::args::LocksArgs;
use analysis::{Look, Process};

/// The time to wait for the first lock of a process that is to record.
const FIRST: Duration = Duration::from_secs(5);
const TURN: Duration = Duration::from_millis(50);
const FOUND: u8 = 1;

/// The output of `--json`.
#[derive(Serialize)]
struct Answer {
    version: &'static str,
    /// The time that was recorded, in seconds.
    seconds: f64,
    processes: Vec<Process>,
}

impl Kept for LockOrder {
    const VARIABLE: &str = "CORELOCAL_LOCK_ORDER";

    fn is_wish(value: &[u8]) -> bool {
        matches!(value, b"on" | [b'/', ..])
    }

    fn may_be(target: &Path, _at: &Path) -> bool {
        attach::may_be_profile(target)
    }

    fn open(path: &Path) -> anyhow::Result<LockOrder> {
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
        Ok(LockOrder::open(&name)?)
    }

    fn process(&self) -> u32 {
        LockOrder::process(self)
    }

    fn none(process: u32, name: &str) -> anyhow::Error {
        anyhow!(
            "process {process} ({name}) does not record the order of its locks: it does not use those of corelocal, \
             or it was started without CORELOCAL_LOCK_ORDER in its environment. Start it with \
             CORELOCAL_LOCK_ORDER=on and look again; or run it by `corelocal locks --order PROGRAM`"
        )
    }
}

/// Runs the command.
pub fn run(args: &LocksArgs) -> anyhow::Result<ExitCode> {
    signals::note();
    let top = top(args);
    let looked = match process_number(&args.target) {
        Some(process) => attached(process, args).map(|looked| (looked, ExitCode::SUCCESS)),
        None => {
            // Those of the time in which the program ran: they were for it.
            let signals = OnceCell::new();
            let read = |path: &Path, maps| {
                let signals = *signals.get_or_init(signals::count);
                read(path, maps, Look { apart: Duration::ZERO, top, signals })
            };
            launch::look(&args.target, args.time, is_moved(args), (LockOrder::VARIABLE, read))
        }
    };
    signals::note_no_more();
    let ((mut processes, seconds), code) = match looked {
        Ok(looked) => looked,
        Err(why) => {
            complain(format_args!("{why:#}"));
            return Ok(ExitCode::from(UNABLE));
        }
    };
    processes.sort_by_key(|process| process.process);
    let is_found = processes.iter().any(|process| process.has_deadlocks);
    let is_success = code == ExitCode::SUCCESS;
    let code = if args.strict && is_found && is_success { ExitCode::from(FOUND) } else { code };
    let answer = Answer { version: env!("CARGO_PKG_VERSION"), seconds, processes };
    let is_of_program = process_number(&args.target).is_none();
    let place = Place::of(args.output.as_deref(), is_of_program, args.json);
    if args.json {
        return place::report(place, serde_json::to_string_pretty(&answer)? + "\n", code);
    }
    place::report(place, text::all(&answer.processes, answer.seconds, console::width()), code)
}

/// Returns how many potential deadlocks to show of a process: JSON has as many as there is room for.
fn top(args: &LocksArgs) -> usize {
    if args.json { usize::MAX } else { args.top }
}

/// Returns what a process has left.
fn read(path: &Path, maps: Option<String>, how: Look) -> Option<Process> {
    let order = <LockOrder as Kept>::open(path).ok()?;
    Some(Process::of(&order, None, maps, how)).filter(|process| !process.is_empty())
}

/// Returns a process that runs, after the time that is asked for.
fn attached(process: u32, args: &LocksArgs) -> anyhow::Result<(Vec<Process>, f64)> {
    let end = args.time.map(|time| Instant::now() + time);
    let order: Option<LockOrder> =
        kept::wait_for(process, end.unwrap_or_else(|| Instant::now() + FIRST))?;
    let Some(order) = order else { return Ok((Vec::new(), 0.0)) };
    let mut maps = None;
    while !signals::came() {
        match proc_files::maps(process) {
            Ok(Some(now)) => maps = Some(now),
            Ok(None) => break,
            Err(_) => {}
        }
        if end.is_none_or(|end| Instant::now() >= end) {
            break;
        }
        thread::sleep(TURN);
    }
    let seconds = order.age().as_secs_f64();
    let how = Look { apart: TURN, top: top(args), signals: signals::count() };
    let looked = Process::of(&order, Some(process), maps, how);
    Ok((Some(looked).filter(|process| !process.is_empty()).into_iter().collect(), seconds))
}
