//! The rounds: every contestant once per round, the order changing from round to round, for as
//! many rounds as the time allows. What a contestant is, and how one round of it is taken, it says
//! itself through [`Body`].
//!
//! Invariants:
//! - The first round warms caches, page tables and branch predictors and is thrown away; its
//!   duration decides how many rounds follow.
//! - Within one position on the x axis all contestants that did not fail have the same number of
//!   rounds, so that ratios pair up.
//! - A contestant that fails takes no more rounds; the others go on.

use std::time::{Duration, Instant};

use crate::process::signals;

/// Fewer rounds than this have no quartiles worth printing.
const MIN_ROUNDS: usize = 5;

/// Name of the extra figure that holds cpu time where `Sample::value` is wall time.
pub const CPU_NS: &str = "cpu ns";

/// The durations of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The time that a round of a single-threaded contestant should take.
    pub round: Duration,
    /// Rounds of a single-threaded contestant, when they fit in `table`.
    pub rounds: usize,
    /// The time that a round of a contestant on many threads takes.
    pub slice: Duration,
    /// The same where the threads contend for something: several turns of all of them.
    pub contest: Duration,
    /// Rounds of every other kind of contestant, when they fit in `table`.
    pub long_rounds: usize,
    /// The numbers of threads of a scaling table.
    pub threads: &'static [usize],
    /// The numbers of threads that are busy on a container while it is reached into from afar. With many,
    /// most of a round is waiting for their turns.
    pub busy: &'static [usize],
    /// A table stops adding rounds after this; every contestant gets at least five.
    pub table: Duration,
    /// The time after which no round begins and the current table stays incomplete.
    pub end: Option<Instant>,
}

impl Plan {
    /// The plan for all tables in about seven minutes.
    pub const FULL: Self = Self {
        round: Duration::from_millis(4),
        rounds: 101,
        slice: Duration::from_millis(20),
        contest: Duration::from_millis(100),
        long_rounds: 15,
        threads: &[1, 2, 4, 8, 16, 32, 64],
        busy: &[0, 1, 64],
        table: Duration::from_secs(28),
        end: None,
    };

    /// The plan for all tables in under half a minute.
    pub const QUICK: Self = Self {
        round: Duration::from_millis(1),
        rounds: 31,
        slice: Duration::from_millis(3),
        contest: Duration::from_millis(3),
        long_rounds: 5,
        threads: &[1, 2, 64],
        busy: &[0, 1, 8],
        table: Duration::from_millis(3000),
        end: None,
    };

    /// Returns the plan of the next of so many tables that are to be measured until `end`.
    pub fn until(end: Instant, tables: usize) -> Self {
        let each = end.saturating_duration_since(Instant::now()) / tables.max(1) as u32;
        let base = if Self::is_short(each) { Self::QUICK } else { Self::FULL };
        // Calibrating, starting processes and the first round take the rest.
        Self { table: each * 2 / 3, end: Some(end), ..base }
    }

    /// Returns `true` if a table that gets so much time has the short rounds of `QUICK`.
    pub fn is_short(each: Duration) -> bool {
        each < Self::FULL.table / 2
    }

    /// Returns `true` if the time for all tables is over, or would be after `more`.
    pub fn is_over_in(&self, more: Duration) -> bool {
        self.end.is_some_and(|end| Instant::now() + more >= end)
    }

    /// Returns `true` if the time for all tables is over.
    pub fn is_over(&self) -> bool {
        self.is_over_in(Duration::ZERO)
    }

    /// For contended work. Rounds are long enough for the kernel to give each thread several turns in one, so figures
    /// show how evenly a lock is shared, and not how evenly the kernel shares the cpus.
    pub const LONG: Self = Self {
        contest: Duration::from_secs(1),
        long_rounds: 5,
        table: Duration::from_secs(600),
        ..Self::FULL
    };
}

/// The result of one round of a contestant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The figure, in the table's unit.
    pub value: f64,
    /// The same in other units, in the same order every round.
    pub extra: Vec<(&'static str, f64)>,
}

/// A kind of contestant.
pub trait Body {
    /// Whether one thread, the caller's, does all the work and should stay on one cpu.
    const SINGLE_THREAD: bool;

    /// Returns the rounds wanted when time does not matter.
    fn rounds(plan: &Plan) -> usize;

