//! The contestants that free old versions, each in a process of its own, and those that wait for grace periods.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use corelocal::percpu::Counter;
use corelocal::rcu::{Domain, RcuCopy};
use corelocal::sys::membarrier;
use corelocal_support::measure::loops::{Loop, repeating};
use corelocal_support::process::child;
use corelocal_support::schema::{self, Row};
use serde_json::Value;

use super::urcu::{Bp, Flavour, Memb, Qsbr};
use crate::contest::probe::{Probe, probe};
use crate::contest::{Contest, Context, Table};

/// The table of frees.
pub struct Write;

/// The table of grace periods without readers.
pub struct Wait;

const CHILD: &str = "rcu-write";
const LIMIT: Duration = Duration::from_secs(60);
/// The number of items that a process frees in a round.
const ITEMS: u64 = 200_000;
/// `RcuCopy` frees one of so many, since it waits each time.
const COPIES: u64 = 50;
const BASELINE: &str = "crossbeam-epoch";
const PLACES: &[&str] = &["one thread", "a thread on each cpu"];

/// The number of items that were dropped.
static DROPPED: Counter = Counter::new();

/// An item to be freed.
struct Item(#[allow(dead_code, reason = "its length counts")] u64);

impl Drop for Item {
    fn drop(&mut self) {
        DROPPED.add(1);
    }
}

/// Frees so many items, or fewer. Returns how many, when all are freed that this thread has given.
type Free = fn(u64) -> anyhow::Result<u64>;

/// The ways to free items, by id and label. Those of C count no drops.
const FREES: &[(&str, &str, Free)] = &[
    ("urcu-memb", "liburcu memb, call_rcu", |items| in_c::<Memb>(items)),
    ("urcu-qsbr", "liburcu qsbr, call_rcu", |items| in_c::<Qsbr>(items)),
    (BASELINE, "crossbeam-epoch", by_crossbeam),
    ("seize", "seize", by_seize),
    ("haphazard", "haphazard", by_haphazard),
    ("arc-swap", "arc-swap store", by_arc_swap),
    (OURS, "corelocal defer_drop", by_defer_drop),
    (OURS_COPY, "corelocal RcuCopy store", by_copy),
];
const OURS: &str = "defer";
const OURS_COPY: &str = "copy";

impl Table for Write {
    fn id(&self) -> &'static str {
        "rcu_write"
    }

    fn title(&self) -> &'static str {
        "RCU: replace and free"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        Ok(contest().measure(cx))
    }

    fn children(&self) -> &'static [(&'static str, child::Body)] {
        &[(CHILD, child)]
    }
}

fn contest() -> Contest<Probe<'static>> {
    let about = "Cpu time of all threads for allocating 8 bytes, and freeing them after a grace period, until all are \
         freed. Nothing reads. Each contestant has a process of its own, whose malloc is libc's. liburcu has a thread \
         that frees, and so has corelocal in a process of several threads; the others free in the threads that \
         replace. arc-swap and RcuCopy free one by one, without deferring.";
    let contest = Contest::new(&Write, about).baseline(BASELINE).over_names("threads", PLACES);
    FREES.iter().fold(contest, |contest, &(id, label, _)| {
        let is_ours = [OURS, OURS_COPY].contains(&id);
        let row = if is_ours { Row::ours(id, label) } else { Row::new(id, label) };
        contest.row(row, probe(move |x| in_child(id, x)))
    })
}

fn in_child(id: &str, x: Option<f64>) -> anyhow::Result<f64> {
    let threads = if x == Some(0.0) { 1 } else { thread::available_parallelism()?.get() };
    let value = child::run(CHILD, &[id.to_owned(), threads.to_string()], &[], LIMIT)?;
    value.as_f64().context("the process told no number")
}

/// Returns the nanoseconds of an item, for the contestant and the number of threads that `args` name.
fn child(args: &[String]) -> anyhow::Result<Value> {
    let [id, threads] = args else { bail!("needs a contestant and a number of threads") };
    let (_, _, free) =
        FREES.iter().find(|(known, ..)| known == id).context("no such contestant")?;
    let threads: u64 = threads.parse()?;
    // Whatever is made at the first use.
    work(*free, threads, 100)?;
    let begin = process_time();
    let freed = work(*free, threads, ITEMS)?;
    Ok(Value::from((process_time() - begin).as_secs_f64() * 1e9 / freed as f64))
}

/// Lets each of the threads free so many items, here if it is one. Returns how many were freed.
fn work(free: Free, threads: u64, items: u64) -> anyhow::Result<u64> {
    let before = DROPPED.get();
    let freed: u64 = if threads == 1 {
        free(items)?
    } else {
        let freed: anyhow::Result<Vec<u64>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(move || free(items))).collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
        });
        freed?.into_iter().sum()
    };
    let dropped = || (DROPPED.get() - before) as u64;
    // crossbeam frees what it has when a thread asks for it.
    let begin = Instant::now();
    while (1..freed).contains(&dropped()) {
        crossbeam_epoch::pin().flush();
        ensure!(begin.elapsed() < LIMIT / 2, "only {} of {freed} were freed", dropped());
    }
    Ok(freed)
}

