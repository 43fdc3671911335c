//! Comparison of mallocs: the time and memory of their loads.
//!
//! ```text
//!   rivals.rs      the contestants
//!   work.rs        the loads of the suite, and the process that runs one
//!   micro.rs | threads.rs | cfrac.rs | programs.rs | large.rs    the loads
//!   heap.rs        common code of the loads
//!   retention.rs   memory of idle threads, and after all was freed
//!   spike.rs       memory that few calls give back
//!   start.rs       how much later a program starts
//!   latency.rs     how long requests to a server take
//!   modes.rs       the cost of counting, guarding and sampling
//! ```
//!
//! Invariants:
//! - Every figure is from a process that ran only its load, with the malloc preloaded.
//! - These tables take minutes. `report` has a few of the loads, and retained memory unless it is to be quick;
//!   `bench` measures all.

mod cfrac;
mod did;
mod heap;
mod large;
pub mod latency;
mod micro;
pub mod modes;
mod programs;
pub mod retention;
mod rivals;
mod spike;
pub mod start;
mod threads;
mod work;

use corelocal_support::mallocs::Malloc;
use corelocal_support::measure::engine::{Body, Plan, Sample};
use corelocal_support::process::child;
use corelocal_support::schema;

use crate::contest::{Contest, Context, Table};

/// The table.
pub struct Suite;

/// Rounds: a process for each load and malloc.
const ROUNDS: usize = 7;

impl Table for Suite {
    fn id(&self) -> &'static str {
        "malloc"
    }

    fn title(&self) -> &'static str {
        "Mallocs: time and memory"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let about = "Time of an operation, usually one malloc and free, with the malloc preloaded. On several \
             threads it is the time of those that had a cpu, including waits. Peak MiB is the maximum of \
             resident anonymous memory.";
        let names: Vec<&str> = work::WORKS.iter().map(|work| work.name).collect();
        let contest = Contest::new(self, about)
            .baseline(rivals::BASELINE)
            .over_names("load", &names)
            .tile("Allocating and freeing memory", "corelocal", &[rivals::BASELINE]);
        let contest = match cx.in_report {
            true => contest.only(&work::FEW).note(
                "`corelocal bench malloc` measures all loads, and `corelocal bench malloc_memory malloc_latency \
                 malloc_start` what else there is.",
            ),
            false => contest,
        };
        Ok(rivals::enter(contest, |malloc| Rival { malloc, work: 0, scale: 1.0 }).measure(cx))
    }

    fn children(&self) -> &'static [(&'static str, child::Body)] {
        &[(work::CHILD, work::child)]
    }
}

/// A malloc, with the load that is its turn.
struct Rival {
    malloc: Malloc,
    work: usize,
    scale: f64,
}

impl Body for Rival {
    const SINGLE_THREAD: bool = false;

    fn rounds(plan: &Plan) -> usize {
        plan.long_rounds.min(ROUNDS)
    }

    fn prepare(&mut self, x: Option<f64>, plan: &Plan) -> anyhow::Result<()> {
        self.work = x.unwrap_or(0.0) as usize;
        self.scale = plan.slice.as_secs_f64() / Plan::FULL.slice.as_secs_f64();
        Ok(())
    }

    fn round(&mut self) -> anyhow::Result<Sample> {
        let figures = work::measure(&self.malloc, self.work, self.scale)?;
        let peak = figures.peak_kib.map_or(f64::NAN, |kib| kib as f64 / 1024.0);
        Ok(Sample { value: figures.ns, extra: vec![("peak MiB", peak)] })
    }
}
