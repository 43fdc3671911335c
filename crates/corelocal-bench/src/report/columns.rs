//! A table's figures as columns of text, the same for the terminal and for HTML.
//!
//! Invariants:
//! - Every column has exactly one cell for each row of the table, in the table's order; a row
//!   without a figure has [`NONE`].
//! - Figures are aligned at their decimal points and want a fixed-width font.

use std::collections::BTreeSet;

use corelocal_support::figures::{NONE, align, figure, ratio, spread};
use corelocal_support::schema::{Point, Published, Row, Table};

use super::outcome::Outcome;

/// The mark behind a figure that was measured while the machine was disturbed.
pub const DISTURBED: &str = "~";

/// One column of figures.
pub struct Column {
    /// The heading.
    pub heading: String,
    /// The cells, one for each row.
    pub cells: Vec<String>,
    /// The outcomes of our rows against the baseline, in a column of ratios.
    outcomes: Vec<Option<Outcome>>,
}

impl Column {
    fn new(heading: String, table: &Table, text: impl Fn(&Row) -> Option<String>) -> Self {
        let cell = |row| text(row).unwrap_or_else(|| NONE.to_owned());
        let mut cells: Vec<String> = table.rows.iter().map(cell).collect();
        align(&mut cells);
        Self { heading, cells, outcomes: Vec::new() }
    }

    /// Returns the ratios at one `x`.
    fn of_ratios(heading: String, table: &Table, x: Option<f64>) -> Self {
        let point = |row: &'_ Row| row.points.iter().position(|point| point.x == x);
        let at = |row: &Row| point(row).and_then(|nth| row.points[nth].ratio);
        let base = table.rows.iter().find(|row| Some(&row.id) == table.baseline.as_ref());
        let stat = |row: &Row| point(row).map(|nth| row.points[nth].stat);
        let base = base.and_then(stat);
        let outcome = |row: &Row| {
            let judged = at(row).filter(|_| row.ours);
            judged.map(|ratio| Outcome::of(ratio, stat(row).as_ref(), base.as_ref()))
        };
        let outcomes = table.rows.iter().map(outcome).collect();
        Self { outcomes, ..Self::new(heading, table, |row| at(row).map(ratio)) }
    }

    /// Returns how one of our rows compares with the baseline, in a column of ratios.
    pub fn outcome(&self, row: usize) -> Option<Outcome> {
        self.outcomes.get(row).copied().flatten()
    }

    /// Returns a cell's class in the style sheet.
    pub fn class(&self, row: usize) -> String {
        let outcome = self.outcome(row).map_or("", Outcome::class);
        format!("number {outcome}").trim_end().to_owned()
    }
}

/// Returns a point's median, marked if the machine was disturbed.
pub fn median(point: &Point) -> Option<String> {
    Some(marked(point, figure(point.stat.median)))
}

/// Appends the mark to a figure of a point that was disturbed.
pub fn marked(point: &Point, figure: String) -> String {
    if point.disturbed { figure + DISTURBED } else { figure }
}

/// Returns median, spread, ratio and other units of a table with one point to a row.
pub fn single(table: &Table) -> Vec<Column> {
    let column = |heading: &str, text: &dyn Fn(&Point) -> Option<String>| {
        Column::new(heading.to_owned(), table, |row| text(row.points.first()?))
    };
    let mut columns = vec![
        column(&format!("median {}", table.unit), &median),
        spread_column("q1–q3".to_owned(), table, None),
    ];
    if table.baseline.is_some() {
        columns.push(Column::of_ratios("ratio".to_owned(), table, None));
    }
    for extra in extras(table) {
        columns.push(column(extra, &|p| Some(figure(p.extra.get(extra)?.median))));
    }
    columns
}

/// Returns the quartiles at one `x`: aligned at their right end, since a range has two decimal points.
fn spread_column(heading: String, table: &Table, x: Option<f64>) -> Column {
    let cell = |row: &Row| row.points.iter().find(|p| p.x == x).map(|p| spread(&p.stat));
    let cells = table.rows.iter().map(|row| cell(row).unwrap_or_else(|| NONE.to_owned()));
    Column { heading, cells: cells.collect(), outcomes: Vec::new() }
}

/// Returns the quartiles of a scaling table, one column for each `x`.
pub fn spreads(table: &Table) -> Vec<Column> {
    x_values(table).iter().map(|&x| spread_column(figure(x), table, Some(x))).collect()
}

/// Returns for each row of a scaling table the widest quartile range, in percent of its median.
pub fn widest_spread(table: &Table) -> Column {
    let range = |point: &Point| 100.0 * (point.stat.q3 - point.stat.q1) / point.stat.median;
    let widest =
        |row: &Row| row.points.iter().map(range).filter(|x| x.is_finite()).reduce(f64::max);
    Column::new("spread".to_owned(), table, |row| widest(row).map(|range| format!("{range:.0}%")))
}

/// Returns one column for each `x` of a scaling table.
pub fn scaling(table: &Table, text: &dyn Fn(&Point) -> Option<String>) -> Vec<Column> {
    let column = |&x: &f64| {
        Column::new(figure(x), table, |row| text(row.points.iter().find(|p| p.x == Some(x))?))
    };
    x_values(table).iter().map(column).collect()
}

/// Returns the largest `x` of a scaling table that has a baseline, and the ratios there.
pub fn last_ratio(table: &Table) -> Option<(String, Column)> {
    table.baseline.as_ref()?;
    let x = *x_values(table).last()?;
    Some((figure(x), Column::of_ratios("ratio".to_owned(), table, Some(x))))
}

/// Returns the ratios of a scaling table, one column for each `x`.
pub fn ratios(table: &Table) -> Vec<Column> {
    x_values(table).iter().map(|&x| Column::of_ratios(figure(x), table, Some(x))).collect()
}

/// Returns for each row the figures published for it, one to a line; `None` when no row has any. The
/// machine is named only where it is not the same for all: else the table's source names it.
pub fn published(table: &Table) -> Option<Vec<String>> {
    let all = || table.rows.iter().flat_map(|row| &row.published);
    let first = all().next()?;
    let same = table.source.is_some() && all().all(|p| p.on == first.on);
    let text = |p: &Published| {
        let value = format!("{} {}", figure(p.value), p.unit);
        if same { value } else { format!("{value}, {}", p.on) }
    };
    let cell = |row: &Row| row.published.iter().map(text).collect::<Vec<_>>().join("\n");
    Some(table.rows.iter().map(cell).collect())
}

/// Returns every `x` of a scaling table, ascending.
pub fn x_values(table: &Table) -> Vec<f64> {
    let mut xs: Vec<f64> = table.rows.iter().flat_map(|r| &r.points).filter_map(|p| p.x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    xs
}

/// Returns the other units that some point of the table has.
pub fn extras(table: &Table) -> BTreeSet<&str> {
    let points = table.rows.iter().flat_map(|row| &row.points);
    points.flat_map(|point| point.extra.keys()).map(String::as_str).collect()
}
