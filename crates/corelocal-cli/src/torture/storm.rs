//! `corelocal torture --for TIME`: everything at random, at full speed.
//!
//! Invariant: a storm that crashes or hangs is a violation, not the end of the command.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::{ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use corelocal_lab::torture::storm::Totals;
use corelocal_support::output;

use super::{DIM, FAIL, bar, victim_command};

/// One that says nothing for so long hangs. Emulated machines with more cpus than the real one are
/// silent for the better part of a minute.
const SILENCE: Duration = Duration::from_secs(150);

/// Runs the storm and tells what came of it.
pub fn rage(time: Duration, json: bool) -> anyhow::Result<ExitCode> {
    let seed = std::process::id();
    let mut command = victim_command()?;
    command.arg("--storm").arg(time.as_millis().to_string()).arg("--seed").arg(seed.to_string());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("the process to be disturbed could not be started")?;
    let lines = child.stdout.take().map(BufReader::new).context("no standard output")?;
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let totals = lines.lines().map_while(Result::ok);
        for totals in totals.filter_map(|line| serde_json::from_str::<Totals>(&line).ok()) {
            if tell.send(totals).is_err() {
                break;
            }
        }
    });

    let bar = bar();
    bar.set_length(time.as_millis() as u64);
    let (began, mut totals) = (Instant::now(), Totals::default());
    let hangs = loop {
        match told.recv_timeout(SILENCE) {
            Ok(news) => totals = news,
            Err(mpsc::RecvTimeoutError::Timeout) => break true,
            Err(mpsc::RecvTimeoutError::Disconnected) => break false,
        }
        bar.set_position(began.elapsed().as_millis() as u64);
        let (operations, aborts) = (millions(totals.operations.total()), totals.aborts);
        bar.set_message(format!("{operations} operations, {aborts} aborts"));
    };
    bar.finish_and_clear();
    if hangs {
        let _ = child.kill();
        totals.violations.push(format!("it hung for {} s", SILENCE.as_secs()));
    }
    let status = child.wait().context("cannot wait for the disturbed process")?;
    if !status.success() && !hangs {
        totals.violations.push(format!("the disturbed process ended early: {status}"));
    }
    let clean = totals.violations.is_empty();
    let code = if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if json {
        return output::finish(serde_json::to_string_pretty(&totals)? + "\n", code);
    }
    output::finish(text(&totals, began.elapsed()), code)
}

fn millions(n: u64) -> String {
    format!("{:.1} million", n as f64 / 1e6)
}

fn text(totals: &Totals, time: Duration) -> String {
    let mut out = String::new();
    let o = &totals.operations;
    let lines = [
        ("operations", o.total(), "of these kinds:".to_owned()),
        ("  sums", o.adds + o.gets + o.takes, format!("of them {} get, {} take", o.gets, o.takes)),
        ("  maxima", o.records + o.maxima, format!("of them {} get", o.maxima)),
        ("  samples", o.samples, "of histograms, vectors of counters, words".to_owned()),
        (
            "  items",
            o.items,
            "in and out of stacks, pools, rings, queues, words, the malloc".to_owned(),
        ),
        ("  drains", o.drains, "of all items, from another core".to_owned()),
        ("  locks", o.locks, "of a core's shard, some from another core".to_owned()),
        ("  lives", o.lives, "of containers: made, used, dropped".to_owned()),
        ("aborts", totals.aborts, "sections that the kernel aborted".to_owned()),
        ("fallbacks", totals.fallbacks, "operations that used atomics in the end".to_owned()),
        ("signals", totals.signals, "whose handlers operated too".to_owned()),
        ("moves", totals.moves, "changes of a thread's affinity".to_owned()),
        ("freezes", totals.freezes, "slots taken from their ids for a while".to_owned()),
        ("compactions", totals.compactions, "all slots taken at once".to_owned()),
        ("threads", totals.threads, format!("{} without a registration", totals.unregistered)),
        ("forks", totals.forks, "whose children operated too".to_owned()),
        ("violations", totals.violations.len() as u64, String::new()),
    ];
    for (name, count, what) in lines {
        let _ = write!(out, "{name:11}{count:>14}");
        let _ = match &*what {
            "" => writeln!(out),
            what => writeln!(out, "  {DIM}{what}{DIM:#}"),
        };
    }
    for violation in &totals.violations {
        let _ = writeln!(out, "{FAIL}FAIL{FAIL:#} {violation}");
    }
    let _ = writeln!(out, "in {:.1} s", time.as_secs_f64());
    out
}