fn process_time() -> Duration {
    // SAFETY: all bytes 0 is a valid time.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: a place for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn in_c<F: Flavour>(items: u64) -> anyhow::Result<u64> {
    let functions = F::functions()?;
    // SAFETY: it makes its items, and frees them.
    unsafe { (functions.free)(items) };
    Ok(items)
}

fn by_crossbeam(items: u64) -> anyhow::Result<u64> {
    for nth in 0..items {
        let guard = crossbeam_epoch::pin();
        let item = crossbeam_epoch::Owned::new(Item(nth)).into_shared(&guard);
        // SAFETY: no thread has it.
        unsafe { guard.defer_destroy(item) };
    }
    // What this thread has goes to all.
    crossbeam_epoch::pin().flush();
    Ok(items)
}

fn by_seize(items: u64) -> anyhow::Result<u64> {
    use seize::Guard;
    let collector = seize::Collector::new();
    for nth in 0..items {
        let guard = collector.enter();
        // SAFETY: from a box, and no thread has it.
        unsafe { guard.defer_retire(Box::into_raw(Box::new(Item(nth))), seize::reclaim::boxed) };
    }
    Ok(items)
}

fn by_haphazard(items: u64) -> anyhow::Result<u64> {
    let domain = haphazard::Domain::new(&());
    for nth in 0..items {
        // SAFETY: from a box, and no thread has it.
        unsafe { domain.retire_ptr::<Item, Box<Item>>(Box::into_raw(Box::new(Item(nth)))) };
    }
    domain.eager_reclaim();
    Ok(items)
}

fn by_arc_swap(items: u64) -> anyhow::Result<u64> {
    let current = arc_swap::ArcSwap::from_pointee(Item(0));
    for nth in 1..items {
        current.store(Arc::new(Item(nth)));
    }
    Ok(items)
}

fn by_defer_drop(items: u64) -> anyhow::Result<u64> {
    static DOMAIN: Domain = Domain::named("rcu_write");
    for nth in 0..items {
        DOMAIN.defer_drop(Box::new(Item(nth)));
    }
    DOMAIN.barrier()?;
    Ok(items)
}

fn by_copy(items: u64) -> anyhow::Result<u64> {
    let (copy, items) = (RcuCopy::new(0), items.div_ceil(COPIES));
    (0..items).for_each(|nth| copy.store(nth));
    Ok(items)
}

impl Table for Wait {
    fn id(&self) -> &'static str {
        "rcu_wait"
    }

    fn title(&self) -> &'static str {
        "RCU: a grace period without readers"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let about = "Cpu time of one thread that waits for a grace period while no other thread runs and nothing reads. \
             liburcu has no registered threads then.";
        let contest = Contest::new(self, about).baseline("membarriers");
        let rows: [(Row, Waits); 5] = [
            (Row::new("membarriers", "membarrier(2), three times"), membarriers),
            (Row::new("urcu-memb", "liburcu memb"), wait_in_c::<Memb>),
            (Row::new("urcu-bp", "liburcu bp"), wait_in_c::<Bp>),
            (Row::new("urcu-qsbr", "liburcu qsbr"), wait_in_c::<Qsbr>),
            (Row::ours("rcu", "corelocal synchronize"), synchronize),
        ];
        let contest = rows.into_iter().fold(contest, |contest, (row, made)| match made() {
            Ok(body) => contest.row(row, body),
            Err(why) => contest.unavailable(row, format!("{why:#}")),
        });
        Ok(contest.measure(cx))
    }
}

/// A contestant that waits for grace periods, in the making.
type Waits = fn() -> anyhow::Result<Loop<'static>>;

fn membarriers() -> anyhow::Result<Loop<'static>> {
    membarrier::register_private_expedited()?;
    Ok(repeating(|times| {
        for _ in 0..3 * times {
            // It was allowed above; refused, the row is too fast, and all others are wrong as well.
            let _ = membarrier::private_expedited();
        }
    }))
}

fn wait_in_c<F: Flavour>() -> anyhow::Result<Loop<'static>> {
    let wait = F::functions()?.wait;
    // SAFETY: a call without conditions.
    Ok(repeating(move |times| unsafe { wait(times) }))
}

fn synchronize() -> anyhow::Result<Loop<'static>> {
    static DOMAIN: Domain = Domain::named("rcu_wait");
    DOMAIN.synchronize()?;
    Ok(repeating(|times| (0..times).for_each(|_| _ = DOMAIN.synchronize())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contestant_frees_all() {
        for (id, _, free) in FREES {
            for threads in [1, 3] {
                match work(*free, threads, 2000) {
                    Ok(freed) => assert!(freed >= threads * 2000 / COPIES),
                    Err(why) if why.to_string().starts_with("not installed") => {
                        eprintln!("skipped: every_contestant_frees_all: {id}: {why}");
                    }
                    Err(why) => panic!("{id}: {why}"),
                }
            }
        }
    }

    #[test]
    fn arguments_of_the_child_are_checked() {
        assert!(child(&[]).is_err() && child(&["no".into(), "1".into()]).is_err());
        assert!(child(&["seize".into(), "many".into()]).is_err());
    }
}
