//! `corelocal trace view`: a recording's events as text, or as JSON lines.
//!
//! Invariants:
//! - Events are printed some thousands at a time: the memory in use does not grow with their number, unless only the last
//!   ones are wanted, or a reader is slow.
//! - What was left out of a damaged file is told on standard error, after all that is whole was printed.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::process::ExitCode;

use corelocal_trace::{Event, Value};

use super::{UNREADABLE, open, tell_problems};
use crate::cli::ViewArgs;
use crate::output::{self, one_line};

/// Lines that are printed at once.
const LINES: usize = 4096;

/// The command.
pub fn run(args: &ViewArgs) -> anyhow::Result<ExitCode> {
    let Some(recording) = open(&args.file) else { return Ok(ExitCode::from(UNREADABLE)) };
    let mut events = recording.events();
    let wanted = |event: &Event<'_>| {
        let is_named = args.name.as_ref().is_none_or(|prefix| event.name.starts_with(prefix));
        let is_by = args.thread.as_ref().is_none_or(|thread| {
            *thread == event.thread_name || *thread == event.thread.to_string()
        });
        is_named && is_by
    };
    let line = if args.json { json } else { text };
    let mut lines: VecDeque<String> = VecDeque::new();
    for event in events.by_ref() {
        if !wanted(&event) {
            continue;
        }
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

fn json(event: &Event<'_>) -> String {
    let fields = event.fields.iter().map(|(name, value)| {
        let value = match value {
            Value::Bytes(bytes, _) => hex(bytes).into(),
            value => serde_json::to_value(value).unwrap_or_default(),
        };
        ((*name).to_owned(), value)
    });
    let Event { time, thread, cpu, thread_name, name, .. } = event;
    let fields: serde_json::Map<String, serde_json::Value> = fields.collect();
    serde_json::json!({
        "time": time, "name": name, "thread": thread, "thread_name": thread_name, "cpu": cpu, "fields": fields,
    })
    .to_string()
}

fn text(event: &Event<'_>) -> String {
    let Event { time, thread, cpu, thread_name, name, fields } = event;
    let when = jiff::Timestamp::from_nanosecond((*time).into()).unwrap_or_default();
    let when = when.to_zoned(jiff::tz::TimeZone::system());
    let mut line = format!(
        "{} {:<15} {thread:>7} cpu {cpu:<3} {}",
        when.strftime("%F %H:%M:%S.%9f"),
        one_line(thread_name.clone()),
        one_line((*name).to_owned()),
    );
    for (name, value) in fields {
        // To a string: never fails.
        let _ = match value {
            Value::Unsigned(number) => write!(line, " {name}={number}"),
            Value::Signed(number) => write!(line, " {name}={number}"),
            Value::Float(number) => write!(line, " {name}={number}"),
            Value::Bool(is) => write!(line, " {name}={is}"),
            Value::Str(text) => write!(line, " {name}={text:?}"),
            Value::Bytes(bytes, was_cut) => {
                write!(line, " {name}={}{}", hex(bytes), if *was_cut { "…" } else { "" })
            }
        };
    }
    line
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // To a string: never fails.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
