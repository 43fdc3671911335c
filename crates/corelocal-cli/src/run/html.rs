//! The runs as one page: the table, and a plot of memory over time.
//!
//! Invariants: those of `report/html.rs` (nothing is loaded, every text is escaped, one plot for light,
//! dark and paper).

use corelocal_support::figures::{self, NONE, ratio, tick};
use corelocal_support::page::document;
use corelocal_support::plot::{Axis, Entry, Tick, drawn, figure, round_up, stand_in};
use corelocal_support::schema::Stat;
use maud::{Markup, html};
use plotters::prelude::*;

use super::cache_stats::{Tally, percent};
use super::measured::{Answer, Means, Measured};
use super::text::name;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The colours of our malloc, and below those of others.
const OURS: [usize; 3] = [5, 6, 7];
const OTHERS: [usize; 5] = [0, 1, 2, 3, 4];

/// Returns the whole page.
///
/// # Errors
/// What plotters reports.
pub fn page(answers: &[Answer]) -> anyhow::Result<String> {
    let names = answers.iter().map(name).collect::<Vec<_>>().join(", ");
    let sections = answers.iter().map(section).collect::<anyhow::Result<Vec<Markup>>>()?;
    let machine = corelocal_support::machine::collect(Default::default(), Default::default());
    let created = format!("{:.0}", jiff::Timestamp::now());
    let title = html! { "corelocal run, " (names) ", " (created) };
    let body = html! {
        header {
            p.brand { "corelocal " (VERSION) }
            h1 { "Time and memory of " (names) }
            p.about {
                (machine.cpu_model) " · Linux " (machine.kernel) " · "
                time datetime=(created) { (created) }
            }
        }
        main {
            @for section in sections { (section) }
            (means(answers))
        }
    };
    Ok(document(VERSION, &title, &body))
}

/// Returns what there is to tell of one command.
fn section(answer: &Answer) -> anyhow::Result<Markup> {
    let plot = plot(answer)?;
    Ok(html! {
        section.card {
            h2 { code { (answer.command.join(" ")) } }
            h3 { "Memory over time" }
            p { "Resident memory of the program and its descendants, in the run of median length." }
            (plot)
            h3 { "Figures" }
            (table(answer))
            @for sentence in answer.remarks() {
                p.noise { (sentence) }
            }
        }
    })
}

/// The figures that have means over several commands.
const MEANS: [&str; 3] = ["time", "cpu", "peak"];

