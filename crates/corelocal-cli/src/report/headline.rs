//! The headline: what the machine saves, one big number to a table.
//!
//! Invariant: the number is the ratio of one of our own rows to the table's baseline at the
//! smallest `x`, where it flatters least; the row and both medians are named beside it.

use super::columns::x_values;
use super::schema::{Better, Point, Report, Row, Table};

/// One big number.
#[derive(Debug)]
pub struct Headline<'a> {
    /// The table it is from.
    pub table: &'a Table,
    /// Our row with the best ratio, or the one that the table names.
    pub ours: &'a Row,
    /// Its point.
    pub point: &'a Point,
    /// Baseline against it.
    pub ratio: f64,
    /// The row it is compared with, and its point.
    pub baseline: (&'a Row, &'a Point),
    /// Largest `x` and the ratio there, for a scaling table.
    pub at_largest: Option<(f64, f64)>,
}

/// The headlines of all tables that have one of our rows beside a measured baseline.
pub fn headlines(report: &Report) -> Vec<Headline<'_>> {
    report.tables.iter().filter_map(headline).collect()
}

fn headline(table: &Table) -> Option<Headline<'_>> {
    // One load of many says nothing of the others.
    if table.better == Better::Neither || !table.x_names.is_empty() {
        return None;
    }
    let xs = x_values(table);
    let at = |row, x| point_at(row, x);
    let smallest = xs.first().copied();
    let base = table.rows.iter().find(|row| Some(&row.id) == table.baseline.as_ref())?;
    let baseline = (base, at(base, smallest)?);
    let is_asked = |row: &&Row| table.headline.as_ref().is_none_or(|id| *id == row.id);
    let ours = table.rows.iter().filter(|row| row.ours && row.id != base.id);
    let candidates = ours.filter(is_asked);
    let (ours, point, ratio) = candidates
        .filter_map(|row| {
            let point = at(row, smallest)?;
            Some((row, point, point.ratio?))
        })
        .max_by(|a, b| a.2.total_cmp(&b.2))?;
    let largest = xs.last().copied().filter(|_| xs.len() > 1);
    let at_largest = largest.and_then(|x| Some((x, at(ours, Some(x))?.ratio?)));
    Some(Headline { table, ours, point, ratio, baseline, at_largest })
}

fn point_at(row: &Row, x: Option<f64>) -> Option<&Point> {
    row.points.iter().find(|point| point.x == x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        serde_json::from_str(include_str!("../../tests/fixtures/report-a.json")).unwrap()
    }

    #[test]
    fn names_our_best_row_at_the_smallest_x() {
        let report = report();
        let found = headlines(&report);
        assert_eq!(found.len(), 2, "the futex table has no row of ours");
        assert_eq!((found[0].ours.id.as_str(), found[0].ratio), ("rseq", 33.0));
        let counter = &found[1];
        assert_eq!((counter.ours.id.as_str(), counter.point.x), ("cpu", Some(1.0)));
        assert_eq!(counter.baseline.0.id, "getcpu-atomic");
        assert_eq!(counter.at_largest, Some((64.0, 18.9)));
    }

    #[test]
    fn a_table_may_name_the_row() {
        let mut report = report();
        for table in &mut report.tables {
            table.headline = table.rows.iter().rfind(|row| row.ours).map(|row| row.id.clone());
        }
        for headline in headlines(&report) {
            assert_eq!(Some(&headline.ours.id), headline.table.headline.as_ref());
        }
    }

    #[test]
    fn an_unmeasured_baseline_gives_no_number() {
        let mut report = report();
        for table in &mut report.tables {
            table.rows.retain(|row| Some(&row.id) != table.baseline.as_ref());
        }
        assert!(headlines(&report).is_empty());
    }
}
