//! The watch as one page: the table, and how each clock went on.
//!
//! Invariants: those of `report/html.rs` (nothing is loaded, every text is escaped, one plot for light,
//! dark and paper).

use corelocal_support::page::document;
use corelocal_support::plot::{Axis, Entry, Tick, drawn, figure, round_up, stand_in};
use corelocal_support::units;
use maud::{Markup, html};
use plotters::prelude::*;

use super::text::{self, Answer};
use super::watch::Series;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The colours of our clocks, and below those of others.
const OURS: [usize; 3] = [5, 6, 7];
const OTHERS: [usize; 5] = [1, 2, 3, 0, 4];

/// Returns the whole page.
///
/// # Errors
/// What plotters reports.
pub fn page(answer: &Answer, all: &[Series]) -> anyhow::Result<String> {
    let machine = corelocal_support::machine::collect(Default::default(), Default::default());
    let created = format!("{:.0}", jiff::Timestamp::now());
    // The vDSO is what they are compared with.
    let every: Vec<&Series> = all.iter().filter(|series| series.clock != "vdso").collect();
    let ours: Vec<&Series> = every.iter().copied().filter(|series| series.ours).collect();
    let title = html! { "corelocal clock, " (machine.cpu_model) ", " (created) };
    let body = html! {
        header {
            p.brand { "corelocal " (VERSION) }
            h1 { "How far clocks drift on this machine" }
            p.about {
                (machine.cpu_model) " · Linux " (machine.kernel) " · clock source "
                (machine.clocksource) " · " time datetime=(created) { (created) }
                " · watched for " (units::span(answer.watched_s))
            }
        }
        main {
            section.card {
                h2 { "Ours" }
                p { "The offset of each back-end of corelocal's clock from CLOCK_MONOTONIC, as a range "
                    "of possible values: 0 if a reading lay between two of the vDSO." }
                (plot("ours", &ours, answer.watched_s)?)
                (table(answer))
            }
            @if every.len() > ours.len() {
                section.card {
                    h2 { "Ours beside others" }
                    p { "Others are compared with their own first reading: the time that they "
                        "have gained or lost since." }
                    (plot("all", &every, answer.watched_s)?)
                }
            }
        }
    };
    Ok(document(VERSION, &title, &body))
}

fn table(answer: &Answer) -> Markup {
    let figure = |ns: Option<f64>| ns.map_or("–".to_owned(), |ns| format!("{ns:.1}"));
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr {
                    th { "back-end" } th { "" } th.number { "ordered ns" } th.number { "unordered ns" }
                    th.number { "not between two of the vDSO" } th.number { "drift" }
                } }
                tbody {
                    @for row in &answer.backends {
                        tr.ours[row.state == "serves"] {
                            th { (row.backend) }
                            td data-of="use" { (row.state) }
                            td.number data-of="ordered ns" { (figure(row.ordered_ns)) }
                            td.number data-of="unordered ns" { (figure(row.unordered_ns)) }
                            td.number data-of="not between two of the vDSO" { (row.agreement.map_or("–".to_owned(), text::agreement)) }
                            td.number data-of="drift" { (row.drift.as_ref().map_or("–".to_owned(), text::drift)) }
                        }
                    }
                }
            }
        }
        @for row in &answer.backends { p.remark.muted { b { (row.backend) } ": " (row.what) } }
    }
}

fn plot(what: &str, all: &[&Series], seconds: f64) -> anyhow::Result<Markup> {
    let spoken = format!("Curves of {what}: nanoseconds ahead of CLOCK_MONOTONIC over time.");
    let (narrow, wide) = (svg(all, seconds, (310, 280))?, svg(all, seconds, (760, 400))?);
    let legend = all.iter().enumerate().map(|(index, series)| Entry {
        ours: series.ours,
        colour: colour(all, index),
        mark: '━',
        text: html! {
            (series.clock)
            @if series.ours { ", " (text::title(&series.clock)) }
            @if let Some(last) = series.last() { ": " (units::signed_time(last)) }
        },
    });
    let key = html! { "ahead of CLOCK_MONOTONIC, over time" };
    Ok(figure(&key, &spoken, [&narrow, &wide], legend))
}

