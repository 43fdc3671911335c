//! The contestant that acts from afar on a container which other threads use.
//!
//! A round starts the busy threads together, acts again and again for a fixed time, stops them and adds
//! up.
//!
//! Invariants:
//! - Each busy thread does one batch of steps at least; none does any once the sums are looked at.
//! - Acts find something to do: a slot that an id has, and where they take something out, something. Alone,
//!   a thread does a step before each act, untimed. Else the busy threads are waited for, and what took
//!   nothing does not count.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use corelocal::cid::{self, Cid};

use corelocal_support::measure::engine::{Body, Plan, Sample};

/// Steps between two looks at the stop flag.
const BATCH: usize = 64;

/// Fewer acts than this have no median, and more say nothing new.
const LEAST_ACTS: usize = 5;
const MOST_ACTS: usize = 10_000;

/// For busy threads to have all slots again that were taken from them: far longer than they need on
/// cpus of their own.
const PATIENCE: Duration = Duration::from_micros(50);

/// The time limit of a round.
const LIMIT: Duration = Duration::from_secs(2);

/// A container, what threads do with it, and what is done to it from afar.
pub trait Subject: Send + Sync {
    /// Takes one step of a busy thread; returns what it put in.
    fn step(&self) -> u64;

    /// Acts on a slot or on all; returns what was taken out, `None` where it is not about that.
    ///
    /// # Errors
    ///
    /// Why it cannot; it becomes the row's reason.
    fn act(&self, slot: u32) -> anyhow::Result<Option<u64>>;

    /// Returns the remaining content, while no thread works.
    fn left(&self) -> u64;
}

/// A subject in the making.
pub type Made = anyhow::Result<Arc<dyn Subject>>;

/// A contestant: see the module's text.
pub struct Afar {
    build: fn() -> Made,
    shift: Option<Shift>,
}

struct Shift {
    subject: Arc<dyn Subject>,
    busy: usize,
    time: Duration,
    /// The number of items put into the container since it was made.
    put: u64,
    taken: u64,
}

/// Returns a contestant whose container is made anew for every number of threads.
pub fn afar(build: fn() -> Made) -> Afar {
    Afar { build, shift: None }
}

impl Body for Afar {
    const SINGLE_THREAD: bool = false;

    fn rounds(plan: &Plan) -> usize {
        plan.long_rounds
    }

    fn prepare(&mut self, x: Option<f64>, plan: &Plan) -> anyhow::Result<()> {
        let busy = x.map_or(0, |x| x as usize);
        let (subject, time) = ((self.build)()?, plan.slice / 2);
        self.shift = Some(Shift { subject, busy, time, put: 0, taken: 0 });
        Ok(())
    }

    fn round(&mut self) -> anyhow::Result<Sample> {
        let shift = self.shift.as_mut().context("the contestant was not prepared")?;
        let mut times = shift.run()?;
        let left = shift.subject.left();
        ensure!(
            shift.put == shift.taken + left,
            "{} were put in, {} taken out and {left} are left, so its speed means nothing",
            shift.put,
            shift.taken
        );
        times.sort_unstable();
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let longest = times.last().copied().unwrap_or_default();
        let median = times.get(times.len() / 2).copied().context("nothing was done")?;
        Ok(Sample { value: us(median), extra: vec![("longest us", us(longest))] })
    }
}

impl Shift {
    fn run(&mut self) -> anyhow::Result<Vec<Duration>> {
        // Closed while threads are being started: each waits for a read lock.
        let gate = RwLock::new(());
        let stop = AtomicBool::new(false);
        let subject = self.subject.clone();
        let busy = || {
            drop(gate.read());
            let mut put = 0;
            loop {
                put += (0..BATCH).map(|_| subject.step()).sum::<u64>();
                // Relaxed: the flag carries no data, and sums are read after joining.
                if stop.load(Ordering::Relaxed) {
                    return put;
                }
            }
        };
        thread::scope(|scope| {
            let closed = gate.write();
            let (busy, mut threads) = (&busy, Vec::with_capacity(self.busy));
            let mut refused = None;
            for _ in 0..self.busy {
                match start(scope, busy) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => refused = Some(error),
                }
                if refused.is_some() {
                    break;
                }
            }
            drop(closed);
            let times = if refused.is_none() { self.acts() } else { Ok(Vec::new()) };
            // Relaxed: see the load.
            stop.store(true, Ordering::Relaxed);
            // All are joined, whatever became of the first.
            let ends: Vec<thread::Result<u64>> =
                threads.into_iter().map(ScopedJoinHandle::join).collect();
            if let Some(error) = refused {
                return Err(anyhow!(error).context(format!(
                    "{} threads could not be started; raise the limit with `ulimit -u` or the \
                     cgroup's pids.max, and run again",
                    self.busy
                )));
            }
            let ends: thread::Result<Vec<u64>> = ends.into_iter().collect();
            let ends = ends.map_err(|_| anyhow!("a thread of this contestant ended in a panic"))?;
            self.put += ends.into_iter().sum::<u64>();
            times
        })
    }

    /// Acts until the time is up, a few times at least; how long each took.
    fn acts(&mut self) -> anyhow::Result<Vec<Duration>> {
        let (mut times, mut in_vain) = (Vec::new(), 0);
        let begin = Instant::now();
        while times.len() < LEAST_ACTS || (begin.elapsed() < self.time && times.len() < MOST_ACTS) {
            ensure!(begin.elapsed() < LIMIT, "found nothing to take out, however long it looked");
            if self.busy == 0 {
                self.put += self.subject.step();
            }
            let slot = self.slot(in_vain);
            let start = Instant::now();
            let taken = self.subject.act(slot);
            let time = start.elapsed();
            let taken = taken?;
            self.taken += taken.unwrap_or(0);
            if taken != Some(0) {
                times.push(time);
                continue;
            }
            in_vain += 1;
            // The busy thread may be waiting for this very cpu.
            if in_vain % 64 == 0 {
                thread::yield_now();
            }
        }
        Ok(times)
    }

    /// Returns a slot that a busy thread uses, or our own; another one after each act in vain. A hint: slots may
    /// change hands at any time.
    fn slot(&self, in_vain: u32) -> u32 {
        let begin = Instant::now();
        loop {
            let (own, known) = (cid::current::<Cid>(), cid::high_water::<Cid>());
            if self.busy > 0 && known > 1 && cid::in_use::<Cid>() >= known {
                return (own + 1 + in_vain) % known;
            }
            if self.busy == 0 || begin.elapsed() > PATIENCE {
                return own;
            }
            std::hint::spin_loop();
        }
    }
}

fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> u64 + Send + 'scope,
) -> std::io::Result<ScopedJoinHandle<'scope, u64>> {
    thread::Builder::new().spawn_scoped(scope, body)
}

#[cfg(test)]
mod tests;
