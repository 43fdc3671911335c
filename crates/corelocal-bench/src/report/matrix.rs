//! A table whose `x` have names, as text: a line for each of them, a column for each contestant, and at
//! the end the geometric mean over all lines.
//!
//! Invariants:
//! - Every column has a cell for each line; where there is no figure it is [`NONE`].
//! - A mean is taken only over lines that every measured contestant has, so that means compare.

use corelocal_support::figures::{NONE, align, mean, ratio, short_figure, x_name};
use corelocal_support::schema::{Point, Row, Table};

use super::columns;

/// The figures of one kind, of all contestants at all `x`.
pub struct Matrix {
    /// The name of the figures.
    pub caption: String,
    /// The labels of the lines.
    pub lines: Vec<String>,
    /// The contestants that were measured.
    pub columns: Vec<Contestant>,
}

/// A contestant's figures.
pub struct Contestant {
    /// The column's label.
    pub heading: String,
    /// Whether it is corelocal's own.
    pub ours: bool,
    /// The cells, one for each line.
    pub cells: Vec<String>,
}

impl Matrix {
    /// Returns `true` if a line is the mean of the others.
    pub fn is_mean(&self, line: usize) -> bool {
        line + 1 == self.lines.len()
    }
}

/// Medians, ratios to the baseline, and what else was measured.
pub fn matrices(table: &Table) -> Vec<Matrix> {
    let mut all = vec![matrix(
        table,
        format!("median {}", table.unit),
        &|point| Some(point.stat.median),
        short_figure,
    )];
    let range = |point: &Point| Some(100.0 * (point.stat.q3 - point.stat.q1) / point.stat.median);
    let percent = |value: f64| format!("{value:.0}%");
    all.push(matrix(table, "quartile range, of the median".to_owned(), &range, percent));
    let base = table.rows.iter().find(|row| Some(&row.id) == table.baseline.as_ref());
    if let Some(base) = base {
        let caption = format!("times better than {}", base.label);
        all.push(matrix(table, caption, &|point| point.ratio, ratio));
    }
    for extra in columns::extras(table) {
        let median = |point: &Point| Some(point.extra.get(extra)?.median);
        all.push(matrix(table, format!("median {extra}"), &median, short_figure));
    }
    all
}

fn matrix(
    table: &Table,
    caption: String,
    value: &dyn Fn(&Point) -> Option<f64>,
    text: fn(f64) -> String,
) -> Matrix {
    let measured: Vec<&Row> = table.rows.iter().filter(|row| !row.points.is_empty()).collect();
    let xs = columns::x_values(table);
    let at = |row: &Row, x: f64| value(row.points.iter().find(|point| point.x == Some(x))?);
    let has_all = |x: &&f64| measured.iter().all(|row| at(row, **x).is_some_and(|v| v > 0.0));
    let common: Vec<f64> = xs.iter().filter(has_all).copied().collect();
    let column = |row: &&Row| {
        let figures = xs.iter().map(|&x| at(row, x));
        let mean_of_all = mean(common.iter().filter_map(|&x| at(row, x)));
        let cells = figures.chain([mean_of_all]).map(|v| v.map_or(NONE.to_owned(), text));
        let mut cells: Vec<String> = cells.collect();
        align(&mut cells);
        Contestant { heading: row.label.clone(), ours: row.ours, cells }
    };
    let mut lines: Vec<String> = xs.iter().map(|&x| x_name(table, x)).collect();
    lines.push(if common.len() == xs.len() {
        "geometric mean".to_owned()
    } else {
        format!("geometric mean of {}", common.len())
    });
    Matrix { caption, lines, columns: measured.iter().map(column).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelocal_support::schema::Report;

    /// Returns the table of counters, as if its numbers of threads were names.
    fn named() -> Table {
        let json = include_str!("../../tests/fixtures/report-a.json");
        let report: Report = serde_json::from_str(json).unwrap();
        let found = report.tables.into_iter().find(|table| table.id == "counter");
        let mut table = found.unwrap();
        for row in &mut table.rows {
            row.points.iter_mut().enumerate().for_each(|(nth, point)| point.x = Some(nth as f64));
        }
        let longest = table.rows.iter().map(|row| row.points.len()).max().unwrap();
        table.x_names = (0..longest).map(|nth| format!("load {nth}")).collect();
        table
    }

    #[test]
    fn means_by_hand() {
        assert_eq!(mean([2.0, 8.0].into_iter()).map(|mean| mean.round()), Some(4.0));
        assert_eq!(mean([].into_iter()), None);
    }

    #[test]
    fn every_cell_is_there() {
        let table = named();
        let all = matrices(&table);
        assert!(all.len() >= 2, "medians and ratios");
        for matrix in &all {
            assert_eq!(matrix.lines[0], "load 0");
            assert!(matrix.lines.last().unwrap().starts_with("geometric mean"));
            assert!(!matrix.columns.is_empty());
            for column in &matrix.columns {
                assert_eq!(column.cells.len(), matrix.lines.len());
            }
        }
    }

    #[test]
    fn a_gap_is_left_out_of_all_means() {
        let mut table = named();
        let whole = matrices(&table)[0].lines.last().cloned().unwrap();
        let row = table.rows.iter_mut().find(|row| row.points.len() > 1).unwrap();
        row.points.remove(0);
        let matrix = &matrices(&table)[0];
        assert_ne!(matrix.lines.last(), Some(&whole));
        let lacking = matrix.columns.iter().filter(|column| column.cells[0].trim() == NONE).count();
        assert!(lacking >= 1);
    }
}
