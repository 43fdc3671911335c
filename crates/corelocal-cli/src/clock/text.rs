//! What was observed, as a table, as JSON and as CSV.
//!
//! Invariant: a back-end that does not serve says why.

use std::fmt::Write as _;

use anstyle::Style;
use comfy_table::{Attribute, Cell, CellAlignment, Color};
use corelocal::clock::Backend;
use corelocal_support::clock::{counter, labels};
use corelocal_support::console;
use corelocal_support::figures::wrap;
use corelocal_support::units::signed_time;
use serde::Serialize;

use super::observer::Agreement;
use super::watch::{Observed, Series};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// The output of `--json`.
#[derive(Serialize)]
pub struct Answer {
    version: &'static str,
    clock_source: String,
    /// The time of the watch, in seconds.
    pub watched_s: f64,
    /// The cost of a reading by `clock_gettime`, in nanoseconds.
    vdso_ns: f64,
    /// The back-ends, best first.
    pub backends: Vec<Row>,
    /// The drift of other libraries' clocks.
    others: Vec<Drift>,
}

/// A back-end.
#[derive(Serialize)]
pub struct Row {
    /// The back-end's name.
    pub backend: &'static str,
    /// The back-end's state: `serves`, `possible` or `absent`.
    pub state: &'static str,
    /// The source that it reads, or the reason why it cannot.
    pub what: String,
    /// The cost of an ordered reading, in nanoseconds; `None` where the back-end cannot serve.
    pub ordered_ns: Option<f64>,
    /// The cost of an unordered reading, in nanoseconds.
    pub unordered_ns: Option<f64>,
    /// The comparisons with the vDSO.
    pub agreement: Option<Agreement>,
    /// The greatest and the last distance from `CLOCK_MONOTONIC`.
    pub drift: Option<Drift>,
}

/// A clock's distance from `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Serialize)]
pub struct Drift {
    /// The clock's name.
    clock: String,
    /// The last distance.
    last_ns: f64,
    /// The greatest distance.
    farthest_ns: f64,
    /// The back-end that took over meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    fallen_to: Option<String>,
}

impl Drift {
    fn of(series: &Series) -> Option<Drift> {
        Some(Drift {
            clock: series.clock.clone(),
            last_ns: series.last()?,
            farthest_ns: series.farthest()?,
            fallen_to: series.fallen_to.clone(),
        })
    }
}

impl Answer {
    /// Returns all of it.
    pub fn new(
        clock_source: String,
        observed: &[Observed],
        series: &[Series],
        watched_s: f64,
    ) -> Answer {
        let sights = || observed.iter().filter_map(|o| o.sight.as_ref().ok());
        let mut serves = true;
        let mut row = |of: &Observed| {
            let row = Row::of(of, series, serves);
            serves &= row.state == "absent";
            row
        };
        Answer {
            version: env!("CARGO_PKG_VERSION"),
            clock_source,
            watched_s,
            vdso_ns: sights().map(|sight| sight.vdso_ns).find(|ns| *ns > 0.0).unwrap_or(0.0),
            backends: observed.iter().map(&mut row).collect(),
            others: series.iter().filter(|series| !series.ours).filter_map(Drift::of).collect(),
        }
    }
}

impl Row {
    /// `best`: no better one is there.
    fn of(observed: &Observed, series: &[Series], best: bool) -> Row {
        let backend = observed.backend;
        let absent = |what: String| Row {
            backend,
            state: "absent",
            what,
            ordered_ns: None,
            unordered_ns: None,
            agreement: None,
            drift: None,
        };
        let sight = match &observed.sight {
            Err(error) => return absent(format!("{error:#}")),
            Ok(sight) if sight.backend != backend => {
                return absent(if sight.doubts.is_empty() {
                    absence(backend).to_owned()
                } else {
                    sight.doubts.clone()
                });
            }
            Ok(sight) => sight,
        };
        let series = series.iter().find(|series| series.clock == backend);
        let meanwhile = series.map_or(Agreement::default(), |series| series.agreement);
        Row {
            backend,
            state: if best { "serves" } else { "possible" },
            what: sight.serving.clone(),
            ordered_ns: Some(sight.ordered_ns),
            unordered_ns: Some(sight.unordered_ns),
            agreement: Some(sight.agreement.and(meanwhile)),
            drift: series.and_then(Drift::of),
        }
    }
}

/// Returns why a back-end is not available, if it was not found inconsistent.
fn absence(backend: &str) -> &'static str {
    match backend {
        "paravirtual" => {
            "no page of KVM is mapped here: only a KVM guest has one, and only if its kernel has \
             used kvm-clock since it booted"
        }
        "anchor" => {
            "the kernel does not use the cpu's counter as its clock source, so its accuracy is unknown"
        }
        _ if counter::IS_READ => "not available here",
        _ => "for x86-64 and aarch64 only",
    }
}

