//! The loads of the suite, and the process that one of them runs in.
//!
//! A load runs in a process of its own, made anew for each round, with the malloc preloaded that is
//! measured. It is this command, called by a hidden name: a program of its own would have to be found and
//! built, while this one is there wherever a table is measured. What it has in memory before the load
//! begins is the same for all mallocs, and what it has of files is left out of the figures.
//!
//! Invariants:
//! 1. A load's place in [`WORKS`] never changes once released; new ones are added at the end.
//! 2. The process says whose malloc it had, and a figure of another malloc than the one asked for is none.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use corelocal_support::mallocs::resident::Process;
use corelocal_support::mallocs::{self, Malloc, library};
use corelocal_support::output::path_line;
use corelocal_support::process::child;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::did::Did;
use super::{cfrac, large, micro, programs, threads};

/// The name of the child process.
pub const CHILD: &str = "malloc-work";

/// Far more than a load takes; for mallocs that give memory back and fetch it again all the time.
const LIMIT: Duration = Duration::from_secs(60);

/// A load of the suite.
pub struct Work {
    /// The name that a reader sees.
    pub name: &'static str,
    /// Operations of a round of 20 ms on a slow machine.
    ops: u64,
    run: fn(u64) -> anyhow::Result<Did>,
}

macro_rules! works {
    ($($name:literal, $ops:literal, $run:expr;)*) => {
        &[$(Work { name: $name, ops: $ops, run: $run }),*]
    };
}

/// All loads.
pub const WORKS: &[Work] = works![
    "pair 16", 2_000_000, |ops| Ok(micro::pair(16, ops));
    "pair 64", 2_000_000, |ops| Ok(micro::pair(64, ops));
    "pair mixed", 2_000_000, |ops| Ok(micro::pair_mixed(ops));
    "pair 8 K", 1_000_000, |ops| Ok(micro::pair(8 << 10, ops));
    "pair 64 K", 1_000_000, |ops| Ok(micro::pair(64 << 10, ops));
    "pair 1 M", 500_000, |ops| Ok(micro::pair(1 << 20, ops));
    "1000 x 64", 2_000_000, |ops| Ok(micro::out_then_in(1000, ops));
    "100 k x 64", 2_000_000, |ops| Ok(micro::out_then_in(100_000, ops));
    "calloc 256", 1_000_000, |ops| Ok(micro::zeroed(ops));
    "aligned 64, 256", 1_000_000, |ops| Ok(micro::aligned(ops));
    "realloc grows", 1_000_000, |ops| Ok(micro::growing(ops));
    "churn 10 k", 1_000_000, |ops| Ok(micro::churn(1, 10_000, 4, ops));
    "churn 1 M", 400_000, |ops| Ok(micro::churn(1, 1_000_000, 3, ops));
    "churn, 2 threads", 2_000_000, |ops| Ok(micro::churn(2, 1000, 5, ops));
    "churn, 64 threads", 2_000_000, |ops| Ok(micro::churn(64, 1000, 5, ops));
    "batches, 64 threads", 2_000_000, |ops| Ok(micro::batches(64, ops));
    "relay, 1 pair", 1_000_000, |ops| Ok(threads::relay(1, ops));
    "relay, 16 pairs", 1_000_000, |ops| Ok(threads::relay(16, ops));
    "larson, 2 threads", 1_000_000, |ops| Ok(threads::larson(2, ops));
    "larson, 16 threads", 1_000_000, |ops| Ok(threads::larson(16, ops));
    "xmalloc, 2 threads", 1_000_000, |ops| Ok(threads::xmalloc(2, ops));
    "mstress, 2 threads", 500_000, |ops| Ok(threads::mstress(2, ops));
    "mstress, 16 threads", 500_000, |ops| Ok(threads::mstress(16, ops));
    "shelves, 4 threads", 1_000_000, |ops| Ok(threads::shelves(4, ops, false));
    "buffers handed over", 1_000_000, |ops| Ok(threads::shelves(4, ops, true));
    "factor", 500_000, cfrac::factor;
    "large 1-8 M", 100, |ops| Ok(large::churn(ops));
    "trees", 1_000_000, programs::trees;
    "rewriter", 1_000_000, programs::rewriter;
];

/// The indices of the loads in a report: one of each kind.
pub const FEW: [usize; 6] = [1, 2, 7, 14, 16, 19];

/// The task of a child process.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    work: usize,
    scale: f64,
}

