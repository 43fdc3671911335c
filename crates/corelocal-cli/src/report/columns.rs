//! A table's figures as columns of text, the same for the terminal and for HTML.
//!
//! Invariants:
//! - Every column has exactly one cell for each row of the table, in the table's order; a row
//!   without a figure has [`NONE`].
//! - Figures are aligned at their decimal points and want a fixed-width font.

use std::collections::BTreeSet;

use super::figures::{NONE, align, figure, ratio, spread};
use super::schema::{Point, Published, Row, Table};

/// One column of figures.
pub struct Column {
    /// What stands above it.
    pub heading: String,
    /// One for each row.
    pub cells: Vec<String>,
}

impl Column {
    fn new(heading: String, table: &Table, text: impl Fn(&Row) -> Option<String>) -> Self {
        let cell = |row| text(row).unwrap_or_else(|| NONE.to_owned());
        let mut cells: Vec<String> = table.rows.iter().map(cell).collect();
        align(&mut cells);
        Self { heading, cells }
    }
}

/// Median, spread, ratio and other units of a table with one point to a row.
pub fn single(table: &Table) -> Vec<Column> {
    let column = |heading: &str, text: &dyn Fn(&Point) -> Option<String>| {
        Column::new(heading.to_owned(), table, |row| text(row.points.first()?))
    };
    let mut columns = vec![
        column(&format!("median {}", table.unit), &|p| Some(figure(p.stat.median))),
        spread_column("q1–q3".to_owned(), table, None),
    ];
    if table.baseline.is_some() {
        columns.push(column("ratio", &|p| p.ratio.map(ratio)));
    }
    for extra in extras(table) {
        columns.push(column(extra, &|p| Some(figure(p.extra.get(extra)?.median))));
    }
    columns
}

/// Quartiles at one `x`: aligned at their right end, since a range has two decimal points.
fn spread_column(heading: String, table: &Table, x: Option<f64>) -> Column {
    let cell = |row: &Row| row.points.iter().find(|p| p.x == x).map(|p| spread(&p.stat));
    let cells = table.rows.iter().map(|row| cell(row).unwrap_or_else(|| NONE.to_owned()));
    Column { heading, cells: cells.collect() }
}

/// The quartiles of a scaling table, one column for each `x`.
pub fn spreads(table: &Table) -> Vec<Column> {
    x_values(table).iter().map(|&x| spread_column(figure(x), table, Some(x))).collect()
}

/// One column for each `x` of a scaling table.
pub fn scaling(table: &Table, text: &dyn Fn(&Point) -> Option<String>) -> Vec<Column> {
    let column = |&x: &f64| {
        Column::new(figure(x), table, |row| text(row.points.iter().find(|p| p.x == Some(x))?))
    };
    x_values(table).iter().map(column).collect()
}

/// The largest `x` of a scaling table that has a baseline, and the ratios there.
pub fn last_ratio(table: &Table) -> Option<(String, Column)> {
    table.baseline.as_ref()?;
    let x = *x_values(table).last()?;
    let at_x = |row: &Row| row.points.iter().find(|p| p.x == Some(x))?.ratio.map(ratio);
    Some((figure(x), Column::new("ratio".to_owned(), table, at_x)))
}

/// For each row the figures published for it, one to a line; `None` when no row has any. The
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

/// Every `x` of a scaling table, ascending.
pub fn x_values(table: &Table) -> Vec<f64> {
    let mut xs: Vec<f64> = table.rows.iter().flat_map(|r| &r.points).filter_map(|p| p.x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    xs
}

/// The other units that some point of the table has.
pub fn extras(table: &Table) -> BTreeSet<&str> {
    let points = table.rows.iter().flat_map(|row| &row.points);
    points.flat_map(|point| point.extra.keys()).map(String::as_str).collect()
}
