//! Observations of one back-end, by a process that is limited to it: which one is used in the end and why, what a
//! reading costs, whether it agrees with the vDSO, and its course, sample by sample.
//!
//! A process settles on one back-end. So the command starts this program again for each of them, with
//! `CORELOCAL_CLOCK` set, and reads a line of JSON from it for each observation.
//!
//! Invariants:
//! 1. The first line is a [`Sight`], all others are [`Sample`]s.
//! 2. It ends when its time is over, when its output is closed, and with its parent.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use corelocal::clock;
use corelocal::sys::Caps;
use corelocal_support::clock::labels;
use corelocal_support::clock::offset::{Offset, kernel};
use corelocal_support::measure::affinity;
use corelocal_support::measure::engine::{self, Plan};
use corelocal_support::measure::loops::{Loop, loop_of};
use corelocal_support::output;
use corelocal_support::schema::Stat;
use serde::{Deserialize, Serialize};

use super::args::ClockObserverArgs;

/// The hidden subcommand.
pub const SUBCOMMAND: &str = "__clock-observer";

/// The number of comparisons at the beginning, divided among the cpus.
const COMPARISONS: u64 = 400_000;
/// The number of further comparisons with each sample.
const MORE: u64 = 1000;

/// An observation, which an observer prints as a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// The observation at the beginning.
    Sight(Sight),
    /// A later sample.
    Sample(Sample),
}

/// The back-end that serves, its cost, and its agreement with the vDSO.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sight {
    /// The back-end that serves.
    pub backend: String,
    /// That back-end in words.
    pub serving: String,
    /// The reasons why better back-ends were given up.
    pub doubts: String,
    /// The cost of a reading by `clock_gettime`, in nanoseconds.
    pub vdso_ns: f64,
    /// The cost of an ordered reading, in nanoseconds.
    pub ordered_ns: f64,
    /// The cost of an unordered reading, in nanoseconds.
    pub unordered_ns: f64,
    /// The comparisons with the vDSO.
    pub agreement: Agreement,
}

/// The results of readings between two of the vDSO's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// The number of readings.
    pub samples: u64,
    /// The number of readings that did not lie between the two.
    pub outside: u64,
    /// The greatest distance outside, in nanoseconds.
    pub farthest_ns: u64,
}

/// A clock at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The clock's name: a back-end, or another library.
    pub clock: String,
    /// The time of the sample, by `CLOCK_MONOTONIC` in nanoseconds.
    pub at: u64,
    /// The distance from `CLOCK_MONOTONIC`. Another library's clock may count from another moment.
    pub offset: Offset,
    /// The comparisons since the last sample.
    pub agreement: Agreement,
    /// The back-end that serves by now.
    pub backend: Option<String>,
}

impl Agreement {
    /// Compares ours with the vDSO.
    fn check(samples: u64) -> Agreement {
        let mut seen = Agreement { samples, ..Agreement::default() };
        for _ in 0..samples {
            let outside = Offset::once(libc::CLOCK_MONOTONIC, clock::monotonic).outside();
            if outside != 0 {
                seen.outside += 1;
                seen.farthest_ns = seen.farthest_ns.max(outside.unsigned_abs());
            }
        }
        seen
    }

    /// Returns both together.
    pub fn and(self, other: Agreement) -> Agreement {
        Agreement {
            samples: self.samples + other.samples,
            outside: self.outside + other.outside,
            farthest_ns: self.farthest_ns.max(other.farthest_ns),
        }
    }
}

