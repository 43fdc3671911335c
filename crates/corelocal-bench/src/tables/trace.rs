//! What it costs to record an event: with our tracer, LTTng-UST, fastrace, the crate `tracing`, and by hand.
//!
//! Invariants:
//! - This process records from the first run of the table on, as a flight recorder does: the oldest events are
//!   overwritten.
//! - The rivals keep the last events in memory (LTTng), or write to a sink: no figure has a file in it.

pub mod coarse;
mod lttng;

use std::io::{self, Write as _};
use std::sync::Mutex;

use anyhow::Context as _;
use corelocal::trace::{self, Options, StartError};
use corelocal::{event, span};
use corelocal_support::measure::loops::{Loop, loop_of, repeating};
use corelocal_support::schema::{self, Row};
use corelocal_tracing::TraceLayer;
use tracing_subscriber::layer::SubscriberExt as _;

use self::lttng::Lttng;
use super::object;
use crate::contest::threads::{Crew, Job, crew};
use crate::contest::{Contest, Context, Table};

/// The table of one thread.
pub struct Trace;

/// The table over the number of threads.
pub struct TraceThreads;

const BASELINE: &str = "log";

impl Table for Trace {
    fn id(&self) -> &'static str {
        "trace"
    }

    fn title(&self) -> &'static str {
        "Recording an event"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let is_on = start();
        let lttng = Lttng::start();
        let contest = Contest::new(
            self,
            "One event with a number of 32 bits, and its time, on one thread. Ours are kept in memory; the rivals format \
             a line, for a sink. Reading the counter is the larger part of our event.",
        )
        .source(
            "Mathieu Desnoyers, rseq: Introduce restartable sequences system call, 2018",
            "https://git.kernel.org/torvalds/c/d7822b1e24f2df5df98c76f0e94a5416349ff759",
            "LTTng-UST on an Intel Xeon E5-2630 v3, one thread",
        )
        .baseline(BASELINE)
        .tile("Recording an event", "event", &["lttng", BASELINE])
        .row(Row::new("counter", "the counter, unordered"), loop_of(corelocal::clock::Ticks::now));
        let rows = [
            ("event", "corelocal event, 4 bytes", numbers as fn() -> Loop<'static>),
            ("no-field", "corelocal event, no field", || loop_of(|| event!(bench::none))),
            ("blob", "corelocal event, 64 bytes", blob),
            ("off", "corelocal event, switched off", off),
            ("span", "corelocal span, begin and end", || loop_of(|| drop(span!(bench::span)))),
            ("layer", "tracing event, corelocal's layer", layer),
        ];
        let contest = rows.into_iter().fold(contest, |contest, (id, label, body)| {
            let row = Row::ours(id, label);
            let row =
                if id == "event" { row.published(98.0, "ns", "LTTng-UST with rseq") } else { row };
            match &is_on {
                Ok(()) => contest.row(row, body()),
                Err(why) => contest.unavailable(row, why.to_string()),
            }
        });
        let log = Row::new(BASELINE, "tracing event, fmt to a sink").published(
            117.4,
            "ns",
            "LTTng-UST with atomics",
        );
        let contest = contest.row(log, tracing_to_a_sink());
        let row = Row::new("lttng", "LTTng-UST event, snapshot mode");
        let contest = match &lttng {
            Ok(Lttng { events, .. }) => contest.row(row, repeating(|times| events(times))),
            Err(why) => contest.unavailable(row, format!("{why:#}")),
        };
        let row = Row::new("fastrace", "fastrace local span, no reporter");
        let contest = match fastrace() {
            Ok(spans) => contest.row(row, repeating(move |times| spans(times))),
            Err(why) => contest.unavailable(row, format!("{why:#}")),
        };
        Ok(contest.row(Row::new("line", "a line to a sink, under a Mutex"), line()).measure(cx))
    }
}

