//! A report on the terminal: aligned tables that stay readable at 80 columns.
//!
//! Invariants:
//! - Every function returns text with colour. It is printed through `anstream`, which drops the colour when the
//!   output is not a terminal or `NO_COLOR` is set.
//! - Emphasis never relies on colour alone: corelocal's rows carry a mark, verdicts are words.
//! - Figures are never broken across lines; labels and remarks are.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use comfy_table::{Attribute, Cell, CellAlignment, Color};
use corelocal_support::console::{OURS, grid, heading, keep_whole, lines};
use corelocal_support::figures::{NONE, align, figure, percent, short_figure, wrap};
use corelocal_support::measure::noise;
use corelocal_support::schema::{Machine, Point, Source, Table};
use corelocal_support::verdict::Verdict;

use super::columns::{self, Column};
use super::compare::{Change, Comparison};
use super::crosswise::crosswise;
use super::matrix;
use super::outcome::Outcome;
use super::stamp;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// Returns the machine's stamp and the paths in use.
pub fn stamp(machine: &Machine, width: usize) -> String {
    let fields = stamp::fields(machine);
    let paths = machine.paths.iter().map(|(name, state)| (name.as_str(), state.clone()));
    let lines: Vec<(&str, String)> = fields.into_iter().chain(paths).collect();
    let label = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) + 2;
    let mut out = String::new();
    for (name, value) in lines {
        let text = wrap(&value, width.saturating_sub(label).max(20), 0);
        let text = text.replace('\n', &format!("\n{}", " ".repeat(label)));
        let _ = writeln!(out, "{DIM}{name:label$}{DIM:#}{text}");
    }
    out
}

/// Returns one table with its source, notes and noise warning, at most `width` columns wide.
pub fn table(table: &Table, width: usize) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{BOLD}{}{BOLD:#}", table.title);
    let _ = writeln!(out, "{}", wrap(&table.about, width, 0));
    if let Some(Source { name, hardware, .. }) = &table.source {
        let text = wrap(&format!("Published figures: {name}, on {hardware}."), width, 0);
        let _ = writeln!(out, "{DIM}{text}{DIM:#}");
    }
    out.push('\n');
    match &table.x_label {
        None => out.push_str(&figures(table, columns::single(table), width)),
        Some(_) if !table.x_names.is_empty() => {
            for (nth, matrix) in matrix::matrices(table).iter().enumerate() {
                let _ = writeln!(out, "{}  {}", if nth > 0 { "\n" } else { "" }, matrix.caption);
                out.push_str(&crosswise(matrix, width));
            }
        }
        Some(x_label) => {
            let median = |p: &Point| Some(columns::marked(p, short_figure(p.stat.median)));
            let mut medians = columns::scaling(table, &median);
            let mut caption =
                format!("median {} by {x_label}; spread: the widest quartile range", table.unit);
            medians.push(columns::widest_spread(table));
            if let Some((x, column)) = columns::last_ratio(table) {
                let _ = write!(caption, "; ratio at {x} {x_label}");
                medians.push(column);
            }
            let _ = writeln!(out, "  {caption}");
            out.push_str(&figures(table, medians, width));
            for extra in columns::extras(table) {
                let medians =
                    columns::scaling(table, &|p| Some(short_figure(p.extra.get(extra)?.median)));
                let _ = writeln!(out, "\n  median {extra} by {x_label}");
                out.push_str(&figures(table, medians, width));
            }
        }
    }
    out.push_str(&remarks(table, width));
    out
}

/// Returns label, figures and, where a row has one point, the published figures beside them.
fn figures(table: &Table, columns: Vec<Column>, width: usize) -> String {
    let published = columns::published(table).filter(|_| table.x_label.is_none());
    let mut grid = grid(width);
    let mut header = vec![heading(""), heading("")];
    header.extend(columns.iter().map(|c| heading(&c.heading).set_alignment(CellAlignment::Right)));
    header.extend(published.iter().map(|_| heading("published")));
    grid.set_header(header);
    for (i, row) in table.rows.iter().enumerate() {
        let mut cells = vec![Cell::new(if row.ours { OURS } else { "" }), Cell::new(&row.label)];
        cells.extend(columns.iter().map(|c| {
            let cell = Cell::new(&c.cells[i]).set_alignment(CellAlignment::Right);
            match c.outcome(i) {
                Some(Outcome::Better) => cell.fg(Color::Green),
                Some(Outcome::Worse) => cell.fg(Color::Red),
                _ => cell,
            }
        }));
        if row.ours {
            let ours = |c: Cell| c.add_attribute(Attribute::Bold);
            cells = cells.into_iter().map(ours).collect();
            cells[1] = cells[1].clone().fg(Color::Cyan);
        }
        let published = published.iter().map(|cells| &cells[i]);
        cells.extend(published.map(|text| Cell::new(text).add_attribute(Attribute::Dim)));
        grid.add_row(cells);
    }
    keep_whole(&mut grid, |index| index == 0 || (2..2 + columns.len()).contains(&index));
    lines(&grid)
}

