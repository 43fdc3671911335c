//! Curves of a scaling table: medians over threads, with a legend.
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

use super::columns::x_values;
use super::figures::tick;
use super::scale::Scale;
use super::schema::{Stat, Table};

/// Marks of the curves, filled for the first four rows and hollow for the next.
const MARKS: [(char, char); 4] = [('●', '○'), ('■', '□'), ('▲', '△'), ('◆', '◇')];

/// Colours that the style sheet has for the curves of others, `--s0` to `--s4`.
const OTHERS: usize = 5;

/// Colours for our own, `--s5` to `--s7`; green leads, as everywhere on the page.
const OURS: usize = 3;

// The stand-ins that plotters draws with, replaced by CSS variables afterwards.
/// Text.
const INK: RGBColor = RGBColor(1, 2, 3);
/// Lines of the axes.
const RULE: RGBColor = RGBColor(1, 2, 4);
/// What is behind.
const PAPER: RGBColor = RGBColor(1, 2, 5);

/// Number of the colour of row `index`; more rows than colours repeat them with other marks.
fn colour_of(table: &Table, index: usize) -> usize {
    let ours = table.rows[index].ours;
    let before = table.rows[..index].iter().filter(|row| row.ours == ours).count();
    if ours { OTHERS + before % OURS } else { before % OTHERS }
}

/// The stand-in for colour `--s{number}`.
pub fn stand_in(number: usize) -> RGBColor {
    RGBColor(2, 2, number as u8)
}

/// Curves of a scaling table with their legend.
///
/// # Errors
/// What plotters reports; the figures themselves cannot cause it.
pub fn curves(table: &Table) -> anyhow::Result<Markup> {
    let x_label = table.x_label.as_deref().unwrap_or("x");
    let medians = table.rows.iter().flat_map(|row| &row.points).map(|p| p.stat.median);
    let scale = Scale::over(medians);
    let (narrow, wide) = (svg(table, &scale, (310, 280))?, svg(table, &scale, (760, 400))?);
    let xs = x_values(table);
    let text = format!(
        "Curves of {}: median {} over {x_label} from {} to {}; the table below has the figures.",
        table.title,
        table.unit,
        xs.first().copied().map(tick).unwrap_or_default(),
        xs.last().copied().map(tick).unwrap_or_default(),
    );
    let key = html! {
        "median " (table.unit) " over " (x_label)
        @if scale.log { ", both axes logarithmic" } @else { ", " (x_label) " logarithmic" }
    };
    let rows = table.rows.iter().enumerate().filter(|(_, row)| !row.points.is_empty());
    let legend = rows.map(|(index, row)| Entry {
        ours: row.ours,
        colour: colour_of(table, index),
        mark: mark(index),
        text: html! { (row.label) },
    });
    Ok(figure(&key, &text, [&narrow, &wide], legend))
}

/// A curve in a legend.
pub struct Entry {
    /// Whether it is one of ours.
    pub ours: bool,
    /// The number of its colour.
    pub colour: usize,
    /// Its mark.
    pub mark: char,
    /// What it is.
    pub text: Markup,
}

/// A plot, narrow and wide: its title, a text alternative for screen readers, and a legend.
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

/// The mark of row `index`.
pub fn mark(index: usize) -> char {
    let (filled, hollow) = MARKS[index % MARKS.len()];
    if index / MARKS.len() % 2 == 0 { filled } else { hollow }
}

fn svg(table: &Table, y_scale: &Scale, size: (u32, u32)) -> anyhow::Result<String> {
    let xs = x_values(table);
    // zero, which has no logarithm, stands left of 1
    let x_of = |x: f64| if x > 0.0 { x.log2() } else { -1.0 };
    let (first, last) = (xs.first().map_or(0.0, |x| x_of(*x)), xs.last().map_or(1.0, |x| x_of(*x)));
    let margin = ((last - first) * 0.04).max(0.1);
    let x_ticks: Vec<Tick> = xs.iter().map(|x| (x_of(*x), tick(*x))).collect();
    let y_ticks: Vec<Tick> =
        y_scale.ticks().iter().map(|y| (y_scale.place(*y), tick(*y))).collect();
    let x_axis = Axis { range: first - margin..last + margin, ticks: x_ticks };
    let y_axis = Axis { range: 0.0..1.0, ticks: y_ticks };
    let x_label = table.x_label.as_deref().unwrap_or_default();
    drawn(size, 54, (x_axis, y_axis), x_label, |chart| {
        for (index, row) in table.rows.iter().enumerate() {
            let colour = stand_in(colour_of(table, index));
            let points: Vec<(f64, &Stat)> =
                row.points.iter().filter_map(|p| Some((x_of(p.x?), &p.stat))).collect();
            let at = |x: f64, value: f64| (x, y_scale.place(value));
            let width = if row.ours { 3 } else { 2 };
            chart.draw_series(points.iter().map(|(x, stat)| {
                PathElement::new(vec![at(*x, stat.q1), at(*x, stat.q3)], colour.stroke_width(1))
            }))?;
            let line = points.iter().map(|(x, stat)| at(*x, stat.median));
            chart.draw_series(LineSeries::new(line, colour.stroke_width(width)))?;
            let hollow = index / MARKS.len() % 2 == 1;
            let (inner, outline) = (if hollow { PAPER } else { colour }, colour.stroke_width(2));
            chart.draw_series(points.iter().map(|(x, stat)| {
                let corners = shape(index % MARKS.len());
                EmptyElement::at(at(*x, stat.median))
                    + Polygon::new(corners.clone(), inner.filled())
                    + PathElement::new(corners, outline)
            }))?;
        }
        Ok(())
    })
}

/// A chart in which curves are drawn.
pub type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// An SVG with both axes, left of which there is so much room, and what `draw` draws in our colours.
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

/// Where a tick stands on its axis and what is written there.
pub type Tick = (f64, String);

/// What is written at a tick.
fn text_at(ticks: &[Tick], place: f64) -> String {
    let tick = ticks.iter().find(|(at, _)| *at == place);
    tick.map(|(_, text)| text.clone()).unwrap_or_default()
}

/// An axis whose ticks stand where we say.
pub struct Axis {
    /// From where to where.
    pub range: Range<f64>,
    /// Its ticks.
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

/// The corners of a mark in pixels around its point, closed.
fn shape(kind: usize) -> Vec<(i32, i32)> {
    match kind {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::schema::Report;

    fn counter() -> Table {
        let json = include_str!("../../tests/fixtures/report-a.json");
        let report: Report = serde_json::from_str(json).unwrap();
        report.tables.into_iter().find(|table| table.id == "counter").unwrap()
    }

    #[test]
    fn every_colour_is_a_variable() {
        let page = curves(&counter()).unwrap().into_string();
        assert!(!page.contains("=\"#"), "a stand-in colour is left");
        assert!(page.contains("var(--s0)") && page.contains("var(--s5)"));
    }

    #[test]
    fn every_x_is_marked() {
        let page = curves(&counter()).unwrap().into_string();
        for x in x_values(&counter()) {
            assert!(page.contains(&format!("\n{}\n</text>", tick(x))), "no tick {x}");
        }
    }

    #[test]
    fn a_single_point_is_drawn() {
        let mut table = counter();
        table.rows.iter_mut().for_each(|row| row.points.truncate(1));
        assert!(curves(&table).unwrap().into_string().contains("<svg"));
    }
}