/// Returns the table on the terminal.
pub fn table(answer: &Answer, width: usize) -> String {
    let mut out = String::new();
    let source = match answer.clock_source.as_str() {
        "" => "unknown",
        source => source,
    };
    let _ = writeln!(
        out,
        "{BOLD}The clock's back-ends{BOLD:#}, best first. Clock source {source}; clock_gettime \
         takes {:.1} ns.",
        answer.vdso_ns
    );
    let about = "Each reading is compared with one of the vDSO before it and one after it.";
    let _ = writeln!(out, "{DIM}{}{DIM:#}\n", wrap(about, width, 0));
    let mut grid = console::grid(width);
    let over = format!("drift in {:.0} s", answer.watched_s);
    let right = |text: &str| console::heading(text).set_alignment(CellAlignment::Right);
    let mut header = vec![console::heading(""), console::heading("")];
    header.extend(["ordered ns", "unordered ns", "not between", over.as_str()].map(right));
    grid.set_header(header);
    for row in &answer.backends {
        let figure = |ns: Option<f64>| ns.map_or("–".to_owned(), |ns| format!("{ns:.1}"));
        let agreement = row.agreement.map_or("–".to_owned(), agreement);
        let drift = row.drift.as_ref().map_or("–".to_owned(), drift);
        let mut cells = vec![Cell::new(row.backend), Cell::new(row.state)];
        let figures = [figure(row.ordered_ns), figure(row.unordered_ns), agreement, drift];
        cells.extend(figures.map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
        if row.state == "serves" {
            let bold = |c: Cell| c.add_attribute(Attribute::Bold).fg(Color::Green);
            cells = cells.into_iter().map(bold).collect();
        }
        grid.add_row(cells);
    }
    for other in &answer.others {
        let mut cells = vec![Cell::new(&other.clock), Cell::new("another")];
        let figures = ["–".to_owned(), "–".to_owned(), "–".to_owned(), drift(other)];
        cells.extend(figures.map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
        let dim = |c: Cell| c.add_attribute(Attribute::Dim);
        grid.add_row(cells.into_iter().map(dim).collect::<Vec<_>>());
    }
    console::keep_whole(&mut grid, |index| index > 0);
    out.push_str(&console::lines(&grid));
    out.push('\n');
    for row in &answer.backends {
        let text = wrap(&format!("{}: {}", row.backend, row.what), width.max(40), 2);
        let _ = writeln!(out, "{DIM}{text}{DIM:#}");
    }
    out
}

/// Returns how many of how many, and how far.
pub fn agreement(seen: Agreement) -> String {
    let far = match seen.farthest_ns {
        0 => String::new(),
        ns => format!(", by {}", signed_time(ns as f64).trim_start_matches('+')),
    };
    format!("{} of {}{far}", seen.outside, seen.samples)
}

/// Says how far it was in the end; at most, where that is more; and what took over.
pub fn drift(drift: &Drift) -> String {
    let at_most = if drift.farthest_ns > drift.last_ns.abs() * 1.5 + 1.0 {
        format!(" (at most {})", signed_time(drift.farthest_ns).trim_start_matches('+'))
    } else {
        String::new()
    };
    let fallen = drift.fallen_to.as_ref().map(|to| format!(", then {to}")).unwrap_or_default();
    format!("{}{at_most}{fallen}", signed_time(drift.last_ns))
}

/// Returns one line for each sample.
pub fn csv(all: &[Series]) -> String {
    let mut out = "seconds,clock,ahead_at_least_ns,ahead_at_most_ns\n".to_owned();
    for series in all {
        for (at, offset) in &series.points {
            let _ = writeln!(out, "{at:.3},{},{},{}", series.clock, offset.low, offset.high);
        }
    }
    out
}

/// Returns a back-end's words.
pub fn title(backend: &str) -> &'static str {
    let all = [Backend::KernelPage, Backend::Paravirtual, Backend::Anchor, Backend::Vdso];
    all.into_iter().find(|known| labels::name(*known) == backend).map_or("another", labels::reads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::observer::{Sample, Sight};
    use corelocal_support::clock::offset::Offset;

    fn sight(backend: &str, doubts: &str) -> Sight {
        Sight {
            backend: backend.to_owned(),
            serving: format!("what {backend} reads"),
            doubts: doubts.to_owned(),
            vdso_ns: 21.2,
            ordered_ns: 15.4,
            unordered_ns: 9.3,
            agreement: Agreement { samples: 400_000, outside: 3, farthest_ns: 12 },
        }
    }

    fn answer() -> (Answer, Vec<Series>) {
        let observed = [
            Observed { backend: "kernel-page", sight: Ok(sight("kernel-page", "")) },
            Observed { backend: "paravirtual", sight: Ok(sight("anchor", "")) },
            Observed { backend: "anchor", sight: Ok(sight("anchor", "")) },
            Observed { backend: "vdso", sight: Err(anyhow::anyhow!("its observer is gone")) },
        ];
        let mut series: Vec<Series> = ["kernel-page", "anchor", "quanta"].map(Series::new).into();
        for (nth, series) in series.iter_mut().enumerate() {
            for at in 0..2 {
                let low = 1000 * (nth as i64) * at - 5;
                let sample = Sample {
                    clock: series.clock.clone(),
                    at: 0,
                    offset: Offset { low, high: low + 10 },
                    agreement: Agreement { samples: 1000, outside: 0, farthest_ns: 0 },
                    backend: Some(series.clock.clone()),
                };
                series.add(at as f64, &sample);
            }
        }
        (Answer::new("tsc".to_owned(), &observed, &series, 5.0), series)
    }

    #[test]
    fn a_table() {
        let text = table(&answer().0, 100);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text).to_string());
    }

    #[test]
    fn states() {
        let (answer, _) = answer();
        let states: Vec<&str> = answer.backends.iter().map(|row| row.state).collect();
        assert_eq!(states, ["serves", "absent", "possible", "absent"]);
        assert!(answer.backends[1].what.contains("KVM"));
        assert_eq!(answer.backends[0].agreement.unwrap().samples, 402_000);
        let json = serde_json::to_value(&answer).unwrap();
        assert_eq!(json["others"][0]["clock"], "quanta");
        assert_eq!(json["backends"][0]["drift"]["last_ns"], 0.0);
    }

    #[test]
    fn lines_of_csv() {
        let csv = csv(&answer().1);
        assert_eq!(csv.lines().count(), 1 + 6);
        assert_eq!(csv.lines().nth(4), Some("1.000,anchor,995,1005"));
    }
}
