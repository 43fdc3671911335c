//! Runs become figures: medians over rounds, and what they are of those with libc's malloc.
//!
//! Invariants:
//! - A ratio is the quotient of two figures as they are shown.
//! - A difference is called one if the rounds lie apart, by the rules of `report --compare`, and there are at least
//!   [`FEWEST`] of them. Nothing is called one after an interruption.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use corelocal_support::figures::{figure, mean};
use corelocal_support::mallocs::Malloc;
use corelocal_support::schema::{Better, Stat};
use corelocal_support::verdict::{Verdict, verdict};
use serde::Serialize;

use super::cache_stats::Tally;
use super::launch::Run;

/// The fewest rounds of which a difference is told.
pub const FEWEST: usize = 5;

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub struct Answer {
    pub version: &'static str,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// A malloc each.
    pub mallocs: Vec<Measured>,
    /// The interruption, if a comparison was ended before all runs were done.
    pub interrupted: Option<Interrupted>,
    /// The disturbance of the machine meanwhile, if there was one.
    pub noise: Option<String>,
}

/// The interruption of a comparison.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Interrupted {
    /// The one that was sent to us.
    pub signal: i32,
    /// The number of complete runs, which are shown; if there is none, the interrupted one is.
    pub whole_runs: usize,
}

/// The runs with one malloc.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub malloc: String,
    pub label: String,
    pub ours: bool,
    /// The malloc's file; `None` for libc's own.
    pub library: Option<String>,
    /// The end of the first run that failed, or else of the first run.
    pub ended: String,
    /// Whether all runs ended with exit code 0.
    pub well: bool,
    pub wall_s: Option<Stat>,
    pub user_s: Option<Stat>,
    pub system_s: Option<Stat>,
    /// The cpu seconds of both.
    pub cpu_s: Option<Stat>,
    pub peak_kib: Option<Stat>,
    /// The resident KiB at the last look before the end.
    pub final_kib: Option<Stat>,
    /// The time as a multiple of that with libc's malloc: less than 1 is faster.
    pub wall_ratio: Option<f64>,
    /// The cpu time as a multiple of that with libc's malloc.
    pub cpu_ratio: Option<f64>,
    /// The peak as a multiple of that with libc's malloc: less than 1 is less memory.
    pub peak_ratio: Option<f64>,
    /// The comparison with libc's malloc in words.
    pub verdict: Option<String>,
    /// The resident KiB over time, in the run of median length.
    pub resident: Vec<(f64, u64)>,
    /// The cache statistics, if it is our malloc and a process wrote some.
    pub caches: Option<Tally>,
}

/// The means over several commands.
pub struct Means {
    /// The malloc that all are compared with.
    pub base: String,
    /// Each other malloc's geometric means, over all commands, of the ratios of time, cpu time and peak. None where a command
    /// has none.
    pub rows: Vec<(String, [Option<f64>; 3])>,
}

impl Means {
    /// Returns `None` for one command, and for commands that were not run with the same mallocs.
    pub fn of(answers: &[Answer]) -> Option<Means> {
        let [first, _, ..] = answers else { return None };
        let base = first.mallocs.first()?.label.clone();
        let of = |nth: usize| {
            let ratio = |which: fn(&Measured) -> Option<f64>| {
                let all = answers.iter().map(|answer| which(answer.mallocs.get(nth)?));
                mean(all.collect::<Option<Vec<_>>>()?.into_iter())
            };
            [ratio(|m| m.wall_ratio), ratio(|m| m.cpu_ratio), ratio(|m| m.peak_ratio)]
        };
        let rows =
            first.mallocs.iter().enumerate().skip(1).map(|(nth, m)| (m.label.clone(), of(nth)));
        Some(Means { base, rows: rows.collect() })
    }
}

impl Answer {
    /// `runs` has the runs of each malloc, round by round; `tallies` what caches did in one of them.
    pub fn new(
        command: &[OsString],
        mallocs: Vec<Malloc>,
        runs: Vec<Vec<Run>>,
        tallies: Vec<Option<Tally>>,
    ) -> Self {
        let base = mallocs.iter().position(|malloc| malloc.library.is_none());
        let base: Vec<Run> = base.map(|nth| runs[nth].clone()).unwrap_or_default();
        let measured = mallocs.into_iter().zip(runs.into_iter().zip(tallies));
        let measured = measured.map(|(malloc, (runs, caches))| Measured {
            caches,
            ..Measured::new(malloc, &runs, &base)
        });
        Answer {
            version: env!("CARGO_PKG_VERSION"),
            command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            mallocs: measured.collect(),
            interrupted: None,
            noise: None,
        }
    }

    /// Notes that the comparison was ended by a signal, after so many whole runs.
    pub fn interrupt(&mut self, signal: i32, whole_runs: usize) {
        self.interrupted = Some(Interrupted { signal, whole_runs });
        self.mallocs.iter_mut().for_each(|malloc| malloc.verdict = None);
    }

    /// Returns the number of rounds.
    pub fn rounds(&self) -> usize {
        self.mallocs.iter().filter_map(|m| Some(m.wall_s.as_ref()?.n)).max().unwrap_or(0)
    }

