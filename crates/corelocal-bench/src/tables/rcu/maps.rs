//! Hash maps that are read all the time and changed now and then.
//!
//! Invariant: the keys up to `KEYS` are always in the map, each with a value that tells its key. Writers replace values. A
//! read that finds another value, or none, takes its row off the table.

use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use anyhow::ensure;
use corelocal::rcu::{self, RcuHashMap};
use corelocal_support::schema::{self, Row};

use crate::contest::threads::Crew;
use crate::contest::{Contest, Context, Table};
use crate::tables::checked::{Checked, Made, Subject, checked};

/// The table.
pub struct Map;

const BASELINE: &str = "papaya";
const KEYS: u64 = 1 << 16;
/// One of so many operations replaces a value.
const PERIOD: u64 = 100;

/// A value tells its key in the lower bits.
fn value_of(key: u64, nth: u64) -> u64 {
    nth * KEYS + key
}

/// A map from numbers to numbers.
trait Numbers: Send + Sync + 'static {
    fn new() -> Self;
    fn get(&self, key: u64) -> Option<u64>;
    fn insert(&self, key: u64, value: u64);
}

impl Table for Map {
    fn id(&self) -> &'static str {
        "rcu_map"
    }

    fn title(&self) -> &'static str {
        "Concurrent hash map: 1 % writes"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        Ok(self.on(cx.plan.threads).measure(cx))
    }
}

impl Map {
    fn on(&self, threads: &[usize]) -> Contest<Checked<Crew<'static>>> {
        let about = "Cpu time for an operation on a map of 65536 keys, in random order: 99 of 100 get a value, one replaces \
             it. All use std's hasher. RCU maps have a guard for each operation, as a program has that handles a request.";
        let rows: [(Row, fn() -> Made); 6] = [
            (Row::new("std", "std RwLock<HashMap>"), made::<std::sync::RwLock<HashMap<u64, u64>>>),
            (
                Row::new("parking-lot", "parking_lot RwLock<HashMap>"),
                made::<parking_lot::RwLock<HashMap<u64, u64>>>,
            ),
            (Row::new("dashmap", "dashmap"), made::<dashmap::DashMap<u64, u64, RandomState>>),
            (Row::new("scc", "scc HashMap"), made::<scc::HashMap<u64, u64, RandomState>>),
            (Row::new(BASELINE, "papaya"), made::<papaya::HashMap<u64, u64, RandomState>>),
            (Row::ours("rcu", "corelocal RcuHashMap"), made::<RcuHashMap<u64, u64>>),
        ];
        let contest = Contest::new(self, about)
            .baseline(BASELINE)
            .tile("A hash map that is mostly read", "rcu", &[BASELINE])
            .over("threads", threads);
        rows.into_iter().fold(contest, |contest, (row, made)| contest.row(row, checked(made)))
    }
}

fn made<M: Numbers>() -> Made {
    let map = M::new();
    (0..KEYS).for_each(|key| map.insert(key, value_of(key, 0)));
    Ok(Arc::new(Working { map, wrong: AtomicU64::new(0) }))
}

struct Working<M> {
    map: M,
    /// The number of reads that found a wrong value.
    wrong: AtomicU64,
}

impl<M: Numbers> Subject for Working<M> {
    fn work(&self, thread: usize, operations: u64) {
        let mut wrong = 0;
        // Threads and calls begin at different keys.
        let seed = (thread as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = (seed ^ operations).max(1);
        for nth in 0..operations {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let key = random % KEYS;
            if nth % PERIOD == PERIOD - 1 {
                self.map.insert(key, value_of(key, nth));
            } else {
                wrong += u64::from(self.map.get(key).is_none_or(|value| value % KEYS != key));
            }
        }
        if wrong > 0 {
            // Relaxed: read when all threads have been joined.
            self.wrong.fetch_add(wrong, Ordering::Relaxed);
        }
    }

    fn check(&self, _asked: u64) -> anyhow::Result<()> {
        let wrong = self.wrong.load(Ordering::Relaxed);
        ensure!(
            wrong == 0,
            "{wrong} reads found no value, or a wrong one, so its speed is meaningless"
        );
        Ok(())
    }
}

impl Numbers for std::sync::RwLock<HashMap<u64, u64>> {
    fn new() -> Self {
        Self::default()
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied()
    }

    fn insert(&self, key: u64, value: u64) {
        self.write().unwrap_or_else(PoisonError::into_inner).insert(key, value);
    }
}

impl Numbers for parking_lot::RwLock<HashMap<u64, u64>> {
    fn new() -> Self {
        Self::default()
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.read().get(&key).copied()
    }

    fn insert(&self, key: u64, value: u64) {
        self.write().insert(key, value);
    }
}

impl Numbers for dashmap::DashMap<u64, u64, RandomState> {
    fn new() -> Self {
        dashmap::DashMap::with_hasher(RandomState::new())
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.get(&key).map(|value| *value)
    }

    fn insert(&self, key: u64, value: u64) {
        self.insert(key, value);
    }
}

impl Numbers for scc::HashMap<u64, u64, RandomState> {
    fn new() -> Self {
        scc::HashMap::with_hasher(RandomState::new())
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.read_sync(&key, |_, value| *value)
    }

    fn insert(&self, key: u64, value: u64) {
        self.upsert_sync(key, value);
    }
}

impl Numbers for papaya::HashMap<u64, u64, RandomState> {
    fn new() -> Self {
        papaya::HashMap::with_hasher(RandomState::new())
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.pin().get(&key).copied()
    }

    fn insert(&self, key: u64, value: u64) {
        self.pin().insert(key, value);
    }
}

impl Numbers for RcuHashMap<u64, u64> {
    fn new() -> Self {
        RcuHashMap::new()
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.get(&key, &rcu::read()).copied()
    }

    fn insert(&self, key: u64, value: u64) {
        self.insert(key, value);
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
        let short = Duration::from_millis(1);
        let plan = Plan { slice: short, contest: short, rounds: 5, ..Plan::QUICK };
        let machine = Machine::default();
        let table = Map.on(&[1, 5]).measure(&Context::new(plan, &machine));
        for row in &table.rows {
            assert_eq!(row.points.len(), 2, "{}: {:?}", row.id, row.unavailable);
        }
    }

    #[test]
    fn who_loses_a_key_leaves_the_table() {
        struct Nothing;
        impl Numbers for Nothing {
            fn new() -> Self {
                Nothing
            }

            fn get(&self, _: u64) -> Option<u64> {
                None
            }

            fn insert(&self, _: u64, _: u64) {}
        }
        let nothing = made::<Nothing>().unwrap();
        nothing.work(0, 5);
        assert!(nothing.check(5).unwrap_err().to_string().starts_with("5 reads found no value"));
    }
}
