//! How a table is measured. Every table, present and later, enters through [`Table`]; most are a
//! list of contestants handed to [`Contest`], which is all they have to know.
//!
//! ```text
//!   tables/*.rs     what is compared, and with which published figures
//!   contest.rs      Table, Context, Contest (the list of contestants)
//!   contest/table.rs             their figures, by support's engine: all, once, in changing order
//!   loops | threads | probe      the three kinds of contestant
//! ```
//!
//! Invariants:
//! - Contestants of one table are never measured one after the other: they alternate round by
//!   round, so that a slow minute of the machine falls on all of them, and ratios are taken within
//!   a round.
//! - Nothing is drawn and nothing is printed while a contestant is being timed.

pub mod probe;
pub mod progress;
mod table;
pub mod threads;

use corelocal_support::measure::engine::Plan;
use corelocal_support::process::child;
use corelocal_support::schema::{self, Better, Machine, Noise, Row, Source};
use progress::Progress;

/// One table of the report.
pub trait Table: Sync {
    /// Returns the stable short name, as given to `corelocal bench`.
    fn id(&self) -> &'static str;

    /// Returns the heading; one line.
    fn title(&self) -> &'static str;

    /// Measures everything in the table. A contestant that cannot run here becomes a row that says
    /// why.
    ///
    /// # Errors
    ///
    /// Only when the table as a whole makes no sense on this machine.
    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table>;

    /// Returns `true` if it is part of `report`, or of one with short rounds; else it is measured by `bench` alone,
    /// since it takes minutes.
    fn in_report(&self, _quick: bool) -> bool {
        true
    }

    /// Returns what this table runs in processes of its own, by name; names are unique among all tables.
    fn children(&self) -> &'static [(&'static str, child::Body)] {
        &[]
    }
}

/// The run that a table is part of.
pub struct Context<'a> {
    /// The durations of measurements.
    pub plan: Plan,
    /// The machine's stamp.
    pub machine: &'a Machine,
    /// Whether it is one of all tables of a report, and is to be short if it would take minutes.
    pub in_report: bool,
    progress: Progress,
}

impl<'a> Context<'a> {
    /// Creates one for one table, without lines of progress.
    pub fn new(plan: Plan, machine: &'a Machine) -> Self {
        Self { plan, machine, in_report: false, progress: Progress::new(String::new()) }
    }

    /// Makes it that of this table of so many.
    pub fn nth(mut self, nth: usize, of: usize) -> Self {
        self.progress = Progress::new(format!("table {} of {of}", nth + 1));
        self
    }

    /// Returns the progress, which a table that measures by its own means advances itself.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }
}

/// A table in the making: its text and its contestants, all of one kind `B`.
///
/// ```ignore
/// Contest::new(self, "What a reader should know.")
///     .baseline("atomic")
///     .row(Row::new("atomic", "lock xadd"), loop_of(|| SHARED.fetch_add(1, Relaxed)))
///     .unavailable(Row::new("rdpid", "rdpid"), "this cpu has no rdpid")
///     .measure(cx)
/// ```
pub struct Contest<B> {
    table: schema::Table,
    /// `None` for a row that is known to be unavailable.
    bodies: Vec<Option<B>>,
    xs: Vec<f64>,
    cycles: bool,
}

impl<B> Contest<B> {
    /// Creates an empty table in nanoseconds, where less is better.
    pub fn new(table: &dyn Table, about: impl Into<String>) -> Self {
        Self {
            table: schema::Table {
                id: table.id().to_owned(),
                title: table.title().to_owned(),
                about: about.into(),
                source: None,
                unit: "ns".to_owned(),
                better: Better::Lower,
                x_label: None,
                x_names: Vec::new(),
                baseline: None,
                tile: None,
                is_sized: false,
                rows: Vec::new(),
                notes: Vec::new(),
                noise: Noise::default(),
            },
            bodies: Vec::new(),
            xs: Vec::new(),
            cycles: false,
        }
    }

    /// Names the document whose figures stand beside ours.
    pub fn source(mut self, name: &str, url: &str, hardware: &str) -> Self {
        self.table.source =
            Some(Source { name: name.into(), url: url.into(), hardware: hardware.into() });
        self
    }

    /// Sets another unit and direction than nanoseconds.
    pub fn unit(mut self, unit: &str, better: Better) -> Self {
        self.table.unit = unit.to_owned();
        self.table.better = better;
        self
    }

    /// Sets the id of the row that ratios refer to.
    pub fn baseline(mut self, row: &str) -> Self {
        self.table.baseline = Some(row.to_owned());
        self
    }

    /// Says what a report shows first of this table: our row beside the first of these others that was measured.
    pub fn tile(mut self, title: &str, ours: &str, versus: &[&str]) -> Self {
        let versus = versus.iter().map(|&row| row.to_owned()).collect();
        self.table.tile =
            Some(schema::Tile { title: title.to_owned(), ours: ours.to_owned(), versus });
        self
    }

    /// Measures every contestant at each of `xs`, in a table with an x axis.
    pub fn over(mut self, x_label: &str, xs: &[usize]) -> Self {
        self.table.x_label = Some(x_label.to_owned());
        self.xs = xs.iter().map(|&x| x as f64).collect();
        self
    }

    /// Measures every contestant at each of these things, which ratios are taken within. They are known
    /// by their numbers: new ones come last.
    pub fn over_names(mut self, x_label: &str, names: &[&str]) -> Self {
        self.table.x_names = names.iter().map(|&name| name.to_owned()).collect();
        let numbers: Vec<usize> = (0..names.len()).collect();
        self.over(x_label, &numbers)
    }

    /// Keeps, of all things that have names, these numbers alone.
    pub fn only(mut self, numbers: &[usize]) -> Self {
        self.xs.retain(|x| numbers.contains(&(*x as usize)));
        self
    }

    /// Says that the load is sized for the machine: its figures are compared by their ratios only.
    pub fn sized(mut self) -> Self {
        self.table.is_sized = true;
        self
    }

    /// Adds time-stamp counter cycles, where the counter's rate is known.
    pub fn cycles(mut self) -> Self {
        self.cycles = true;
        self
    }

    /// Adds a remark under the table.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.table.notes.push(text.into());
        self
    }

    /// Adds a contestant.
    pub fn row(mut self, row: Row, body: B) -> Self {
        self.table.rows.push(row);
        self.bodies.push(Some(body));
        self
    }

    /// Adds a contestant that cannot run here, and why.
    pub fn unavailable(mut self, mut row: Row, why: impl Into<String>) -> Self {
        row.unavailable = Some(why.into());
        self.table.rows.push(row);
        self.bodies.push(None);
        self
    }
}
