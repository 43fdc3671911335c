//! Figures as a reader sees them: every output writes the same number the same way.
//!
//! Invariants:
//! - Three significant digits, no exponent, at most four decimals: more would claim a precision
//!   that a measurement does not have. An exact whole number has no decimals.
//! - [`align`] makes a column's decimal points stand below each other in a fixed-width font.

use crate::schema::{Stat, Table};

/// Stands where there is no figure.
pub const NONE: &str = "–";

/// Returns a measured or published value.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    if value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    // From 9.995 on, three digits round up to 10.0.
    let magnitude = (value.abs() / 0.9995).log10().floor();
    let decimals = (2.0 - magnitude).clamp(0.0, 4.0) as usize;
    format!("{value:.decimals$}")
}

/// Returns a value beside an axis, where it is exact.
pub fn tick(value: f64) -> String {
    let text = figure(value);
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns a value for a matrix, where columns are dear: below 1 with two digits instead of three.
pub fn short_figure(value: f64) -> String {
    if (0.1..0.995).contains(&value.abs()) { format!("{value:.2}") } else { figure(value) }
}

/// Returns how many times better than the baseline, as `7.8x`; near 1 with two decimals, far below with two
/// digits.
pub fn ratio(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let decimals = match value.abs() {
        v if v > 0.0 && v < 0.0995 => (1.0 - v.log10().floor()).min(4.0) as usize,
        v if v < 1.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}x")
}

/// Returns the first to third quartile.
pub fn spread(stat: &Stat) -> String {
    format!("{}–{}", figure(stat.q1), figure(stat.q3))
}

/// Returns a signed percentage.
pub fn percent(value: f64) -> String {
    if value.abs() < 10.0 { format!("{value:+.1}%") } else { format!("{value:+.0}%") }
}

/// Pads on the right, so that right-aligned cells have their decimal points in one column.
pub fn align(cells: &mut [String]) {
    let tail = |cell: &str| match cell.find(|c: char| c.is_ascii_digit()) {
        Some(first) => {
            let digits = cell[first..].chars().take_while(char::is_ascii_digit).count();
            cell.chars().count() - cell[..first].chars().count() - digits
        }
        None => 0,
    };
    let widest = cells.iter().map(|cell| tail(cell)).max().unwrap_or(0);
    for cell in cells.iter_mut().filter(|cell| !cell.is_empty()) {
        let missing = widest - tail(cell);
        cell.extend(std::iter::repeat_n(' ', missing));
    }
}

/// Breaks `text` at spaces into lines of at most `width` characters, the second and later ones
/// indented by `indent`; a longer word keeps its own line.
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

/// Returns what `x` is called in this table: its name where it has one.
pub fn x_name(table: &Table, x: f64) -> String {
    let name = table.x_names.get(x as usize).filter(|_| x >= 0.0 && x.fract() == 0.0);
    name.cloned().unwrap_or_else(|| figure(x))
}

/// Returns the geometric mean; `None` of no values.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value.ln()));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

#[cfg(test)]
mod tests;