/// Runs the process.
pub fn run(args: &ClockObserverArgs) -> anyhow::Result<ExitCode> {
    // SAFETY: this option takes a signal number and touches no memory. Best effort: without it the process ends when
    // its output is closed.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let mut clocks = if args.others { others() } else { Vec::new() };
    if !args.others {
        clock::settle();
        tell(&Line::Sight(sight()))?;
        clocks.push((labels::name(clock::status().backend).to_owned(), Box::new(clock::monotonic)));
    }
    let every = Duration::from_millis(args.every_ms.max(1));
    let end = Instant::now() + Duration::from_millis(args.for_ms);
    loop {
        for (name, read) in &mut clocks {
            let offset = Offset::of(libc::CLOCK_MONOTONIC, read);
            let ours = !args.others;
            tell(&Line::Sample(Sample {
                clock: name.clone(),
                at: kernel(libc::CLOCK_MONOTONIC),
                offset,
                agreement: if ours { Agreement::check(MORE) } else { Agreement::default() },
                backend: ours.then(|| labels::name(clock::status().backend).to_owned()),
            }))?;
        }
        if Instant::now() >= end {
            return Ok(ExitCode::SUCCESS);
        }
        thread::sleep(every);
    }
}

fn tell(line: &Line) -> anyhow::Result<()> {
    let line = serde_json::to_string(line)?;
    output::print(format_args!("{line}\n"))?;
    Ok(())
}

/// Measures ours beside the vDSO in alternating rounds, compared with it on every cpu.
fn sight() -> Sight {
    let vdso: fn() -> u64 = || kernel(libc::CLOCK_MONOTONIC);
    let plan = Plan { rounds: 21, ..Plan::QUICK };
    let mut bodies: [Option<Loop<'_>>; 3] = [
        Some(loop_of(vdso)),
        Some(loop_of(clock::monotonic)),
        Some(loop_of(clock::monotonic_unordered)),
    ];
    let outcomes = engine::alternate(&mut bodies, None, 1, &plan, |_| {});
    let mut costs = outcomes.into_iter().map(|outcome| {
        let samples = outcome.and_then(Result::ok).unwrap_or_default();
        let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
        Stat::of(&values).map_or(0.0, |stat| stat.median)
    });
    let mut cost = || costs.next().unwrap_or(0.0);
    let (vdso_ns, ordered_ns, unordered_ns) = (cost(), cost(), cost());
    let agreement = on_every_cpu();
    let status = clock::status();
    Sight {
        backend: labels::name(status.backend).to_owned(),
        serving: labels::serving(&status),
        doubts: labels::fallbacks(&status),
        vdso_ns,
        ordered_ns,
        unordered_ns,
        agreement,
    }
}

fn on_every_cpu() -> Agreement {
    let caps = Caps::get();
    let allowed = &caps.topology.affinity.set;
    let cpus: Vec<usize> = allowed.iter().collect();
    let share = COMPARISONS / cpus.len().max(1) as u64;
    let of = |cpu: &usize| {
        // Where that is refused, it is compared where the thread happens to be.
        let _ = affinity::confine(&[*cpu]);
        Agreement::check(share)
    };
    let seen = cpus.iter().map(of).fold(Agreement::default(), Agreement::and);
    let _ = affinity::confine(&cpus);
    if cpus.is_empty() { Agreement::check(COMPARISONS) } else { seen }
}

/// Returns clocks that do not follow the kernel's, and their names.
#[cfg(feature = "report")]
fn others() -> Vec<(String, Box<dyn FnMut() -> u64>)> {
    corelocal_bench::other_clocks()
        .into_iter()
        .map(|(name, read)| (name.to_owned(), read))
        .collect()
}

#[cfg(not(feature = "report"))]
fn others() -> Vec<(String, Box<dyn FnMut() -> u64>)> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_agrees_with_the_vdso() {
        clock::settle();
        let seen = Agreement::check(1000);
        assert_eq!(seen.samples, 1000);
        if clock::status().backend == clock::Backend::KernelPage {
            assert_eq!((seen.outside, seen.farthest_ns), (0, 0));
        }
        assert_eq!(seen.and(seen).samples, 2000);
    }

    #[test]
    fn lines_come_back() {
        let sample = Sample {
            clock: "anchor".to_owned(),
            at: u64::MAX,
            offset: Offset { low: -3, high: 4 },
            agreement: Agreement { samples: 10, outside: 1, farthest_ns: 7 },
            backend: None,
        };
        let text = serde_json::to_string(&Line::Sample(sample)).unwrap();
        let Line::Sample(back) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!((back.at, back.offset.high, back.agreement.farthest_ns), (u64::MAX, 4, 7));
    }
}