    /// Gets ready for the rounds at `x`, for example by calibrating; not measured.
    ///
    /// # Errors
    ///
    /// Why this contestant cannot run; it becomes the row's reason.
    fn prepare(&mut self, x: Option<f64>, plan: &Plan) -> anyhow::Result<()>;

    /// Measures one round.
    ///
    /// # Errors
    ///
    /// As for `prepare`.
    fn round(&mut self) -> anyhow::Result<Sample>;
}

/// The samples of one contestant, or why there are none; `None` if it did not take part.
pub type Outcome = Option<anyhow::Result<Vec<Sample>>>;

/// Returns all rounds at one `x`, which is one of `parts` among which the table's time is divided.
pub fn alternate<B: Body>(
    bodies: &mut [Option<B>],
    x: Option<f64>,
    parts: usize,
    plan: &Plan,
    progress: impl Fn(f64),
) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = bodies
        .iter_mut()
        .map(|body| {
            let body = body.as_mut().filter(|_| !plan.is_over())?;
            Some(body.prepare(x, plan).map(|()| Vec::new()))
        })
        .collect();
    let mut take = |round: usize, outcomes: &mut [Outcome], keep: bool| {
        for nth in order(outcomes.len(), round) {
            let (Some(body), Some(Ok(samples))) = (&mut bodies[nth], &mut outcomes[nth]) else {
                continue;
            };
            if plan.is_over() {
                return;
            }
            match body.round() {
                Ok(sample) if keep => samples.push(sample),
                Ok(_) => {}
                Err(reason) => outcomes[nth] = Some(Err(reason)),
            }
        }
    };
    let warm_up = Instant::now();
    take(0, &mut outcomes, false);
    let rounds = rounds_within(plan.table / parts as u32, warm_up.elapsed(), B::rounds(plan));
    for round in 0..rounds {
        // The figures of the rounds before remain.
        if signals::came() && round >= MIN_ROUNDS || plan.is_over() {
            break;
        }
        take(round, &mut outcomes, true);
        progress((round + 1) as f64 / rounds as f64);
    }
    outcomes
}

/// Returns the order of contestants in a round: rotated by one each time, and after a full turn backwards, so that no
/// contestant always runs first or always after the same neighbour.
fn order(contestants: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..contestants).map(move |nth| {
        let nth = if round / contestants % 2 == 0 { nth } else { contestants - 1 - nth };
        (nth + round) % contestants
    })
}

/// Returns the rounds that fit in `budget` when one takes `cost`.
fn rounds_within(budget: Duration, cost: Duration, wanted: usize) -> usize {
    let fit = budget.as_nanos() / cost.as_nanos().max(1);
    let wanted = wanted.max(MIN_ROUNDS);
    usize::try_from(fit).map_or(wanted, |fit| fit.clamp(MIN_ROUNDS, wanted))
}

/// Returns the cpu time of the calling thread, user and system (`CLOCK_THREAD_CPUTIME_ID`).
pub fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes. The call cannot fail: the clock exists since Linux 2.6.12.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns how many iterations `run` must be asked for to take about `target`.
///
/// `run` tells how long it took. Ends after a handful of calls, also for a loop that takes no time
/// whatever it is asked for, and for one whose single iteration takes longer than `target`. The
/// first call does not count: it meets cold caches and pages not yet there. What seems long enough is
/// asked again, and the shortest time believed: one that was interrupted, or met pages not yet there
/// once more, would make for batches so small that what is around them is measured.
pub fn calibrate(target: Duration, mut run: impl FnMut(u64) -> Duration) -> u64 {
    const MOST: u64 = 1 << 40;
    const LOOKS_MORE: usize = 3;
    /// A time longer than any interruption: a measurement that takes as long is not repeated.
    const LONG: Duration = Duration::from_millis(100);
    let mut iterations = 1;
    run(iterations);
    loop {
        // Measured over a quarter of the target, the rate is good enough to scale.
        let enough = target / 4;
        let mut took = run(iterations);
        for _ in 0..LOOKS_MORE {
            if (enough..LONG).contains(&took) {
                took = took.min(run(iterations));
            }
        }
        if took >= enough || iterations >= MOST {
            let scale = target.as_secs_f64() / took.as_secs_f64().max(1e-9);
            return ((iterations as f64 * scale) as u64).clamp(1, MOST);
        }
        iterations *= 8;
    }
}

#[cfg(test)]
mod tests;
