//! Contestants whose threads go on together or not at all: what one step of all of them costs.
//!
//! Invariants:
//! - No thread works before all are there, each on its cpu. If one cannot be, none works: the others would
//!   wait for it for ever.
//! - The figure is wall time, since most of it is waiting; cpu time of all threads together stands beside it.

use std::sync::{RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};

use corelocal_support::measure::affinity;
use corelocal_support::measure::engine::{Body, Plan, Sample, calibrate, thread_cpu_time};

/// Name of the figure beside the wall time.
const CPU_US: &str = "cpu us";

/// The time that some steps took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// The wall time, of which the figure is made.
    pub wall: Duration,
    /// Cpu time of all threads.
    pub cpu: Duration,
}

/// Does so many steps.
pub type Steps = Box<dyn Fn(u64) -> anyhow::Result<Took>>;

/// A contestant, made anew for each position on the x axis.
pub struct Lockstep {
    build: fn(usize) -> anyhow::Result<Steps>,
    ready: Option<(Steps, u64)>,
}

/// Returns the contestant that `build` makes for a position on the x axis, 1 where there is none.
pub fn lockstep(build: fn(usize) -> anyhow::Result<Steps>) -> Lockstep {
    Lockstep { build, ready: None }
}

impl Body for Lockstep {
    const SINGLE_THREAD: bool = false;

    fn rounds(plan: &Plan) -> usize {
        plan.long_rounds
    }

    fn prepare(&mut self, x: Option<f64>, plan: &Plan) -> anyhow::Result<()> {
        let steps = (self.build)(x.map_or(1, |x| x as usize))?;
        let mut failed = None;
        let times = calibrate(plan.slice, |times| {
            steps(times).map(|took| took.wall).unwrap_or_else(|why| {
                failed.get_or_insert(why);
                plan.slice
            })
        });
        if let Some(why) = failed {
            return Err(why);
        }
        self.ready = Some((steps, times));
        Ok(())
    }

    /// Returns the microseconds for a step.
    fn round(&mut self) -> anyhow::Result<Sample> {
        let (steps, times) = self.ready.as_ref().context("the contestant was not prepared")?;
        let took = steps(*times)?;
        let per_step = |time: Duration| time.as_secs_f64() / *times as f64;
        Ok(Sample {
            value: per_step(took.wall) * 1e6,
            extra: vec![(CPU_US, per_step(took.cpu) * 1e6)],
        })
    }
}

/// Runs `work(n)` on thread n, on the cpu that `cpus[n]` names or anywhere, for all of them at once; the time
/// from the first one's start to the last one's end, and what they returned.
///
/// # Errors
/// A thread could not be started or cannot be where it is to be.
pub fn together<R: Send>(
    cpus: &[Option<usize>],
    work: impl Fn(usize) -> R + Sync,
) -> anyhow::Result<(Took, Vec<R>)> {
    let gate = RwLock::new(false);
    let (there, all) = mpsc::channel();
    let life = |nth: usize, there: mpsc::Sender<anyhow::Result<()>>| {
        let placed = match cpus[nth] {
            Some(cpu) => affinity::confine(&[cpu])
                .with_context(|| format!("a thread could not be pinned to cpu {cpu}")),
            None => Ok(()),
        };
        // The other end lives until all have been joined.
        let _ = there.send(placed);
        let is_open = gate.read().is_ok_and(|open| *open);
        is_open.then(|| {
            let (from, cpu) = (Instant::now(), thread_cpu_time());
            let result = work(nth);
            (from, Instant::now(), thread_cpu_time().saturating_sub(cpu), result)
        })
    };
    thread::scope(|scope| {
        let mut closed = gate.write().map_err(|_| anyhow!("no thread poisons it"))?;
        let (life, mut threads, mut refused) = (&life, Vec::with_capacity(cpus.len()), None);
        for nth in 0..cpus.len() {
            let there = there.clone();
            match thread::Builder::new().spawn_scoped(scope, move || life(nth, there)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    refused = Some(anyhow!(error).context(format!(
                        "{} threads could not be started; raise the limit with `ulimit -u` or the \
                         cgroup's pids.max, and run again",
                        cpus.len()
                    )));
                    break;
                }
            }
        }
        let placed: anyhow::Result<()> = all.iter().take(threads.len()).collect();
        let refused = refused.map_or(placed, Err);
        *closed = refused.is_ok();
        drop(closed);
        let done: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        refused?;
        let (mut spans, mut results) = (Vec::new(), Vec::new());
        for done in done {
            let Ok(Some((from, to, cpu, result))) = done else {
                bail!("a thread of this contestant ended in a panic");
            };
            spans.push((from, to, cpu));
            results.push(result);
        }
        let from = spans.iter().map(|span| span.0).min().context("no thread ran")?;
        let to = spans.iter().map(|span| span.1).max().context("no thread ran")?;
        let cpu = spans.iter().map(|span| span.2).sum();
        Ok((Took { wall: to - from, cpu }, results))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn all_are_there_at_once() {
        // None gets past unless all have come.
        let barrier = Barrier::new(4);
        let came = AtomicUsize::new(0);
        let (took, results) = together(&[None; 4], |nth| {
            came.fetch_add(1, Ordering::Relaxed);
            barrier.wait();
            (nth, came.load(Ordering::Relaxed))
        })
        .unwrap();
        assert_eq!(results, [(0, 4), (1, 4), (2, 4), (3, 4)]);
        assert!(took.wall > Duration::ZERO);
    }

    #[test]
    fn none_works_when_one_cannot_be_there() {
        let worked = AtomicUsize::new(0);
        let result = together(&[None, Some(1 << 20)], |_| worked.fetch_add(1, Ordering::Relaxed));
        let why = result.unwrap_err().to_string();
        assert!(why.contains("pinned to cpu"), "{why}");
        assert_eq!(worked.into_inner(), 0);
    }

    #[test]
    fn a_step_is_a_part_of_the_time() {
        let mut body = lockstep(|x| {
            assert_eq!(x, 3);
            Ok(Box::new(|steps| {
                let wall = Duration::from_micros(20) * steps as u32;
                Ok(Took { wall, cpu: wall * 2 })
            }))
        });
        body.prepare(Some(3.0), &Plan::QUICK).unwrap();
        let sample = body.round().unwrap();
        assert!((sample.value - 20.0).abs() < 0.01, "{sample:?}");
        let (name, cpu) = sample.extra[0];
        assert!(name == CPU_US && (cpu - 40.0).abs() < 0.01, "{sample:?}");
    }

    #[test]
    fn what_fails_is_a_reason() {
        let mut body = lockstep(|_| Ok(Box::new(|_| bail!("no luck"))));
        let why = body.prepare(None, &Plan::QUICK).unwrap_err().to_string();
        assert_eq!(why, "no luck");
    }
}
