//! `corelocal run`: a program with another malloc, what it takes in time and memory, and the same with the
//! other mallocs of this machine.
//!
//! ```text
//!   program.rs  which file is meant, and whether a malloc can be preloaded into it
//!   input.rs    standard input for a program that is run several times
//!   launch.rs   one run: time, cpu time, memory of the program and of what it starts
//!   cache_stats.rs    hits and misses of our malloc's caches
//!   relay.rs    signals that are sent to us are for the program
//!   measured.rs runs become figures
//!   text.rs | html.rs   the figures, for the terminal and as a page with a plot
//! ```
//!
//! Exit codes: the program's, or 1 if it ended well and what is to be told cannot be written; 125 what was asked for
//! cannot be done, 126 the program cannot be run this way, 127 there is no such program. A program that a signal
//! ended ends us by the same signal, and so does a signal that interrupts a comparison.
//!
//! Invariants:
//! - The program's standard output has nothing of ours in it: we speak on standard error.
//! - A program that is static, or that defines `malloc` among its dynamic symbols, is not run with a malloc: it would
//!   not have it. An allocator of another name (Rust's `#[global_allocator]`) is not recognised, and the program runs.
//! - A run that was interrupted is compared with no other.

pub mod args;
mod cache_stats;
mod html;
mod input;
mod launch;
mod measured;
pub(crate) mod program;
mod relay;
mod text;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};

use anyhow::{Context as _, anyhow};
use indicatif::{ProgressBar, ProgressStyle};

use args::RunArgs;
use cache_stats::{Tally, Wanted};
use corelocal_support::mallocs::{Malloc, libc_is_default, library};
use corelocal_support::measure::noise::{self, Watch};
use corelocal_support::output::{self, complain, path_line, remark};
use corelocal_support::{console, user_file};
use input::Input;
use launch::{Output, Run};
use measured::Answer;
use program::{Program, Refusal};

/// The word between two commands.
const NEXT: &str = ":::";

/// Runs the command.
pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    match all_runs(args) {
        Ok((answers, status)) => Ok(tell(args, &answers, status)),
        Err(refusal) => {
            complain(format_args!("{:#}", refusal.why));
            Ok(ExitCode::from(refusal.code))
        }
    }
}

/// Returns the runs of all commands, and how the first command ended that did not end well, or the first one.
fn all_runs(args: &RunArgs) -> Result<(Vec<Answer>, ExitStatus), Refusal> {
    if let Some(path) = &args.html {
        // A program may run for hours, so this is asked before.
        user_file::may_write(path).map_err(|why| Refusal::unable(anyhow!(why)))?;
    }
    let chosen = library::named(&args.malloc).map_err(Refusal::unable)?;
    let mallocs = if args.compare { all(&chosen) } else { vec![chosen.clone()] };
    // Alone, a program may have such an argument itself.
    let commands: Vec<&[OsString]> =
        args.target.split(|word| args.compare && word == NEXT).collect();
    // Each can be run, before minutes are spent on the first.
    let programs = commands.iter().map(|command| {
        let name = command.first().with_context(|| format!("there is no program beside {NEXT}"));
        let program = Program::find(name.map_err(Refusal::unable)?)?;
        program.takes(&chosen)?;
        mallocs.iter().try_for_each(|malloc| program.takes(malloc))?;
        Ok(program)
    });
    let programs = programs.collect::<Result<Vec<_>, Refusal>>()?;
    let mut input = Input::new(args.compare).map_err(Refusal::unable)?;
    relay::begin();
    let (mut answers, mut status) = (Vec::new(), None::<ExitStatus>);
    for (program, command) in programs.iter().zip(commands) {
        let (answer, ended) = runs(args, (program, command), (&mallocs, &chosen), &mut input)?;
        answers.push(answer);
        status = status.filter(|status| !status.success()).or(Some(ended));
        if relay::came().is_some() {
            break;
        }
    }
    Ok((answers, status.context("nothing was run").map_err(Refusal::unable)?))
}

