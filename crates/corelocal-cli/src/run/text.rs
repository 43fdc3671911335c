//! The figures of a run on the terminal: a few lines for one malloc, a table for several.
//!
//! Invariant: figures are never broken across lines.

use std::fmt::Write as _;

use anstream::adapter::strip_str;
use anstyle::{AnsiColor, Style};
use comfy_table::{Attribute, Cell, CellAlignment, Color};
use corelocal_support::console;
use corelocal_support::figures::{NONE, align, figure, ratio, wrap};
use corelocal_support::schema::Stat;
use corelocal_support::units::{count, seconds, size};

use super::cache_stats::percent;
use super::measured::{Answer, Means, Measured};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// Writes all there is to tell.
pub fn all(answers: &[Answer], width: usize) -> String {
    let each = answers.iter().map(|answer| match &answer.mallocs[..] {
        [one] => single(answer, one),
        several => table(answer, several, width),
    });
    let mut parts: Vec<String> = each.collect();
    parts.extend(means(answers, width));
    parts.join("\n")
}

/// Returns the means over several commands.
fn means(answers: &[Answer], width: usize) -> Option<String> {
    let means = Means::of(answers)?;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{BOLD}all {} commands{BOLD:#} {DIM}geometric means of the ratios to {}{DIM:#}\n",
        answers.len(),
        means.base
    );
    let columns = ["time", "cpu", "peak"];
    let mut grid = console::grid(width);
    let right = |text: &str| console::heading(text).set_alignment(CellAlignment::Right);
    grid.set_header(std::iter::once(console::heading("")).chain(columns.map(right)));
    for (label, ratios) in &means.rows {
        let cell = |mean: &Option<f64>| {
            let text = mean.map_or_else(|| NONE.to_owned(), ratio);
            Cell::new(text).set_alignment(CellAlignment::Right)
        };
        grid.add_row(std::iter::once(Cell::new(label)).chain(ratios.iter().map(cell)));
    }
    console::keep_whole(&mut grid, |_| true);
    out.push_str(&console::lines(&grid));
    Some(out)
}

fn single(answer: &Answer, one: &Measured) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{BOLD}{}{BOLD:#} {DIM}with {}{DIM:#}", name(answer), with(one));
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "  {DIM}{name:10}{DIM:#}{text}");
    };
    if let Some(wall) = &one.wall_s {
        line("time", seconds(wall.median));
    }
    if let (Some(user), Some(system)) = (&one.user_s, &one.system_s) {
        let (user, system) = (user.median, system.median);
        let text = format!(
            "{} (program {}, kernel {})",
            seconds(user + system),
            seconds(user),
            seconds(system)
        );
        line("cpu time", text);
    }
    line("peak RSS", kib(one.peak_kib.as_ref()));
    line("final RSS", kib(one.final_kib.as_ref()));
    for (name, text) in caches(one) {
        line(name, text);
    }
    if answer.interrupted.is_some() {
        answer.remarks().into_iter().for_each(|text| line("ended", text));
    } else if !one.well {
        line("ended", format!("with {}", one.ended));
    }
    out
}

/// Returns what caches did: of our malloc, since others do not tell.
fn caches(one: &Measured) -> Vec<(&'static str, String)> {
    const NOT_TOLD: &str = "it ended by a signal or by _exit(2), executed another program, or changed its user \
         or root";
    if !one.ours {
        return Vec::new();
    }
    let Some(tally) = &one.caches else {
        return vec![("hits", format!("not reported: {NOT_TOLD}"))];
    };
    let of = |share: Option<f64>, all: Option<u64>, what: &str| {
        Some(format!("{} of {} {what}", percent(share?), count(all?)))
    };
    let taken = of(tally.hits(), tally.allocated, "allocated objects");
    let given = of(tally.room(), tally.freed, "freed objects");
    let hits = match (taken, given) {
        (Some(taken), given) => {
            [Some(taken), given].into_iter().flatten().collect::<Vec<_>>().join(", ")
        }
        (None, _) if tally.allocated.is_some() => "no allocations".to_owned(),
        (None, _) => "not counted (--no-hits)".to_owned(),
    };
    let misses = format!("{} on malloc, {} on free", count(tally.refills), count(tally.spills));
    let misses = match (tally.processes, tally.has_program) {
        (1, true) => misses,
        (several, true) => format!("{misses}; in {several} processes"),
        (_, false) => format!("{misses}; of the program's children, without itself: {NOT_TOLD}"),
    };
    vec![("hits", hits), ("misses", misses)]
}

fn table(answer: &Answer, mallocs: &[Measured], width: usize) -> String {
    let mut out = String::new();
    let runs = match answer.rounds() {
        1 => "one run each".to_owned(),
        rounds => format!("medians of {rounds} alternating runs each"),
    };
    let _ = writeln!(
        out,
        "{BOLD}{}{BOLD:#} {DIM}{runs}; ratio to {}: lower is better{DIM:#}\n",
        name(answer),
        mallocs.first().map_or("", |base| base.label.as_str()),
    );
    let columns = columns(mallocs);
    // In this order columns make way on a narrow terminal.
    let order = [7, 1, 4, 6, 8];
    let mut left_out = 0;
    out.push_str(&loop {
        let shown = |nth: &usize| !order[..left_out].contains(nth);
        let kept: Vec<usize> = (0..columns.len()).filter(shown).collect();
        let lines = grid(mallocs, &columns, &kept, width, 0);
        let widest = lines.lines().map(|line| strip_str(line).to_string().chars().count()).max();
        if widest <= Some(width) {
            break lines;
        }
        if left_out == order.len() {
            break grid(mallocs, &columns, &kept, width, 1);
        }
        left_out += 1;
    });
    let verdicts: Vec<(&str, &str)> =
        mallocs.iter().filter_map(|m| Some((m.label.as_str(), m.verdict.as_deref()?))).collect();
    let longest = verdicts.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    for (nth, (label, verdict)) in verdicts.iter().enumerate() {
        let _ = writeln!(out, "{}{label:longest$}  {verdict}", if nth == 0 { "\n" } else { "" });
    }
    for text in answer.remarks() {
        let _ = writeln!(out, "\n{WARNING}{}{WARNING:#}", wrap(&text, width.max(40), 2));
    }
    out
}

