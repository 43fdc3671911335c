//! What registration costs the scheduler, and what the ids it hands out look like.
//!
//! The kernel updates a registered thread's rseq area on its way back to user space after a
//! preemption. The messaging tables show what that costs a load that switches as often as it can;
//! [`ids`] shows how far the concurrency ids reach.
//!
//! Invariants:
//! - All contestants of a table send the same number of messages.
//! - Whether a task is registered is what the kernel says, asked in every task before the start.

pub mod ids;
mod messaging;
mod registered;

use std::time::Duration;

use corelocal_support::measure::engine::calibrate;
use corelocal_support::process::child;
use corelocal_support::schema::{self, Better, Row};

use crate::contest::probe::probe;
use crate::contest::{Contest, Context, Table};
use messaging::{Load, PEERS, Tasks};

/// The messaging load of hackbench and `perf bench sched messaging`, with and without rseq.
pub struct Messaging {
    tasks: Tasks,
}

impl Messaging {
    /// Among processes, as hackbench and perf do by default.
    pub const PROCESSES: Self = Self { tasks: Tasks::Processes };
    /// Among the threads of one process.
    pub const THREADS: Self = Self { tasks: Tasks::Threads };
}

const UNREGISTERED: &str = "unregistered";

/// Groups that hackbench and perf run unless told otherwise, and the most that run here.
const MOST_GROUPS: usize = 10;

/// A round takes this many times as long as one of an ordinary contestant on many threads: most of
/// its tasks are then past their first time slices.
const SLICES: u32 = 16;

impl Table for Messaging {
    fn id(&self) -> &'static str {
        match self.tasks {
            Tasks::Processes => "sched",
            Tasks::Threads => "sched_threads",
        }
    }

    fn title(&self) -> &'static str {
        match self.tasks {
            Tasks::Processes => "Scheduling with rseq: messages between processes",
            Tasks::Threads => "Scheduling with rseq: messages between threads",
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let groups = (cx.machine.cpus_allowed / 2).clamp(1, MOST_GROUPS);
        let load = |registered| Load { tasks: self.tasks, registered, groups, loops: 1 };
        let loops = loops_for(cx.plan.slice * SLICES, [load(false), load(true)]);
        let contestant = |registered| {
            let load = Load { loops, ..load(registered) };
            probe(move |_| Ok(load.run_in_child()?.as_secs_f64() * 1e3))
        };
        let [unregistered, registered] = self.rows();
        Ok(self
            .contest(groups, loops)
            .unit("ms", Better::Lower)
            .baseline(UNREGISTERED)
            .row(unregistered, contestant(false))
            .row(registered, contestant(true))
            .measure(cx))
    }

    fn children(&self) -> &'static [(&'static str, child::Body)] {
        match self.tasks {
            Tasks::Processes => &[(messaging::CHILD, messaging::child)],
            // The same child, which one table names.
            Tasks::Threads => &[],
        }
    }
}

impl Messaging {
    fn contest<B>(&self, groups: usize, loops: u64) -> Contest<B> {
        let tasks = match self.tasks {
            Tasks::Processes => "processes",
            Tasks::Threads => "threads",
        };
        let plural = if groups == 1 { "" } else { "s" };
        let about = format!(
            "{groups} group{plural} of {PEERS} senders and {PEERS} receivers, {tasks} that pass messages of 100 \
             bytes through sockets: each sender writes to each receiver {loops} times. The load is sized for \
             this machine, so compare the ratios with the published ones, not the times. At 1.00x registration \
             does not slow the scheduler down."
        );
        let contest = Contest::new(self, about).sized();
        match self.tasks {
            Tasks::Processes => contest
                .source(
                    "Mathieu Desnoyers, rseq: Introduce restartable sequences system call, 2018",
                    "https://git.kernel.org/torvalds/c/d7822b1e24f2df5df98c76f0e94a5416349ff759",
                    "2 Xeon E5-2630 v3, 16 cores (the ms: another machine, not given)",
                )
                .note(MM_CID_PATCH),
            Tasks::Threads => contest.source(
                "Mathieu Desnoyers, sched: Introduce per-memory-map concurrency ID, 2022",
                "https://git.kernel.org/torvalds/c/af7f588d8f73",
                "a machine that is not given",
            ),
        }
    }

    /// Without and with registration.
    fn rows(&self) -> [Row; 2] {
        let unregistered = Row::new(UNREGISTERED, "rseq not registered");
        let registered = Row::new("registered", "rseq registered");
        match self.tasks {
            Tasks::Processes => [
                unregistered
                    .published(41.37, "s", "hackbench -l 100000, kernel without rseq")
                    .published(86.5, "ms", "perf bench, kernel without mm_cid")
                    .published(82.9, "ms", "hackbench, kernel without mm_cid"),
                registered
                    .published(40.46, "s", "hackbench -l 100000, kernel with rseq")
                    .published(86.7, "ms", "perf bench, kernel with mm_cid")
                    .published(82.9, "ms", "hackbench, kernel with mm_cid"),
            ],
            Tasks::Threads => {
                [
                    unregistered
                        .published(84.3, "ms", "perf bench, kernel without mm_cid")
                        .published(85.2, "ms", "hackbench, kernel without mm_cid"),
                    registered.published(84.7, "ms", "perf bench, kernel with mm_cid").published(
                        84.4,
                        "ms",
                        "hackbench, kernel with mm_cid",
                    ),
                ]
            }
        }
    }
}

const MM_CID_PATCH: &str = "The figures in ms are from Mathieu Desnoyers, sched: Introduce \
     per-memory-map concurrency ID, 2022 \
     (https://git.kernel.org/torvalds/c/af7f588d8f73).";

/// Returns how often each sender must write to each receiver for a round to take about `target`, measured
/// on the first of `loads` that runs here. Where none does, each will say why.
fn loops_for(target: Duration, loads: [Load; 2]) -> u64 {
    let on = |load: Load| {
        let mut failed = false;
        let loops = calibrate(target, |loops| {
            // A failure ends the calibration: it has taken as long as was asked for.
            Load { loops, ..load }.run_in_child().unwrap_or_else(|_| {
                failed = true;
                target
            })
        });
        (!failed).then_some(loops)
    };
    loads.into_iter().find_map(on).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_name_their_rows_and_source() {
        for table in [Messaging::PROCESSES, Messaging::THREADS] {
            let [unregistered, registered] = table.rows();
            assert_eq!(unregistered.id, UNREGISTERED);
            assert_eq!(unregistered.published.len(), registered.published.len());
        }
        assert_ne!(Messaging::PROCESSES.id(), Messaging::THREADS.id());
    }
}
