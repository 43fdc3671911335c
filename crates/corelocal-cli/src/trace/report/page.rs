//! The page about a recording.
//!
//! Invariants: those of `report/html.rs`. The page has at most some megabytes, for any recording: cells of a row that show
//! the same are one rectangle.

use corelocal_support::page::document;
use corelocal_trace::{Kind, Recording};
use maud::{Markup, PreEscaped, html};

use super::super::text::duration;
use super::summary::{BARS, COLUMNS, Name, Row, Summary};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Names in a table, and in the legend.
const MOST_NAMES: usize = 50;
const COLOURS: usize = 10;

const STYLE: &str = "
.strip { display: grid; grid-template-columns: minmax(6rem, 11rem) 1fr; column-gap: .75rem; align-items: center; margin: .3rem 0; }
.strip .label { font-size: .85rem; overflow-wrap: anywhere; line-height: 1.2; }
.strip svg { display: block; width: 100%; background: color-mix(in srgb, var(--rule) 35%, transparent); border-radius: 2px; }
.ends { display: flex; justify-content: space-between; color: var(--muted); font-size: .8rem; margin-left: calc(11rem + .75rem); }
.k { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .35rem; vertical-align: -.08rem; }
.c0 { fill: #4269d0; background: #4269d0; } .c1 { fill: #efb118; background: #efb118; }
.c2 { fill: #ff725c; background: #ff725c; } .c3 { fill: #6cc5b0; background: #6cc5b0; }
.c4 { fill: #3ca951; background: #3ca951; } .c5 { fill: #ff8ab7; background: #ff8ab7; }
.c6 { fill: #a463f2; background: #a463f2; } .c7 { fill: #97bbf5; background: #97bbf5; }
.c8 { fill: #9c6b4e; background: #9c6b4e; } .c9 { fill: #9498a0; background: #9498a0; }
.rate { fill: var(--ours); } .unknown { fill: currentColor; opacity: .12; }
svg.shape { width: 9rem; height: 1.6rem; }
@media (max-width: 40rem) { .strip { grid-template-columns: 1fr; } .ends { margin-left: 0; } }
";

/// Returns the whole page.
pub fn page(recording: &Recording, summary: &Summary<'_>, file: &str) -> String {
    let lasted = summary.last - summary.first;
    let host = recording.host();
    let title = html! {
        "Recording of process " (recording.process()) @if !host.is_empty() { " on " (host) }
    };
    let when = jiff::Timestamp::from_nanosecond(summary.first.into()).unwrap_or_default();
    let when = when.to_zoned(jiff::tz::TimeZone::system()).strftime("%F %H:%M:%S %Z").to_string();
    let body = html! {
        style { (PreEscaped(STYLE)) }
        header {
            p.brand { "corelocal " (VERSION) }
            h1 { (title) }
            p.about { (file) " · " (when) " · " (duration(lasted)) " · " (grouped(summary.events)) " records" }
            @for line in recording.remarks() {
                p.noise { (sentence(&line)) }
            }
            nav {
                a href="#spans" { "Spans" } a href="#cpus" { "Cpus" } a href="#rate" { "Rate" }
                a href="#durations" { "Durations" } a href="#events" { "Events" } a href="#lost" { "Losses" }
            }
        }
        main {
            section.card id="spans" {
                h2 { "Spans by thread" }
                p { "A column shows the span that lasted longest of those that touch it. Nested spans are below their outer one." }
                @if summary.unknown.contains(&true) { p { "Events are missing where the timeline is shaded." } }
                (threads(summary))
                (legend(summary))
            }
            section.card id="cpus" {
                h2 { "Threads by cpu" }
                p { "A column shows the thread that recorded most there." }
                @for row in &summary.cpus {
                    (strip(summary, &format!("cpu {}", row.cpu), &[row.cells.iter().map(|cell| cell.map(|(thread, _)| {
                        (colour_of(summary, thread), thread_name(summary, thread))
                    })).collect()]))
                }
                (ends(lasted))
                @if summary.more_cpus > 0 { p.muted { (grouped(summary.more_cpus as u64)) " records of further cpus are not shown." } }
                ul.legend {
                    @for (nth, thread) in summary.threads.iter().enumerate().take(COLOURS - 1) {
                        li { span class={ "k c" (nth) } {} (thread.name) " " (thread.id) }
                    }
                    @if summary.threads.len() >= COLOURS { li { span class={ "k c" (COLOURS - 1) } {} "others" } }
                }
            }
            section.card id="rate" {
                h2 { "Records a second" }
                (rate(summary))
            }
            section.card id="durations" {
                h2 { "Durations of spans" }
                (durations(summary))
            }
            section.card id="events" {
                h2 { "Most frequent" }
                (frequent(summary))
            }
            section.card id="lost" {
                h2 { "Losses" }
                (losses(recording))
            }
        }
    };
    document(VERSION, &title, &body)
}

fn colour(name: u16) -> usize {
    usize::from(name) % COLOURS
}

fn colour_of(summary: &Summary<'_>, thread: u32) -> usize {
    let at = summary.threads.iter().position(|other| other.id == thread);
    at.unwrap_or(COLOURS).min(COLOURS - 1)
}

fn thread_name(summary: &Summary<'_>, thread: u32) -> String {
    let known = summary.threads.iter().find(|other| other.id == thread);
    known.map_or_else(|| thread.to_string(), |known| format!("{} {thread}", known.name))
}

fn threads(summary: &Summary<'_>) -> Markup {
    let label = |name: u16, lasted: u64| {
        let known = summary.names.iter().find(|known| known.number == name);
        format!("{} {}", known.map_or("", |known| &known.site.name), duration(lasted))
    };
    let cells = |row: &Row| {
        let cell = |&(name, lasted): &(u16, u64)| (colour(name), label(name, lasted));
        row.0.iter().map(|of| of.as_ref().map(cell)).collect::<Vec<_>>()
    };
    let used = |rows: &[Row]| {
        let is_used = |row: &Row| row.0.iter().any(Option::is_some);
        rows.iter().rposition(is_used).map_or(0, |last| last + 1)
    };
    html! {
        @for thread in &summary.threads {
            @let rows: Vec<_> = thread.spans[..used(&thread.spans)].iter().map(cells).collect();
            @if !rows.is_empty() {
                (strip(summary, &format!("{} {}", thread.name, thread.id), &rows))
            }
        }
        @let tasks: Vec<_> = summary.tasks[..used(&summary.tasks)].iter().map(cells).collect();
        @if !tasks.is_empty() { (strip(summary, "tasks", &tasks)) }
        (ends(summary.last - summary.first))
        @if summary.more_threads > 0 { p.muted { (summary.more_threads) " further threads are not shown." } }
    }
}

/// Returns a row of the timeline: a label, and rows of cells with colours and texts. Neighbours that are the same are
/// one rectangle.
fn strip(summary: &Summary<'_>, label: &str, rows: &[Vec<Option<(usize, String)>>]) -> Markup {
    let height = 14 * rows.len();
    html! {
        div.strip {
            span.label { (label) }
            svg viewBox={ "0 0 " (COLUMNS) " " (height) } height=(height) preserveAspectRatio="none" role="img" aria-label=(label) {
                @for (first, len) in unknown(summary) {
                    rect.unknown x=(first) y="0" width=(len) height=(height) { title { "events are missing here" } }
                }
                @for (nth, row) in rows.iter().enumerate() {
                    @for (first, len, (colour, text)) in runs(row) {
                        rect x=(first) y=(14 * nth + 1) width=(len) height="12" class={ "c" (colour) } { title { (text) } }
                    }
                }
            }
        }
    }
}

/// Returns where events are missing: first columns and numbers of columns.
fn unknown(summary: &Summary<'_>) -> Vec<(usize, usize)> {
    let parts = summary.unknown.chunk_by(|a, b| a == b).scan(0, |at, part| {
        let first = *at;
        *at += part.len();
        Some((first, part))
    });
    parts.filter(|(_, part)| part[0]).map(|(first, part)| (first, part.len())).collect()
}

fn runs(row: &[Option<(usize, String)>]) -> Vec<(usize, usize, (usize, &str))> {
    let mut runs: Vec<(usize, usize, (usize, &str))> = Vec::new();
    for (at, cell) in row.iter().enumerate() {
        let Some((colour, text)) = cell else { continue };
        match runs.last_mut() {
            Some((first, len, of)) if *first + *len == at && *of == (*colour, text.as_str()) => {
                *len += 1
            }
            _ => runs.push((at, 1, (*colour, text))),
        }
    }
    runs
}

fn ends(lasted: u64) -> Markup {
    html! { div.ends { span { "0" } span { (duration(lasted / 2)) } span { (duration(lasted)) } } }
}

fn legend(summary: &Summary<'_>) -> Markup {
    let spans = summary.names.iter().filter(|name| name.site.kind != Kind::Event).take(MOST_NAMES);
    html! {
        ul.legend {
            @for name in spans { li { span class={ "k c" (colour(name.number)) } {} (name.site.name) } }
        }
    }
}

fn rate(summary: &Summary<'_>) -> Markup {
    let most = summary.rate.iter().copied().max().unwrap_or(0).max(1);
    let seconds = (summary.last - summary.first).max(1) as f64 / 1e9 / BARS as f64;
    let height = |count: u64| 100.0 * count as f64 / most as f64;
    html! {
        div.strip {
            span.label { "at most " (grouped((most as f64 / seconds) as u64)) " a second" }
            svg viewBox={ "0 0 " (BARS) " 100" } height="100" preserveAspectRatio="none" role="img" aria-label="records a second" {
                @for (nth, &count) in summary.rate.iter().enumerate() {
                    @if count > 0 {
                        rect.rate x=(nth) width="1" y=(format!("{:.1}", 100.0 - height(count))) height=(format!("{:.1}", height(count))) {
                            title { (grouped((count as f64 / seconds) as u64)) " a second" }
                        }
                    }
                }
            }
        }
        (ends(summary.last - summary.first))
    }
}

fn durations(summary: &Summary<'_>) -> Markup {
    let spans =
        || summary.names.iter().filter_map(|name| name.durations.as_ref().map(|of| (name, of)));
    if spans().next().is_none() {
        return html! { p { "No span has ended in this recording. " code { "span!" } " records them." } };
    }
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr {
                    th { "span" } th { "shape, by powers of two" }
                    @for name in ["ended", "median", "90 %", "99 %", "longest"] { th.number { (name) } }
                } }
                tbody {
                    @for (name, of) in spans().take(MOST_NAMES) {
                        tr {
                            th { span class={ "k c" (colour(name.number)) } {} (name.site.name) }
                            td data-of="shape" { (shape(name)) }
                            td.number data-of="ended" { (grouped(of.len())) }
                            @for (quantile, of_all) in [(0.5, "median"), (0.9, "90 %"), (0.99, "99 %"), (1.0, "longest")] {
                                td.number data-of=(of_all) { (duration(of.value_at_quantile(quantile))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns how many spans lasted how long: a bar for each power of two.
fn shape(name: &Name<'_>) -> Markup {
    let mut bars = [0_u64; 48];
    let Some(of) = &name.durations else { return html! {} };
    for value in of.iter_recorded() {
        let bar = value.value_iterated_to().max(1).ilog2() as usize;
        bars[bar.min(bars.len() - 1)] += value.count_at_value();
    }
    let first = bars.iter().position(|bar| *bar > 0).unwrap_or(0);
    let last = bars.iter().rposition(|bar| *bar > 0).unwrap_or(0);
    let most = bars.iter().copied().max().unwrap_or(1).max(1) as f64;
    let label = format!("from {} to {}", duration(1 << first), duration(2 << last));
    html! {
        svg.shape viewBox={ "0 0 " (4 * (last - first + 1).max(8)) " 20" } preserveAspectRatio="none" role="img" aria-label=(label) {
            title { (label) }
            @for (nth, &bar) in bars[first..=last].iter().enumerate() {
                @let height = 20.0 * bar as f64 / most;
                @if bar > 0 {
                    rect.rate x=(4 * nth) width="3.4" y=(format!("{:.2}", 20.0 - height.max(0.5))) height=(format!("{:.2}", height.max(0.5))) {}
                }
            }
        }
    }
}

fn frequent(summary: &Summary<'_>) -> Markup {
    let seconds = (summary.last - summary.first).max(1) as f64 / 1e9;
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { th { "name" } th { "kind" } th.number { "number" } th.number { "a second" } } }
                tbody {
                    @for name in summary.names.iter().take(MOST_NAMES) {
                        tr {
                            th { (name.site.name) }
                            td data-of="kind" { (kind(name.site.kind)) }
                            td.number data-of="number" { (grouped(name.count)) }
                            td.number data-of="a second" { (grouped((name.count as f64 / seconds).round() as u64)) }
                        }
                    }
                }
            }
        }
        @if summary.names.len() > MOST_NAMES { p.muted { (summary.names.len() - MOST_NAMES) " further names are not shown." } }
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Event => "event",
        Kind::Span => "span",
        Kind::TaskSpan => "span of a task",
    }
}

fn losses(recording: &Recording) -> Markup {
    let mut sites: Vec<_> = recording.sites().filter(|site| site.lost > 0).collect();
    sites.sort_by(|a, b| b.lost.cmp(&a.lost).then(a.name.cmp(&b.name)));
    html! {
        @if sites.is_empty() {
            p { (no_losses(recording)) }
        } @else {
            div.scroll tabindex="0" {
                table {
                    thead { tr { th { "name" } th.number { "lost: all buffers were in use" } } }
                    tbody {
                        @for site in sites.iter().take(MOST_NAMES) {
                            tr { th { (site.name) } td.number data-of="lost" { (grouped(site.lost)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns what is said where no site has lost an event.
fn no_losses(recording: &Recording) -> &'static str {
    match () {
        () if recording.lost() > 0 => "The events that were lost are not known by their sites.",
        () if recording.overwritten().is_some() => {
            "Older events were overwritten, and what they were is not known. Later ones are all here."
        }
        () if recording.is_open_ended() => {
            "No event was lost while the file was written. The last ones may be missing."
        }
        () => "No event was lost.",
    }
}

/// Writes it with a capital letter and a full stop.
fn sentence(line: &str) -> String {
    let (first, rest) = line.split_at(line.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest}.", first.to_uppercase())
}

/// Returns a number with thin spaces between its thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth) % 3 == 0 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}
