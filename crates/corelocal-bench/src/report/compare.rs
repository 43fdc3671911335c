//! `--compare OLD.json`: what changed since an older report, and what is only noise.
//!
//! Invariants:
//! - Points meet by `(table id, unit, row id, x)`; a point that only one report has is listed,
//!   never dropped in silence.
//! - A change counts only where neither machine was disturbed, and [`verdict`] finds one.
//! - A load that was sized for the machine is compared by its ratios to the baseline.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{anyhow, bail};
use corelocal_symbols::input;
use serde_json::Value;

use corelocal_support::figures::x_name;
use corelocal_support::output::path_line;
use corelocal_support::schema::{Better, Point, Report, Row, SCHEMA_VERSION, Stat, Table};
use corelocal_support::verdict::{Verdict, verdict};

use super::stamp::{self, Difference};

/// A report has less than 1 MiB. What it is parsed into takes many times its bytes.
const LONGEST: u64 = 64 << 20;

/// The change of a point that both reports have.
#[derive(Debug)]
pub struct Change {
    /// Label of the row, with the point's `x` where it has one.
    pub label: String,
    /// Median then.
    pub old: f64,
    /// Median now.
    pub new: f64,
    /// Change of the median in percent of the old one; `None` when that was zero.
    pub percent: Option<f64>,
    /// The meaning of the change.
    pub verdict: Verdict,
}

/// The changes of one table.
#[derive(Debug)]
pub struct TableChanges {
    /// The table's heading.
    pub title: String,
    /// Unit of the medians.
    pub unit: String,
    /// The changes, in the table's order.
    pub changes: Vec<Change>,
}

/// An older report beside a newer one.
#[derive(Debug)]
pub struct Comparison {
    /// The time at which the older report began.
    pub old_created: String,
    /// Version that wrote the older one.
    pub old_version: String,
    /// Differences between the machines or the ways of measuring: a change of a figure may come from these, and not
    /// from the program.
    pub differences: Vec<Difference>,
    /// Tables with at least one common point.
    pub tables: Vec<TableChanges>,
    /// Measured only then.
    pub only_old: Vec<String>,
    /// Measured only now.
    pub only_new: Vec<String>,
}

impl Comparison {
    /// Returns how many points have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.tables.iter().flat_map(|t| &t.changes).filter(|c| c.verdict == verdict).count()
    }

    /// Returns the counts in one sentence.
    pub fn summary(&self) -> String {
        let shown = [Verdict::Faster, Verdict::Slower, Verdict::Changed, Verdict::Noise];
        let counts: Vec<String> = shown
            .into_iter()
            .map(|verdict| (verdict, self.count(verdict)))
            .filter(|&(verdict, count)| count > 0 || verdict != Verdict::Changed)
            .map(|(verdict, count)| format!("{count} {}", verdict.word()))
            .collect();
        format!("{}.", counts.join(", "))
    }
}

/// Reads a report that an earlier run wrote.
///
/// # Errors
/// A sentence that names the file, what is wrong with it and what to do: it cannot be read, is
/// cut off, is too long, is not JSON, is not a report, is damaged, or comes from a newer program.
pub fn load(path: &Path) -> anyhow::Result<Report> {
    let name = path_line(path);
    let bytes = match input::read(path, LONGEST) {
        Err(e) if e.kind() == ErrorKind::NotFound => bail!(
            "cannot compare with {name}: it does not exist; give a report.json of an earlier `corelocal report`"
        ),
        Err(e) if e.kind() == ErrorKind::FileTooLarge => bail!(
            "cannot compare with {name}: {e}, and a report has less than one; \
             give a report.json that an earlier `corelocal report` wrote"
        ),
        Err(e) => bail!("cannot compare with {name}: {e}; give a readable report.json"),
        Ok(bytes) => bytes,
    };
    parse(&bytes).map_err(|problem| anyhow!("cannot compare with {name}: {problem}"))
}

fn parse(bytes: &[u8]) -> Result<Report, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|e| {
        if e.is_eof() {
            "the file is truncated, perhaps because its writer was interrupted; use another report or measure \
             again"
                .to_owned()
        } else {
            format!("it is not JSON ({e}); give the report.json, not another output")
        }
    })?;
    let version = value.get("schema").and_then(Value::as_u64);
    let Some(version) = version.filter(|_| value.get("tables").is_some_and(Value::is_array)) else {
        return Err("it is JSON but not a corelocal report; \
                    give a report.json that `corelocal report` wrote"
            .to_owned());
    };
    if version > u64::from(SCHEMA_VERSION) {
        let writer = value.get("version").and_then(Value::as_str).unwrap_or("a newer version");
        return Err(format!(
            "corelocal {writer} wrote it with report schema {version}, and this program reads up \
             to {SCHEMA_VERSION}; use a corelocal at least as new as the one that wrote it"
        ));
    }
    serde_json::from_value(value).map_err(|e| {
        format!("it is a damaged corelocal report ({e}); use another report or measure again")
    })
}

