//! The histogram that all threads record latencies into: what one record costs.
//!
//! Invariants:
//! - Every contestant is given the same values, as integers or floats, and must afterwards hold as
//!   many as it was given.
//! - Those that have buckets have them 1 % wide, and what else we offer stands beside it.

mod rivals;

use corelocal::percpu;
use corelocal::percpu::histogram::{Bits, Precision};
use corelocal_support::schema::{self, Row};

use super::checked::{Checked, Made, checked};
use crate::contest::threads::Crew;
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct Histogram;

const BASELINE: &str = "hdr-mutex";

impl Table for Histogram {
    fn id(&self) -> &'static str {
        "histogram"
    }

    fn title(&self) -> &'static str {
        "Recording into a histogram"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        Ok(self.on(cx.plan.threads).measure(cx))
    }
}

impl Histogram {
    fn on(&self, threads: &[usize]) -> Contest<Checked<Crew<'static>>> {
        let about = "Cpu time for one value recorded into one histogram that all threads share, with the \
             computation of the value, which spans seven orders of magnitude like latencies do. Buckets are 1 % \
             wide, corelocal's default ones 3 %. The number of values is checked. metrics-util's AtomicBucket \
             does not sort: it keeps each value until all are taken, here after every round.";
        Contest::new(self, about)
            .baseline(BASELINE)
            .over("threads", threads)
            .tile("Recording a latency", "default", &["hdr-recorders"])
            .row(Row::new(BASELINE, "hdrhistogram in a std Mutex"), checked(rivals::hdr_in_mutex))
            .row(
                Row::new("hdr-recorders", "hdrhistogram, a Recorder per thread"),
                checked(rivals::hdr_recorders),
            )
            .row(
                Row::new("summary-mutex", "metrics-util Summary in a std Mutex"),
                checked(rivals::summary_in_mutex),
            )
            .row(Row::new("bucket", "metrics-util AtomicBucket"), checked(rivals::bucket))
            .row(Row::new("metrics", "metrics::histogram!, each time"), checked(rivals::by_macro))
            .row(Row::ours("fine", "corelocal Histogram<7>"), checked(ours::<7>))
            .row(Row::ours("default", "corelocal Histogram"), checked(ours::<5>))
    }
}

fn ours<const PRECISION: u32>() -> Made
where
    Bits<PRECISION>: Precision,
{
    let histogram: Box<percpu::Histogram<PRECISION>> = Box::default();
    rivals::recording(histogram, |all, value| all.record(value), |all| all.count())
}

/// Returns the value that is recorded `nth`: up to 2^24, each power of two from 2^8 on about as often.
#[inline(always)]
fn value(nth: u64) -> u64 {
    // Multiples of an odd number near 2^64 divided by the golden ratio: the upper bits are spread
    // evenly, the lowest four go through all they can be.
    let mixed = nth.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed >> 40) >> (mixed % 16)) + 1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

    #[test]
    fn every_row_on_several_threads() {
        let plan = Plan { slice: Duration::from_millis(1), ..Plan::QUICK };
        let table = Histogram.on(&[1, 5]).measure(&Context::new(plan, &Machine::default()));
        for row in &table.rows {
            assert_eq!(row.points.len(), 2, "{}: {:?}", row.id, row.unavailable);
        }
    }

    #[test]
    fn values_spread_over_magnitudes() {
        let mut magnitudes = [0; 25];
        for nth in 0..1 << 16 {
            magnitudes[value(nth).ilog2() as usize] += 1;
        }
        assert!(magnitudes[8..24].iter().all(|&n| n > 2000), "{magnitudes:?}");
    }
}
