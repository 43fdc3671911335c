//! Stacks as lines, and as a flame graph.
//!
//! Invariants: a line's functions have no semicolon in their names, and end at the last space; whatever a damaged
//! file says, the lines' bytes add up to [`MOST`] at most, and the lines of a profile have at most [`MOST_TEXT`] bytes.

use std::collections::BTreeMap;

use anyhow::Context as _;
use inferno::flamegraph::{self, Options};

use super::sites::Told;
use super::text::size;

/// More than a machine has. What inferno reckons with, up to 150 times the difference of two sums, is in 63 bits then.
const MOST: u64 = 1 << 54;

/// A real profile has a few MiB.
const MOST_TEXT: usize = 64 << 20;

/// A line for stacks that there is no room for.
const LEFT_OUT: &str = "[left out: stacks with less bytes and too long names]";

/// A line for each stack: functions, outermost first, and bytes.
pub fn collapsed<'a>(processes: impl IntoIterator<Item = &'a Told>) -> String {
    let mut lines: BTreeMap<String, f64> = BTreeMap::new();
    let mut room = MOST_TEXT;
    for stack in processes.into_iter().flat_map(|told| told.stacks.iter().map(move |it| (told, it)))
    {
        let (told, stack) = stack;
        let names = told.calls(stack).rev().map(|call| call.function.replace([';', '\n'], ":"));
        let mut names = names.collect::<Vec<String>>().join(";");
        if !lines.contains_key(&names) {
            match room.checked_sub(names.len()) {
                Some(left) => room = left,
                None => names = LEFT_OUT.to_owned(),
            }
        }
        *lines.entry(names).or_default() += stack.bytes;
    }
    let mut left = MOST;
    let line = |(names, bytes): (String, f64)| {
        let bytes = (bytes.round() as u64).min(left);
        left -= bytes;
        format!("{names} {bytes}\n")
    };
    lines.into_iter().map(line).collect()
}

/// What is drawn where there is nothing.
const NOTHING: &str = "[nothing was sampled; a lower --rate takes more samples] 1";

/// The picture; one that says so where nothing was sampled.
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

    #[test]
    fn long_names_have_a_line_of_their_own() {
        use super::super::sites::{Call, Stack};
        // As a hostile profile has it: stacks of one function, whose name is long, and each of other bytes.
        let call = |nth: usize| {
            let function = format!("{nth}{}", "f".repeat(1 << 20)).into();
            vec![Call { function, source: None }]
        };
        let stack = |nth| Stack {
            frames: vec![nth],
            size: 1,
            thread: (String::new(), 0),
            bytes: 10.0,
            objects: 1.0,
        };
        let most = MOST_TEXT >> 20;
        let told = Told {
            calls: (0..most + 9).map(call).collect(),
            stacks: (0..most + 9).map(stack).collect(),
            ..Told::default()
        };
        let lines = collapsed([&told]);
        assert!(lines.len() <= MOST_TEXT + 10_000, "{}", lines.len());
        assert_eq!(lines.lines().count(), most, "all but the last ten, and the line for those");
        let left_out = lines.lines().find(|line| line.starts_with(LEFT_OUT)).expect("a line");
        assert!(left_out.ends_with(" 100"), "{left_out}");
    }
}
