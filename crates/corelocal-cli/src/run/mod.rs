//! `corelocal run`: a program with another malloc, what it takes in time and memory, and the same with the
//! other mallocs of this machine.
//!
//! ```text
//!   program.rs  which file is meant, and whether a malloc can be preloaded into it
//!   input.rs    standard input for a program that is run several times
//!   launch.rs   one run: time, cpu time, memory of the program and of what it starts
//!   tally.rs    hits and misses of our malloc's caches
//!   relay.rs    signals that are sent to us are for the program
//!   measured.rs runs become figures
//!   text.rs | html.rs   the figures, for the terminal and as a page with a plot
//! ```
//!
//! Exit codes: the program's; 125 what was asked for cannot be done, 126 the program cannot be run this
//! way, 127 there is no such program. A program that a signal ended ends us by the same signal.
//!
//! Invariants:
//! - The program's standard output has nothing of ours in it: we speak on standard error.
//! - With a malloc that cannot be there the program is not run at all.

mod html;
mod input;
mod launch;
mod measured;
pub(crate) mod program;
mod relay;
mod tally;
mod text;

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};

use anyhow::{Context as _, anyhow};

use crate::cli::RunArgs;
use crate::mallocs::{Malloc, library};
use crate::output::{self, complain};
use crate::report::{self, term};
use input::Input;
use launch::{Output, Run};
use measured::Answer;
use program::{Program, Refusal, UNABLE};
use tally::{Tally, Wanted};

/// The command.
pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    match runs(args) {
        Ok((answer, status)) => tell(args, &answer, status),
        Err(refusal) => {
            complain(format_args!("{:#}", refusal.why));
            Ok(ExitCode::from(refusal.code))
        }
    }
}

/// All runs, and how the first one with the malloc that was asked for ended.
fn runs(args: &RunArgs) -> Result<(Answer, ExitStatus), Refusal> {
    if let Some(path) = &args.html {
        // A program may run for hours, so this is asked before.
        report::may_write(path).map_err(|why| Refusal::unable(anyhow!(why)))?;
    }
    let chosen = library::named(&args.malloc).map_err(Refusal::unable)?;
    let (program, arguments) =
        args.target.split_first().context("no program is named").map_err(Refusal::unable)?;
    let program = Program::find(program)?;
    program.takes(&chosen)?;
    let mallocs = if args.compare { all(&chosen) } else { vec![chosen.clone()] };
    let rounds = if args.compare { args.rounds as usize } else { 1 };
    let mut input = Input::new(args.compare).map_err(Refusal::unable)?;
    relay::begin();
    let mut runs: Vec<Vec<Run>> = mallocs.iter().map(|_| Vec::new()).collect();
    let mut is_first = true;
    // Nothing is in the way of runs that are compared.
    let wanted = match (args.compare, args.no_hits) {
        (true, _) => Wanted::Nothing,
        (false, true) => Wanted::Misses,
        (false, false) => Wanted::Hits,
    };
    'all: for round in 0..rounds {
        for nth in 0..mallocs.len() {
            // Each round begins with another one.
            let nth = (nth + round) % mallocs.len();
            let output = match (is_first, args.json) {
                (false, _) => Output::Nowhere,
                (true, true) => Output::ToError,
                (true, false) => Output::AsOurs,
            };
            is_first = false;
            let stdin = input.next().map_err(Refusal::unable)?;
            let run = launch::once(&program, arguments, &mallocs[nth], stdin, output, wanted)?;
            runs[nth].push(run);
            if relay::came() {
                break 'all;
            }
        }
    }
    let status = mallocs.iter().zip(&runs).filter(|(malloc, _)| **malloc == chosen);
    let status = status.filter_map(|(_, runs)| Some(runs.first()?.status)).next();
    // Interrupted before its turn: as the one that was interrupted ended.
    let status = status.or_else(|| Some(runs.iter().flatten().next()?.status));
    let status = status.context("nothing was run").map_err(Refusal::unable)?;
    // A run more, whose time is nobody's.
    let mut tallies: Vec<Option<Tally>> = mallocs.iter().map(|_| None).collect();
    for (malloc, (tally, runs)) in mallocs.iter().zip(tallies.iter_mut().zip(&runs)) {
        *tally = runs.iter().find_map(|run| run.tally.clone());
        if args.compare && !args.no_hits && malloc.ours && !relay::came() {
            let stdin = input.next().map_err(Refusal::unable)?;
            let output = Output::Nowhere;
            *tally = launch::once(&program, arguments, malloc, stdin, output, Wanted::Hits)?.tally;
        }
    }
    let command: Vec<OsString> = args.target.clone();
    Ok((Answer::new(&command, mallocs, runs, tallies), status))
}

/// Libc's first, then those of others that are installed or built, then ours, then the one that was asked for.
fn all(chosen: &Malloc) -> Vec<Malloc> {
    let others = library::KNOWN.iter().filter_map(|known| known.find().ok());
    let more = library::more().into_iter().flatten();
    let candidates = [Malloc::of_libc()].into_iter().chain(others).chain(more);
    let mut all: Vec<Malloc> = Vec::new();
    for malloc in candidates.chain(library::ours().ok()).chain([chosen.clone()]) {
        if all.iter().all(|known| known.library != malloc.library) {
            all.push(malloc);
        }
    }
    all
}

/// Says what came of it, and ends as the program did.
fn tell(args: &RunArgs, answer: &Answer, status: ExitStatus) -> anyhow::Result<ExitCode> {
    let mut complaint = None;
    if let Some(path) = &args.html {
        let written = html::page(answer).map_err(|error| format!("{error:#}"));
        complaint = written.and_then(|page| report::write_file(path, &page)).err();
    }
    if args.json {
        output::finish(serde_json::to_string_pretty(answer)? + "\n", ExitCode::SUCCESS)?;
    } else {
        // Where standard error fails there is nobody to tell.
        let _ = write!(anstream::stderr().lock(), "{}", text::all(answer, term::width()));
    }
    let is_unwritten = complaint.is_some();
    if let Some(complaint) = complaint {
        complain(complaint);
    }
    if let Some(signal) = status.signal() {
        relay::end_by(signal);
    }
    let code = match status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) {
        0 if is_unwritten => i32::from(UNABLE),
        code => code,
    };
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_is_compared_with_first() {
        let libc = Malloc::of_libc();
        let mallocs = all(&libc);
        assert_eq!(mallocs[0], libc);
        assert_eq!(mallocs.iter().filter(|malloc| malloc.library.is_none()).count(), 1);
        let chosen =
            Malloc { id: "x".into(), label: "x".into(), ours: false, library: Some("/x".into()) };
        assert_eq!(all(&chosen).last(), Some(&chosen));
    }
}
