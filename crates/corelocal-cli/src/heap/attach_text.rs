//! What grew in a running process, on the terminal.

use std::fmt::Write as _;

use anstyle::Style;
use comfy_table::{Cell, CellAlignment};
use corelocal_support::console;
use corelocal_support::units::size;

use super::attach::{Growth, Size};
use super::diff_text::{signed, sites, warning};

const BOLD: Style = Style::new().bold();

/// Returns the text.
pub fn all(growth: &Growth, width: usize) -> String {
    let Growth { process, name, seconds, difference, .. } = growth;
    let mut out = format!(
        "{BOLD}Heap{BOLD:#} of {name}, process {process}: growth in {seconds:.1} s\n{}",
        sizes(growth, width)
    );
    let after = &difference.after;
    let _ = writeln!(
        out,
        "\n  {} samples, one for each {}; {} of the growth may be sampling error",
        after.samples,
        size(after.rate),
        size(difference.chance_bytes)
    );
    out += &sites(difference, width);
    for remark in remarks(growth) {
        let _ = writeln!(out, "{}", warning(&remark, width));
    }
    out
}

fn sizes(growth: &Growth, width: usize) -> String {
    let mut grid = console::grid(width);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let heading = |text| console::heading(text).set_alignment(CellAlignment::Right);
    let mut header = vec![console::heading("")];
    header.extend(["before", "after", "growth"].map(heading));
    grid.set_header(header);
    let Growth { before, after, difference, .. } = growth;
    let mut line = |what: &str, before: u64, after: u64| {
        let grown = after as i64 - before as i64;
        let figures = [size(before), size(after), signed(grown, size)].map(right);
        grid.add_row([Cell::new(what)].into_iter().chain(figures));
    };
    let in_use = |size: &Size| size.in_use as u64;
    line("objects in use", in_use(before), in_use(after));
    line("resident, whole process", before.resident, after.resident);
    line("sampled, in use", difference.before.bytes, difference.after.bytes);
    console::keep_whole(&mut grid, |_| true);
    console::lines(&grid)
}

fn remarks(growth: &Growth) -> Vec<String> {
    let mut remarks = Vec::new();
    if growth.is_gone {
        remarks.push(
            "the process has ended, or executed another program: the figures are the last ones before that".to_owned(),
        );
    }
    if growth.had_profile {
        remarks
            .push("the process had a profile of its own, which stays on, with its rate".to_owned());
    }
    let (in_use, sampled) =
        (growth.after.in_use as i64 - growth.before.in_use as i64, growth.difference.grown_bytes);
    // What was there before is in no sample.
    if sampled > in_use.max(0) / 4 * 5 + growth.difference.chance_bytes as i64 {
        remarks.push(
            "more was allocated than the heap grew: the program freed objects that were there before, too".to_owned(),
        );
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::diff::{Difference, Side};

    fn growth() -> Growth {
        let before = Side { process: 4711, rate: 512 << 10, is_whole: true, ..Side::default() };
        let after = Side { samples: 280, bytes: 150_000_000, ..before.clone() };
        Growth {
            process: 4711,
            name: "server".to_owned(),
            seconds: 10.02,
            before: Size { in_use: 1 << 30, resident: 1_200_000_000 },
            after: Size { in_use: (1 << 30) + 60_000_000, resident: 1_190_000_000 },
            had_profile: false,
            is_gone: false,
            difference: Difference {
                program: "/usr/bin/server".to_owned(),
                before,
                after,
                is_peak: false,
                grown_bytes: 150_000_000,
                chance_bytes: 17_000_000,
                sites: Vec::new(),
                left_out: 12,
                left_out_bytes: 150_000_000,
            },
        }
    }

    fn plain(growth: &Growth, width: usize) -> String {
        anstream::adapter::strip_str(&all(growth, width)).to_string()
    }

    #[test]
    fn sizes_and_remarks() {
        insta::assert_snapshot!(plain(&growth(), 100));
        let other = Growth { is_gone: true, had_profile: true, ..growth() };
        let text = plain(&other, 1000);
        for part in ["has ended", "a profile of its own", "freed objects that were there before"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn any_width_is_survived() {
        for width in [0, 1, 30, 80, 100_000] {
            let text = plain(&growth(), width).replace(char::is_whitespace, "");
            assert!(text.contains("+57.2MiB") && text.contains("-9.54MiB"), "{text}");
        }
    }
}
