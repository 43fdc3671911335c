//! How long a program waits for a clock that it reads for the first time.
//!
//! Invariants:
//! - Each figure is from a process of its own, whose first reading it is.
//! - What a clock does before `main` counts: those that do it are loaded within the measurement.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use corelocal::clock;
use corelocal_support::process::child;
use corelocal_support::schema::{self, Row};
use serde_json::Value;

use super::foreign;
use crate::contest::probe::{Probe, probe};
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct ClockStart;

const CHILD: &str = "clock-start";

/// Far more than any clock takes.
const LIMIT: Duration = Duration::from_secs(20);

/// Rounds: a process each.
const ROUNDS: usize = 7;

impl Table for ClockStart {
    fn id(&self) -> &'static str {
        "clock_start"
    }

    fn title(&self) -> &'static str {
        "First clock reading in a process"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        cx.plan.long_rounds = cx.plan.long_rounds.min(ROUNDS);
        let about = "Wall time of the first reading in a new process, with what the clock does before main. \
             corelocal's first readings come from the vDSO, while the better back-end is compared with it in \
             passing; settle() waits for the end of the comparison, which takes some ticks of the kernel.";
        let contest = Contest::new(self, about)
            .unit("us", schema::Better::Lower)
            .baseline("instant")
            .tile("The first reading of the clock", "ours", &["instant"])
            .row(Row::new("instant", "Rust Instant::now"), of("instant"))
            .row(Row::new("coarsetime", "coarsetime Instant::now"), of("coarsetime"))
            .row(Row::new("quanta", "quanta Instant::now"), of("quanta"))
            .row(Row::new("rivals", "minstant and fastant, before main"), of("rivals"))
            .row(Row::ours("ours", "corelocal now()"), of("ours"))
            .row(Row::ours("settle", "corelocal settle()"), of("settle"));
        Ok(contest.measure(cx))
    }

    fn children(&self) -> &'static [(&'static str, child::Body)] {
        &[(CHILD, start)]
    }
}

fn of(clock: &'static str) -> Probe<'static> {
    probe(move |_| {
        let answer = child::run(CHILD, &[clock.to_owned()], &[], LIMIT)?;
        answer.as_f64().context("no number")
    })
}

/// Measures in the child: microseconds until the clock of this name has told the time once.
fn start(args: &[String]) -> anyhow::Result<Value> {
    // What every process pays at its first look at the clock: the vDSO's pages come in.
    let _ = Instant::now().elapsed();
    let start = Instant::now();
    match args.first().map(String::as_str) {
        Some("instant") => drop(black_box(Instant::now())),
        Some("coarsetime") => drop(black_box(coarsetime::Instant::now())),
        Some("quanta") => drop(black_box(quanta::Instant::now())),
        Some("rivals") => foreign::load_rivals()?,
        Some("ours") => drop(black_box(clock::now())),
        Some("settle") => drop(black_box(clock::settle())),
        _ => bail!("no such clock"),
    }
    Ok(Value::from(start.elapsed().as_nanos() as f64 / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clock_starts() {
        for clock in ["instant", "coarsetime", "quanta", "ours", "settle"] {
            assert!(start(&[clock.to_owned()]).unwrap().as_f64() > Some(0.0), "{clock}");
        }
        assert!(start(&[]).is_err());
    }
}