impl Table for TraceThreads {
    fn id(&self) -> &'static str {
        "trace_threads"
    }

    fn title(&self) -> &'static str {
        "Recording events on several threads"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let is_on = start();
        let lttng = Lttng::start();
        let contest: Contest<Crew<'_>> =
            Contest::new(self, "Cpu time for one event with a number of 32 bits, and its time.")
                .baseline(BASELINE)
                .over("threads", cx.plan.threads);
        let row = Row::ours("event", "corelocal event, 4 bytes");
        let contest = match is_on {
            Ok(()) => contest.row(row, on_threads(|times| numbers_from(times, 0))),
            Err(why) => contest.unavailable(row, why.to_string()),
        };
        let row = Row::new("lttng", "LTTng-UST event, snapshot mode");
        let contest = match &lttng {
            Ok(lttng) => {
                let events = lttng.events;
                contest.row(row, on_threads(move |times| events(times)))
            }
            Err(why) => contest.unavailable(row, format!("{why:#}")),
        };
        let subscriber = tracing_subscriber::fmt().with_writer(io::sink).finish();
        let dispatch = tracing::Dispatch::new(subscriber);
        let log = on_threads(move |times| {
            tracing::dispatcher::with_default(&dispatch, || {
                (0..times as u32).for_each(|number| tracing::info!(number));
            });
        });
        let sink = Mutex::new(io::sink());
        let line =
            on_threads(move |times| (0..times as u32).for_each(|number| one_line(&sink, number)));
        Ok(contest
            .row(Row::new(BASELINE, "tracing event, fmt to a sink"), log)
            .row(Row::new("line", "a line to a sink, under a Mutex"), line)
            .measure(cx))
    }
}

/// Starts a recording, unless there is one.
fn start() -> Result<(), StartError> {
    match trace::start(Options::flight_recorder()) {
        Ok(()) | Err(StartError::AlreadyStarted) => Ok(()),
        Err(why) => Err(why),
    }
}

fn on_threads<'a>(run: impl Fn(u64) + Send + Sync + 'static) -> Crew<'a> {
    let job: Job = std::sync::Arc::new(move |_, times| run(times));
    crew(move |_| std::sync::Arc::clone(&job))
}

#[inline(always)]
fn numbers_from(times: u64, first: u32) {
    for number in first..first.wrapping_add(times as u32) {
        event!(bench_threads::number, number = number);
    }
}

/// Returns the spans of fastrace, so many.
fn fastrace() -> anyhow::Result<extern "C" fn(u64)> {
    let spans = object::rivals()?.symbol("corelocal_fastrace_spans").context("an old build")?;
    // SAFETY: `corelocal-rivals` gives it this type.
    Ok(unsafe { std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn(u64)>(spans) })
}

/// Returns an event of the crate `tracing`, through our layer.
fn layer() -> Loop<'static> {
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(TraceLayer::new()));
    through(dispatch)
}

fn numbers() -> Loop<'static> {
    let mut number = 0_u32;
    loop_of(move || {
        number = number.wrapping_add(1);
        event!(bench::number, number = number);
    })
}

fn blob() -> Loop<'static> {
    let blob = [7_u8; 64];
    loop_of(move || event!(bench::blob, blob = &blob[..]))
}

/// The site is off from its second event on.
fn off() -> Loop<'static> {
    // Else it is called, as there are two callers.
    #[inline(always)]
    fn record() {
        event!(bench_off::number, number = 7_u32);
    }
    record();
    let _ = trace::switch("bench_off::*", false);
    loop_of(record)
}

fn tracing_to_a_sink() -> Loop<'static> {
    through(tracing::Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish()))
}

fn through(dispatch: tracing::Dispatch) -> Loop<'static> {
    let mut number = 0_u32;
    repeating(move |times| {
        tracing::dispatcher::with_default(&dispatch, || {
            for _ in 0..times {
                number = number.wrapping_add(1);
                tracing::info!(number);
            }
        });
    })
}

fn line() -> Loop<'static> {
    let sink = Mutex::new(io::sink());
    let mut number = 0_u32;
    loop_of(move || {
        number = number.wrapping_add(1);
        one_line(&sink, number);
    })
}

fn one_line(sink: &Mutex<io::Sink>, number: u32) {
    let now = corelocal::clock::realtime();
    let mut sink = sink.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // A sink does not fail.
    let _ = writeln!(sink, "{now} bench::number number={number}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

    #[test]
    fn every_row_is_measured() {
        let machine = Machine::default();
        let plan = Plan { round: Duration::from_micros(50), rounds: 5, ..Plan::QUICK };
        let table = Trace.run(&mut Context::new(plan, &machine)).unwrap();
        assert_eq!(table.rows.len(), 11);
        // LTTng is not everywhere, and the rivals' object is beside the command.
        let is_installed = |row: &schema::Row| !matches!(&*row.id, "lttng" | "fastrace");
        assert!(
            table.rows.iter().filter(|row| is_installed(row)).all(|row| !row.points.is_empty())
        );
    }
}
