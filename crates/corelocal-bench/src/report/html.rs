//! `report.html`.
//!
//! Invariants:
//! - No request leaves the page: style and plots are inside, there is no script, and links to
//!   sources are followed only by the reader.
//! - Every text from a report passes through maud's escaping; only our own style sheet and the
//!   SVG of [`super::curves`] are inserted as they are.

use corelocal_support::figures::{NONE, figure, percent, ratio, spread};
use corelocal_support::measure::noise;
use corelocal_support::page::document;
use corelocal_support::schema::{Better, Machine, Missing, Report, Row, Table};
use corelocal_support::verdict::Verdict;
use maud::{Markup, html};

use super::columns::{self, Column, DISTURBED};
use super::compare::{Change, Comparison};
use super::matrix::{self, Matrix};
use super::outcome::Outcome;
use super::tiles::{Side, Tile, tiles};
use super::{bars, curves, stamp};

/// Returns the whole page.
///
/// # Errors
/// When a plot cannot be drawn.
pub fn page(report: &Report, comparison: Option<&Comparison>) -> anyhow::Result<String> {
    let tables: Vec<Markup> = report.tables.iter().map(table).collect::<anyhow::Result<_>>()?;
    let title = html! {
        "corelocal report, " (report.machine.cpu_model) ", " (day(&report.created))
    };
    let body = html! {
        (header(report))
        main {
            (tile_section(report))
            (machine(&report.machine))
            @for table in tables { (table) }
            @if let Some(comparison) = comparison { (compared(comparison)) }
        }
        (footer(report))
    };
    Ok(document(&report.version, &title, &body))
}

fn day(created: &str) -> &str {
    created.split('T').next().unwrap_or(created)
}

fn header(report: &Report) -> Markup {
    html! {
        header {
            p.brand { "corelocal " (report.version) }
            h1 { "How fast corelocal is on this machine" }
            p.about {
                (report.machine.cpu_model) " · Linux " (report.machine.kernel) " · "
                time datetime=(report.created) { (day(&report.created)) }
                @if report.quick { " · short rounds (--quick): expect wider spreads" }
            }
            @if let Some(remark) = missing(report) { p.noise { b { "Incomplete. " } (remark) } }
            @if let Some(remark) = disturbed(report) { p.noise { b { "Disturbed. " } (remark) } }
        }
    }
}

/// Returns what the page's head says if tables are missing.
fn missing(report: &Report) -> Option<String> {
    let named = |missing: &Missing| format!("{} ({})", missing.title, missing.why);
    let all = report.tables.len() + report.missing.len();
    let names: Vec<String> = report.missing.iter().map(named).collect();
    (!names.is_empty()).then(|| {
        format!("{} of {all} tables were not measured: {}.", names.len(), names.join(", "))
    })
}

/// Returns what the page's head says if the machine was disturbed.
fn disturbed(report: &Report) -> Option<String> {
    let tables =
        report.tables.iter().filter(|table| table.rows.iter().any(|row| table.is_disturbed(row)));
    let titles: Vec<&str> = tables.map(|table| table.title.as_str()).collect();
    let all = report.tables.len();
    (!titles.is_empty()).then(|| {
        format!(
            "Other programs or guests used the cpus while {} of {all} tables were measured, also when they were measured \
             again. Their figures have the mark {DISTURBED}, and may be wrong: {}.",
            titles.len(),
            titles.join(", ")
        )
    })
}

fn tile_section(report: &Report) -> Markup {
    let tiles = tiles(report);
    html! {
        @if !tiles.is_empty() {
            section.tiles aria-label="Results" { @for each in &tiles { (tile(each)) } }
        }
        details.contents {
            summary { "All " (report.tables.len()) " tables" }
            nav aria-label="Tables" {
                @for table in &report.tables { a href={ "#table-" (table.id) } { (table.title) } }
            }
        }
    }
}

