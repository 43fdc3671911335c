//! Several counters in turn: the work that an increment takes, when none waits for the one before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use corelocal::percpu;
use corelocal_support::measure::loops::Loop;
use corelocal_support::schema::{self, Row};

use super::{GETCPU_ATOMIC, increment, line_per_cpu, sched_getcpu};
use crate::contest::{Contest, Context, Table};
use crate::tables::baseline::{self, Id};
use crate::tables::checked::{Checked, Made, Subject, agree, checked, tally};

/// The table with eight counters, on one thread.
pub struct CounterEight;

impl Table for CounterEight {
    fn id(&self) -> &'static str {
        "counter_8"
    }

    fn title(&self) -> &'static str {
        "Eight counters, one thread"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        let contest: Contest<Checked<Loop<'static>>> = Contest::new(
            self,
            "The cost of one increment when one thread adds to eight counters in turn, as a program that counts \
             several things does. So an increment does not wait for the store of the previous one, and the \
             figure shows the work of an increment.",
        );
        Ok(contest
            .baseline(GETCPU_ATOMIC)
            .cycles()
            .row(
                Row::new(GETCPU_ATOMIC, "sched_getcpu + atomic add"),
                checked(eight_by_sched_getcpu),
            )
            .row(Row::new("shared", "shared atomics"), checked(eight_shared))
            .row(Row::new("c-cid", "C asm goto by mm_cid"), checked(eight_in_c))
            .row(Row::ours("cid", "corelocal Counter"), checked(eight_of_ours))
            .measure(cx))
    }
}

const EIGHT: usize = baseline::IN_TURN;

/// Eight words on the cache line of one cpu.
#[derive(Default)]
#[repr(align(128))]
struct Words([AtomicU64; EIGHT]);

fn sum_words(words: &[AtomicU64]) -> u64 {
    words.iter().map(|word| word.load(Ordering::Relaxed)).sum()
}

fn eight_by_sched_getcpu() -> Made {
    let step = |cpus: &Vec<Words>, _| {
        for nth in 0..EIGHT {
            if let Some(words) = cpus.get(sched_getcpu()) {
                increment(&words.0[nth]);
            }
        }
    };
    let total = |cpus: &Vec<Words>| cpus.iter().map(|words| sum_words(&words.0)).sum();
    tally(line_per_cpu(), EIGHT as u64, step, total)
}

fn eight_shared() -> Made {
    let step = |words: &Words, _| words.0.iter().for_each(increment);
    tally(Words::default(), EIGHT as u64, step, |words| sum_words(&words.0))
}

fn eight_in_c() -> Made {
    struct InC(baseline::Counters);
    impl Subject for InC {
        fn work(&self, _: usize, ones: u64) {
            self.0.add_in_turn(ones / EIGHT as u64);
        }

        fn check(&self, asked: u64) -> anyhow::Result<()> {
            agree(asked, self.0.total())
        }
    }
    Ok(Arc::new(InC(baseline::Counters::new(Id::MmCid)?)))
}

fn eight_of_ours() -> Made {
    let counts: [percpu::Counter; EIGHT] = Default::default();
    let step = |counts: &[percpu::Counter; EIGHT], _| {
        for count in counts {
            count.increment();
        }
    };
    let total = |counts: &[percpu::Counter; EIGHT]| counts.iter().map(|c| c.get() as u64).sum();
    tally(counts, EIGHT as u64, step, total)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PLAN, check};
    use super::*;
    use corelocal_support::schema::Machine;

    #[test]
    fn eight_counters() {
        let table = CounterEight.run(&mut Context::new(PLAN, &Machine::default())).unwrap();
        assert_eq!(table.rows.len(), 4);
        check(&table, 1);
    }
}
