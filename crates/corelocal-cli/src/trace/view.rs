//! `corelocal trace view`: a recording's events as text, or as JSON lines.
//!
//! Invariants:
//! - Events are printed some thousands at a time: the memory in use does not grow with their number, unless only the last
//!   ones are wanted, or a reader is slow.
//! - What was left out of a damaged file is told on standard error, after all that is whole was printed.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use corelocal_support::output::{self, complain};
use corelocal_support::process::signals;
use corelocal_trace::{Event, Progress, json_lines};

use super::args::ViewArgs;
use super::{Filter, UNREADABLE, open, stats, tell_problems, text};

/// Lines that are printed at once.
const LINES: usize = 4096;
/// The time between two looks at the recording.
const LOOK: Duration = Duration::from_millis(250);
/// The longest time for which Ctrl-C waits.
const TURN: Duration = Duration::from_millis(20);
/// The oldest file that is looked for.
const MOST_FILES: usize = 1000;

/// Runs the command.
pub fn run(args: &ViewArgs) -> anyhow::Result<ExitCode> {
    if args.follow {
        return follow(args);
    }
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

/// Prints what is there, and then looks for more. A file that was renamed since, as it became too long, is read to its end
/// before the next one.
fn follow(args: &ViewArgs) -> anyhow::Result<ExitCode> {
    signals::note();
    let (mut progress, mut filter) = (Progress::default(), Filter::new(&args.filter));
    let (mut texts, mut lines) = (text::Lines::default(), VecDeque::new());
    let mut file = identity(&args.file);
    loop {
        let has_come = signals::came();
        let Some(nth) = (0..MOST_FILES).find(|nth| identity(&place(args, *nth)) == file) else {
            let name = output::path_line(&args.file);
            complain(format_args!("{name}: a file was replaced before it was read to its end"));
            (file, progress) = (identity(&args.file), Progress::default());
            continue;
        };
        let Some(recording) = open(&place(args, nth)) else {
            return Ok(ExitCode::from(UNREADABLE));
        };
        let next = nth.checked_sub(1).map(|nth| identity(&place(args, nth)));
        // Else files were renamed meanwhile.
        if identity(&place(args, nth)) != file {
            continue;
        }
        let mut events = recording.events_after(progress);
        for event in events.by_ref().filter(|event| filter.is_wanted(event)) {
            lines.push_back(if args.json { json_lines::line(&event) } else { texts.line(&event) });
            if lines.len() == LINES && !print(&mut lines)? {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if !print(&mut lines)? {
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(next) = next {
            (file, progress) = (next, Progress::default());
            continue;
        }
        if has_come || recording.is_file() && !recording.is_open_ended() {
            return Ok(tell_problems(&args.file, &recording, &events));
        }
        progress = events.progress();
        let until = Instant::now() + LOOK;
        while Instant::now() < until && !signals::came() {
            thread::sleep(TURN);
        }
    }
}

/// Returns the path of the file, or of the one that had its name so many files ago.
fn place(args: &ViewArgs, nth: usize) -> PathBuf {
    let mut name = args.file.clone().into_os_string();
    if nth > 0 {
        name.push(format!(".{nth}"));
    }
    name.into()
}

/// Returns device and inode of a file, if there is one.
fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
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