/// Returns all runs of one command, and how the first one with the malloc that was asked for ended.
fn runs(
    args: &RunArgs,
    (program, command): (&Program, &[OsString]),
    (mallocs, chosen): (&[Malloc], &Malloc),
    input: &mut Input,
) -> Result<(Answer, ExitStatus), Refusal> {
    let arguments = command.get(1..).unwrap_or_default();
    if mallocs.iter().any(|malloc| malloc.library.is_none()) {
        libc_is_default().map_err(Refusal::unable)?;
    }
    notes(program, mallocs);
    let before = std::env::var_os("LD_PRELOAD");
    let rounds = if args.compare { args.rounds as usize } else { 1 };
    let mut runs: Vec<Vec<Run>> = mallocs.iter().map(|_| Vec::new()).collect();
    let mut is_first = true;
    // Nothing is in the way of runs that are compared.
    let wanted = match (args.compare, args.no_hits) {
        (true, _) => Wanted::Nothing,
        (false, true) => Wanted::Misses,
        (false, false) => Wanted::Hits,
    };
    let watch = Watch::start(false, None);
    let mut once = |malloc: &Malloc, output, wanted| {
        let stdin = input.next().map_err(Refusal::unable)?;
        let preload = malloc.preload(before.as_deref());
        launch::once(program, arguments, malloc, preload, stdin, output, wanted)
    };
    let progress = Progress::new(args.compare, rounds * mallocs.len());
    // The first run finds files and pages cold.
    let warm_ups = match args.warmup {
        _ if !args.compare => Vec::new(),
        None => vec![0],
        Some(times) => (0..times).flat_map(|_| 0..mallocs.len()).collect(),
    };
    for nth in warm_ups {
        progress.show("warm-up", &mallocs[nth]);
        let run = once(&mallocs[nth], Output::Nowhere, Wanted::Nothing)?;
        if relay::came().is_some() {
            // There is nothing else to tell of.
            runs[nth].push(run);
            break;
        }
    }
    'all: for round in 0..rounds {
        for nth in 0..mallocs.len() {
            if relay::came().is_some() && args.compare {
                break 'all;
            }
            // Each round begins with another one.
            let nth = (nth + round) % mallocs.len();
            let output = match (is_first, args.json) {
                (false, _) => Output::Nowhere,
                (true, true) => Output::ToError,
                (true, false) => Output::AsOurs,
            };
            progress.show(&format!("round {} of {rounds}", round + 1), &mallocs[nth]);
            let mut run = || once(&mallocs[nth], output, wanted);
            let run = if is_first { progress.without(run) } else { run() }?;
            progress.inc();
            let is_whole = relay::came().is_none();
            // What was interrupted is told of if there is nothing else to tell.
            if is_whole || is_first {
                runs[nth].push(run);
            }
            if !is_whole {
                break 'all;
            }
            is_first = false;
        }
    }
    let noise = noise::advice(&watch.finish()).filter(|_| args.compare);
    progress.show("counting hits", chosen);
    // One more run, whose time is not counted.
    let mut tallies: Vec<Option<Tally>> = mallocs.iter().map(|_| None).collect();
    for (malloc, (tally, runs)) in mallocs.iter().zip(tallies.iter_mut().zip(&runs)) {
        *tally = runs.iter().find_map(|run| run.tally.clone());
        if args.compare && !args.no_hits && malloc.ours && relay::came().is_none() {
            let counted = once(malloc, Output::Nowhere, Wanted::Hits)?.tally;
            *tally = counted.filter(|_| relay::came().is_none());
        }
    }
    progress.end();
    let status = mallocs.iter().zip(&runs).find(|(malloc, _)| *malloc == chosen);
    let status = status.and_then(|(_, runs)| Some(runs.first()?.status));
    // A program that runs once may have its own idea of a signal; a comparison has none.
    let interrupted = relay::came().filter(|_| args.compare);
    let status = interrupted.map(ExitStatus::from_raw).or(status);
    let whole_runs = if is_first { 0 } else { runs.iter().map(Vec::len).sum() };
    let status = status.context("nothing was run").map_err(Refusal::unable)?;
    let mut answer = Answer::new(command, mallocs.to_vec(), runs, tallies);
    answer.noise = noise;
    if let Some(signal) = interrupted {
        answer.interrupt(signal, whole_runs);
    }
    Ok((answer, status))
}

/// The progress bar of a comparison, on standard error if that is a terminal.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(is_wanted: bool, runs: usize) -> Progress {
        let style = ProgressStyle::with_template("  {bar:24} {pos}/{len} runs  {wide_msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Progress(is_wanted.then(|| ProgressBar::new(runs as u64).with_style(style)))
    }

    fn show(&self, what: &str, malloc: &Malloc) {
        if let Some(bar) = &self.0 {
            bar.set_message(format!("{what}: {}", malloc.label));
            bar.tick();
        }
    }

    /// Makes a run whose output is shown, with the bar out of its way.
    fn without<R>(&self, run: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some(bar) => bar.suspend(run),
            None => run(),
        }
    }

    /// Counts a run that is done.
    fn inc(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Tells what a reader would not expect of these runs.
fn notes(program: &Program, mallocs: &[Malloc]) {
    // One that is given a malloc was refused.
    if let ([Malloc { library: None, .. }], Some(how)) = (mallocs, program.malloc_inside()) {
        let shown = path_line(&program.path);
        remark(format_args!("note: {shown} {how}: it has a built-in malloc, which is used\n"));
    }
}

/// Returns libc's first, then those of others that are installed or built, then ours, then the one that was asked for.
fn all(chosen: &Malloc) -> Vec<Malloc> {
    // What is not here is left out.
    let others = library::KNOWN.iter().filter_map(|known| known.find().ok());
    let more = library::more().into_iter().flatten();
    let candidates = [Malloc::of_libc()].into_iter().chain(others).chain(more);
    let mut all: Vec<Malloc> = Vec::new();
    for malloc in candidates.chain(library::ours()).chain([chosen.clone()]) {
        if all.iter().all(|known| known.library != malloc.library) {
            all.push(malloc);
        }
    }
    all
}

/// Says what came of it, and ends as the program did. What cannot be written changes that only if the program ended
/// well.
fn tell(args: &RunArgs, answers: &[Answer], status: ExitStatus) -> ExitCode {
    let mut complaints: Vec<String> = Vec::new();
    if let Some(path) = &args.html {
        let written = html::page(answers).map_err(|error| format!("{error:#}"));
        complaints.extend(written.and_then(|page| user_file::write(path, &page)).err());
    }
    if args.json {
        let text = match answers {
            [one] => serde_json::to_string_pretty(one),
            several => serde_json::to_string_pretty(several),
        };
        let text = text.map_err(anyhow::Error::from);
        let said = text.and_then(|text| output::finish(text + "\n", ExitCode::SUCCESS));
        complaints.extend(said.err().map(|error| format!("{error:#}")));
    } else {
        remark(text::all(answers, console::width()));
    }
    complaints.iter().for_each(complain);
    if let Some(signal) = status.signal() {
        relay::end_by(signal);
    }
    let code = match status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) {
        0 if !complaints.is_empty() => 1,
        code => code,
    };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
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
