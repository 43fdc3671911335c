//! The statistics counter, the plainest of all per-core data: what one increment costs, on one
//! thread and on many.
//!
//! Invariants:
//! - Every contestant adds 1 to a counter of 64 bits and loses nothing: `super::checked` looks.
//! - Contestants that keep a word for each cpu or thread keep it on a cache line of its own.

mod eight;
mod without_rseq;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use corelocal::cid::{Cid, CpuId, SlotIndex};
use corelocal::percpu;

pub use self::eight::CounterEight;
use corelocal_support::process::child;
use corelocal_support::schema::{self, Row};

use self::without_rseq::Contestant;
use super::baseline::{self, Id};
use super::checked::{Line, Made, SHARDS, Subject, agree, shards, sum, tally};
use super::cpu_number::{CUBIETRUCK, RSEQ_2018, XEON, vdso_getcpu};
use super::recorder;
use crate::contest::{Contest, Context, Table};

/// The table with one counter, over the number of threads.
pub struct Counter;

/// The id of the row that ratios refer to.
const GETCPU_ATOMIC: &str = "getcpu-atomic";

impl Table for Counter {
    fn id(&self) -> &'static str {
        "counter"
    }

    fn title(&self) -> &'static str {
        "The statistics counter"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        Ok(self.on(cx.plan.threads).measure(cx))
    }

    fn children(&self) -> &'static [(&'static str, child::Body)] {
        &[(without_rseq::CHILD, without_rseq::child)]
    }
}

impl Counter {
    fn on(&self, threads: &[usize]) -> Contest<Contestant> {
        let (name, url, hardware) = RSEQ_2018;
        let about = "Cpu time for one increment of one counter that all threads add to. Each total is checked. \
             glibc's sched_getcpu reads the rseq area since 2.35; when the figures were published it went \
             through the vDSO, which has a row of its own. The crate metrics records into metrics-util's \
             Registry, as the Prometheus exporter does. Incrementing one word repeatedly may be limited by the \
             latency from store to load; the next table has several counters in turn. The last row is a \
             separate process with CORELOCAL_RSEQ=off: the cost where rseq is refused.";
        Contest::new(self, about)
            .source(name, url, hardware)
            .baseline(GETCPU_ATOMIC)
            .over("threads", threads)
            .tile("Counting events", "cid", &["sharded", GETCPU_ATOMIC])
            .row(
                Row::new(GETCPU_ATOMIC, "sched_getcpu + atomic add")
                    .published(15.3, "ns", XEON)
                    .published(344.0, "ns", CUBIETRUCK),
                Contestant::here(by_sched_getcpu),
            )
            .row(Row::new("vdso-atomic", "vDSO getcpu + atomic add"), Contestant::here(by_vdso))
            .row(Row::new("shared", "shared atomic"), Contestant::here(shared))
            .row(Row::new("mutex", "std Mutex"), Contestant::here(mutex))
            .row(Row::new("sharded", "atomics sharded by thread"), Contestant::here(sharded))
            .row(Row::new("metrics", "metrics::counter!, each time"), Contestant::here(by_macro))
            .row(Row::new("metrics-handle", "metrics::Counter, kept"), Contestant::here(by_handle))
            .row(Row::new("c-cpu", "C asm goto by cpu_id"), Contestant::here(|| in_c(Id::Cpu)))
            .row(Row::new("c-cid", "C asm goto by mm_cid"), Contestant::here(|| in_c(Id::MmCid)))
            .row(
                Row::ours("cpu", "corelocal Counter<CpuId>")
                    .published(2.0, "ns", XEON)
                    .published(31.4, "ns", CUBIETRUCK),
                Contestant::here(ours::<CpuId>),
            )
            .row(Row::ours("cid", "corelocal Counter"), Contestant::here(ours::<Cid>))
            .row(Row::ours("off", "corelocal Counter, rseq off"), Contestant::without_rseq())
    }
}

