//! What it costs to reach into the slot of another core: to freeze it, to take out what is in it, to
//! give it back. And what the whole-process operations cost that rest on it.
//!
//! Invariants:
//! - Each operation is timed on its own, and a round gives their median: with more threads than cpus
//!   the scheduler takes the cpu away from some, which is no cost of theirs.
//! - After each round what the threads put in must be what was taken out and what is left.

mod contestant;
mod operations;

use corelocal_support::schema::{self, Row};

use self::contestant::{Afar, afar};
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct Remote;

impl Table for Remote {
    fn id(&self) -> &'static str {
        "remote"
    }

    fn title(&self) -> &'static str {
        "Access to another core's slot"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        // With a lock whose holders are preempted, rounds take long.
        cx.plan.table /= 3;
        Ok(self.among(cx.plan.busy).measure(cx))
    }
}

impl Remote {
    fn among(&self, busy: &[usize]) -> Contest<Afar> {
        let about = "Time of one operation on another core's slot, while other threads use the same container, \
             each on its core, without pause. Alone, a thread drains its own slot. The barrier is the minimum \
             for all operations that freeze: it interrupts every cpu that runs this process. Taking a counter's \
             value and emptying a queue need none. An operation on a lock waits for its holder; if that was \
             preempted, until it runs again. The lock's users pause for half a microsecond in between. The \
             results are checked. A drain should stay under 20 us.";
        Contest::new(self, about)
            .unit("us", schema::Better::Lower)
            .over("busy threads", busy)
            .row(Row::new("membarrier", "membarrier(2), rseq"), afar(operations::barrier))
            .row(Row::ours("freeze", "cid::freeze and thaw"), afar(operations::freeze))
            .row(Row::ours("word", "Word::with_frozen"), afar(operations::word))
            .row(Row::ours("stack", "Stack::drain of a slot"), afar(operations::stack))
            .row(Row::ours("counter", "Counter::take"), afar(operations::counter))
            .row(Row::ours("queue", "Queue::drain, all slots"), afar(operations::queue))
            .row(Row::ours("lock", "Lock::for_each_locked"), afar(operations::lock))
            .row(Row::ours("compact", "cid::compact"), afar(operations::compact))
            .row(Row::ours("trim", "percpu::trim"), afar(operations::trim))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

    #[test]
    fn every_row_with_several_threads() {
        let plan = Plan { slice: Duration::from_millis(1), ..Plan::QUICK };
        let table = Remote.among(&[0, 3]).measure(&Context::new(plan, &Machine::default()));
        for row in &table.rows {
            match &row.unavailable {
                // Seccomp may refuse the barrier; what a container lost is never excused.
                Some(why) if !why.contains("put in") => eprintln!("skipped: row {}: {why}", row.id),
                // On a busy machine the other threads may not run for as long as is looked.
                None if table.notes.iter().any(|note| {
                    note.starts_with(&row.label) && note.contains("nothing to take out")
                }) =>
                {
                    eprintln!(
                        "skipped: row {}: the threads that put something in did not run",
                        row.id
                    );
                }
                why => assert_eq!(row.points.len(), 2, "{}: {why:?} {:?}", row.id, table.notes),
            }
        }
    }
}