fn colour(all: &[&Series], index: usize) -> usize {
    let ours = all[index].ours;
    let before = all[..index].iter().filter(|series| series.ours == ours).count();
    if ours { OURS[before % OURS.len()] } else { OTHERS[before % OTHERS.len()] }
}

fn svg(all: &[&Series], seconds: f64, size: (u32, u32)) -> anyhow::Result<String> {
    let values = || all.iter().flat_map(|series| series.curve()).map(|(_, nanos)| nanos);
    let (least, most) = (values().fold(0.0, f64::min), values().fold(0.0, f64::max));
    let step = round_up((most - least).max(20.0) / 4.0);
    // A little beyond a mark is no reason for another one.
    let mark = |value: f64| (value.abs() / step - 0.1).ceil().max(0.0).copysign(value) as i64;
    let (mut first, mut last) = (mark(least), mark(most));
    if first == last {
        (first, last) = (-1, 1);
    }
    let bottom = (first as f64 - 0.2) * step;
    let top = (last as f64 + 0.2) * step;
    let unit = Unit::of(step);
    let marks = first..=last;
    let y_ticks: Vec<Tick> = marks.map(|n| (n as f64 * step, unit.text(n as f64 * step))).collect();
    let span = seconds.max(1e-3);
    let x_step = round_up(span / 5.0);
    let x_ticks: Vec<Tick> = (0..=(span / x_step) as u32)
        .map(|n| f64::from(n) * x_step)
        .map(|x| (x, x.to_string()))
        .collect();
    let x_axis = Axis { range: 0.0..span * 1.02, ticks: x_ticks };
    let y_axis = Axis { range: bottom..top, ticks: y_ticks };
    drawn(size, 70, (x_axis, y_axis), "seconds", |chart| {
        // Ours last and the best of them last of all: on top.
        let mut order: Vec<usize> = (0..all.len()).rev().collect();
        order.sort_by_key(|index| all[*index].ours);
        for index in order {
            let series = all[index];
            let width = if series.ours { 3 } else { 2 };
            let style = stand_in(colour(all, index)).stroke_width(width);
            chart.draw_series(LineSeries::new(series.curve(), style))?;
        }
        Ok(())
    })
}

/// The unit of all numbers of an axis.
struct Unit {
    nanos: f64,
    name: &'static str,
}

impl Unit {
    fn of(step: f64) -> Unit {
        let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
        let fitting = units.into_iter().find(|(nanos, _)| step >= *nanos);
        let (nanos, name) = fitting.unwrap_or((1.0, "ns"));
        Unit { nanos, name }
    }

    fn text(&self, nanos: f64) -> String {
        format!("{} {}", nanos / self.nanos, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::observer::{Agreement, Sample};
    use corelocal_support::clock::offset::Offset;

    fn series(clock: &str, by: i64) -> Series {
        let mut series = Series::new(clock);
        for at in 0..50 {
            let offset = Offset { low: at * by - 5, high: at * by + 5 };
            let sample = Sample {
                clock: clock.to_owned(),
                at: 0,
                offset,
                agreement: Agreement::default(),
                backend: None,
            };
            series.add(at as f64 / 10.0, &sample);
        }
        series
    }

    #[test]
    fn a_page_needs_nothing_else() {
        let all = [series("kernel-page", 0), series("anchor", 3), series("quanta", -400)];
        let answer = Answer::new("tsc".to_owned(), &[], &all, 5.0);
        let page = page(&answer, &all).unwrap();
        assert!(page.ends_with("</html>") && page.contains("<svg"));
        assert!(!page.contains("=\"#0"), "a stand-in colour is left");
        assert!(page.contains("quanta: -19.590 us"), "{page}");
    }

    #[test]
    fn nothing_to_plot() {
        for all in [vec![], vec![Series::new("anchor")]] {
            let answer = Answer::new(String::new(), &[], &all, 0.0);
            assert!(page(&answer, &all).unwrap().ends_with("</html>"));
        }
    }

    #[test]
    fn units() {
        assert_eq!(Unit::of(20.0).text(-40.0), "-40 ns");
        assert_eq!(Unit::of(5e3).text(1.5e4), "15 us");
        assert_eq!(Unit::of(2e6).text(4e6), "4 ms");
    }
}
