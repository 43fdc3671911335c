//! The watch on the terminal, drawn again and again: how far each clock is from `CLOCK_MONOTONIC`.
//!
//! Invariants:
//! - Drawn on standard error, and only when that is a terminal.
//! - A drawing has the same number of lines each time, and none is wider than the terminal.
//! - Clocks are told apart by their mark, not by colour alone.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};

use anstyle::{AnsiColor, Style};
use corelocal_support::plot::round_up;
use corelocal_support::units::signed_time;

use super::watch::Series;

const ROWS: usize = 12;
/// The width of the numbers at the left, in columns.
const MARGIN: usize = 11;
const DIM: Style = Style::new().dimmed();

/// The marks and colours of our clocks, and below those of others.
const OURS: [(char, AnsiColor); 4] = [
    ('●', AnsiColor::Green),
    ('▲', AnsiColor::Cyan),
    ('■', AnsiColor::Blue),
    ('◆', AnsiColor::White),
];
const OTHERS: [(char, AnsiColor); 3] =
    [('q', AnsiColor::Yellow), ('m', AnsiColor::Magenta), ('f', AnsiColor::Red)];

/// The drawing that is on the screen.
pub struct Chart {
    on: bool,
    lines: usize,
    width: usize,
    total: f64,
}

impl Chart {
    /// Creates one for a watch of so many seconds, on a terminal of so many columns.
    pub fn new(total: f64, width: usize) -> Chart {
        Chart { on: std::io::stderr().is_terminal(), lines: 0, width: width.clamp(60, 120), total }
    }

    /// Draws it anew.
    pub fn draw(&mut self, all: &[Series], now: f64) {
        if !self.on {
            return;
        }
        let text = drawing(all, now, self.total, self.width);
        let mut out = String::new();
        if self.lines > 0 {
            let _ = write!(out, "\x1b[{}A", self.lines);
        }
        self.lines = text.lines().count();
        for line in text.lines() {
            let _ = writeln!(out, "\r{line}\x1b[K");
        }
        let mut err = anstream::stderr().lock();
        // A terminal that is gone is not worth a word.
        let _ = write!(err, "{out}");
        let _ = err.flush();
    }
}

/// The range of the vertical axis above and below zero, in nanoseconds.
struct Scale {
    top: f64,
    bottom: f64,
}

impl Scale {
    /// Covers all that there is to draw; the smaller half has its share.
    fn over(all: &[Series]) -> Scale {
        let values = || all.iter().flat_map(Series::curve).map(|(_, nanos)| nanos);
        let (most, least) = (values().fold(0.0, f64::max), values().fold(0.0, f64::min));
        let share = most.max(-least).max(50.0) / 5.0;
        Scale { top: round_up(most.max(share)), bottom: round_up((-least).max(share)) }
    }

    /// Returns where a value is drawn.
    fn row(&self, nanos: f64) -> usize {
        let row = (self.top - nanos) / (self.top + self.bottom) * ROWS as f64;
        row.round().clamp(0.0, ROWS as f64) as usize
    }
}

