//! What it costs to record an event with a coarse time, beside one with the counter's.
//!
//! Invariant:
//! - A process has one recording, so each figure is from a process of its own, which measures one round.

use std::time::Duration;

use anyhow::{Context as _, bail};
use corelocal::clock;
use corelocal::trace::{self, Options};
use corelocal::{event, span};
use corelocal_support::measure::engine::{Body as _, Plan};
use corelocal_support::measure::loops::loop_of;
use corelocal_support::process::child;
use corelocal_support::schema::{self, Row};
use serde_json::Value;

use crate::contest::probe::{Probe, probe};
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct TraceCoarse;

const CHILD: &str = "trace-coarse";

/// Far more than a round takes.
const LIMIT: Duration = Duration::from_secs(30);

impl Table for TraceCoarse {
    fn id(&self) -> &'static str {
        "trace_coarse"
    }

    fn title(&self) -> &'static str {
        "Recording events with coarse times"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let about = "One event and its time, on one thread: by the time stamp counter, and by the clock of the last timer \
             tick (Options::coarse_times).";
        let slice = cx.plan.slice;
        let of = |kind: &'static str| -> Probe<'static> {
            probe(move |_| {
                let args = [kind.to_owned(), slice.as_nanos().to_string()];
                child::run(CHILD, &args, &[], LIMIT)?.as_f64().context("no figure")
            })
        };
        let contest = Contest::new(self, about)
            .baseline("event")
            .row(Row::new("clock", "the coarse clock"), of("clock"))
            .row(Row::ours("coarse", "corelocal event, 4 bytes, coarse"), of("coarse"))
            .row(Row::ours("event", "corelocal event, 4 bytes"), of("event"))
            .row(Row::ours("coarse-blob", "corelocal event, 64 bytes, coarse"), of("coarse-blob"))
            .row(Row::ours("blob", "corelocal event, 64 bytes"), of("blob"))
            .row(Row::ours("coarse-span", "corelocal span, coarse"), of("coarse-span"))
            .row(Row::ours("span", "corelocal span, begin and end"), of("span"));
        Ok(contest.measure(cx))
    }

    fn children(&self) -> &'static [(&'static str, child::Body)] {
        &[(CHILD, measure)]
    }
}

/// Measures in the child: nanoseconds of one operation of this kind, by one round of so many nanoseconds after another.
fn measure(args: &[String]) -> anyhow::Result<Value> {
    let [kind, slice] = args else { bail!("expected a kind and nanoseconds") };
    let options = Options::flight_recorder();
    let (options, of) = match kind.strip_prefix("coarse") {
        Some(of) => (options.coarse_times(), of.trim_start_matches('-')),
        None => (options, &**kind),
    };
    clock::settle();
    trace::start(options)?;
    let (mut number, blob) = (0_u32, [7_u8; 64]);
    let mut body = match of {
        "clock" => loop_of(clock::coarse),
        "" | "event" => loop_of(move || {
            number = number.wrapping_add(1);
            event!(bench_coarse::number, number = number);
        }),
        "blob" => loop_of(move || event!(bench_coarse::blob, blob = &blob[..])),
        "span" => loop_of(|| drop(span!(bench_coarse::span))),
        _ => bail!("no such kind"),
    };
    let plan = Plan { round: Duration::from_nanos(slice.parse()?), ..Plan::QUICK };
    body.prepare(None, &plan)?;
    body.round()?;
    Ok(Value::from(body.round()?.value))
}
