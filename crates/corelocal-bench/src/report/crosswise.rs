//! A [`Matrix`] on the terminal: a line for each `x` and a column for each contestant, in as many blocks as the width
//! asks for, with ours in each.
//!
//! Invariants:
//! - No figure is broken, and no word of a heading, unless a block of two columns is still too wide.
//! - Every contestant is in one block, but ours, which are in all.

use comfy_table::{Attribute, Cell, CellAlignment, Color};
use corelocal_support::console::{OURS, grid, heading, keep_whole, lines};

use super::matrix::{Contestant, Matrix};

/// The number of blanks between two columns.
const GAP: usize = 2;

/// Returns the matrix as text, at most `width` columns wide.
pub fn crosswise(matrix: &Matrix, width: usize) -> String {
    let blocks: Vec<String> =
        blocks(matrix, width).iter().map(|columns| block(matrix, columns, width)).collect();
    blocks.join("\n")
}

/// Returns which columns are side by side: evenly many in each block.
fn blocks(matrix: &Matrix, width: usize) -> Vec<Vec<&Contestant>> {
    let (ours, others): (Vec<&Contestant>, Vec<&Contestant>) =
        matrix.columns.iter().partition(|column| column.ours);
    let names = matrix.lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let room = |columns: &[&Contestant]| columns.iter().map(|column| room(column)).sum::<usize>();
    let in_each = names + room(&ours);
    // As many in each block as it takes for the widest one to fit.
    let fits = |most: &usize| others.chunks(*most).all(|block| in_each + room(block) <= width);
    let most = (1..=others.len().max(1)).rev().find(fits).unwrap_or(1);
    let count = others.len().div_ceil(most).max(1);
    let each = others.len().div_ceil(count).max(1);
    let mut blocks: Vec<Vec<&Contestant>> = others.chunks(each).map(<[_]>::to_vec).collect();
    if blocks.is_empty() {
        blocks.push(Vec::new());
    }
    blocks.iter_mut().for_each(|block| block.extend(&ours));
    blocks
}

/// Returns what a column takes, with its heading broken between words.
fn room(column: &Contestant) -> usize {
    let words = title(column);
    let words = words.split_whitespace().map(|word| word.chars().count());
    let cells = column.cells.iter().map(|cell| cell.chars().count());
    words.chain(cells).max().unwrap_or(0) + GAP
}

fn title(column: &Contestant) -> String {
    if column.ours { format!("{OURS} {}", column.heading) } else { column.heading.clone() }
}

fn block(matrix: &Matrix, columns: &[&Contestant], width: usize) -> String {
    let mut grid = grid(width);
    let mut header = vec![heading("")];
    header.extend(columns.iter().map(|it| heading(&title(it)).set_alignment(CellAlignment::Right)));
    grid.set_header(header);
    for (nth, name) in matrix.lines.iter().enumerate() {
        let mut cells = vec![Cell::new(name)];
        cells.extend(columns.iter().map(|column| {
            let cell = Cell::new(&column.cells[nth]).set_alignment(CellAlignment::Right);
            if column.ours { cell.add_attribute(Attribute::Bold).fg(Color::Cyan) } else { cell }
        }));
        if matrix.is_mean(nth) {
            cells = cells.into_iter().map(|cell| cell.add_attribute(Attribute::Bold)).collect();
        }
        grid.add_row(cells);
    }
    // Headings may be broken, figures not; the names of lines are short.
    keep_whole(&mut grid, |index| index == 0);
    lines(&grid)
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;

    fn matrix(headings: &[&str], ours: &str) -> Matrix {
        let contestant = |heading: &&str| Contestant {
            heading: (*heading).to_owned(),
            ours: *heading == ours,
            cells: vec!["1296285  ".to_owned(), "   3.14".to_owned(), "  80.8".to_owned()],
        };
        Matrix {
            caption: "median ns".to_owned(),
            lines: ["churn, 64 threads", "large 1-8 M", "geometric mean"].map(str::to_owned).into(),
            columns: headings.iter().map(contestant).collect(),
        }
    }

    #[test]
    fn nothing_is_broken_and_everybody_is_there() {
        let headings = [
            "glibc 2.36",
            "jemalloc",
            "tcmalloc (gperftools)",
            "mimalloc 3 (crate)",
            "snmalloc (crate)",
            "rpmalloc 1.4 (crate)",
            "tcmalloc (Google's, crate)",
            "corelocal",
        ];
        let matrix = matrix(&headings, "corelocal");
        for width in [72, 80, 100, 130, 300] {
            let text = strip_str(&crosswise(&matrix, width)).to_string();
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            let blocks = text.matches("geometric mean").count();
            assert_eq!(text.matches("corelocal").count(), blocks, "{width}: {text}");
            assert_eq!(text.matches("1296285").count(), 7 + blocks, "{width}: {text}");
            for word in headings.iter().flat_map(|heading| heading.split(' ')) {
                assert!(text.contains(word), "{width}, {word}: {text}");
            }
            assert!(blocks > 1 || width > 72, "{text}");
        }
        assert_eq!(crosswise(&matrix, 300).matches("geometric mean").count(), 1);
    }

    #[test]
    fn few_and_none() {
        for headings in [&[][..], &["corelocal"], &["glibc"]] {
            let text = crosswise(&matrix(headings, "corelocal"), 80);
            assert_eq!(text.matches("geometric mean").count(), 1, "{text}");
        }
    }
}
