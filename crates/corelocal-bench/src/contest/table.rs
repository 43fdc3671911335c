//! Measures the contestants of a table, and completes it.
//!
//! Invariants:
//! - Rounds during which the machine was disturbed are measured again, once. What stays disturbed is marked.
//! - A contestant that fails leaves the table with its reason; the others go on.

use std::collections::BTreeMap;

use corelocal_support::figures::x_name;
use corelocal_support::measure::affinity::Pinned;
use corelocal_support::measure::engine::{Body, CPU_NS, Outcome, Sample, alternate};
use corelocal_support::measure::noise::{self, Watch};
use corelocal_support::measure::stats;
use corelocal_support::process::signals;
use corelocal_support::schema::{self, Noise, Point, Stat};

use super::{Contest, Context};

/// The number of times that the rounds at one `x` are measured if the machine is disturbed: the quietest count.
const ATTEMPTS: usize = 2;

/// Wall and cpu time that differ by less than this tell the same.
const SAME_TIME: f64 = 0.05;

impl<B: Body> Contest<B> {
    /// Measures every contestant and completes the table.
    pub fn measure(mut self, cx: &Context<'_>) -> schema::Table {
        let pinned = if B::SINGLE_THREAD {
            Pinned::to_one_cpu()
                .map_err(|refused| {
                    self.table.notes.push(format!(
                        "The measuring thread could not be pinned to one cpu ({refused}) and may \
                         have moved. Allow sched_setaffinity, or start this under `taskset -c N`."
                    ));
                })
                .ok()
        } else {
            None
        };
        let cpu = pinned.as_ref().map(Pinned::cpu);

        let bar = cx.progress();
        let xs: Vec<Option<f64>> = match self.xs[..] {
            [] => vec![None],
            ref xs => xs.iter().copied().map(Some).collect(),
        };
        bar.begin(xs.len() as u64 * 1000);
        let mut failures = vec![Vec::new(); self.bodies.len()];
        let mut noises = Vec::new();
        for (nth, &x) in xs.iter().enumerate() {
            if signals::came() || cx.plan.is_over() {
                break;
            }
            let at = match (&self.table.x_label, x) {
                (Some(_), Some(x)) if !self.table.x_names.is_empty() => x_name(&self.table, x),
                (Some(label), Some(x)) => format!("{label} {x}"),
                _ => String::new(),
            };
            let comma = if at.is_empty() { "" } else { ", " };
            let mut best: Option<(Vec<Outcome>, Noise)> = None;
            for attempt in 0..ATTEMPTS {
                let again = if attempt > 0 { ", again: the machine was disturbed" } else { "" };
                bar.set_message(format!("{}{comma}{at}{again}", self.table.title));
                let watch = Watch::start(B::SINGLE_THREAD, cpu);
                let outcomes = alternate(&mut self.bodies, x, xs.len(), &cx.plan, |done| {
                    bar.set_position(nth as u64 * 1000 + (done * 1000.0) as u64);
                });
                let noise = watch.finish();
                let is_quieter =
                    best.as_ref().is_none_or(|(_, best)| noise::is_quieter(&noise, best));
                if is_quieter {
                    best = Some((outcomes, noise));
                }
                let is_to_end = signals::came() || cx.plan.is_over_in(cx.plan.table);
                if is_to_end || !noise::is_disturbed(&noise) {
                    break;
                }
            }
            let Some((outcomes, noise)) = best else { continue };
            for (reasons, outcome) in failures.iter_mut().zip(&outcomes) {
                if let Some(Err(reason)) = outcome {
                    reasons.push((at.clone(), format!("{reason:#}")));
                }
            }
            self.add_points(x, outcomes, cx.machine.tsc_mhz, noise::is_disturbed(&noise));
            noises.push(noise);
        }
        self.explain(failures);
        bar.finish();
        self.table.noise = noise::of_all(&noises);
        self.table
    }

    /// Adds one point for each contestant that came through.
    fn add_points(
        &mut self,
        x: Option<f64>,
        outcomes: Vec<Outcome>,
        tsc_mhz: Option<f64>,
        disturbed: bool,
    ) {
        let values = |samples: &[Sample]| samples.iter().map(|s| s.value).collect::<Vec<_>>();
        let baseline = self.table.rows.iter().zip(&outcomes).find_map(|(row, outcome)| {
            let is_baseline = Some(&row.id) == self.table.baseline.as_ref();
            outcome.as_ref().filter(|_| is_baseline)?.as_ref().ok().map(|s| values(s))
        });
        for (row, outcome) in self.table.rows.iter_mut().zip(outcomes) {
            let Some(Ok(samples)) = outcome else { continue };
            let values = values(&samples);
            let Some(stat) = Stat::of(&values) else { continue };
            let mut extra = extras(&samples, &stat);
            if let Some(mhz) = tsc_mhz.filter(|_| self.cycles) {
                let cycles: Vec<f64> = values.iter().map(|ns| ns * mhz / 1000.0).collect();
                extra.extend(Stat::of(&cycles).map(|stat| ("cycles".to_owned(), stat)));
            }
            let better = self.table.better;
            let ratio = baseline.as_ref().and_then(|base| stats::ratio(base, &values, better));
            row.points.push(Point { x, stat, ratio, extra, disturbed });
        }
    }

    /// Has a row without points say why, and explains the gaps of a row under the table.
    fn explain(&mut self, failures: Vec<Vec<(String, String)>>) {
        for (row, reasons) in self.table.rows.iter_mut().zip(failures) {
            if row.points.is_empty() && row.unavailable.is_none() {
                let reason = reasons.into_iter().next().map(|(_, reason)| reason);
                row.unavailable =
                    Some(reason.unwrap_or_else(|| "the result is not a finite number".to_owned()));
            } else {
                let gaps =
                    reasons.into_iter().map(|(at, why)| format!("{}, {at}: {why}", row.label));
                self.table.notes.extend(gaps);
            }
        }
    }
}

/// Returns the other units of `samples`, whose values are summed up in `value`; without a cpu time that
/// says the same as the wall time.
fn extras(samples: &[Sample], value: &Stat) -> BTreeMap<String, Stat> {
    let names = samples.first().map_or(&[][..], |sample| &sample.extra[..]);
    let column = |nth: usize| -> Vec<f64> {
        samples.iter().filter_map(|sample| sample.extra.get(nth)).map(|&(_, v)| v).collect()
    };
    let stats = names.iter().enumerate().filter_map(|(nth, &(name, _))| {
        let stat = Stat::of(&column(nth))?;
        let same = (stat.median - value.median).abs() <= SAME_TIME * value.median;
        (name != CPU_NS || !same).then(|| (name.to_owned(), stat))
    });
    stats.collect()
}

#[cfg(test)]
mod tests;