/// Returns the means over several commands.
fn means(answers: &[Answer]) -> Markup {
    let Some(means) = Means::of(answers) else { return html! {} };
    html! {
        section.card {
            h2 { "All " (answers.len()) " commands" }
            p { "Geometric means of the ratios to " (means.base) "; lower is better." }
            div.scroll tabindex="0" {
                table {
                    thead { tr {
                        th { "malloc" }
                        @for name in MEANS { th.number { (name) } }
                    } }
                    tbody {
                        @for (label, ratios) in &means.rows {
                            tr {
                                th { (label) }
                                @for (name, mean) in MEANS.iter().zip(ratios) { td.number data-of=(name) { (mean.map_or(NONE.to_owned(), ratio)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn table(answer: &Answer) -> Markup {
    let cell = |stat: &Option<Stat>, unit: f64| {
        stat.as_ref().map_or(NONE.to_owned(), |stat| figures::figure(stat.median / unit))
    };
    let times = |value: Option<f64>| value.map_or(NONE.to_owned(), ratio);
    let beside =
        format!("beside {}", answer.mallocs.first().map_or("", |base| base.label.as_str()));
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr {
                    th { "malloc" }
                    @for name in ["time s", "ratio", "user s", "kernel s", "cpu ratio", "peak MiB", "peak ratio", "final MiB", "hits"] {
                        th.number { (name) }
                    }
                    th { (beside) }
                } }
                tbody {
                    @for malloc in &answer.mallocs {
                        tr.ours[malloc.ours] {
                            th { (malloc.label) }
                            td.number data-of="time s" { (cell(&malloc.wall_s, 1.0)) }
                            td.number data-of="ratio" { (times(malloc.wall_ratio)) }
                            td.number data-of="user s" { (cell(&malloc.user_s, 1.0)) }
                            td.number data-of="kernel s" { (cell(&malloc.system_s, 1.0)) }
                            td.number data-of="cpu ratio" { (times(malloc.cpu_ratio)) }
                            td.number data-of="peak MiB" { (cell(&malloc.peak_kib, 1024.0)) }
                            td.number data-of="peak ratio" { (times(malloc.peak_ratio)) }
                            td.number data-of="final MiB" { (cell(&malloc.final_kib, 1024.0)) }
                            td.number data-of="hits" { (hits(malloc)) }
                            td data-of=(beside) { (malloc.verdict.as_deref().unwrap_or_default()) }
                        }
                    }
                }
            }
        }
        p.muted {
            "Medians of alternating runs, after one that is not counted. Ratio: the figure as a multiple of \
             that with libc's malloc; lower is better. Hits: the share of allocations that were served from a \
             cache; other mallocs do not report it."
        }
    }
}

fn hits(malloc: &Measured) -> String {
    let hits = malloc.caches.as_ref().and_then(Tally::hits);
    hits.map_or(NONE.to_owned(), percent)
}

fn plot(answer: &Answer) -> anyhow::Result<Markup> {
    let spoken = format!("Curves of the memory of {} over time.", name(answer));
    let all = &answer.mallocs;
    let (narrow, wide) = (svg(all, (310, 280))?, svg(all, (760, 400))?);
    let legend = all.iter().enumerate().map(|(index, malloc)| Entry {
        ours: malloc.ours,
        colour: colour(all, index),
        mark: '━',
        text: html! {
            (malloc.label)
            @if let Some(peak) = &malloc.peak_kib { ": at most " (figures::figure(peak.median / 1024.0)) " MiB" }
        },
    });
    Ok(figure(&html! { "MiB over seconds" }, &spoken, [&narrow, &wide], legend))
}

fn colour(all: &[Measured], index: usize) -> usize {
    let ours = all[index].ours;
    let before = all[..index].iter().filter(|malloc| malloc.ours == ours).count();
    if ours { OURS[before % OURS.len()] } else { OTHERS[before % OTHERS.len()] }
}

fn svg(all: &[Measured], size: (u32, u32)) -> anyhow::Result<String> {
    let points = || all.iter().flat_map(|malloc| &malloc.resident);
    let seconds = points().map(|point| point.0).fold(0.001, f64::max);
    let mib = points().map(|point| point.1 as f64 / 1024.0).fold(1.0, f64::max);
    let axis = |most: f64| {
        let step = round_up(most / 5.0);
        let ticks: Vec<Tick> = (0..=(most / step * 1.001) as u32)
            .map(|nth| f64::from(nth) * step)
            .map(|at| (at, tick(at)))
            .collect();
        Axis { range: 0.0..most * 1.03, ticks }
    };
    drawn(size, 54, (axis(seconds), axis(mib)), "seconds", |chart| {
        // Ours on top.
        let mut order: Vec<usize> = (0..all.len()).rev().collect();
        order.sort_by_key(|index| all[*index].ours);
        for index in order {
            let malloc = &all[index];
            let style = stand_in(colour(all, index)).stroke_width(if malloc.ours { 3 } else { 2 });
            let line = malloc.resident.iter().map(|&(at, kib)| (at, kib as f64 / 1024.0));
            chart.draw_series(LineSeries::new(line, style))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::measured::tests::answer;
    use super::*;

    #[test]
    fn a_page_needs_nothing_else() {
        let page = page(&[answer(), answer()]).unwrap();
        assert!(page.ends_with("</html>") && page.contains("<svg"));
        assert!(page.contains("All 2 commands"));
        assert!(!page.contains("=\"#0"), "a stand-in colour is left");
        assert!(page.contains("at most 20 MiB") && page.contains("exit code 3"));
        assert!(page.contains("99.97 %"));
    }

    #[test]
    fn nothing_to_plot() {
        let mut answer = answer();
        answer.command = vec!["<script>".to_owned()];
        answer.mallocs.iter_mut().for_each(|malloc| malloc.resident.clear());
        let alone = page(std::slice::from_ref(&answer)).unwrap();
        assert!(alone.ends_with("</html>") && !alone.contains("<script"));
        assert!(!alone.contains("commands"));
        answer.mallocs.clear();
        assert!(page(&[answer]).is_ok());
    }
}
