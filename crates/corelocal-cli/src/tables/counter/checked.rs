//! Contestants whose sums are checked: a counter that loses increments is not fast but wrong, so
//! it leaves the table.
//!
//! Invariant: every increment asked for, also during calibration, is noted where the one who asks
//! is the only writer, and compared with the counter's total after each round, when all threads
//! have been joined.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};

use crate::bench::engine::{Body, Plan, Sample};
use crate::bench::loops::{Loop, loop_of};
use crate::bench::threads::{Crew, Job, crew};

/// A thread's own cache line.
#[derive(Default)]
#[repr(align(128))]
pub struct Line(pub AtomicU64);

/// Lines for this many threads; those beyond share them.
pub const SHARDS: usize = 64;

/// `SHARDS` lines.
pub fn shards() -> Vec<Line> {
    (0..SHARDS).map(|_| Line::default()).collect()
}

/// The sum of all lines.
pub fn sum(lines: &[Line]) -> u64 {
    // Relaxed: the threads that added have been joined.
    lines.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
}

/// Something that counts.
pub trait Tally: Send + Sync {
    /// Adds `ones` ones, as thread number `thread`.
    fn add(&self, thread: usize, ones: u64);

    /// Everything added so far; asked when nobody adds.
    fn total(&self) -> u64;
}

/// A tally from its parts: `step(data, thread)` adds `ones_per_step` ones, and the loop is
/// monomorphised around it. Only multiples of `ones_per_step` can be added.
pub fn tally<D: Send + Sync + 'static>(
    data: D,
    ones_per_step: u64,
    step: impl Fn(&D, usize) + Send + Sync + 'static,
    total: impl Fn(&D) -> u64 + Send + Sync + 'static,
) -> anyhow::Result<Arc<dyn Tally>> {
    Ok(Arc::new(Steps { data, ones_per_step, step, total }))
}

struct Steps<D, S, T> {
    data: D,
    ones_per_step: u64,
    step: S,
    total: T,
}

impl<D, S, T> Tally for Steps<D, S, T>
where
    D: Send + Sync,
    S: Fn(&D, usize) + Send + Sync,
    T: Fn(&D) -> u64 + Send + Sync,
{
    fn add(&self, thread: usize, ones: u64) {
        for _ in 0..ones / self.ones_per_step {
            (self.step)(&self.data, thread);
        }
    }

    fn total(&self) -> u64 {
        (self.total)(&self.data)
    }
}

/// How a job becomes a contestant, and how many increments one of its operations is.
pub trait Runner: Body {
    /// Increments in one operation.
    const INCREMENTS: u64;

    /// The contestant that does `job`, one operation after the other.
    fn of(job: Job) -> Self;
}

impl Runner for Crew<'static> {
    const INCREMENTS: u64 = 1;

    fn of(job: Job) -> Self {
        crew(move |_| job.clone())
    }
}

impl Runner for Loop<'static> {
    /// So many that the call around them disappears.
    const INCREMENTS: u64 = 4096;

    fn of(job: Job) -> Self {
        loop_of(move || job(0, 1))
    }
}

/// A contestant `B` on a tally that is made anew for each position on the x axis.
pub struct Checked<B> {
    build: fn() -> anyhow::Result<Arc<dyn Tally>>,
    running: Option<Running<B>>,
}

struct Running<B> {
    body: B,
    tally: Arc<dyn Tally>,
    asked: Arc<[Line]>,
}

/// See [`Checked`].
pub fn checked<B>(build: fn() -> anyhow::Result<Arc<dyn Tally>>) -> Checked<B> {
    Checked { build, running: None }
}

impl<B: Runner> Body for Checked<B> {
    const SINGLE_THREAD: bool = B::SINGLE_THREAD;

    fn rounds(plan: &Plan) -> usize {
        B::rounds(plan)
    }

    fn prepare(&mut self, x: Option<f64>, plan: &Plan) -> anyhow::Result<()> {
        let tally = (self.build)()?;
        let asked: Arc<[Line]> = shards().into();
        let (adds, notes) = (tally.clone(), asked.clone());
        let job: Job = Arc::new(move |thread, operations| {
            let ones = operations * B::INCREMENTS;
            adds.add(thread, ones);
            // Relaxed: read after joining the thread.
            notes[thread % SHARDS].0.fetch_add(ones, Ordering::Relaxed);
        });
        let mut body = B::of(job);
        body.prepare(x, plan)?;
        self.running = Some(Running { body, tally, asked });
        Ok(())
    }

    fn round(&mut self) -> anyhow::Result<Sample> {
        let running = self.running.as_mut().context("the contestant was not prepared")?;
        let mut sample = running.body.round()?;
        let (asked, counted) = (sum(&running.asked), running.tally.total());
        ensure!(
            asked == counted,
            "was asked to count to {asked} and has {counted}, so its speed means nothing; run \
             `corelocal doctor` and report this together with what it prints"
        );
        let increments = B::INCREMENTS as f64;
        sample.value /= increments;
        for (_, value) in &mut sample.extra {
            *value /= increments;
        }
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PLAN: Plan =
        Plan { slice: Duration::from_millis(2), round: Duration::from_micros(100), ..Plan::QUICK };

    fn add_one(n: &AtomicU64, _: usize) {
        n.fetch_add(1, Ordering::Relaxed);
    }

    fn exact() -> anyhow::Result<Arc<dyn Tally>> {
        tally(AtomicU64::new(0), 1, add_one, |n| n.load(Ordering::Relaxed))
    }

    fn forgetful() -> anyhow::Result<Arc<dyn Tally>> {
        tally(AtomicU64::new(0), 1, add_one, |n| n.load(Ordering::Relaxed).saturating_sub(1))
    }

    #[test]
    fn exact_sums_pass() {
        let mut on_threads = checked::<Crew<'_>>(exact);
        on_threads.prepare(Some(3.0), &PLAN).unwrap();
        assert!(on_threads.round().unwrap().value > 0.0);
        let mut in_a_loop = checked::<Loop<'_>>(exact);
        in_a_loop.prepare(None, &PLAN).unwrap();
        assert!(in_a_loop.round().unwrap().value > 0.0);
    }

    #[test]
    fn figures_are_per_increment() {
        struct Slow(AtomicU64);
        impl Tally for Slow {
            fn add(&self, _: usize, ones: u64) {
                std::thread::sleep(Duration::from_millis(1));
                self.0.fetch_add(ones, Ordering::Relaxed);
            }

            fn total(&self) -> u64 {
                self.0.load(Ordering::Relaxed)
            }
        }
        let mut body = checked::<Loop<'_>>(|| Ok(Arc::new(Slow(AtomicU64::new(0)))));
        body.prepare(None, &PLAN).unwrap();
        // A sleep of 1 ms divided by 4096; undivided it would be 1,000,000.
        let ns = body.round().unwrap().value;
        assert!((244.0..1_000_000.0).contains(&ns), "{ns} ns");
    }

    #[test]
    fn a_lost_increment_is_a_reason() {
        let mut crew = checked::<Crew<'_>>(forgetful);
        crew.prepare(Some(1.0), &PLAN).unwrap();
        let reason = crew.round().unwrap_err().to_string();
        assert!(reason.contains("asked to count to"), "{reason}");
    }

    #[test]
    fn a_tally_that_cannot_be_made_is_a_reason() {
        let mut crew = checked::<Crew<'_>>(|| anyhow::bail!("no compiler"));
        assert_eq!(crew.prepare(None, &PLAN).unwrap_err().to_string(), "no compiler");
    }
}
