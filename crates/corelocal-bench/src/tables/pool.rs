//! The pool of objects that all threads take from and give back to: what one turn costs.
//!
//! Invariants:
//! - Every contestant starts empty and makes an object when it has none to give; a thread holds one
//!   object at a time.
//! - After each round every object made must be found again, once: see `turns.rs`.

mod librseq;
mod ours;
mod rivals;
mod turns;

use corelocal_support::schema::{self, Row};

use self::turns::allocation;
use super::checked::{Checked, checked};
use crate::contest::threads::Crew;
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct Pool;

const BASELINE: &str = "parking-lot";

impl Table for Pool {
    fn id(&self) -> &'static str {
        "pool"
    }

    fn title(&self) -> &'static str {
        "Object pool"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        Ok(self.on(cx.plan.threads).measure(cx))
    }
}

impl Pool {
    fn on(&self, threads: &[usize]) -> Contest<Checked<Crew<'static>>> {
        let about = "Cpu time for taking one object out of a pool that all threads share and putting it back. \
             It is checked that no object is lost or given to two threads. The thread-local row is not a pool: \
             its objects end with their thread, and other threads cannot take them. Below it is the allocator, \
             which a pool of small objects has to beat.";
        Contest::new(self, about)
            .baseline(BASELINE)
            .over("threads", threads)
            .tile("An object from a pool, and back", "pool", &["array-queue"])
            .row(Row::new(BASELINE, "parking_lot Mutex<Vec>"), checked(rivals::in_mutex))
            .row(Row::new("object-pool", "object-pool Pool"), checked(rivals::in_object_pool))
            .row(Row::new("array-queue", "crossbeam ArrayQueue"), checked(rivals::in_array_queue))
            .row(Row::new("seg-queue", "crossbeam SegQueue"), checked(rivals::in_seg_queue))
            .row(
                Row::new("thread-local", "thread-local Vec (not shareable)"),
                checked(rivals::in_thread),
            )
            .row(Row::new("allocator", "Box::new and drop"), checked(allocation))
            .row(Row::new("librseq", "librseq per-cpu list, in C"), checked(librseq::in_list))
            .row(Row::ours("pool", "corelocal Pool"), checked(ours::in_pool))
            .row(Row::ours("stack", "corelocal Stack"), checked(ours::in_stack))
    }
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
        let table = Pool.on(&[1, 5]).measure(&Context::new(plan, &Machine::default()));
        for row in &table.rows {
            match &row.unavailable {
                Some(why) if row.id == "librseq" => eprintln!("skipped: row librseq: {why}"),
                why => assert_eq!(row.points.len(), 2, "{}: {why:?}", row.id),
            }
        }
    }
}
