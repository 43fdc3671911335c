//! Stacks as lines, and as a flame graph.
//!
//! Invariant: a line's functions have no semicolon in their names, and end at the last space.

use std::collections::BTreeMap;

use anyhow::Context as _;
use inferno::flamegraph::{self, Options};

use super::sites::Told;
use super::text::size;

/// A line for each stack: functions, outermost first, and bytes.
pub fn collapsed<'a>(processes: impl IntoIterator<Item = &'a Told>) -> String {
    let mut lines: BTreeMap<String, f64> = BTreeMap::new();
    for told in processes {
        for stack in &told.stacks {
            let calls = told.calls(stack);
            let names = calls.iter().rev().map(|call| call.function.replace([';', '\n'], ":"));
            let names: Vec<String> = names.collect();
            *lines.entry(names.join(";")).or_default() += stack.bytes;
        }
    }
    lines.into_iter().map(|(names, bytes)| format!("{names} {}\n", bytes.round() as u64)).collect()
}

/// The picture.
pub fn svg(lines: &str, what: &str) -> anyhow::Result<Vec<u8>> {
    let bytes = lines.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    let sum = bytes.fold(0, u64::saturating_add);
    let mut options = Options::default();
    options.title = format!("{what}: {}", size(sum));
    options.count_name = "bytes".to_owned();
    options.deterministic = true;
    options.colors = flamegraph::color::Palette::Basic(flamegraph::color::BasicPalette::Mem);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.lines(), &mut svg)
        .context("there is no flame graph without samples; a lower --rate takes more of them")?;
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
        assert!(super::svg("", "x").is_err());
    }
}