/// Makes the columns: a heading, and a cell for each malloc.
fn columns(mallocs: &[Measured]) -> [(&'static str, Vec<String>); 9] {
    let median = |stat: &Option<Stat>, unit: f64| stat.as_ref().map(|stat| stat.median / unit);
    let spread = |stat: &Stat| format!("{:.0}%", 100.0 * (stat.q3 - stat.q1) / stat.median);
    let columns = [
        ("time s", of(mallocs, |m| median(&m.wall_s, 1.0).map(figure))),
        ("spread", of(mallocs, |m| m.wall_s.as_ref().filter(|stat| stat.n > 1).map(spread))),
        ("ratio", of(mallocs, |m| m.wall_ratio.map(ratio))),
        ("cpu s", of(mallocs, |m| median(&m.cpu_s, 1.0).map(figure))),
        ("ratio", of(mallocs, |m| m.cpu_ratio.map(ratio))),
        ("peak MiB", of(mallocs, |m| median(&m.peak_kib, 1024.0).map(figure))),
        ("ratio", of(mallocs, |m| m.peak_ratio.map(ratio))),
        ("final MiB", of(mallocs, |m| median(&m.final_kib, 1024.0).map(figure))),
        ("hits", of(mallocs, |m| m.caches.as_ref()?.hits().map(percent))),
    ];
    columns.map(|(heading, cells)| {
        let mut cells: Vec<String> =
            cells.into_iter().map(|cell| cell.unwrap_or_else(|| NONE.to_owned())).collect();
        align(&mut cells);
        (heading, cells)
    })
}

/// Returns the table of these columns, none of which is wrapped from that one on.
fn grid(
    mallocs: &[Measured],
    columns: &[(&str, Vec<String>)],
    kept: &[usize],
    width: usize,
    whole_from: usize,
) -> String {
    let mut grid = console::grid(width);
    let mut header = vec![console::heading("")];
    let heading =
        |&nth: &usize| console::heading(columns[nth].0).set_alignment(CellAlignment::Right);
    header.extend(kept.iter().map(heading));
    grid.set_header(header);
    for (row, malloc) in mallocs.iter().enumerate() {
        let mut cells = vec![Cell::new(&malloc.label)];
        let cell =
            |&nth: &usize| Cell::new(&columns[nth].1[row]).set_alignment(CellAlignment::Right);
        cells.extend(kept.iter().map(cell));
        if malloc.ours {
            cells = cells.into_iter().map(|cell| cell.add_attribute(Attribute::Bold)).collect();
            cells[0] = cells[0].clone().fg(Color::Cyan);
        }
        grid.add_row(cells);
    }
    console::keep_whole(&mut grid, |index| index >= whole_from);
    console::lines(&grid)
}

fn of(mallocs: &[Measured], text: impl Fn(&Measured) -> Option<String>) -> Vec<Option<String>> {
    mallocs.iter().map(text).collect()
}

/// Returns the program's name, without its folder.
pub fn name(answer: &Answer) -> &str {
    let name = answer.command.first().map_or("", String::as_str);
    name.rsplit('/').next().unwrap_or(name)
}

fn with(malloc: &Measured) -> String {
    match &malloc.library {
        Some(library) => format!("{}, {library}", malloc.label),
        None => format!("the malloc of {}", malloc.label),
    }
}

fn kib(stat: Option<&Stat>) -> String {
    match stat {
        Some(stat) => size((stat.median * 1024.0) as u64),
        None => "not measured: the program ended too early".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::measured::tests::answer;
    use super::*;

    fn plain(answer: &Answer, width: usize) -> String {
        anstream::adapter::strip_str(&all(std::slice::from_ref(answer), width)).to_string()
    }

    #[test]
    fn a_table_of_mallocs() {
        insta::assert_snapshot!(plain(&answer(), 100));
    }

    #[test]
    fn several_commands() {
        let text = all(&[answer(), answer()], 80);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text).to_string());
    }

    #[test]
    fn one_malloc() {
        let mut answer = answer();
        answer.mallocs.remove(0);
        insta::assert_snapshot!(plain(&answer, 100));
    }

    #[test]
    fn any_width_is_survived() {
        for width in [0, 1, 30, 80, 100_000] {
            assert!(plain(&answer(), width).contains("corelocal"));
        }
        for width in [60, 80] {
            let text = plain(&answer(), width);
            let widest = text.lines().skip(2).map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{widest:?}: {text}");
        }
        // What matters most stays.
        let narrow = plain(&answer(), 60);
        assert!(
            narrow.contains("corelocal ")
                && narrow.contains("time s")
                && narrow.contains("peak MiB"),
            "{narrow}"
        );
    }
}
