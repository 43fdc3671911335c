//! What a report says, as data: `report.json` is this, `report.html` and the terminal draw it,
//! and `--compare` reads an older one.
//!
//! Invariants:
//! - `SCHEMA_VERSION` changes when a field changes its meaning or goes away; a new optional field
//!   does not change it.
//! - Tables, rows and points are found again by `(table.id, row.id, point.x)`: ids never change
//!   once released, labels may.
//! - A row has points, or it says in `unavailable` why it has none; never both, never neither.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version written to `report.json`.
pub const SCHEMA_VERSION: u32 = 2;

/// One run of `corelocal report` or `corelocal bench`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema: u32,
    /// Version of the program that measured.
    pub version: String,
    /// The time at which the run began, RFC 3339, UTC.
    pub created: String,
    /// The command line, to run it again.
    pub command: String,
    /// Whether the short rounds of `--quick` were used.
    pub quick: bool,
    /// Whether the long rounds of `--long` were.
    #[serde(default)]
    pub long: bool,
    /// Whether a signal ended the run: some tables are missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// The tables that were asked for and not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
    /// The time of the whole run, in seconds.
    pub elapsed_s: f64,
    /// The machine that it ran on.
    pub machine: Machine,
    /// The tables, in the order they ran.
    pub tables: Vec<Table>,
}

/// A table that was not measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Missing {
    /// The missing table's [`Table::id`].
    pub id: String,
    /// The missing table's heading.
    pub title: String,
    /// The reason in a few words.
    pub why: String,
}

/// The stamp of the machine: enough to judge whether two reports may be compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Processor model as the kernel names it.
    pub cpu_model: String,
    /// Cpus this process may run on.
    pub cpus_allowed: usize,
    /// Cpus online.
    pub cpus_online: usize,
    /// Cpus possible.
    pub cpus_possible: usize,
    /// NUMA nodes online.
    pub numa_nodes: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// C library and its version.
    pub libc: String,
    /// Hypervisor vendor, empty on bare metal or unknown.
    pub hypervisor: String,
    /// Current clock source.
    pub clocksource: String,
    /// Measured frequency of the time-stamp counter in MHz; `None` where there is none.
    pub tsc_mhz: Option<f64>,
    /// The paths corelocal uses here, as `corelocal doctor` names them: (name, state).
    pub paths: BTreeMap<String, String>,
}

/// One table: contestants side by side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Stable short name, as given to `corelocal bench`.
    pub id: String,
    /// Heading.
    pub title: String,
    /// One or two sentences on what is measured and why it matters.
    pub about: String,
    /// The document whose figures stand beside ours.
    pub source: Option<Source>,
    /// Unit of every point's `stat` (`ns`, `s`, `id`).
    pub unit: String,
    /// The direction that is better.
    pub better: Better,
    /// Meaning of `Point::x`, for example `threads`; `None` when every row has one point.
    pub x_label: Option<String>,
    /// The name of each `x`, where `x` is no quantity but the number of something, from 0 on; empty where it is a
    /// quantity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub x_names: Vec<String>,
    /// Row that ratios refer to.
    pub baseline: Option<String>,
    /// The comparison that the page shows first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tile: Option<Tile>,
    /// Whether the load is sized for the machine, so that reports are compared by ratios.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_sized: bool,
    /// The contestants.
    pub rows: Vec<Row>,
    /// Remarks that belong under the table.
    pub notes: Vec<String>,
    /// The disturbance of the machine while this table ran.
    pub noise: Noise,
}

/// The rows that a tile compares, at the largest `x` or over all loads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tile {
    /// The title in plain words.
    pub title: String,
    /// Our row.
    pub ours: String,
    /// The rivals: the first of these rows that was measured counts.
    pub versus: Vec<String>,
}

impl Table {
    /// Returns `true` if the machine was disturbed while a point of this row was measured.
    pub fn is_disturbed(&self, row: &Row) -> bool {
        row.points.iter().any(|point| point.disturbed)
    }
}

/// A published document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Source {
    /// Name, year.
    pub name: String,
    /// The address of the publication.
    pub url: String,
    /// The hardware its figures were taken on.
    pub hardware: String,
}

/// The direction that is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better: time.
    Lower,
    /// More is better: throughput.
    Higher,
    /// Neither: an observation.
    Neither,
}

/// One contestant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Stable short name.
    pub id: String,
    /// The label that a reader sees.
    pub label: String,
    /// Whether this is corelocal's own.
    pub ours: bool,
    /// Measurements, one per `x`; one with `x = None` in a table without `x_label`.
    pub points: Vec<Point>,
    /// Figures published for the same thing elsewhere.
    pub published: Vec<Published>,
    /// The reason why there is no measurement.
    pub unavailable: Option<String>,
}

/// One measurement of one contestant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Position on the table's x axis.
    pub x: Option<f64>,
    /// The measurement in the table's unit.
    pub stat: Stat,
    /// Baseline divided by this (for `Better::Higher` this divided by baseline), the median of
    /// the per-round ratios: above 1 means better than the baseline at the same `x`.
    pub ratio: Option<f64>,
    /// The same measurement in other units, for example `cycles` or `Mops/s`.
    pub extra: BTreeMap<String, Stat>,
    /// The machine was disturbed meanwhile, also when it was measured again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
}

/// Median and spread over rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stat {
    /// Median.
    pub median: f64,
    /// The first quartile.
    pub q1: f64,
    /// Third quartile.
    pub q3: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Number of rounds.
    pub n: usize,
}

/// A figure published elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Published {
    /// The value, in `unit`.
    pub value: f64,
    /// The figure's unit.
    pub unit: String,
    /// The machine in short.
    pub on: String,
}

/// Signs that something else used the machine meanwhile.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Noise {
    /// Wall time of the measurement in seconds.
    pub wall_s: f64,
    /// Share of cpu time the hypervisor took away, 0 to 1; `None` where /proc/stat is missing.
    pub steal: Option<f64>,
    /// Share of the machine's cpu time that other programs used, 0 to 1; `None` where /proc/stat
    /// is missing.
    #[serde(default)]
    pub others: Option<f64>,
    /// Times the kernel took the cpu from a single-threaded measurement, per second.
    pub involuntary_per_s: f64,
    /// Cpus this process was pinned to while it measured one thread; `None` if it could not be.
    pub pinned: Option<usize>,
}

impl Row {
    /// Creates a contestant as others offer it.
    pub fn new(id: &str, label: impl Into<String>) -> Self {
        Self {
            id: id.to_owned(),
            label: label.into(),
            ours: false,
            points: Vec::new(),
            published: Vec::new(),
            unavailable: None,
        }
    }

    /// Returns a contestant of corelocal's own.
    pub fn ours(id: &str, label: impl Into<String>) -> Self {
        Self { ours: true, ..Self::new(id, label) }
    }

    /// Adds a figure that the source document gives for the same thing.
    pub fn published(mut self, value: f64, unit: &str, on: &str) -> Self {
        self.published.push(Published { value, unit: unit.into(), on: on.into() });
        self
    }
}
