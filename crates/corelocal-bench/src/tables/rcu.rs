//! Read-copy-update: what a read costs, what it costs to free an old version, and to wait for a grace period.
//!
//! Invariants:
//! - A read is lock, dereference, comparison, unlock. A read that finds another value than the one that is there takes its
//!   row off the table.
//! - Figures of `rcu_write` are of all threads of a process, those that a library starts too, until all old versions have
//!   been freed. Each is measured in a process of its own.

mod maps;
mod readers;
mod urcu;
mod writers;

pub use self::maps::Map;
pub use self::writers::{Wait, Write};

use std::sync::Arc;
use std::sync::atomic::Ordering;

use corelocal_support::schema::{self, Row};

use super::baseline::Id;
use super::checked::{Checked, Line, Made, SHARDS, Subject, agree, checked, shards, sum};
use super::cpu_number::{CUBIETRUCK, RSEQ_2018, XEON};
use crate::contest::threads::Crew;
use crate::contest::{Contest, Context, Table};

/// The table of reads.
pub struct Read;

const BASELINE: &str = "urcu-memb";
/// The value that readers read.
const VALUE: u64 = 0x5EED;

/// A value that is read.
pub trait Reads: Send + Sync + 'static {
    /// Reads so many times, and returns how often the value was the expected one.
    fn reads(&self, expected: u64, times: u64) -> u64;
}

impl Table for Read {
    fn id(&self) -> &'static str {
        "rcu_read"
    }

    fn title(&self) -> &'static str {
        "RCU: a read"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        Ok(self.on(cx.plan.threads).measure(cx))
    }
}

impl Read {
    fn on(&self, threads: &[usize]) -> Contest<Checked<Crew<'static>>> {
        let (name, url, hardware) = RSEQ_2018;
        let about = "Cpu time for lock, dereference of a pointer, comparison of the word there, and unlock, while no \
             thread writes. liburcu is inlined; its threads are registered before and unregistered afterwards. Those of \
             qsbr, and quiescent readers of ours, say every 1024 reads that they have no reference. The C row adds 1 to \
             two words of the core by critical sections, which is the least that readers of this kind do; published \
             are figures of such readers. The bare load frees nothing. \
             Copies of 64 bytes are compared in their first and last word.";
        let contest = Contest::new(self, about)
            .source(name, url, hardware)
            .baseline(BASELINE)
            .tile("Reading data that is replaced now and then", "rcu", &["arc-swap"])
            .over("threads", threads);
        let rows: [(Row, fn() -> Made); 18] = [
            (Row::new("load", "bare load"), || made(readers::Load::new)),
            (Row::new(BASELINE, "liburcu memb"), || {
                urcu::Urcu::new::<urcu::Memb>(VALUE).map(subject)
            }),
            (Row::new("urcu-qsbr", "liburcu qsbr"), || {
                urcu::Urcu::new::<urcu::Qsbr>(VALUE).map(subject)
            }),
            (Row::new("urcu-bp", "liburcu bp"), || urcu::Urcu::new::<urcu::Bp>(VALUE).map(subject)),
            (
                Row::new("getcpu-atomic", "sched_getcpu + two atomic adds")
                    .published(53.4, "ns", XEON)
                    .published(751.0, "ns", CUBIETRUCK),
                || made(readers::Getcpu::new),
            ),
            (
                Row::new("c-two", "C, two increments")
                    .published(28.6, "ns", XEON)
                    .published(128.5, "ns", CUBIETRUCK),
                || readers::InC::new(Id::Cpu, VALUE).map(subject),
            ),
            (Row::new("crossbeam-epoch", "crossbeam-epoch"), || made(readers::Crossbeam::new)),
            (Row::new("seize", "seize"), || made(readers::Seize::new)),
            (Row::new("haphazard", "haphazard"), || made(readers::Haphazard::new)),
            (Row::new("arc-swap", "arc-swap load"), || made(readers::ArcSwap::new)),
            (Row::new("arc-swap-cache", "arc-swap Cache"), || made(readers::Cached::new)),
            (Row::new("std", "std RwLock"), || made(readers::StdLock::new)),
            (Row::new("parking-lot", "parking_lot RwLock"), || made(readers::ParkingLot::new)),
            (Row::ours("rcu", "corelocal Rcu"), || made(readers::Ours::new)),
            (Row::ours("quiescent", "corelocal Rcu, quiescent reader"), || {
                made(readers::Quiescent::new)
            }),
            (Row::ours("cache", "corelocal Cache"), || made(readers::OursCached::new)),
            (Row::ours("copy", "corelocal RcuCopy, 8 bytes"), || made(readers::Copy::new)),
            (Row::ours("copy-64", "corelocal RcuCopy, 64 bytes"), || made(readers::LongCopy::new)),
        ];
        rows.into_iter().fold(contest, |contest, (row, made)| contest.row(row, checked(made)))
    }
}

fn made<R: Reads>(new: impl Fn(u64) -> R) -> Made {
    Ok(subject(new(VALUE)))
}

fn subject(reads: impl Reads) -> Arc<dyn Subject> {
    Arc::new(Reading { reads, right: shards() })
}

struct Reading<R> {
    reads: R,
    /// The number of times that each thread has read the value.
    right: Vec<Line>,
}

impl<R: Reads> Subject for Reading<R> {
    fn work(&self, thread: usize, operations: u64) {
        let right = self.reads.reads(VALUE, operations);
        // Relaxed: read when all threads have been joined.
        self.right[thread % SHARDS].0.fetch_add(right, Ordering::Relaxed);
    }

    fn check(&self, asked: u64) -> anyhow::Result<()> {
        agree(asked, sum(&self.right))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

    #[test]
    fn every_row_on_several_threads() {
        let short = Duration::from_millis(1);
        let plan = Plan { slice: short, contest: short, rounds: 5, ..Plan::QUICK };
        let machine = Machine::default();
        let table = Read.on(&[1, 5]).measure(&Context::new(plan, &machine));
        for row in &table.rows {
            let is_missing = row.unavailable.is_some();
            assert!(!is_missing || row.id.starts_with("urcu") || row.id == "c-two", "{row:?}");
            assert_eq!(row.points.len(), if is_missing { 0 } else { 2 }, "{}", row.id);
        }
    }

    #[test]
    fn who_reads_something_else_leaves_the_table() {
        struct Wrong;
        impl Reads for Wrong {
            fn reads(&self, _: u64, times: u64) -> u64 {
                times - 1
            }
        }
        let wrong = subject(Wrong);
        wrong.work(0, 3);
        assert!(wrong.check(3).is_err());
    }
}
