//! The comparisons that a report shows first: one of our rows with the one that a user would take otherwise.
//!
//! # Invariants
//! 1. A table names its comparison. It is made where most threads work, or over the means of all loads.
//! 2. Two figures differ only as [`Outcome::of`] says.

use corelocal_support::figures::mean;
use corelocal_support::schema::{Better, Point, Report, Row, Stat, Table};

use super::columns::x_values;
use super::outcome::Outcome;

/// A comparison.
#[derive(Debug)]
pub struct Tile<'a> {
    /// The title: what is compared.
    pub title: &'a str,
    /// The table it is from.
    pub table: &'a Table,
    /// Our row.
    pub ours: Side<'a>,
    /// The row that it is compared with.
    pub versus: Side<'a>,
    /// The factor by which ours is better.
    pub factor: f64,
    /// The outcome of the comparison.
    pub outcome: Outcome,
    /// The place of the comparison: `64 threads`, or the loads.
    pub place: Option<String>,
    /// The machine was disturbed meanwhile.
    pub is_disturbed: bool,
}

/// One side of a comparison.
#[derive(Debug)]
pub struct Side<'a> {
    /// The row.
    pub row: &'a Row,
    /// The row's median, or the geometric mean of its medians.
    pub median: f64,
    /// `None` for a mean.
    pub spread: Option<Stat>,
    /// The machine was disturbed meanwhile.
    is_disturbed: bool,
}

impl Tile<'_> {
    /// Returns its class in the style sheet: grey, where the machine was disturbed.
    pub fn class(&self) -> &'static str {
        if self.is_disturbed { Outcome::Equal.class() } else { self.outcome.class() }
    }
}

/// Returns the comparisons of all tables that have one and were measured.
pub fn tiles(report: &Report) -> Vec<Tile<'_>> {
    report.tables.iter().filter_map(tile).collect()
}

fn tile(table: &Table) -> Option<Tile<'_>> {
    let named = table.tile.as_ref()?;
    let row = |id: &String| table.rows.iter().find(|row| row.id == *id && !row.points.is_empty());
    let (ours, versus) = (row(&named.ours)?, named.versus.iter().find_map(row)?);
    let xs = x_values(table);
    let (ours, versus, place) = if table.x_names.is_empty() {
        let x = xs.last().copied();
        let label = table.x_label.as_deref().unwrap_or_default();
        let place = x.map(|x| format!("{} {label}", corelocal_support::figures::figure(x)));
        (side_at(ours, x)?, side_at(versus, x)?, place)
    } else {
        let common: Vec<f64> = xs
            .into_iter()
            .filter(|&x| at(ours, Some(x)).is_some() && at(versus, Some(x)).is_some())
            .collect();
        let place = format!("geometric mean of {} {}s", common.len(), table.x_label.as_deref()?);
        (side_of_means(ours, &common)?, side_of_means(versus, &common)?, Some(place))
    };
    let factor = match table.better {
        Better::Lower => versus.median / ours.median,
        Better::Higher => ours.median / versus.median,
        Better::Neither => return None,
    };
    let outcome = Outcome::of(factor, ours.spread.as_ref(), versus.spread.as_ref());
    let is_disturbed = ours.is_disturbed || versus.is_disturbed;
    let title = named.title.as_str();
    factor.is_finite().then_some(Tile {
        title,
        table,
        ours,
        versus,
        factor,
        outcome,
        place,
        is_disturbed,
    })
}

fn at(row: &Row, x: Option<f64>) -> Option<&Point> {
    row.points.iter().find(|point| point.x == x)
}

fn side_at(row: &Row, x: Option<f64>) -> Option<Side<'_>> {
    let Point { stat, disturbed, .. } = at(row, x)?;
    Some(Side { row, median: stat.median, spread: Some(*stat), is_disturbed: *disturbed })
}

fn side_of_means<'a>(row: &'a Row, xs: &[f64]) -> Option<Side<'a>> {
    let points = || xs.iter().filter_map(|&x| at(row, Some(x)));
    let median = mean(points().map(|point| point.stat.median))?;
    let is_disturbed = points().any(|point| point.disturbed);
    Some(Side { row, median, spread: None, is_disturbed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        serde_json::from_str(include_str!("../../tests/fixtures/report-a.json")).unwrap()
    }

    #[test]
    fn compares_where_most_threads_work() {
        let report = report();
        let found = tiles(&report);
        assert_eq!(found.len(), 1, "{found:?}");
        let counter = &found[0];
        assert_eq!(
            (counter.ours.row.id.as_str(), counter.place.as_deref()),
            ("cpu", Some("64 threads"))
        );
        assert_eq!(counter.versus.row.id, "shared", "the first one was not measured");
        assert_eq!(counter.outcome, Outcome::Better);
        assert_eq!(counter.factor, counter.versus.median / counter.ours.median);
    }

    #[test]
    fn loads_are_compared_by_their_means() {
        let mut report = report();
        let table = report.tables.iter_mut().find(|table| table.tile.is_some()).unwrap();
        let xs = x_values(table);
        table.x_names = (0..=xs.len()).map(|nth| format!("load {nth}")).collect();
        table.x_label = Some("load".to_owned());
        let tile = &tiles(&report)[0];
        assert!(tile.place.as_ref().unwrap().starts_with("geometric mean of "), "{tile:?}");
        assert!(tile.ours.spread.is_none());
    }

    #[test]
    fn nothing_measured_gives_no_tile() {
        let mut report = report();
        for table in &mut report.tables {
            table.rows.retain(|row| row.ours);
        }
        assert!(tiles(&report).is_empty());
    }
}