fn rounds(report: &Report) -> &'static str {
    match report {
        Report { quick: true, .. } => "short (--quick)",
        Report { long: true, .. } => "long (--long)",
        _ => "full",
    }
}

/// Sets `new` beside `old`.
pub fn compare(old: &Report, new: &Report) -> Comparison {
    let mut differences = stamp::differences(&old.machine, &new.machine);
    let (rounds_then, rounds_now) = (rounds(old), rounds(new));
    if rounds_then != rounds_now {
        differences.push(Difference {
            field: "rounds".to_owned(),
            old: rounds_then.to_owned(),
            new: rounds_now.to_owned(),
        });
    }
    let mut tables = Vec::new();
    for table in &new.tables {
        let before = counterpart(old, table);
        let changes: Vec<Change> = points(table)
            .filter_map(|(row, point)| {
                let was = find(before?, &row.id, point.x)?;
                Some(change(table, row, was, point))
            })
            .collect();
        if !changes.is_empty() {
            let (title, unit) = (table.title.clone(), table.unit.clone());
            tables.push(TableChanges { title, unit, changes });
        }
    }
    Comparison {
        old_created: old.created.clone(),
        old_version: old.version.clone(),
        differences,
        tables,
        only_old: only_in(old, new),
        only_new: only_in(new, old),
    }
}

fn counterpart<'a>(report: &'a Report, table: &Table) -> Option<&'a Table> {
    report.tables.iter().find(|t| t.id == table.id && t.unit == table.unit)
}

/// Returns what `report` measured and `other` did not; a row that is missing entirely is named once.
fn only_in(report: &Report, other: &Report) -> Vec<String> {
    let mut missing = Vec::new();
    for table in &report.tables {
        let there = counterpart(other, table);
        for row in table.rows.iter().filter(|row| !row.points.is_empty()) {
            let gone: Vec<_> = row
                .points
                .iter()
                .filter(|p| there.and_then(|t| find(t, &row.id, p.x)).is_none())
                .collect();
            if gone.len() == row.points.len() {
                missing.push(format!("{}: {}", table.title, row.label));
            } else {
                missing.extend(
                    gone.iter().map(|p| format!("{}: {}", table.title, label(table, row, p.x))),
                );
            }
        }
    }
    missing
}

fn points(table: &Table) -> impl Iterator<Item = (&Row, &Point)> {
    table.rows.iter().flat_map(|row| row.points.iter().map(move |point| (row, point)))
}

fn find<'a>(table: &'a Table, row: &str, x: Option<f64>) -> Option<&'a Point> {
    points(table).find(|(r, point)| r.id == row && point.x == x).map(|(_, point)| point)
}

fn label(table: &Table, row: &Row, x: Option<f64>) -> String {
    match (x, &table.x_label) {
        (Some(x), _) if !table.x_names.is_empty() => format!("{}, {}", row.label, x_name(table, x)),
        (Some(x), Some(name)) => format!("{}, {x} {name}", row.label),
        (Some(x), None) => format!("{}, {x}", row.label),
        (None, _) => row.label.clone(),
    }
}

fn change(table: &Table, row: &Row, was: &Point, is: &Point) -> Change {
    let (old, new, better) = match (was.ratio, is.ratio) {
        // A ratio has no spread of its own: it has that of the figures.
        (Some(then), Some(now)) if table.is_sized => {
            (scaled(&was.stat, then), scaled(&is.stat, now), Better::Higher)
        }
        _ => (was.stat, is.stat, table.better),
    };
    let difference = new.median - old.median;
    let verdict = if was.disturbed || is.disturbed || (table.is_sized && is.ratio.is_none()) {
        Verdict::Noise
    } else {
        verdict(better, &old, &new)
    };
    Change {
        label: label(table, row, is.x),
        old: old.median,
        new: new.median,
        percent: (old.median != 0.0).then(|| 100.0 * difference / old.median.abs()),
        verdict,
    }
}

/// Returns the same spread around another median.
fn scaled(stat: &Stat, median: f64) -> Stat {
    let times = |value: f64| value * median / stat.median;
    Stat {
        median,
        q1: times(stat.q1),
        q3: times(stat.q3),
        min: times(stat.min),
        max: times(stat.max),
        n: stat.n,
    }
}

#[cfg(test)]
mod tests;
