//! What all tables on a terminal have in common: its width, and a table without frame.

use comfy_table::{
    Attribute, Cell, ColumnConstraint, ContentArrangement, Table as Grid, TableComponent, presets,
};

/// Stands before our own rows, in a column of its own.
pub const OURS: &str = "▸";
/// Columns when the output is not a terminal.
const FALLBACK_WIDTH: usize = 100;

/// A narrower terminal breaks lines itself, which reads better than columns of single letters.
const LEAST_WIDTH: usize = 72;

/// Returns the columns of the terminal that standard output goes to, or 100 where it goes elsewhere.
pub fn width() -> usize {
    Grid::new().width().map_or(FALLBACK_WIDTH, usize::from)
}

/// Returns a table without frame, with a rule under its header.
pub fn grid(width: usize) -> Grid {
    let mut grid = Grid::new();
    grid.load_preset(presets::NOTHING)
        .set_style(TableComponent::HeaderLines, '─')
        .set_style(TableComponent::MiddleHeaderIntersections, '─')
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(u16::try_from(width.max(LEAST_WIDTH)).unwrap_or(u16::MAX))
        .enforce_styling();
    grid
}

/// Returns a cell of a header.
pub fn heading(text: &str) -> Cell {
    Cell::new(text).add_attribute(Attribute::Dim)
}

/// Keeps lines whole a line in the columns that are `figures`; the others share what remains.
pub fn keep_whole(grid: &mut Grid, figures: impl Fn(usize) -> bool) {
    for (index, column) in grid.column_iter_mut().enumerate() {
        column.set_padding((0, u16::from(index > 0)));
        if figures(index) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
}

/// Returns the table as text, without spaces at the ends of its lines.
pub fn lines(grid: &Grid) -> String {
    grid.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
