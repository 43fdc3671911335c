//! The queue with many producers and one consumer: what one push costs.
//!
//! Invariants:
//! - Every contestant is unbounded, so a push never waits; the producers see to it that not too much
//!   is under way.
//! - After each round everything pushed must have come out: see `relay.rs`.

mod relay;
mod rivals;

use corelocal_support::schema::{self, Row};

use self::relay::{Relay, relay};
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct Queue;

const BASELINE: &str = "crossbeam-channel";

/// A number of producers that every plan measures.
const ALWAYS: usize = 16;

impl Table for Queue {
    fn id(&self) -> &'static str {
        "queue"
    }

    fn title(&self) -> &'static str {
        "Queue with many producers"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let mut producers = cx.plan.threads.to_vec();
        if let Err(place) = producers.binary_search(&ALWAYS) {
            producers.insert(place, ALWAYS);
        }
        Ok(self.among(&producers).measure(cx))
    }
}

impl Queue {
    fn among(&self, producers: &[usize]) -> Contest<Relay> {
        let about = format!(
            "Cpu time for one push of a word into an unbounded queue, while one consumer empties it. Producers \
             wait, unmeasured, when {} items are queued, since a consumer rarely keeps up. Both ends: the cpu \
             time of pushing and taking out one item. It is checked that every item arrives.",
            relay::MOST_WAITING
        );
        Contest::new(self, about)
            .baseline(BASELINE)
            .over("producers", producers)
            .tile("Sending through a queue", "ours", &["seg-queue"])
            .row(Row::new(BASELINE, "crossbeam-channel"), relay(rivals::crossbeam_channel))
            .row(Row::new("flume", "flume"), relay(rivals::flume))
            .row(Row::new("mpsc", "std mpsc"), relay(rivals::std_mpsc))
            .row(Row::new("seg-queue", "crossbeam SegQueue"), relay(rivals::seg_queue))
            .row(Row::ours("ours", "corelocal Queue"), relay(rivals::ours))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

    #[test]
    fn every_row_with_several_producers() {
        let plan = Plan { slice: Duration::from_millis(1), ..Plan::QUICK };
        let table = Queue.among(&[1, 5]).measure(&Context::new(plan, &Machine::default()));
        for row in &table.rows {
            assert_eq!(row.points.len(), 2, "{}: {:?}", row.id, row.unavailable);
        }
    }
}
