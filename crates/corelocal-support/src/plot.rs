//! A plot in a page: axes, marks and a legend.
//!
//! Invariants:
//! - plotters draws with stand-in colours that become CSS variables, so one plot serves light,
//!   dark and paper.
//! - The plot is drawn once narrow and once wide, and the style sheet shows the one that fits:
//!   a single drawing scaled down to a phone has unreadable text.
//! - A curve is told apart by its mark as well as by its colour.

use std::ops::Range;

use maud::{Markup, PreEscaped, html};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;

/// Marks of the curves, filled for the first four rows and hollow for the next.
const MARKS: [(char, char); 4] = [('●', '○'), ('■', '□'), ('▲', '△'), ('◆', '◇')];

/// Colours that the style sheet has for the curves of others, `--s0` to `--s4`.
pub const OTHERS: usize = 5;

/// Colours for our own, `--s5` to `--s7`; green leads, as everywhere on the page.
pub const OURS: usize = 3;

// The stand-ins that plotters draws with, replaced by CSS variables afterwards.
/// Text.
const INK: RGBColor = RGBColor(1, 2, 3);
/// Lines of the axes.
const RULE: RGBColor = RGBColor(1, 2, 4);
/// The background colour.
pub const PAPER: RGBColor = RGBColor(1, 2, 5);

/// Returns the stand-in for colour `--s{number}`.
pub fn stand_in(number: usize) -> RGBColor {
    RGBColor(2, 2, number as u8)
}

/// A curve in a legend.
pub struct Entry {
    /// Whether it is one of ours.
    pub ours: bool,
    /// The number of its colour.
    pub colour: usize,
    /// The curve's mark.
    pub mark: char,
    /// The curve's name.
    pub text: Markup,
}

/// Returns a plot, narrow and wide: its title, a text alternative for screen readers, and a legend.
pub fn figure(
    key: &Markup,
    spoken: &str,
    [narrow, wide]: [&str; 2],
    legend: impl Iterator<Item = Entry>,
) -> Markup {
    html! {
        figure.plot {
            figcaption { span.key { (key) } }
            div.curves.narrow role="img" aria-label=(spoken) { (PreEscaped(narrow)) }
            div.curves.wide role="img" aria-label=(spoken) { (PreEscaped(wide)) }
            ul.legend {
                @for entry in legend {
                    li.ours[entry.ours] {
                        span.mark style={ "color:var(--s" (entry.colour) ")" } { (entry.mark) }
                        " " (entry.text)
                    }
                }
            }
        }
    }
}

/// Returns the mark of row `index`.
pub fn mark(index: usize) -> char {
    let (filled, hollow) = MARKS[index % MARKS.len()];
    if is_hollow(index) { hollow } else { filled }
}

/// A chart in which curves are drawn.
pub type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// Returns an SVG with both axes, left of which there is so much room, and what `draw` draws in our colours.
///
/// # Errors
/// What plotters reports.
pub fn drawn(
    size: (u32, u32),
    room: u32,
    (x_axis, y_axis): (Axis, Axis),
    x_label: &str,
    draw: impl FnOnce(&mut Chart<'_, '_>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let (x_ticks, y_ticks) = (x_axis.ticks.clone(), y_axis.ticks.clone());
    let mut out = String::new();
    {
        let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
        let font = ("sans-serif", 16).into_font().color(&INK);
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(42)
            .y_label_area_size(room)
            .build_cartesian_2d(x_axis, y_axis)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(RULE)
            .light_line_style(TRANSPARENT)
            .axis_style(RULE)
            .label_style(font.clone())
            .x_labels(x_ticks.len())
            .y_labels(y_ticks.len())
            .x_label_formatter(&|place| text_at(&x_ticks, *place))
            .y_label_formatter(&|place| text_at(&y_ticks, *place))
            .x_desc(x_label)
            .axis_desc_style(font)
            .draw()?;
        draw(&mut chart)?;
        area.present()?;
    }
    Ok(styled(&out))
}

/// A tick: its position on the axis and its label.
pub type Tick = (f64, String);

/// Returns what is written at a tick.
fn text_at(ticks: &[Tick], place: f64) -> String {
    let tick = ticks.iter().find(|(at, _)| *at == place);
    tick.map(|(_, text)| text.clone()).unwrap_or_default()
}

/// An axis whose ticks stand where we say.
pub struct Axis {
    /// The range of the axis.
    pub range: Range<f64>,
    /// The ticks of the axis.
    pub ticks: Vec<Tick>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Returns `true` if the mark of row `index` is hollow.
pub fn is_hollow(index: usize) -> bool {
    index / MARKS.len() % 2 == 1
}

/// Returns the corners of the mark of row `index` in pixels around its point, closed.
pub fn corners(index: usize) -> Vec<(i32, i32)> {
    match index % MARKS.len() {
        0 => vec![(-2, -5), (2, -5), (5, -2), (5, 2), (2, 5), (-2, 5), (-5, 2), (-5, -2), (-2, -5)],
        1 => vec![(-4, -4), (4, -4), (4, 4), (-4, 4), (-4, -4)],
        2 => vec![(0, -5), (5, 4), (-5, 4), (0, -5)],
        _ => vec![(0, -6), (6, 0), (0, 6), (-6, 0), (0, -6)],
    }
}

/// Puts CSS variables in the place of the stand-in colours; inside HTML no name space is needed.
fn styled(svg: &str) -> String {
    let hex = |c: RGBColor| format!("#{:02X}{:02X}{:02X}", c.0, c.1, c.2);
    let mut out = svg
        .replace(" xmlns=\"http://www.w3.org/2000/svg\"", "")
        .replace(&hex(INK), "var(--muted)")
        .replace(&hex(RULE), "var(--rule)")
        .replace(&hex(PAPER), "var(--card)");
    for number in 0..OTHERS + OURS {
        out = out.replace(&hex(stand_in(number)), &format!("var(--s{number})"));
    }
    out
}

/// Returns the smallest of 1, 2, 5 times a power of ten that is at least `value`, which is positive.
pub fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}
