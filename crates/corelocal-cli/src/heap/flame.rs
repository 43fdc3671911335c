//! Stacks as lines, and as a flame graph.
//!
//! Invariants: a line's functions have no semicolon in their names, and end at the last space; whatever a damaged
//! file says, the lines' bytes add up to [`MOST`] at most.

use std::collections::BTreeMap;

use anyhow::Context as _;
use corelocal_support::units::size;
use inferno::flamegraph::{self, Options};

use super::sites::Told;

/// More than a machine has. What inferno reckons with, up to 150 times the difference of two sums, is in 63 bits then.
const MOST: u64 = 1 << 54;

/// Returns a line for each stack: functions, outermost first, and bytes.
pub fn collapsed<'a>(processes: impl IntoIterator<Item = &'a Told>) -> String {
    let mut lines: BTreeMap<String, f64> = BTreeMap::new();
    for told in processes {
        for stack in &told.stacks {
            let names = told.calls(stack).rev().map(|call| call.function.replace([';', '\n'], ":"));
            let names = names.collect::<Vec<String>>().join(";");
            *lines.entry(names).or_default() += stack.bytes;
        }
    }
    let mut left = MOST;
    let line = |(names, bytes): (String, f64)| {
        let bytes = (bytes.round() as u64).min(left);
        left -= bytes;
        format!("{names} {bytes}\n")
    };
    lines.into_iter().map(line).collect()
}

/// The text of a picture without samples.
const NOTHING: &str = "[nothing was sampled; a lower --rate takes more samples] 1";

/// Returns the picture; one that says so where nothing was sampled.
pub fn svg(lines: &str, what: &str) -> anyhow::Result<Vec<u8>> {
    let bytes = lines.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    let sum = bytes.sum::<u64>();
    let mut options = Options::default();
    options.title = format!("{what}: {}", size(sum));
    options.count_name = "bytes".to_owned();
    options.deterministic = true;
    options.colors = flamegraph::color::Palette::Basic(flamegraph::color::BasicPalette::Mem);
    let mut svg = Vec::new();
    let lines = if sum == 0 { NOTHING } else { lines };
    flamegraph::from_lines(&mut options, lines.lines(), &mut svg)
        .context("inferno cannot draw the flame graph")?;
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::super::file::{parse, tests};
    use super::super::sites;
    use super::*;

    #[test]
    fn lines_and_a_picture() {
        let heap = parse(&tests::file(&[100, 1000])).unwrap();
        let told = sites::told(&heap, false);
        let lines = collapsed([&told]);
        assert_eq!(lines.lines().count(), 1, "{lines}");
        let svg = String::from_utf8(svg(&lines, "x").unwrap()).unwrap();
        assert!(svg.contains("<svg") && svg.contains("x: 1"), "{svg}");
        let nothing = String::from_utf8(super::svg("", "x").unwrap()).unwrap();
        assert!(nothing.contains("<svg") && nothing.contains("nothing was sampled"), "{nothing}");
    }
}