fn tile(tile: &Tile) -> Markup {
    let unit = &tile.table.unit;
    let side = |side: &Side| {
        let range = side.spread.map(|stat| format!(" ({})", spread(&stat))).unwrap_or_default();
        format!("{} {unit}{range}", figure(side.median))
    };
    let (factor, verb, not) = match tile.outcome {
        Outcome::Equal => ("as fast".to_owned(), "as", "beside"),
        Outcome::Better => (ratio(tile.factor), "as fast as", "not"),
        Outcome::Worse => (ratio(1.0 / tile.factor), "the time of", "not"),
    };
    html! {
        a.tile.(tile.class()) href={ "#table-" (tile.table.id) } {
            h2 { (tile.title) }
            p.big { (factor) @if tile.is_disturbed { span.mark { " " (DISTURBED) } } }
            p { (verb) " " b { (tile.versus.row.label) } }
            p.muted {
                (tile.ours.row.label) ": " (side(&tile.ours)) ", " (not) " " (side(&tile.versus))
                @if let Some(place) = &tile.place { "; " (place) }
            }
        }
    }
}

fn machine(machine: &Machine) -> Markup {
    html! {
        section.card.stamp {
            h2 { "The machine" }
            dl { @for (name, value) in stamp::fields(machine) { div { dt { (name) } dd { (value) } } } }
            @if !machine.paths.is_empty() {
                h3 { "Active fast paths" }
                dl {
                    @for (name, state) in &machine.paths { div { dt { (name) } dd { (state) } } }
                }
            }
        }
    }
}

fn table(table: &Table) -> anyhow::Result<Markup> {
    let published = columns::published(table).is_some();
    let measured = table.rows.iter().any(|row| !row.points.is_empty());
    let plots = match &table.x_label {
        _ if !measured => html! {},
        Some(_) if !table.x_names.is_empty() => bars::by_name(table),
        None => bars::bars(table),
        Some(label) => {
            let over_x = curves::curves(table)?;
            let smallest = columns::x_values(table).first().copied().map(figure);
            html! {
                (over_x)
                @if let (true, Some(x)) = (published, smallest) {
                    h3 { "Beside the published figures, " (label) " = " (x) }
                    (bars::bars(table))
                }
            }
        }
    };
    Ok(html! {
        section.card id={ "table-" (table.id) } {
            h2 { (table.title) }
            p { (table.about) }
            @if let Some(source) = &table.source {
                p.muted {
                    "Published figures: " a href=(source.url) rel="noreferrer" { (source.name) }
                    ", on " (source.hardware) "."
                }
            }
            @if let Some(direction) = direction(table.better) { p.muted { (direction) } }
            (plots)
            h3 { "Figures" }
            (figures(table))
            @for row in &table.rows {
                @if let Some(reason) = &row.unavailable {
                    p.remark { b { (row.label) } " was not measured: " (reason) }
                }
            }
            @if !table.notes.is_empty() {
                ul.notes { @for note in &table.notes { li { (note) } } }
            }
            @if let Some(advice) = noise::advice(&table.noise) {
                p.noise { b { "Noise. " } (advice) }
            }
        }
    })
}

fn figures(table: &Table) -> Markup {
    let Some(x_label) = &table.x_label else {
        let caption = baseline(table)
            .map(|base| format!("Ratio: times better than {base}"))
            .unwrap_or_default();
        return grid(table, &caption, &columns::single(table), columns::published(table));
    };
    if !table.x_names.is_empty() {
        return html! { @for matrix in matrix::matrices(table) { (crosswise(table, &matrix)) } };
    }
    let by = |what: &str| format!("{what} by {x_label}");
    let medians = columns::scaling(table, &columns::median);
    html! {
        (grid(table, &by(&format!("Median {}", table.unit)), &medians, columns::published(table)))
        (grid(table, &by("First to third quartile"), &columns::spreads(table), None))
        @if let Some(base) = baseline(table) {
            @let ratios = columns::ratios(table);
            (grid(table, &by(&format!("Ratio (times better than {base})")), &ratios, None))
        }
        @for extra in columns::extras(table) {
            @let medians = columns::scaling(table, &|p| Some(figure(p.extra.get(extra)?.median)));
            (grid(table, &by(&format!("Median {extra}")), &medians, None))
        }
    }
}

fn direction(better: Better) -> Option<&'static str> {
    match better {
        Better::Lower => Some("Lower is better."),
        Better::Higher => Some("Higher is better."),
        Better::Neither => None,
    }
}