/// Returns the whole drawing.
fn drawing(all: &[Series], now: f64, total: f64, width: usize) -> String {
    let columns = width - MARGIN;
    let scale = Scale::over(all);
    let zero = scale.row(0.0);
    let mut grid = vec![vec![None; columns]; ROWS + 1];
    let span = total.max(now).max(1e-3);
    // Ours last and the best of them last of all, so that they are on top.
    let mut order: Vec<(usize, &Series)> = all.iter().enumerate().rev().collect();
    order.sort_by_key(|(_, series)| series.ours);
    for (index, series) in &order {
        for (at, nanos) in series.curve() {
            let column = ((at / span) * (columns - 1) as f64) as usize;
            grid[scale.row(nanos)][column.min(columns - 1)] = Some(look(all, *index));
        }
    }
    let mut out = String::new();
    let left = (total - now).max(0.0);
    let _ = writeln!(
        out,
        "{DIM}ahead of CLOCK_MONOTONIC, {left:.0} s to go; Ctrl-C ends the watch{DIM:#}"
    );
    for (row, cells) in grid.iter().enumerate() {
        let label = match row {
            _ if row == zero => "0".to_owned(),
            0 => round_time(scale.top),
            ROWS => round_time(-scale.bottom),
            _ => String::new(),
        };
        let rule = if row == zero { '┈' } else { ' ' };
        let _ = write!(out, "{DIM}{label:>width$} │{DIM:#}", width = MARGIN - 2);
        for cell in cells {
            match cell {
                Some((mark, colour)) => {
                    let style = colour.on_default();
                    let _ = write!(out, "{style}{mark}{style:#}");
                }
                None => out.push(rule),
            }
        }
        out.push('\n');
    }
    let end = format!("{span:.0} s");
    let _ = writeln!(
        out,
        "{DIM}{:>width$} └0{end:─>rest$}{DIM:#}",
        "",
        width = MARGIN - 2,
        rest = columns - 1
    );
    for line in legend(all, width) {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// Returns two lines of marks and names, ours first.
fn legend(all: &[Series], width: usize) -> [String; 2] {
    [true, false].map(|ours| {
        let (mut line, mut used) = (String::new(), 0);
        for (index, series) in all.iter().enumerate().filter(|(_, series)| series.ours == ours) {
            let (mark, colour) = look(all, index);
            let value = series.last().map(signed_time).unwrap_or_default();
            let text = format!(" {} {value}", series.clock);
            used += text.chars().count() + 4;
            if used > width {
                break;
            }
            let style = colour.on_default();
            let _ = write!(line, "  {style}{mark}{style:#}{text} ");
        }
        line
    })
}

fn look(all: &[Series], index: usize) -> (char, AnsiColor) {
    let ours = all[index].ours;
    let before = all[..index].iter().filter(|series| series.ours == ours).count();
    if ours { OURS[before % OURS.len()] } else { OTHERS[before % OTHERS.len()] }
}

/// Returns a round time, without the decimals that it does not need.
fn round_time(nanos: f64) -> String {
    let text = signed_time(nanos);
    match text.split_once('.') {
        Some((whole, rest)) => format!("{whole} {}", rest.trim_start_matches('0').trim_start()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::observer::{Agreement, Sample};
    use corelocal_support::clock::offset::Offset;

    fn series(clock: &str, step: i64) -> Series {
        let mut series = Series::new(clock);
        for at in 0..20 {
            let middle = at * step;
            let sample = Sample {
                clock: clock.to_owned(),
                at: 0,
                offset: Offset { low: middle - 10, high: middle + 10 },
                agreement: Agreement::default(),
                backend: None,
            };
            series.add(at as f64 / 4.0, &sample);
        }
        series
    }

    #[test]
    fn a_drawing() {
        let all = [series("kernel-page", 0), series("anchor", -2), series("quanta", 400)];
        let text = drawing(&all, 5.0, 5.0, 80);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text).to_string());
    }

    #[test]
    fn every_width_and_no_samples() {
        for width in [60, 80, 120] {
            for all in [vec![], vec![Series::new("vdso")], vec![series("quanta", i64::MAX / 64)]] {
                let text = drawing(&all, 0.0, 10.0, width);
                assert_eq!(text.lines().count(), ROWS + 5);
                let text = anstream::adapter::strip_str(&text).to_string();
                let widest = text.lines().map(|line| line.chars().count()).max();
                assert!(widest <= Some(width), "{widest:?} columns:\n{text}");
            }
        }
    }

    #[test]
    fn round_numbers() {
        assert_eq!([5e4, -2e5, 100.0].map(round_time), ["+50 us", "-200 us", "+100 ns"]);
        assert_eq!([50.0, 51.0, 999.0].map(round_up), [50.0, 100.0, 1000.0]);
    }
}
