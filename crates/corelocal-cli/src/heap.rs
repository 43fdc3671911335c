//! `corelocal heap`: heap use by call site, from files that corelocal's malloc wrote, or of a program that is run for
//! it; and the state of a running process's malloc.
//!
//! ```text
//!   launch.rs      a program, with a folder for the profiles of all processes that it starts
//!   cause.rs       why it left none
//!   file.rs        the file of a process
//!   sites.rs       stacks become functions
//!   summary.rs     functions become call sites with their callers
//!   fold.rs        selects the processes that are shown in full
//!   text.rs        the table
//!   diff.rs        the difference between two profiles
//!   diff_text.rs   the table of that
//!   pprof.rs       a profile for pprof
//!   flame.rs       a flame graph
//!   otlp.rs        a profile for OpenTelemetry
//!   collector.rs   the collector that it is sent to
//!   running.rs     a running process, and the mallocs in its memory
//!   attach.rs      what grows in one
//!   attach_text.rs the table of that
//!   status.rs      the malloc of one
//!   status_text.rs the table of that
//! ```
//!
//! Exit codes: those of the program, if one was run, or 125 to 127 as `run` has them; else, or if the program's is 0:
//! 0 done, 1 an output could not be written or sent, 3 a file or a process cannot be read.

pub mod args;
mod attach;
mod attach_text;
mod cause;
#[cfg(feature = "export")]
mod collector;
mod diff;
mod diff_text;
pub(crate) mod file;
mod flame;
mod fold;
mod launch;
#[cfg(feature = "export")]
mod otlp;
mod pprof;
mod running;
mod sites;
mod status;
mod status_text;
mod summary;
pub(crate) mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Parser as _;
use serde::Serialize;

use args::{HeapArgs, HeapFiles, HeapOptions};
use corelocal_support::output::{complain, path_line};
use corelocal_support::place::{self, Place};
use corelocal_support::process::signals;
use corelocal_support::{console, user_file};
use diff::Difference;
use file::Heap;
use sites::Told;
use summary::Process;

const UNABLE: u8 = 3;

/// The output of `--json`.
#[derive(Serialize)]
struct Answer {
    version: &'static str,
    processes: Vec<Process>,
}

/// The output of `--json` with `--diff`.
#[derive(Serialize)]
struct Compared {
    version: &'static str,
    difference: Difference,
}

/// The output of `--json` with `--attach`.
#[derive(Serialize)]
struct Grown<'a> {
    version: &'static str,
    #[serde(flatten)]
    growth: &'a attach::Growth,
}

/// Runs the command.
pub fn run(args: &HeapArgs) -> anyhow::Result<ExitCode> {
    if let Some(process) = args.status {
        return show_status(process, &args.options);
    }
    if let Some(process) = args.attach {
        signals::note();
        let looked = attach::look(process, &args.options);
        signals::note_no_more();
        return match looked {
            Ok(looked) => show_growth(&looked, &args.options),
            Err(why) => {
                complain(format_args!("{why:#}"));
                Ok(ExitCode::from(UNABLE))
            }
        };
    }
    let is_file = args.target.first().is_some_and(|target| file::is_meant(Path::new(target)));
    let files = is_file.then(|| {
        let after_name = std::env::args_os().skip_while(|word| word != "heap");
        HeapFiles::parse_from(after_name)
    });
    let options = files.as_ref().map_or(&args.options, |files| &files.options);
    if let Some(before) = &options.diff {
        let after = files.as_ref().map_or(&[][..], |files| &files.files[..]);
        return match compared(options, before, after) {
            Ok(code) => Ok(code),
            Err(why) => {
                complain(format_args!("{why:#}"));
                Ok(ExitCode::from(UNABLE))
            }
        };
    }
    let (heaps, code) = if let Some(files) = &files {
        match files.files.iter().map(|path| file::read(path)).collect::<anyhow::Result<Vec<Heap>>>()
        {
            Ok(heaps) => (heaps, ExitCode::SUCCESS),
            Err(why) => {
                complain(format_args!("{why:#}"));
                return Ok(ExitCode::from(UNABLE));
            }
        }
    } else {
        signals::note();
        let looked = launch::look(args);
        signals::note_no_more();
        match looked {
            Ok(looked) => {
                if let Some(complaint) = &looked.complaint {
                    complain(complaint);
                }
                (looked.heaps, looked.code)
            }
            Err(refusal) => {
                complain(format_args!("{:#}", refusal.why));
                return Ok(ExitCode::from(refusal.code));
            }
        }
    };
    let mut told: Vec<(Heap, Told)> = heaps
        .into_iter()
        .map(|heap| {
            let told = sites::told(&heap, options.peak);
            (heap, told)
        })
        .collect();
    // The program itself, which is the first, and of what it starts only what has something to show.
    if !is_file {
        let mut is_first = true;
        told.retain(|(_, told)| std::mem::take(&mut is_first) || told.samples > 0);
    }
    let mut code = code;
    for complaint in write(options, &told).into_iter().chain(send(options, &told, !is_file)) {
        complain(complaint);
        // The program's own code says more, if it is not 0.
        code = if code == ExitCode::SUCCESS { ExitCode::FAILURE } else { code };
    }
    let processes: Vec<Process> = told
        .iter()
        .map(|(heap, told)| Process::of(heap, told, options.top, options.peak))
        .collect();
    let place = Place::of(options.output.as_deref(), !is_file, options.json);
    if options.json {
        let answer = Answer { version: env!("CARGO_PKG_VERSION"), processes };
        return place::report(place, serde_json::to_string_pretty(&answer)? + "\n", code);
    }
    if is_file {
        return place::report(place, text::all(&processes, &[], console::width()), code);
    }
    let (shown, folded) = fold::fold(&processes);
    place::report(place, text::all(shown, &folded, console::width()), code)
}

