//! The contestant that runs on many threads at once: how its cost grows with their number.
//!
//! A round starts all threads together, lets them work for a fixed time and adds up what they did.
//! The table's figure is cpu time per operation, summed over the threads: unlike wall time it keeps
//! its meaning when there are more threads than cpus. Throughput in wall time stands beside it.
//!
//! Invariants:
//! - No thread works before all have started; each does at least one batch, and none begins a
//!   second one after the time is up.
//! - Threads are free to move between the allowed cpus, as those of a server are.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};

use corelocal_support::measure::engine::{Body, Plan, Sample, calibrate, thread_cpu_time};

/// The time that one thread works between two looks at the stop flag: short, so that all stop together, and long
/// against the look.
const BATCH: Duration = Duration::from_micros(5);

/// The work of all threads on one set of data: called with the thread's index and a number of
/// iterations.
pub type Job = Arc<dyn Fn(usize, u64) + Send + Sync>;

/// A contestant on as many threads as the x axis says.
pub struct Crew<'a> {
    build: Box<dyn Fn(usize) -> Job + 'a>,
    is_contest: bool,
    shift: Option<Shift>,
}

/// The threads that were prepared for one position on the x axis.
struct Shift {
    job: Job,
    threads: usize,
    batch: u64,
    slice: Duration,
}

/// Returns a contestant whose data is made anew, by `build(threads)`, for every number of threads.
pub fn crew<'a>(build: impl Fn(usize) -> Job + 'a) -> Crew<'a> {
    Crew { build: Box::new(build), is_contest: false, shift: None }
}

impl Crew<'_> {
    /// Says that the threads contend for something: how they fare beside each other is told as well.
    ///
    /// "most/least" is what the luckiest thread did over what the unluckiest did. "longest ms" is the longest
    /// that a thread needed for one batch of a few microseconds, which is what an operation of it had to wait.
    pub fn of_rivals(self) -> Self {
        Crew { is_contest: true, ..self }
    }
}

impl Body for Crew<'_> {
    const SINGLE_THREAD: bool = false;

    fn rounds(plan: &Plan) -> usize {
        plan.long_rounds
    }

    fn prepare(&mut self, x: Option<f64>, plan: &Plan) -> anyhow::Result<()> {
        let threads = x.map_or(1, |x| x as usize).max(1);
        let job = (self.build)(threads);
        let batch = calibrate(BATCH, |iterations| {
            let start = Instant::now();
            job(0, iterations);
            start.elapsed()
        });
        let slice = if self.is_contest { plan.contest } else { plan.slice };
        self.shift = Some(Shift { job, threads, batch, slice });
        Ok(())
    }

    fn round(&mut self) -> anyhow::Result<Sample> {
        let shift = self.shift.as_ref().context("the contestant was not prepared")?;
        let done = shift.work()?;
        let operations: u64 = done.iter().map(|d| d.operations).sum();
        let cpu: Duration = done.iter().map(|d| d.cpu).sum();
        let first = done.iter().map(|d| d.from).min().context("no thread ran")?;
        let last = done.iter().map(|d| d.to).max().context("no thread ran")?;
        let mops = operations as f64 / (last - first).as_secs_f64() / 1e6;
        let value = cpu.as_nanos() as f64 / operations as f64;
        let mut extra = vec![("Mops/s", mops)];
        if self.is_contest {
            let least = done.iter().map(|d| d.operations).min().unwrap_or(1);
            let most = done.iter().map(|d| d.operations).max().unwrap_or(1);
            let longest = done.iter().map(|d| d.longest).max().unwrap_or_default();
            extra.push(("most/least", most as f64 / least as f64));
            extra.push(("longest ms", longest.as_secs_f64() * 1e3));
        }
        Ok(Sample { value, extra })
    }
}

/// The result of one thread in one round.
struct Done {
    operations: u64,
    longest: Duration,
    cpu: Duration,
    from: Instant,
    to: Instant,
}

impl Shift {
    fn work(&self) -> anyhow::Result<Vec<Done>> {
        // Closed while threads are being started: each waits for a read lock.
        let gate = RwLock::new(());
        let stop = AtomicBool::new(false);
        let worker = |thread: usize| {
            drop(gate.read());
            let (from, cpu) = (Instant::now(), thread_cpu_time());
            let (mut operations, mut longest) = (0, Duration::ZERO);
            let mut before = from;
            loop {
                (self.job)(thread, self.batch);
                operations += self.batch;
                let now = Instant::now();
                longest = longest.max(now - before);
                before = now;
                // Relaxed, with the stores below: the flag carries no data, and what a thread did
                // is read after joining it.
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            let cpu = thread_cpu_time().saturating_sub(cpu);
            Done { operations, longest, cpu, from, to: Instant::now() }
        };
        thread::scope(|scope| {
            let closed = gate.write();
            let (worker, mut workers) = (&worker, Vec::with_capacity(self.threads));
            let mut refused = None;
            for nth in 0..self.threads {
                match thread::Builder::new().spawn_scoped(scope, move || worker(nth)) {
                    Ok(handle) => workers.push(handle),
                    Err(error) => {
                        refused = Some(error);
                        break;
                    }
                }
            }
            drop(closed);
            if refused.is_none() {
                thread::sleep(self.slice);
            }
            // Relaxed: see the load.
            stop.store(true, Ordering::Relaxed);
            // All are joined, whatever became of the first.
            let done: Vec<thread::Result<Done>> = workers.into_iter().map(|w| w.join()).collect();
            match (refused, done.into_iter().collect()) {
                (Some(error), _) => Err(anyhow!(error).context(format!(
                    "{} threads could not be started; raise the limit with `ulimit -u` or the \
                     cgroup's pids.max, and run again",
                    self.threads
                ))),
                (None, Err(_)) => Err(anyhow!("a thread of this contestant ended in a panic")),
                (None, Ok(done)) => Ok(done),
            }
        })
    }
}

#[cfg(test)]
mod tests;
