//! The table on the terminal: for each cycle its steps, and beneath it where they were made.
//!
//! Invariant: figures are never broken across lines; names of locks are.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use comfy_table::{Cell, CellAlignment};
use corelocal_support::console;
use corelocal_support::figures::{figure, wrap};
use corelocal_support::units::time;

use super::super::call_stacks::Call;
use super::super::text::{calls, thread};
use super::analysis::{Deadlock, Lock, MOST_STEPS, MOST_STUCK, Missed, Potential, Process};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// Returns all processes.
pub fn all(processes: &[Process], seconds: f64, width: usize) -> String {
    if processes.is_empty() {
        let text = "No mutex was locked while another one was held, so there is no order to show. Only corelocal's \
                    Mutex and RawMutex between threads are recorded, in a program built with this version of it, if \
                    there were 13 MiB of memory for the record.";
        return wrap(text, width, 0) + "\n";
    }
    let mut out = String::new();
    for (nth, process) in processes.iter().enumerate() {
        out.push_str(if nth > 0 { "\n" } else { "" });
        out.push_str(&one(process, seconds, width));
    }
    out
}

fn count(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

fn one(process: &Process, seconds: f64, width: usize) -> String {
    let mut out = String::new();
    let program = process.program.rsplit('/').next().unwrap_or_default();
    let _ = writeln!(
        out,
        "{BOLD}Order of locks{BOLD:#} of {program}, process {}, in {} s: {}, {}",
        process.process,
        figure((seconds * 100.0).round() / 100.0),
        count(process.locks, "mutex", "mutexes"),
        count(process.pairs, "pair", "pairs"),
    );
    for deadlock in &process.deadlocks {
        let _ = write!(out, "\n{}", stuck(deadlock, width));
    }
    let (free, guarded): (Vec<&Potential>, Vec<&Potential>) =
        process.potential.iter().partition(|potential| potential.guarded_by.is_empty());
    for potential in &free {
        let _ = write!(out, "\n{}", circle(potential, width));
    }
    if free.is_empty()
        && process.deadlocks.is_empty()
        && process.deadlocks_left_out == 0
        && process.left_out == 0
        && !process.has_ended_early
    {
        let _ = writeln!(out, "\n  no deadlock, and no inconsistent lock orders");
    }
    for potential in guarded {
        let text = format!(
            "Safe, because {} was held each time: {}",
            list(potential.guarded_by.iter()),
            list(potential.steps.iter().map(|step| &step.held)),
        );
        let _ = writeln!(out, "\n{DIM}{}{DIM:#}", wrap(&text, width, 2));
    }
    for remark in remarks(process) {
        let _ = writeln!(out, "\n{WARNING}{}{WARNING:#}", wrap(&remark, width, 2));
    }
    out
}

fn list<'a>(locks: impl Iterator<Item = &'a Lock>) -> String {
    locks.map(|lock| lock.lock.as_str()).collect::<Vec<_>>().join(", ")
}

fn table(header: [&str; 4], rows: impl Iterator<Item = [String; 4]>, width: usize) -> String {
    let mut grid = console::grid(width);
    let right = |at: usize| at == 2;
    let heading = |(at, text): (usize, &&str)| match right(at) {
        true => console::heading(text).set_alignment(CellAlignment::Right),
        false => console::heading(text),
    };
    grid.set_header(header.iter().enumerate().map(heading).collect::<Vec<_>>());
    for row in rows {
        let cell = |(at, text): (usize, String)| match right(at) {
            true => Cell::new(text).set_alignment(CellAlignment::Right),
            false => Cell::new(text),
        };
        grid.add_row(row.into_iter().enumerate().map(cell).collect::<Vec<_>>());
    }
    console::keep_whole(&mut grid, right);
    console::lines(&grid)
}

fn stuck(deadlock: &Deadlock, width: usize) -> String {
    let mut out = String::new();
    let what = match deadlock.threads.len() {
        1 => "a thread waits for a mutex that it holds".to_owned(),
        threads => format!("{threads} threads wait for each other"),
    };
    let _ = writeln!(out, "{ERROR}Deadlock:{ERROR:#} {what}\n");
    let rows = deadlock.threads.iter().map(|it| {
        let waits = time(it.waits_ns);
        [it.holds.lock.clone(), it.waits_for.lock.clone(), waits, thread(it.thread, &it.name)]
    });
    out.push_str(&table(["holds", "waits for", "since", "thread"], rows, width));
    for it in &deadlock.threads {
        let who = thread(it.thread, &it.name);
        out.push_str(&place(
            &format!("{who} waits for {}", it.waits_for.lock),
            &it.waits_at,
            width,
        ));
        out.push_str(&place(&format!("it locked {}", it.holds.lock), &it.held_at, width));
    }
    out
}

