//! The table on the terminal. Below it, for the first few locks, the distribution of the waits, and the stacks.
//!
//! Invariant: figures are never broken across lines; names of locks are.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use comfy_table::{Cell, CellAlignment};
use corelocal_support::console;
use corelocal_support::figures::{figure, wrap};
use corelocal_support::output::NO_LINES;
use corelocal_support::units::time;

use super::call_stacks::{Call, Place};
use super::summary::{Bucket, Lock, Process};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// The number of locks that are shown with stacks.
const TOLD_MORE: usize = 5;
/// The number of functions that are shown of each stack.
const MOST_CALLS: usize = 12;

/// Returns all processes.
pub fn all(processes: &[Process], seconds: f64, width: usize) -> String {
    if processes.is_empty() {
        let text = "No thread waited for a lock of corelocal. Locks of std, parking_lot and pthread are not \
             recorded. A program whose locks are never contended has nothing to show, nor has one without 5 MiB \
             of memory for its profile.";
        return wrap(text, width, 0) + "\n";
    }
    let mut out = String::new();
    for (nth, process) in processes.iter().enumerate() {
        out.push_str(if nth > 0 { "\n" } else { "" });
        out.push_str(&one(process, seconds, width));
    }
    out
}

fn one(process: &Process, seconds: f64, width: usize) -> String {
    let mut out = String::new();
    let program = process.program.rsplit('/').next().unwrap_or_default();
    let _ = writeln!(
        out,
        "{BOLD}Waits for locks{BOLD:#} of {program}, process {}, in {} s; longest total wait first",
        process.process,
        figure((seconds * 100.0).round() / 100.0),
    );
    let (locks, others): (Vec<&Lock>, Vec<&Lock>) =
        process.locks.iter().partition(|lock| lock.is_lock);
    // Where all is left out, it is not known here what that is.
    let is_nothing_wanted = process.locks.is_empty() && process.left_out > 0;
    if !locks.is_empty() {
        let _ = write!(out, "\n{}", table(&locks, width));
    } else if !is_nothing_wanted {
        let _ = writeln!(out, "\n  no thread waited for a lock");
    }
    if !others.is_empty() {
        let text = "Waits for events: not lost time, if waiting for events is the thread's purpose";
        let _ = write!(out, "\n{}\n\n{}", wrap(text, width, 0), table(&others, width));
    }
    for lock in locks.iter().chain(&others).filter(|lock| has_more(lock)).take(TOLD_MORE) {
        let _ = write!(out, "\n{}", more(lock, width));
    }
    for remark in remarks(process) {
        let _ = writeln!(out, "\n{WARNING}{}{WARNING:#}", wrap(&remark, width, 2));
    }
    out
}