    /// Returns what is to be known of all runs, in sentences.
    pub fn remarks(&self) -> Vec<String> {
        let noise = self.noise.iter().map(|noise| format!("Noise: {noise}"));
        let is_short = self.mallocs.len() > 1
            && self.interrupted.is_none()
            && (1..FEWEST).contains(&self.rounds());
        let few = is_short.then(|| {
            format!("Differences are called such from {FEWEST} rounds on: `--rounds {FEWEST}`.")
        });
        self.ends().into_iter().chain(few).chain(noise).collect()
    }

    fn ends(&self) -> Vec<String> {
        match self.interrupted {
            None => self.bad_ends(),
            // An interrupted run ends like this, with any malloc.
            Some(Interrupted { signal, whole_runs: 0 }) => {
                vec![format!("Interrupted by signal {signal}: the figures cover part of one run.")]
            }
            Some(Interrupted { signal, whole_runs }) => {
                let runs = if whole_runs == 1 { "run" } else { "runs" };
                let sentence = format!(
                    "Interrupted by signal {signal}: the figures cover the {whole_runs} {runs} before."
                );
                [vec![sentence], self.bad_ends()].concat()
            }
        }
    }

    /// Runs that did not end well: whether it is the program or one malloc.
    fn bad_ends(&self) -> Vec<String> {
        let mut ran = self.mallocs.iter().filter(|malloc| malloc.wall_s.is_some());
        let Some(first) = ran.next() else { return Vec::new() };
        if !first.well && ran.all(|malloc| malloc.ended == first.ended) {
            return vec![format!("Runs ended with {}, with every malloc.", first.ended)];
        }
        let bad = self.mallocs.iter().filter(|malloc| !malloc.well);
        let sentence = |malloc: &Measured| {
            format!(
                "With {} a run ended with {}; `corelocal run --malloc {} -- ...` shows its messages.",
                malloc.label, malloc.ended, malloc.malloc
            )
        };
        bad.map(sentence).collect()
    }
}

/// A figure of a run, if it has one.
type Figure = fn(&Run) -> Option<f64>;

const WALL: Figure = |run| Some(run.wall_s);
const USER: Figure = |run| Some(run.user_s);
const SYSTEM: Figure = |run| Some(run.system_s);
const PEAK: Figure = |run| Some(run.peak_kib? as f64);

fn stat(runs: &[Run], figure: Figure) -> Option<Stat> {
    Stat::of(&runs.iter().filter_map(figure).collect::<Vec<f64>>())
}

/// Returns a time or a number of MiB as it is shown.
fn shown(value: f64) -> Option<f64> {
    figure(value).parse().ok()
}

/// The kinds of figures that are compared, as a reader calls them, and their units.
const KINDS: [(&str, Figure, f64); 3] = [
    ("time", WALL, 1.0),
    ("cpu time", |run| Some(run.user_s + run.system_s), 1.0),
    ("peak memory", PEAK, 1024.0),
];

/// Says `7 % less time, 30 % less peak memory`, of runs beside those with libc's malloc.
fn verdict_of(runs: &[Run], base: &[Run]) -> Option<String> {
    let mut words = Vec::new();
    for (name, of, unit) in KINDS {
        let (Some(is), Some(was)) = (stat(runs, of), stat(base, of)) else { continue };
        let change = 100.0 * (shown(is.median / unit)? / shown(was.median / unit)? - 1.0);
        match verdict(Better::Lower, &was, &is) {
            Verdict::Faster => words.push(format!("{:.0} % less {name}", -change)),
            Verdict::Slower => words.push(format!("{change:.0} % more {name}")),
            Verdict::Changed | Verdict::Noise => {}
        }
    }
    Some(if words.is_empty() { "no difference".to_owned() } else { words.join(", ") })
}

impl Measured {
    fn new(malloc: Malloc, runs: &[Run], base: &[Run]) -> Self {
        let is_base = malloc.library.is_none();
        let ratio = |nth: usize| {
            let (_, of, unit) = KINDS[nth];
            let shown = |runs| shown(stat(runs, of)?.median / unit);
            let ratio = shown(runs)? / shown(base)?;
            Some(ratio).filter(|ratio| !is_base && ratio.is_finite())
        };
        let (ratios, verdict) = (
            [ratio(0), ratio(1), ratio(2)],
            verdict_of(runs, base).filter(|_| !is_base && !base.is_empty()),
        );
        let stat = |figure: Figure| stat(runs, figure);
        let bad = runs.iter().find(|run| !run.status.success());
        let shown = bad.or(runs.first()).map(|run| ended(run.status)).unwrap_or_default();
        let mut by_length: Vec<&Run> = runs.iter().collect();
        by_length.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
        let middle = by_length.get(by_length.len() / 2);
        Measured {
            malloc: malloc.id,
            label: malloc.label,
            ours: malloc.ours,
            library: malloc.library.map(|path| path.to_string_lossy().into_owned()),
            ended: shown,
            well: bad.is_none(),
            wall_s: stat(WALL),
            user_s: stat(USER),
            system_s: stat(SYSTEM),
            peak_kib: stat(PEAK),
            final_kib: stat(|run| Some(run.resident.last()?.1 as f64)),
            cpu_s: stat(KINDS[1].1),
            wall_ratio: ratios[0],
            cpu_ratio: ratios[1],
            peak_ratio: ratios[2],
            verdict: verdict.filter(|_| runs.len().min(base.len()) >= FEWEST),
            resident: middle.map(|run| run.resident.clone()).unwrap_or_default(),
            caches: None,
        }
    }
}

/// Says it in words.
fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => status.to_string(),
    }
}

#[cfg(test)]
pub mod tests;