/// Returns the label of the row that ratios refer to.
fn baseline(table: &Table) -> Option<&str> {
    let base = table.rows.iter().find(|row| Some(&row.id) == table.baseline.as_ref());
    base.map(|row| row.label.as_str())
}

fn grid(
    table: &Table,
    caption: &str,
    columns: &[Column],
    published: Option<Vec<String>>,
) -> Markup {
    let class = |row: &Row| if row.ours { "ours" } else { "" };
    html! {
        div.scroll tabindex="0" role="group" aria-label={ (table.title) " " (caption) } {
            table {
                @if !caption.is_empty() { caption { (caption) } }
                thead { tr {
                    th scope="col" { "" }
                    @for column in columns { th.number scope="col" { (column.heading) } }
                    @if published.is_some() { th scope="col" { "published" } }
                } }
                tbody {
                    @for (i, row) in table.rows.iter().enumerate() {
                        tr class=(class(row)) {
                            th scope="row" { (row.label) }
                            @for column in columns { td class=(column.class(i)) data-of=(column.heading) { (column.cells[i]) } }
                            @if let Some(published) = &published { td.published data-of="published" { (published[i]) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns a line for each `x` and a column for each row.
fn crosswise(table: &Table, matrix: &Matrix) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label={ (table.title) " " (matrix.caption) } {
            table {
                caption { (matrix.caption) }
                thead { tr {
                    th scope="col" { "" }
                    @for column in &matrix.columns {
                        th.number.ours[column.ours] scope="col" { (column.heading) }
                    }
                } }
                tbody {
                    @for (nth, name) in matrix.lines.iter().enumerate() {
                        tr.mean[matrix.is_mean(nth)] {
                            th scope="row" { (name) }
                            @for column in &matrix.columns {
                                td.number.ours[column.ours] data-of=(column.heading) { (column.cells[nth]) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn compared(comparison: &Comparison) -> Markup {
    let lists = [
        ("Only in the old report", &comparison.only_old),
        ("Only in the new report", &comparison.only_new),
    ];
    html! {
        section.card id="compare" {
            h2 { "Compared with " (day(&comparison.old_created)) }
            p { (comparison.summary()) " Then: corelocal " (comparison.old_version) "." }
            @if !comparison.differences.is_empty() {
                div.noise {
                    b { "The reports were made with different settings, which may explain a change:" }
                    ul {
                        @for d in &comparison.differences { li { (d.field) ": " (d.new) ", was " (d.old) } }
                    }
                }
            }
            @for table in &comparison.tables {
                h3 { (table.title) " (" (table.unit) ")" }
                (changes(&table.title, &table.changes))
            }
            @for (heading, names) in lists {
                @if !names.is_empty() {
                    h3 { (heading) }
                    ul { @for name in names { li { (name) } } }
                }
            }
        }
    }
}

fn changes(title: &str, changes: &[Change]) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label={ "Changes, " (title) } {
            table {
                thead { tr {
                    th scope="col" { "" }
                    @for name in ["then", "now", "change"] { th.number scope="col" { (name) } }
                    th scope="col" { "verdict" }
                } }
                tbody {
                    @for change in changes {
                        tr {
                            th scope="row" { (change.label) }
                            td.number data-of="then" { (figure(change.old)) }
                            td.number data-of="now" { (figure(change.new)) }
                            td.number data-of="change" { (change.percent.map_or(NONE.to_owned(), percent)) }
                            td class=(class(change.verdict)) data-of="verdict" { (change.verdict.word()) }
                        }
                    }
                }
            }
        }
    }
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Changed => "changed",
        Verdict::Noise => "quiet",
    }
}

fn footer(report: &Report) -> Markup {
    html! {
        footer {
            p {
                "Every figure is the median over rounds in which all contestants of a table take "
                "turns; the whisker and q1–q3 hold the middle half of the rounds, as do the ranges in the "
                "results at the top. A ratio is the median of the rounds' own ratios; above 1 is better than the "
                "baseline, and green; below 1 is worse, and red; grey is no difference beyond the spread."
            }
            p {
                "Measured in " (figure(report.elapsed_s)) " s by " code { (report.command) }
                ", begun " (report.created) "."
            }
        }
    }
}

#[cfg(test)]
mod tests;
