//! What it costs to record an event: with our tracer, with the crate `tracing`, and by hand.
//!
//! Invariants:
//! - This process records from the first run of the table on, as a flight recorder does: the oldest events are
//!   overwritten.
//! - The rivals write to a sink, so no figure has a file in it.

use std::io::{self, Write as _};
use std::sync::Mutex;

use corelocal::event;
use corelocal::trace::{self, Options, StartError};

use crate::bench::loops::{Loop, loop_of};
use crate::bench::{Contest, Context, Table};
use crate::report::schema::{self, Row};

/// The table.
pub struct Trace;

const BASELINE: &str = "log";

impl Table for Trace {
    fn id(&self) -> &'static str {
        "trace"
    }

    fn title(&self) -> &'static str {
        "Recording an event"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let is_on = match trace::start(Options::flight_recorder()) {
            Ok(()) | Err(StartError::AlreadyStarted) => Ok(()),
            Err(why) => Err(why),
        };
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
        .headline("event")
        .row(Row::new("counter", "the counter, unordered"), loop_of(corelocal::clock::Ticks::now));
        let rows = [
            ("event", "corelocal event, 4 bytes", numbers as fn() -> Loop<'static>),
            ("no-field", "corelocal event, no field", || loop_of(|| event!(bench::none))),
            ("blob", "corelocal event, 64 bytes", blob),
            ("off", "corelocal event, switched off", off),
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
        Ok(contest
            .row(log, tracing_to_a_sink())
            .row(Row::new("line", "a line to a sink, under a Mutex"), line())
            .measure(cx))
    }
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
    let subscriber = tracing_subscriber::fmt().with_writer(io::sink).finish();
    let dispatch = tracing::Dispatch::new(subscriber);
    let mut number = 0_u32;
    crate::bench::loops::repeating(move |times| {
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
        let now = corelocal::clock::realtime();
        let mut sink = sink.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // A sink does not fail.
        let _ = writeln!(sink, "{now} bench::number number={number}");
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::engine::Plan;
    use crate::report::schema::Machine;

    #[test]
    fn every_row_is_measured() {
        let machine = Machine::default();
        let plan = Plan { round: Duration::from_micros(50), rounds: 5, ..Plan::QUICK };
        let table = Trace.run(&mut Context::new(plan, &machine)).unwrap();
        assert_eq!(table.rows.len(), 7);
        assert!(table.rows.iter().all(|row| !row.points.is_empty()));
    }
}
