//! `corelocal trace view`: a recording's events as text, or as JSON lines.
//!
//! Invariants:
//! - Events are printed some thousands at a time: the memory in use does not grow with their number, unless only the last
//!   ones are wanted, or a reader is slow.
//! - What was left out of a damaged file is told on standard error, after all that is whole was printed.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::process::ExitCode;

use corelocal_trace::{Event, json_lines};

use super::{Filter, UNREADABLE, open, stats, tell_problems, text};
use crate::cli::ViewArgs;
use crate::output;

/// Lines that are printed at once.
const LINES: usize = 4096;

/// The command.
pub fn run(args: &ViewArgs) -> anyhow::Result<ExitCode> {
    let Some(recording) = open(&args.file) else { return Ok(ExitCode::from(UNREADABLE)) };
    let mut events = recording.events();
    let mut filter = Filter::new(&args.filter);
    if args.stats {
        let table = stats::table(&mut events.by_ref().filter(|event| filter.is_wanted(event)));
        output::finish(table, ExitCode::SUCCESS)?;
        return Ok(tell_problems(&args.file, &recording, &events));
    }
    let mut texts = text::Lines::default();
    let mut line = |event: &Event<'_>| match args.json {
        true => json_lines::line(event),
        false => texts.line(event),
    };
    let mut lines: VecDeque<String> = VecDeque::new();
    for event in events.by_ref().filter(|event| filter.is_wanted(event)) {
        lines.push_back(line(&event));
        match args.last {
            Some(last) if lines.len() > last => drop(lines.pop_front()),
            None if lines.len() == LINES && !print(&mut lines)? => return Ok(ExitCode::SUCCESS),
            _ => {}
        }
    }
    if !print(&mut lines)? {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(tell_problems(&args.file, &recording, &events))
}

/// Prints and removes the lines. False: the reader wants no more.
fn print(lines: &mut VecDeque<String>) -> anyhow::Result<bool> {
    let mut text = String::new();
    lines.drain(..).for_each(|line| {
        text += &line;
        text.push('\n');
    });
    match output::print(text) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => anyhow::bail!(output::unwritable(&error)),
    }
}
