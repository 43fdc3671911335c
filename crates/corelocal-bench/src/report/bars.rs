//! Bars of one measurement per contestant beside what was published.
//!
//! Invariants:
//! - Bars are HTML, not an image: their text keeps its size on a phone.
//! - Colours are left to the style sheet, so one plot serves light, dark and paper.
//! - The plot repeats what the figure table says; to a screen reader it is one image with a text.

use corelocal_support::figures::{NONE, figure, tick, x_name};
use corelocal_support::schema::{Point, Row, Stat, Table};
use maud::{Markup, html};

use super::columns;
use super::scale::Scale;

/// Bars of every row's first point. A figure published in another unit is drawn where the
/// measurement is known in that unit too.
pub fn bars(table: &Table) -> Markup {
    let unit = bar_unit(table);
    let measured = |row: &Row| row.points.first().and_then(|point| in_unit(table, point, unit));
    let published = |row: &Row| -> Vec<(f64, String)> {
        let known = row.published.iter().filter(|p| p.unit == unit);
        known.map(|p| (p.value, p.on.clone())).collect()
    };
    let values = table.rows.iter().flat_map(|row| {
        let ours = measured(row).map(|stat| [stat.median, stat.q3]);
        ours.into_iter().flatten().chain(published(row).into_iter().map(|(value, _)| value))
    });
    let scale = Scale::over(values);
    let any_published = table.rows.iter().any(|row| !published(row).is_empty());
    let percent = |value| format!("{:.2}%", 100.0 * scale.place(value));
    html! {
        figure.plot {
            figcaption {
                span.key { i.swatch.measured {} "measured median, whisker q1–q3" }
                @if any_published { span.key { i.swatch.published {} "published" } }
                span.key { "in " (unit) @if scale.log { ", logarithmic scale" } }
            }
            div.bars role="img" aria-label=(spoken(table, unit, &measured)) {
                @for row in &table.rows {
                    @let figures = published(row);
                    div.bar.ours[row.ours] {
                        span.name { (row.label) }
                        div.track {
                            (grid_lines(&scale))
                            @if let Some(stat) = measured(row) {
                                div.measure {
                                    span.fill style={ "width:" (percent(stat.median)) } {}
                                    span.whisker style={
                                        "left:" (percent(stat.q1)) ";width:calc("
                                        (percent(stat.q3)) " - " (percent(stat.q1)) ")"
                                    } {}
                                }
                            } @else {
                                span.absent { "not measured here" }
                            }
                            @for (value, on) in &figures {
                                span.cited style={ "width:" (percent(*value)) } title=(on) {}
                            }
                        }
                        span.value {
                            @match measured(row) {
                                Some(stat) => b { (figure(stat.median)) },
                                None => b { (NONE) },
                            }
                            @for (value, _) in &figures { span { (figure(*value)) } }
                        }
                    }
                }
                div.bar.axis {
                    div.track {
                        @for value in scale.ticks() {
                            span style={ "left:" (percent(value)) } { (tick(value)) }
                        }
                    }
                }
            }
        }
    }
}

/// Bars of every row that was measured for each `x`, where these have names.
pub fn by_name(table: &Table) -> Markup {
    html! {
        @for x in columns::x_values(table) {
            h3 { (x_name(table, x)) }
            (bars(&at(table, x)))
        }
    }
}

/// Returns what a table says of one `x`.
fn at(table: &Table, x: f64) -> Table {
    let mut at = table.clone();
    at.title = format!("{}, {}", table.title, x_name(table, x));
    for row in &mut at.rows {
        row.points.retain(|point| point.x == Some(x));
        row.published.clear();
    }
    at.rows.retain(|row| !row.points.is_empty());
    at
}

fn grid_lines(scale: &Scale) -> Markup {
    html! {
        @for tick in scale.ticks() {
            i.line style={ "left:" (format!("{:.2}%", 100.0 * scale.place(tick))) } {}
        }
    }
}

fn spoken(table: &Table, unit: &str, measured: &dyn Fn(&Row) -> Option<Stat>) -> String {
    let rows = table.rows.iter().map(|row| match measured(row) {
        Some(stat) => format!("{} {} {unit}", row.label, figure(stat.median)),
        None => format!("{} not measured", row.label),
    });
    format!("Bar plot of {}: {}.", table.title, rows.collect::<Vec<_>>().join("; "))
}

/// Returns the unit in which most published figures stand beside a measurement; the table's own where
/// none does better.
fn bar_unit(table: &Table) -> &str {
    let drawable = |unit: &str| {
        let beside =
            |row: &Row| row.points.first().is_some_and(|p| in_unit(table, p, unit).is_some());
        let published = table.rows.iter().filter(|row| beside(row)).flat_map(|row| &row.published);
        published.filter(|p| p.unit == unit).count()
    };
    let published = table.rows.iter().flat_map(|row| &row.published);
    let mut best = (table.unit.as_str(), drawable(&table.unit));
    for unit in published.map(|p| p.unit.as_str()) {
        let count = drawable(unit);
        if count > best.1 {
            best = (unit, count);
        }
    }
    best.0
}

fn in_unit(table: &Table, point: &Point, unit: &str) -> Option<Stat> {
    if unit == table.unit { Some(point.stat) } else { point.extra.get(unit).copied() }
}