/// Shows the malloc of a running process.
fn show_status(process: u32, options: &HeapOptions) -> anyhow::Result<ExitCode> {
    let status = match status::of(process) {
        Ok(status) => status,
        Err(why) => {
            complain(format_args!("{why:#}"));
            return Ok(ExitCode::from(UNABLE));
        }
    };
    let text = match options.json {
        true => serde_json::to_string_pretty(&status)? + "\n",
        false => status_text::all(&status, options.top, console::width()),
    };
    let place = Place::of(options.output.as_deref(), false, options.json);
    place::report(place, text, ExitCode::SUCCESS)
}

/// Shows what grew in a running process.
fn show_growth(looked: &attach::Looked, options: &HeapOptions) -> anyhow::Result<ExitCode> {
    let attach::Looked { growth, before, after } = looked;
    let mut code = put_difference(options, before, after);
    if let Some(complaint) = send(options, std::slice::from_ref(after), true) {
        complain(complaint);
        code = ExitCode::FAILURE;
    }
    let place = Place::of(options.output.as_deref(), false, options.json);
    if options.json {
        let answer = Grown { version: env!("CARGO_PKG_VERSION"), growth };
        return place::report(place, serde_json::to_string_pretty(&answer)? + "\n", code);
    }
    place::report(place, attach_text::all(growth, console::width()), code)
}

/// Writes the files that were asked for of a difference.
fn put_difference(options: &HeapOptions, before: &(Heap, Told), after: &(Heap, Told)) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let lines = diff::collapsed(&before.1, &after.1);
    for complaint in put(options, pprof::difference(before, after), lines, "Heap after") {
        complain(complaint);
        code = ExitCode::FAILURE;
    }
    code
}

/// Returns what came and went between two files.
fn compared(options: &HeapOptions, before: &Path, after: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let [after] = after else {
        bail!(
            "--diff compares two files of the same program: `corelocal heap --diff BEFORE AFTER`"
        );
    };
    let told = |path: &Path| -> anyhow::Result<(Heap, Told)> {
        let heap = file::read(path)?;
        let told = sites::told(&heap, options.peak);
        Ok((heap, told))
    };
    let (before, after) = (told(before)?, told(after)?);
    let difference = Difference::of(&before, &after, options.top, options.peak)?;
    let code = put_difference(options, &before, &after);
    let place = Place::of(options.output.as_deref(), false, options.json);
    if options.json {
        let answer = Compared { version: env!("CARGO_PKG_VERSION"), difference };
        return place::report(place, serde_json::to_string_pretty(&answer)? + "\n", code);
    }
    place::report(place, diff_text::all(&difference, console::width()), code)
}

/// Returns the files that were asked for; what went wrong.
fn write(options: &HeapOptions, told: &[(Heap, Told)]) -> Vec<String> {
    let lines = flame::collapsed(told.iter().map(|(_, told)| told));
    let what = if options.peak { "Heap at its peak" } else { "Heap in use" };
    put(options, pprof::file(told), lines, what)
}

/// Sends the profiles, if that was asked for; what went wrong. `is_here` if they are of this machine.
fn send(options: &HeapOptions, told: &[(Heap, Told)], is_here: bool) -> Option<String> {
    let address = options.otlp.as_deref()?;
    #[cfg(feature = "export")]
    let sent = collector::send(address, told, is_here);
    #[cfg(not(feature = "export"))]
    let sent = {
        let _ = (address, told, is_here);
        anyhow::Ok(()) // `args.rs` refuses the address.
    };
    sent.err().map(|why| format!("{why:#}"))
}

fn put(
    options: &HeapOptions,
    pprof: anyhow::Result<Vec<u8>>,
    lines: String,
    what: &str,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut put = |path: &Path, content: anyhow::Result<Vec<u8>>| {
        let written =
            content.map_err(|error| format!("cannot write {}: {error:#}", path_line(path)));
        complaints.extend(written.and_then(|content| user_file::write(path, content)).err());
    };
    if let Some(path) = &options.pprof {
        put(path, pprof);
    }
    if let Some(path) = &options.svg {
        put(path, flame::svg(&lines, what));
    }
    if let Some(path) = &options.collapsed {
        put(path, Ok(lines.into_bytes()));
    }
    complaints
}
