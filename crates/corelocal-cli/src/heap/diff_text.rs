//! What grew and what shrank, on the terminal.
//!
//! Invariant: figures are never broken across lines; names of functions are.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use comfy_table::{Attribute, Cell, CellAlignment};
use corelocal_support::console;
use corelocal_support::figures::wrap;
use corelocal_support::units::{estimate, size};

use super::diff::{Difference, Growth, Side};
use super::text::unloaded;

const BOLD: Style = Style::new().bold();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// Writes all there is to tell.
pub fn all(difference: &Difference, width: usize) -> String {
    let mut out = String::new();
    let program = difference.program.rsplit('/').next().unwrap_or_default();
    let (before, after) = (&difference.before, &difference.after);
    let of = match before.process == after.process {
        true => format!("process {}", before.process),
        false => format!("processes {} and {}", before.process, after.process),
    };
    let when = if difference.is_peak { ", at the peak" } else { "" };
    let _ = writeln!(out, "{BOLD}Heap{BOLD:#} of {program}, {of}{when}: changes");
    for (name, side) in [("before", before), ("after ", after)] {
        let _ = writeln!(
            out,
            "  {name}  {} in {} objects; {} samples, one for each {}",
            size(side.bytes),
            estimate(side.objects),
            side.samples,
            size(side.rate)
        );
    }
    let grown = signed(difference.grown_bytes, size);
    let _ = writeln!(
        out,
        "  growth  {grown}, of which {} may be sampling error",
        size(difference.chance_bytes)
    );
    out + &sites(difference, width)
}

/// Writes the call sites, and what is to be said of the figures.
pub fn sites(difference: &Difference, width: usize) -> String {
    let mut out = String::new();
    if difference.sites.is_empty() && difference.left_out == 0 {
        let _ = writeln!(out, "\n  nothing was sampled");
    } else if !difference.sites.is_empty() {
        let _ = write!(out, "\n{}", table(difference, width));
    }
    for remark in remarks(difference) {
        let _ = writeln!(out, "{}", warning(&remark, width));
    }
    out
}

/// Returns a remark, after an empty line.
pub fn warning(remark: &str, width: usize) -> String {
    format!("\n{WARNING}{}{WARNING:#}", wrap(remark, width, 2))
}

fn table(difference: &Difference, width: usize) -> String {
    let mut grid = console::grid(width);
    let right = |text: &str| console::heading(text).set_alignment(CellAlignment::Right);
    let mut header: Vec<Cell> =
        ["growth", "chance", "before", "after", "objects"].map(right).into();
    header.push(console::heading("where"));
    grid.set_header(header);
    for site in &difference.sites {
        grid.add_row(cells(site));
    }
    console::keep_whole(&mut grid, |index| index < 5);
    console::lines(&grid)
}

fn cells(site: &Growth) -> Vec<Cell> {
    let figures = [
        signed(site.grown_bytes, size),
        format!("±{}", size(site.chance_bytes)),
        size(site.before_bytes),
        size(site.after_bytes),
        signed_estimate(site.grown_objects),
    ];
    let mut cells: Vec<Cell> =
        figures.map(|text| Cell::new(text).set_alignment(CellAlignment::Right)).into();
    let source = site.source.as_deref().map(|source| format!("\n{source}"));
    cells.push(Cell::new(site.function.clone() + &source.unwrap_or_default()));
    match site.is_sure() {
        true => cells,
        false => cells.into_iter().map(|cell| cell.add_attribute(Attribute::Dim)).collect(),
    }
}

/// Returns a number with its sign.
pub fn signed(number: i64, text: impl Fn(u64) -> String) -> String {
    let sign = match number {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", text(number.unsigned_abs()))
}

fn signed_estimate(number: f64) -> String {
    let sign = match number {
        0.0 => "",
        0.0.. => "+",
        _ => "-",
    };
    format!("{sign}{}", estimate(number.abs()))
}

fn remarks(difference: &Difference) -> Vec<String> {
    let mut remarks = Vec::new();
    if difference.left_out > 0 {
        remarks.push(format!(
            "{} sites that grew by {} in total are not shown; --top shows more",
            difference.left_out,
            signed(difference.left_out_bytes, size)
        ));
    }
    let (before, after) = (&difference.before, &difference.after);
    if before.rate != after.rate {
        remarks.push(
            "the profiles have different sampling rates: the one with the larger rate is less accurate"
                .to_owned(),
        );
    }
    let is = |what: fn(&Side) -> bool| what(before) || what(after);
    if is(|side| side.missed > 0) {
        remarks.push(format!(
            "objects were not sampled as they should have been, {} before and {} after: the sample table was \
             full, or memory was short; a larger --rate needs less room",
            before.missed, after.missed
        ));
    }
    remarks.extend(unloaded(before.unloaded_libraries.max(after.unloaded_libraries)));
    if is(|side| !side.is_whole) {
        remarks.push("a file is truncated, so data is missing; was the disk full?".to_owned());
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(function: &str, before: u64, after: u64, chance: u64) -> Growth {
        let grown = after as i64 - before as i64;
        Growth {
            function: function.to_owned(),
            source: Some("src/cache.rs:17".to_owned()),
            grown_bytes: grown,
            chance_bytes: chance,
            before_bytes: before,
            after_bytes: after,
            grown_objects: grown as f64 / 100.0,
        }
    }

    fn difference() -> Difference {
        let side = |bytes: u64, samples| Side {
            process: 4700,
            rate: 512 << 10,
            samples,
            bytes,
            objects: bytes as f64 / 100.0,
            missed: 0,
            unloaded_libraries: 0,
            is_whole: true,
        };
        Difference {
            program: "/usr/bin/program".to_owned(),
            before: side(90_000_000, 170),
            after: Side { missed: 3, ..side(150_000_000, 280) },
            is_peak: false,
            grown_bytes: 60_000_000,
            chance_bytes: 20_000_000,
            sites: vec![
                site("program::cache::Cache<K,V>::insert", 30_000_000, 100_000_000, 15_000_000),
                site("program::serve::read", 60_000_000, 45_000_000, 12_000_000),
                site("program::other", 0, 5_000_000, 6_000_000),
            ],
            left_out: 2,
            left_out_bytes: -1_000_000,
        }
    }

    fn plain(difference: &Difference, width: usize) -> String {
        anstream::adapter::strip_str(&all(difference, width)).to_string()
    }

    #[test]
    fn libraries_that_are_gone_are_told_of() {
        let mut difference = difference();
        assert!(!plain(&difference, 80).contains("unloaded"));
        difference.after.unloaded_libraries = 2;
        assert!(plain(&difference, 80).contains("2 libraries were unloaded"));
    }

    #[test]
    fn growth_and_its_chance() {
        insta::assert_snapshot!(plain(&difference(), 100));
    }

    #[test]
    fn any_width_is_survived() {
        for width in [0, 1, 30, 80, 100_000] {
            let text = plain(&difference(), width).replace(char::is_whitespace, "");
            assert!(text.contains("program::other"), "{text}");
        }
        let widest = plain(&difference(), 80).lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{widest:?}");
        let mut none = difference();
        none.sites.clear();
        // `--top 0`.
        let text = plain(&none, 80);
        assert!(text.contains("2 sites that grew by -977 KiB in total are not shown"), "{text}");
        assert!(!text.contains("nothing was sampled") && !text.contains("where"), "{text}");
        none.left_out = 0;
        none.after.process = 4800;
        let text = plain(&none, 80);
        assert!(text.contains("nothing was sampled") && text.contains("4700 and 4800"), "{text}");
    }
}
