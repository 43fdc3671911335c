//! What it costs to watch: loads under this library's malloc in a process that watches nothing, counts, guards some
//! objects, samples some, or checks all.
//!
//! Invariants:
//! 1. A load's place in [`LOADS`] never changes once released; new ones are added at the end.
//! 2. Modes are those that a user gets by their names alone: rates are the defaults.

use std::time::Duration;

use anyhow::Context as _;
use corelocal_support::mallocs::{CAN_ASK, Malloc, library};
use corelocal_support::process::child;
use corelocal_support::process::folder::Folder;
use corelocal_support::schema::{self, Row};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::did::Did;
use super::micro;
use super::work;
use crate::contest::probe::probe;
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct Modes;

/// The name of the child process.
const CHILD: &str = "malloc-mode";
const LIMIT: Duration = Duration::from_secs(60);

/// Ids of rows, what `CORELOCAL_MALLOC` is there, and what a reader sees.
const MODES: &[(&str, &str, &str)] = &[
    ("off", "", "nothing"),
    ("stats", "stats", "stats: counts"),
    ("guard", "guard", "guard: one object in 5000"),
    ("profile", "profile", "profile: a sample for 512 KiB"),
    ("check", "check", "check: all objects"),
];
const BASELINE: &str = "off";

/// A load, and how often it is done in a round.
type Load = (&'static str, u64, fn(u64) -> Did);

const LOADS: &[Load] = &[
    ("pair 64", 2_000_000, |ops| micro::pair(64, ops)),
    ("pair 1 K", 2_000_000, |ops| micro::pair(1024, ops)),
    ("1000 x 64", 2_000_000, |ops| micro::out_then_in(1000, ops)),
    ("churn 10 k", 1_000_000, |ops| micro::churn(1, 10_000, 4, ops)),
];

impl Table for Modes {
    fn id(&self) -> &'static str {
        "malloc_modes"
    }

    fn title(&self) -> &'static str {
        "The malloc's checking and profiling modes"
    }

    fn in_report(&self, _is_quick: bool) -> bool {
        false
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let about = "Time of one malloc and free by a C program in a loop without other work, with \
             `CORELOCAL_MALLOC` as each row says.";
        let names: Vec<&str> = LOADS.iter().map(|load| load.0).collect();
        let contest = Contest::new(self, about).baseline(BASELINE).over_names("load", &names);
        let ours = match CAN_ASK {
            true => library::ours().map_err(|error| format!("{error:#}")),
            false => Err("this program was linked without a dynamic loader".to_owned()),
        };
        // Profiles are written when a process ends.
        let folder = Folder::new("modes")?;
        let contest = MODES.iter().fold(contest, |contest, &(id, word, label)| {
            let row = if id == BASELINE { Row::new(id, label) } else { Row::ours(id, label) };
            let words = match word {
                "profile" => format!("profile:{}/of", folder.path().display()),
                word => word.to_owned(),
            };
            match ours.clone() {
                Ok(malloc) => contest.row(row, probe(move |x| measure(&malloc, &words, x, 1.0))),
                Err(why) => contest.unavailable(row, why),
            }
        });
        Ok(contest.measure(cx))
    }

    fn children(&self) -> &'static [(&'static str, child::Body)] {
        &[(CHILD, child_of_a_mode)]
    }
}

/// The task of a child process.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    load: usize,
    scale: f64,
}

/// Returns the nanoseconds of an operation.
fn measure(malloc: &Malloc, words: &str, load: Option<f64>, scale: f64) -> anyhow::Result<f64> {
    let task = serde_json::to_string(&Task { load: load.unwrap_or(0.0) as usize, scale })?;
    let env = [("CORELOCAL_MALLOC", words)];
    let figures = work::under_with(malloc, CHILD, &[task], &env, LIMIT)?;
    figures["ns"].as_f64().context("the process reported no time")
}

/// Runs in the child.
fn child_of_a_mode(args: &[String]) -> anyhow::Result<Value> {
    let [task] = args else { anyhow::bail!("expected one task") };
    let Task { load, scale } = serde_json::from_str(task)?;
    let (_, ops, run) = LOADS.get(load).context("unknown load")?;
    let did = run((*ops as f64 * scale).max(1.0) as u64);
    let ns = did.wall.as_nanos() as f64 / did.ops.max(1) as f64;
    Ok(serde_json::json!({ "malloc": work::whose(), "ns": ns }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_runs() {
        for load in 0..LOADS.len() {
            let task = serde_json::to_string(&Task { load, scale: 0.01 }).unwrap();
            let figures = child_of_a_mode(&[task]).unwrap();
            assert!(figures["ns"].as_f64() > Some(0.0), "{figures}");
        }
        assert!(child_of_a_mode(&["{\"load\":1000,\"scale\":1}".to_owned()]).is_err());
        assert!(child_of_a_mode(&[]).is_err());
    }
}
