//! Curves of a scaling table: medians over threads, with a legend.

use maud::{Markup, html};
use plotters::prelude::*;

use corelocal_support::figures::tick;
use corelocal_support::plot::{
    Axis, Entry, OTHERS, OURS, PAPER, Tick, corners, drawn, figure, is_hollow, mark, stand_in,
};
use corelocal_support::schema::{Stat, Table};

use super::columns::x_values;
use super::scale::Scale;

/// Returns the number of the colour of row `index`; more rows than colours repeat them with other marks.
fn colour_of(table: &Table, index: usize) -> usize {
    let ours = table.rows[index].ours;
    let before = table.rows[..index].iter().filter(|row| row.ours == ours).count();
    if ours { OTHERS + before % OURS } else { before % OTHERS }
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
            let inner = if is_hollow(index) { PAPER } else { colour };
            let outline = colour.stroke_width(2);
            chart.draw_series(points.iter().map(|(x, stat)| {
                let corners = corners(index);
                EmptyElement::at(at(*x, stat.median))
                    + Polygon::new(corners.clone(), inner.filled())
                    + PathElement::new(corners, outline)
            }))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelocal_support::schema::Report;

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