/// Returns why rows are empty, what was published for scaling tables, the notes, and the noise.
fn remarks(table: &Table, width: usize) -> String {
    let mut out = String::new();
    let mut remark = |style: Style, text: String| {
        let text = wrap(&text, width, 2);
        let _ = writeln!(out, "{style}{text}{style:#}");
    };
    for row in &table.rows {
        if let Some(reason) = &row.unavailable {
            remark(Style::new(), format!("{NONE} {}: {reason}", row.label));
        }
        for p in row.published.iter().filter(|_| table.x_label.is_some()) {
            let (value, unit, on) = (figure(p.value), &p.unit, &p.on);
            remark(DIM, format!("{NONE} {}, published: {value} {unit}, {on}", row.label));
        }
    }
    for note in &table.notes {
        remark(DIM, note.clone());
    }
    if let Some(advice) = noise::advice(&table.noise) {
        remark(WARNING, format!("noise: {advice}"));
    }
    if table.rows.iter().any(|row| table.is_disturbed(row)) {
        remark(
            WARNING,
            format!("{}: measured while the machine was disturbed, and again", columns::DISTURBED),
        );
    }
    if out.is_empty() { out } else { format!("\n{out}") }
}

/// Returns what changed since an older report.
pub fn comparison(comparison: &Comparison, width: usize) -> String {
    let Comparison { old_created, old_version, .. } = comparison;
    let mut out = String::new();
    let _ = writeln!(out, "{BOLD}Compared with {old_created}, corelocal {old_version}{BOLD:#}");
    let _ = writeln!(out, "{}", wrap(&comparison.summary(), width, 0));
    if !comparison.differences.is_empty() {
        let text =
            "warning: the reports were made with different settings, which may explain a change:";
        let _ = writeln!(out, "{WARNING}{}{WARNING:#}", wrap(text, width, 2));
        for d in &comparison.differences {
            let text = wrap(
                &format!("  {}: {}, was {}", d.field, d.new, d.old),
                width.saturating_sub(2),
                2,
            );
            let _ = writeln!(out, "  {text}");
        }
    }
    for table in &comparison.tables {
        let _ = writeln!(out, "\n  {} ({})", table.title, table.unit);
        out.push_str(&changes(&table.changes, width));
    }
    for (heading, names) in [
        ("Only in the old report", &comparison.only_old),
        ("Only in the new report", &comparison.only_new),
    ] {
        if !names.is_empty() {
            let _ = writeln!(out, "\n{heading}");
        }
        for name in names {
            let _ = writeln!(out, "  {}", wrap(name, width.saturating_sub(2), 2));
        }
    }
    out
}

fn changes(changes: &[Change], width: usize) -> String {
    let column = |text: &dyn Fn(&Change) -> String| {
        let mut cells: Vec<String> = changes.iter().map(text).collect();
        align(&mut cells);
        cells
    };
    let percents = |c: &Change| c.percent.map_or(NONE.to_owned(), percent);
    let columns = [column(&|c| figure(c.old)), column(&|c| figure(c.new)), column(&percents)];
    let mut grid = grid(width);
    let mut header = vec![heading("")];
    let figures = ["then", "now", "change"];
    header.extend(figures.map(|name| heading(name).set_alignment(CellAlignment::Right)));
    header.push(heading("verdict"));
    grid.set_header(header);
    for (i, change) in changes.iter().enumerate() {
        let verdict = Cell::new(change.verdict.word());
        let verdict = match change.verdict {
            Verdict::Faster => verdict.fg(Color::Green).add_attribute(Attribute::Bold),
            Verdict::Slower => verdict.fg(Color::Red).add_attribute(Attribute::Bold),
            Verdict::Changed => verdict.fg(Color::Yellow),
            Verdict::Noise => verdict.add_attribute(Attribute::Dim),
        };
        let mut cells = vec![Cell::new(&change.label)];
        cells.extend(columns.iter().map(|c| Cell::new(&c[i]).set_alignment(CellAlignment::Right)));
        cells.push(verdict);
        grid.add_row(cells);
    }
    keep_whole(&mut grid, |index| index > 0);
    lines(&grid)
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;
    use crate::report::compare::compare;
    use corelocal_support::schema::Report;

    fn a() -> Report {
        let json = include_str!("../../tests/fixtures/report-a.json");
        serde_json::from_str(json).unwrap()
    }

    fn b() -> Report {
        let json = include_str!("../../tests/fixtures/report-b.json");
        serde_json::from_str(json).unwrap()
    }

    fn plain(text: &str) -> String {
        strip_str(text).to_string().lines().map(|l| format!("{}\n", l.trim_end())).collect()
    }

    /// Returns the whole terminal output of report a, and its widest line.
    fn whole(width: usize) -> (String, usize) {
        let report = a();
        let mut out = plain(&stamp(&report.machine, width));
        for each in &report.tables {
            out.push('\n');
            out.push_str(&plain(&table(each, width)));
        }
        let widest = out.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        (out, widest)
    }

    #[test]
    fn fits_80_columns() {
        let (out, widest) = whole(80);
        insta::assert_snapshot!(out);
        assert!(widest <= 80, "a line has {widest} columns");
    }

    #[test]
    fn fits_120_columns() {
        let (out, widest) = whole(120);
        insta::assert_snapshot!(out);
        assert!(widest <= 120, "a line has {widest} columns");
    }

    #[test]
    fn shows_a_comparison() {
        insta::assert_snapshot!(plain(&comparison(&compare(&a(), &b()), 80)));
    }

    #[test]
    fn any_width_is_survived() {
        for width in [0, 1, 10, 30, 100_000] {
            let report = a();
            assert!(table(&report.tables[0], width).contains("sched_getcpu"));
            comparison(&compare(&report, &b()), width);
            stamp(&report.machine, width);
        }
    }
}