fn circle(potential: &Potential, width: usize) -> String {
    let mut out = String::new();
    let what = match potential.steps.len() {
        1 => "a thread locks a mutex that it holds",
        2 => "two inconsistent orders",
        _ => "a cycle of orders",
    };
    let _ = writeln!(out, "{WARNING}Potential deadlock:{WARNING:#} {what}\n");
    let rows = potential.steps.iter().map(|step| {
        let first = thread(step.thread, &step.name);
        [step.held.lock.clone(), step.taken.lock.clone(), step.times.to_string(), first]
    });
    out.push_str(&table(["held", "locked then", "times", "first by"], rows, width));
    for step in &potential.steps {
        out.push_str(&place(&format!("{} was locked", step.held.lock), &step.held_at, width));
        out.push_str(&place(&format!("then {}", step.taken.lock), &step.taken_at, width));
    }
    if potential.is_of_one_thread && potential.steps.len() > 1 {
        let text = "All of it happened in one thread, which is no deadlock. It is one when two threads do it.";
        let _ = writeln!(out, "  {}", wrap(text, width.saturating_sub(2), 2));
    }
    out
}

fn place(what: &str, frames: &[Call], width: usize) -> String {
    format!("  {what}\n{}", calls(frames, width))
}

fn remarks(process: &Process) -> Vec<String> {
    let mut remarks = Vec::new();
    if process.left_out > 0 {
        let what = count(process.left_out, "potential deadlock is", "potential deadlocks are");
        remarks
            .push(format!("{what} not shown; --top shows more, up to {MOST_STEPS} steps in total"));
    }
    if process.deadlocks_left_out > 0 {
        let what = count(process.deadlocks_left_out, "deadlock is", "deadlocks are");
        remarks.push(format!("{what} not shown; at most {MOST_STUCK} threads are shown"));
    }
    if process.has_ended_early {
        let text = "There may be more: the search for cycles ended early, because there were too many orders or \
             a signal came";
        remarks.push(text.to_owned());
    }
    let Missed { threads, depth, pairs } = process.missed;
    let mut missed = |times: u64, why: &str| {
        if times > 0 {
            remarks.push(format!("{times} times a lock was not recorded: {why}"));
        }
    };
    missed(threads, "more than 256 threads held mutexes at the same time");
    missed(depth, "its thread held more than 16 mutexes");
    missed(pairs, "there were more than 1024 pairs of mutexes");
    remarks
}

#[cfg(test)]
mod tests {
    use super::super::analysis::{Step, Stuck};
    use super::*;

    fn lock(name: &str) -> Lock {
        Lock { lock: format!("program::{name}"), address: "0x7f0012345678".to_owned() }
    }

    fn at(function: &str, line: u32) -> Vec<Call> {
        let call = |function: &str, source: Option<String>| Call {
            function: format!("program::{function}").into(),
            source: source.map(Into::into),
        };
        vec![call(function, Some(format!("src/main.rs:{line}"))), call("main", None)]
    }

    fn step(held: &str, taken: &str, times: u64) -> Step {
        Step {
            held: lock(held),
            taken: lock(taken),
            times,
            thread: 4711,
            name: "worker-3".to_owned(),
            held_at: at(&format!("lock_{held}"), 10),
            taken_at: at(&format!("lock_{taken}"), 12),
        }
    }

    fn process() -> Process {
        let stuck = |thread, holds, wants| Stuck {
            thread,
            name: String::new(),
            waits_for: lock(wants),
            waits_ns: 2_100_000_000,
            waits_at: at("wait", 20),
            holds: lock(holds),
            held_at: at("hold", 18),
        };
        let potential =
            |steps, guarded_by, is_of_one_thread| Potential { steps, guarded_by, is_of_one_thread };
        Process {
            process: 4700,
            program: "/usr/bin/program".to_owned(),
            locks: 5,
            pairs: 7,
            deadlocks: vec![Deadlock { threads: vec![stuck(1, "A", "B"), stuck(2, "B", "A")] }],
            potential: vec![
                potential(vec![step("A", "B", 12), step("B", "A", 1)], vec![], false),
                potential(vec![step("C", "C", 1)], vec![], true),
                potential(
                    vec![step("A", "B", 1), step("B", "C", 1), step("C", "A", 1)],
                    vec![],
                    true,
                ),
                potential(vec![step("D", "E", 3), step("E", "D", 1)], vec![lock("GATE")], false),
            ],
            left_out: 1,
            deadlocks_left_out: 1,
            has_ended_early: true,
            has_deadlocks: true,
            missed: Missed { threads: 3, depth: 4, pairs: 5 },
        }
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_table() {
        insta::assert_snapshot!(plain(&all(&[process()], 2.5, 100)));
    }

    #[test]
    fn any_width_is_survived() {
        for width in [0, 1, 30, 80, 100_000] {
            let text = plain(&all(&[process(), process()], 2.5, width));
            assert!(text.replace(char::is_whitespace, "").contains("program::A"), "{text}");
        }
        let widest = plain(&all(&[process()], 2.5, 80));
        let widest = widest.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{widest:?}");
    }

    #[test]
    fn nothing_to_show_is_said() {
        assert!(all(&[], 1.0, 100).starts_with("No mutex was locked while"));
        let process = Process { program: "/x".to_owned(), pairs: 1, ..Process::default() };
        let text = plain(&all(&[process], 1.0, 100));
        assert!(text.contains("no deadlock, and no inconsistent"), "{text}");
    }
}
