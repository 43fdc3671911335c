//! Contestants whose work is checked: a counter that loses increments or a pool that loses objects is wrong, and
//! leaves the table.
//!
//! Invariant: every requested operation, also during calibration, is counted in a place with a single writer, and
//! compared with the contestant's state after each round, when all threads have been joined.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use corelocal_support::measure::engine::{Body, Plan, Sample};
use corelocal_support::measure::loops::{Loop, loop_of};

use crate::contest::threads::{Crew, Job, crew};

/// A thread's own cache line.
#[derive(Default)]
#[repr(align(128))]
pub struct Line(pub AtomicU64);

/// Lines for this many threads; those beyond share them.
pub const SHARDS: usize = 64;

/// Creates `SHARDS` lines.
pub fn shards() -> Vec<Line> {
    (0..SHARDS).map(|_| Line::default()).collect()
}

/// Returns the sum of all lines.
pub fn sum(lines: &[Line]) -> u64 {
    // Relaxed: the threads that added have been joined.
    lines.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
}

/// A contestant's object: it works, and its state can be checked.
pub trait Subject: Send + Sync {
    /// Does `operations`, as thread number `thread`.
    fn work(&self, thread: usize, operations: u64);

    /// Checks that its state is that after `asked` operations since it was made. Called while no thread works.
    ///
    /// # Errors
    ///
    /// What is missing.
    fn check(&self, asked: u64) -> anyhow::Result<()>;
}

/// A subject in the making, or why there is none.
pub type Made = anyhow::Result<Arc<dyn Subject>>;

/// Fails unless what was `counted` is what was `asked` for.
///
/// # Errors
///
/// A sentence with both.
pub fn agree(asked: u64, counted: u64) -> anyhow::Result<()> {
    ensure!(
        asked == counted,
        "should have counted to {asked} and has {counted}, so its speed is meaningless; please report this with \
         the output of `corelocal doctor`"
    );
    Ok(())
}

/// Returns a counter from its parts: `step(data, thread)` adds `ones_per_step` ones, and the loop is
/// monomorphised around it. Only multiples of `ones_per_step` can be added.
pub fn tally<D: Send + Sync + 'static>(
    data: D,
    ones_per_step: u64,
    step: impl Fn(&D, usize) + Send + Sync + 'static,
    total: impl Fn(&D) -> u64 + Send + Sync + 'static,
) -> Made {
    Ok(Arc::new(Steps { data, ones_per_step, step, total }))
}

struct Steps<D, S, T> {
    data: D,
    ones_per_step: u64,
    step: S,
    total: T,
}

impl<D, S, T> Subject for Steps<D, S, T>
where
    D: Send + Sync,
    S: Fn(&D, usize) + Send + Sync,
    T: Fn(&D) -> u64 + Send + Sync,
{
    fn work(&self, thread: usize, ones: u64) {
        for _ in 0..ones / self.ones_per_step {
            (self.step)(&self.data, thread);
        }
    }

    fn check(&self, asked: u64) -> anyhow::Result<()> {
        agree(asked, (self.total)(&self.data))
    }
}

/// The way in which a job becomes a contestant, with the number of operations in a step.
pub trait Runner: Body {
    /// Operations in one step.
    const OPERATIONS: u64;

    /// Returns the contestant that does `job`, one step after the other.
    fn of(job: Job) -> Self;
}

impl Runner for Crew<'static> {
    const OPERATIONS: u64 = 1;

    fn of(job: Job) -> Self {
        crew(move |_| job.clone())
    }
}

impl Runner for Loop<'static> {
    /// The number of operations in a call: so many that the cost of the call disappears.
    const OPERATIONS: u64 = 4096;

    fn of(job: Job) -> Self {
        loop_of(move || job(0, 1))
    }
}

/// A contestant `B` on a subject that is made anew for each position on the x axis.
pub struct Checked<B> {
    build: fn() -> Made,
    runner: fn(Job) -> B,
    running: Option<Running<B>>,
}

struct Running<B> {
    body: B,
    subject: Arc<dyn Subject>,
    asked: Arc<[Line]>,
}

/// See [`Checked`].
pub fn checked<B: Runner>(build: fn() -> Made) -> Checked<B> {
    Checked { build, runner: B::of, running: None }
}

/// Returns one whose threads contend for what they work on: see [`Crew::of_rivals`].
pub fn contending(build: fn() -> Made) -> Checked<Crew<'static>> {
    Checked { build, runner: |job| Crew::of(job).of_rivals(), running: None }
}

impl<B: Runner> Body for Checked<B> {
    const SINGLE_THREAD: bool = B::SINGLE_THREAD;

    fn rounds(plan: &Plan) -> usize {
        B::rounds(plan)
    }

    fn prepare(&mut self, x: Option<f64>, plan: &Plan) -> anyhow::Result<()> {
        // What the last one holds goes first: together they could be too much.
        self.running = None;
        let subject = (self.build)()?;
        let asked: Arc<[Line]> = shards().into();
        let (works, notes) = (subject.clone(), asked.clone());
        let job: Job = Arc::new(move |thread, steps| {
            let operations = steps * B::OPERATIONS;
            works.work(thread, operations);
            // Relaxed: read after joining the thread.
            notes[thread % SHARDS].0.fetch_add(operations, Ordering::Relaxed);
        });
        let mut body = (self.runner)(job);
        body.prepare(x, plan)?;
        self.running = Some(Running { body, subject, asked });
        Ok(())
    }

    fn round(&mut self) -> anyhow::Result<Sample> {
        let running = self.running.as_mut().context("the contestant was not prepared")?;
        let mut sample = running.body.round()?;
        running.subject.check(sum(&running.asked))?;
        let operations = B::OPERATIONS as f64;
        sample.value /= operations;
        for (_, value) in &mut sample.extra {
            *value /= operations;
        }
        Ok(sample)
    }
}

#[cfg(test)]
mod tests;