/// The figures of a task.
#[derive(Debug, Serialize, Deserialize)]
pub struct Figures {
    /// The file in which the process had its malloc.
    malloc: String,
    /// The time of an operation, in nanoseconds.
    pub ns: f64,
    /// KiB that were resident at most and are no file's.
    pub peak_kib: Option<u64>,
}

/// Runs a load under `malloc`, for about 20 ms times `scale`.
///
/// # Errors
/// When the process fails, or had another malloc.
pub fn measure(malloc: &Malloc, work: usize, scale: f64) -> anyhow::Result<Figures> {
    let task = serde_json::to_string(&Task { work, scale })?;
    let value = under(malloc, CHILD, &[task], LIMIT)?;
    Ok(serde_json::from_value(value)?)
}

/// Runs a child process under `malloc`; its answer says in `malloc` whose malloc it had (2).
///
/// # Errors
/// As for [`measure`].
pub fn under(
    malloc: &Malloc,
    child: &str,
    args: &[String],
    limit: Duration,
) -> anyhow::Result<Value> {
    under_with(malloc, child, args, &[], limit)
}

/// Does what [`under`] does, with more in the environment.
///
/// # Errors
/// As for [`measure`].
pub fn under_with(
    malloc: &Malloc,
    child: &str,
    args: &[String],
    env: &[(&str, &str)],
    limit: Duration,
) -> anyhow::Result<Value> {
    let preload = malloc.alone();
    let env: Vec<_> = env.iter().copied().chain([("LD_PRELOAD", &*preload)]).collect();
    let value = child::run(child, args, &env, limit)?;
    let had = value["malloc"].as_str().context("the process did not report its malloc")?;
    match &malloc.library {
        Some(library) => ensure!(
            library.as_os_str() == OsStr::new(had),
            "the process had its malloc from {had}, not from {}",
            path_line(library)
        ),
        None => ensure!(
            had.is_empty() || library::is_libc(Path::new(had)),
            "the process had its malloc from {had}, not from libc"
        ),
    }
    Ok(value)
}

/// Says whose malloc this process has, for an answer.
pub fn whose() -> String {
    mallocs::of_this_process().to_string_lossy().into_owned()
}

/// Runs in the child.
pub fn child(args: &[String]) -> anyhow::Result<Value> {
    let [task] = args else { anyhow::bail!("expected one task") };
    let Task { work, scale } = serde_json::from_str(task)?;
    let work = WORKS.get(work).context("unknown load")?;
    let did = run(work, scale)?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let peak_kib = Process::This.peak_anonymous();
    Ok(serde_json::to_value(Figures { malloc: whose(), ns: did.ns(cpus), peak_kib })?)
}

fn run(work: &Work, scale: f64) -> anyhow::Result<Did> {
    let ops = (work.ops as f64 * scale).max(1.0) as u64;
    (work.run)(ops)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_load_runs() {
        let names: BTreeSet<_> = WORKS.iter().map(|work| work.name).collect();
        assert_eq!(names.len(), WORKS.len());
        for work in WORKS {
            // A millionth of pieces would be none: some loads have batches.
            let did = run(work, 0.2).unwrap_or_else(|error| panic!("{}: {error:#}", work.name));
            assert!(did.ops > 0 && did.wall > Duration::ZERO, "{}", work.name);
        }
    }

    #[test]
    fn the_child_tells_all() {
        let task = serde_json::to_string(&Task { work: 0, scale: 0.01 }).unwrap();
        let figures: Figures = serde_json::from_value(child(&[task]).unwrap()).unwrap();
        assert!(figures.ns > 0.0 && figures.peak_kib > Some(0), "{figures:?}");
        assert!(child(&["{\"work\":1000,\"scale\":1}".to_owned()]).is_err());
        assert!(child(&[]).is_err());
    }

    #[test]
    fn operations_take_what_a_thread_takes() {
        let wall = Duration::from_nanos(1000);
        assert_eq!(Did::alone(100, wall).ns(8), 10.0);
        // Four threads on two cpus: two operations at a time.
        assert_eq!(Did::on(4, 100, wall).ns(2), 20.0);
        assert_eq!(Did::on(4, 100, wall).ns(8), 40.0);
        // A relay takes two cpus for one lane.
        assert_eq!(Did::pairs(1, 100, wall).ns(2), 10.0);
        assert_eq!(Did::pairs(16, 100, wall).ns(8), 40.0);
        assert_eq!(Did::pairs(1, 100, wall).ns(1), 10.0);
    }
}