fn table(locks: &[&Lock], width: usize) -> String {
    let mut grid = console::grid(width);
    let right = |text: &str| console::heading(text).set_alignment(CellAlignment::Right);
    let mut header = vec![console::heading("lock")];
    header.extend(["waits", "sleeps", "in all", "mean", "half in", "99% in", "longest"].map(right));
    grid.set_header(header);
    for lock in locks {
        let mut cells = vec![Cell::new(format!("{} {}", lock.kind, lock.lock))];
        let counts = [lock.waits, lock.sleeps].map(|count| count.to_string());
        let times =
            [lock.total_ns, lock.mean_ns, lock.p50_ns, lock.p99_ns, lock.longest_ns].map(time);
        let figures = counts.into_iter().chain(times);
        cells.extend(figures.map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
        grid.add_row(cells);
    }
    console::keep_whole(&mut grid, |index| index > 0);
    console::lines(&grid)
}

fn has_more(lock: &Lock) -> bool {
    lock.worst_holder.is_some() || lock.longest_wait.is_some() || lock.waiting > 0
}

fn more(lock: &Lock, width: usize) -> String {
    let mut out = String::new();
    let _ =
        writeln!(out, "{BOLD}{}{BOLD:#} {DIM}{}, {}{DIM:#}", lock.lock, lock.kind, lock.address);
    let _ = writeln!(out, "  waits  {}", bars(&lock.histogram));
    if lock.gave_up > 0 {
        let _ = writeln!(out, "  {} of {} waits timed out", lock.gave_up, lock.waits);
    }
    if lock.waiting > 0 {
        let verb = if lock.waiting == 1 { "thread waits" } else { "threads wait" };
        let _ = writeln!(out, "  {} {verb} at the moment", lock.waiting);
    }
    if let Some(place) = &lock.worst_holder {
        let what = if lock.is_lock { "longest holder, delayed others for" } else { "came after" };
        out.push_str(&whereabouts(what, place, width));
    }
    if let Some(place) = &lock.longest_wait {
        out.push_str(&whereabouts("longest wait,", place, width));
    }
    out
}

fn whereabouts(what: &str, place: &Place, width: usize) -> String {
    let mut out = String::new();
    let thread = thread(place.thread, &place.name);
    let _ = writeln!(out, "  {what} {}: {thread}", time(place.time_ns));
    out.push_str(&calls(&place.frames, width));
    out
}

/// Returns a thread, by number and by name if it has one.
pub fn thread(number: u32, name: &str) -> String {
    format!("thread {number} {name}").trim_end().to_owned()
}

/// Functions that called each other.
pub fn calls(frames: &[Call], width: usize) -> String {
    let mut out = String::new();
    for (depth, call) in frames.iter().take(MOST_CALLS).enumerate() {
        let function =
            wrap(&call.function, width.saturating_sub(8).max(30), 2).replace('\n', "\n        ");
        let _ = writeln!(out, "    {depth:>2}  {function}");
        if let Some(source) = &call.source {
            let _ = writeln!(out, "        {DIM}{source}{DIM:#}");
        }
    }
    if frames.len() > MOST_CALLS {
        let _ = writeln!(out, "        {DIM}and {} more{DIM:#}", frames.len() - MOST_CALLS);
    }
    if frames.is_empty() {
        let _ = writeln!(out, "        {DIM}the stack is not available on this processor{DIM:#}");
    }
    out
}

fn remarks(process: &Process) -> Vec<String> {
    let mut remarks = Vec::new();
    let places = process.locks.iter().flat_map(|it| it.worst_holder.iter().chain(&it.longest_wait));
    let mut calls = places.flat_map(|place| &place.frames).peekable();
    if calls.peek().is_some() && calls.all(|call| call.source.is_none()) {
        remarks.push(NO_LINES.to_owned());
    }
    if process.left_out > 0 {
        remarks.push(format!("{} more are not shown; --top shows more", process.left_out));
    }
    if process.missed_waits > 0 {
        remarks.push(format!(
            "{} waits are not counted: there were more than 1024 locks",
            process.missed_waits
        ));
    }
    if process.missed_stacks > 0 {
        remarks.push("some stacks were not recorded: there were more than 256".to_owned());
    }
    remarks
}

/// Draws the waits from the shortest to the longest one: a bar for each doubling, high where most waits were.
fn bars(histogram: &[Bucket]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let (Some(first), Some(last)) = (histogram.first(), histogram.last()) else {
        return "none has ended".to_owned();
    };
    let doubling = |bucket: &Bucket| bucket.from_ns.max(1).ilog2();
    let (low, high) = (doubling(first), doubling(last));
    let mut sums = vec![0_u64; (high - low) as usize + 1];
    for bucket in histogram {
        let sum = &mut sums[(doubling(bucket).clamp(low, high) - low) as usize];
        *sum = sum.saturating_add(bucket.waits);
    }
    let most = sums.iter().copied().max().unwrap_or(1).max(1);
    let bar = |sum: u64| match sum {
        0 => ' ',
        // The share of the largest one, rounded up.
        _ => BARS[((u128::from(sum) * 8).div_ceil(most.into()) as usize).clamp(1, 8) - 1],
    };
    let bars: String = sums.into_iter().map(bar).collect();
    format!("{DIM}{}{DIM:#} {bars} {DIM}{}{DIM:#}", time(first.from_ns), time(last.until_ns))
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::lock;
    use super::*;

    fn place(time_ns: u64, calls: usize) -> Option<Place> {
        let call = |nth| Call {
            function: format!("program::serve::layer_{nth}").into(),
            source: (nth % 2 == 0).then(|| format!("src/serve.rs:{}", 10 + nth).into()),
        };
        Some(Place {
            time_ns,
            thread: 4711,
            name: "worker-3".to_owned(),
            frames: (0..calls).map(call).collect(),
        })
    }

    fn process() -> Process {
        let mut hot = lock("program::CACHE", "mutex", true, 4200);
        hot.worst_holder = place(4_100_000, 3);
        hot.longest_wait = place(4_200_000, 14);
        let mut cold = lock("0x7f0012345678", "rwlock write", true, 3);
        (cold.waiting, cold.gave_up) = (2, 5);
        let idle = lock("program::QUEUE+0x40", "condvar", false, 900_000);
        Process {
            process: 4700,
            program: "/usr/bin/program".to_owned(),
            locks: vec![hot, cold, idle],
            left_out: 3,
            missed_waits: 17,
            missed_stacks: 1,
        }
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_table() {
        let text = plain(&all(&[process()], 2.5, 100));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn any_width_is_survived() {
        for width in [0, 1, 30, 80, 100_000] {
            let text = plain(&all(&[process(), process()], 2.5, width));
            let whole = text.replace(char::is_whitespace, "");
            assert!(whole.matches("program::CACHE").count() >= 2, "{text}");
        }
        let widest = plain(&all(&[process()], 2.5, 80));
        let widest = widest.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{widest:?}");
    }

    #[test]
    fn nothing_to_show_is_said() {
        assert!(all(&[], 1.0, 100).starts_with("No thread waited"));
        let process = Process { program: "/x".to_owned(), ..Process::default() };
        assert!(plain(&all(&[process], 1.0, 100)).contains("no thread waited for a lock"));
        // `--top 0`.
        let process = Process { left_out: 3, ..Process::default() };
        let text = plain(&all(&[process], 1.0, 100));
        assert!(text.contains("3 more are not shown") && !text.contains("no thread"), "{text}");
    }

    #[test]
    fn bars_span_the_waits() {
        let bucket = |from_ns, waits| Bucket { from_ns, until_ns: from_ns * 2, waits };
        assert_eq!(plain(&bars(&[])), "none has ended");
        let text = plain(&bars(&[bucket(64, 8), bucket(128, 1), bucket(512, 4)]));
        assert_eq!(text, "64 ns █▁ ▄ 1.02 us");
        assert_eq!(plain(&bars(&[bucket(0, u64::MAX)])), "0 ns █ 0 ns");
    }
}