/// Returns a line for each cpu there may be.
fn line_per_cpu<L: Default>() -> Vec<L> {
    (0..corelocal::cid::capacity()).map(|_| L::default()).collect()
}

/// Relaxed throughout: a counter orders nothing else, and totals are read after joining.
fn increment(word: &AtomicU64) {
    word.fetch_add(1, Ordering::Relaxed);
}

/// An error of the call wraps to a cpu there is not; the total then falls short.
fn sched_getcpu() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::sched_getcpu() as usize }
}

fn by_sched_getcpu() -> Made {
    let step = |lines: &Vec<Line>, _| {
        if let Some(line) = lines.get(sched_getcpu()) {
            increment(&line.0);
        }
    };
    tally(line_per_cpu(), 1, step, |lines| sum(lines))
}

fn by_vdso() -> Made {
    let getcpu = vdso_getcpu()?;
    let step = move |lines: &Vec<Line>, _| {
        if let Some(line) = lines.get(getcpu() as usize) {
            increment(&line.0);
        }
    };
    tally(line_per_cpu(), 1, step, |lines| sum(lines))
}

fn shared() -> Made {
    tally(Line::default(), 1, |line, _| increment(&line.0), |line| line.0.load(Ordering::Relaxed))
}

fn mutex() -> Made {
    fn locked(count: &Mutex<u64>) -> std::sync::MutexGuard<'_, u64> {
        count.lock().unwrap_or_else(PoisonError::into_inner)
    }
    tally(Mutex::new(0), 1, |count, _| *locked(count) += 1, |count| *locked(count))
}

fn sharded() -> Made {
    let step = |lines: &Vec<Line>, thread: usize| increment(&lines[thread % SHARDS].0);
    tally(shards(), 1, step, |lines| sum(lines))
}

fn by_macro() -> Made {
    const METRIC: &str = "corelocal_bench_by_macro";
    let before = recorder::counted(METRIC)?;
    let total = move |(): &()| recorder::counted(METRIC).unwrap_or(0) - before;
    tally((), 1, |(), _| metrics::counter!(METRIC).increment(1), total)
}

fn by_handle() -> Made {
    const METRIC: &str = "corelocal_bench_by_handle";
    let before = recorder::counted(METRIC)?;
    let total = move |_: &metrics::Counter| recorder::counted(METRIC).unwrap_or(0) - before;
    tally(metrics::counter!(METRIC), 1, |counter, _| counter.increment(1), total)
}

fn in_c(id: Id) -> Made {
    struct InC(baseline::Counters);
    impl Subject for InC {
        fn work(&self, _: usize, ones: u64) {
            self.0.add(ones);
        }

        fn check(&self, asked: u64) -> anyhow::Result<()> {
            agree(asked, self.0.total())
        }
    }
    Ok(Arc::new(InC(baseline::Counters::new(id)?)))
}

fn ours<I: SlotIndex>() -> Made {
    let count = percpu::Counter::<I>::new();
    tally(count, 1, |count, _| count.add(1), |count| count.get() as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

    pub const PLAN: Plan = Plan {
        round: Duration::from_micros(50),
        rounds: 5,
        slice: Duration::from_millis(1),
        ..Plan::QUICK
    };

    /// Points of a row, or its reason in place of them; a gap is a failure.
    pub fn check(table: &schema::Table, points: usize) {
        for row in &table.rows {
            match &row.unavailable {
                Some(why) => {
                    assert!(row.points.is_empty() && !row.ours, "{}: {why}", row.id);
                    eprintln!("skipped: row {}: {why}", row.id);
                }
                None => assert_eq!(row.points.len(), points, "{}: {:?}", row.id, table.notes),
            }
        }
    }

    #[test]
    fn one_counter_on_several_threads() {
        let table = Counter.on(&[1, 5]).measure(&Context::new(PLAN, &Machine::default()));
        assert_eq!(table.rows.len(), 12);
        check(&table, 2);
    }
}
