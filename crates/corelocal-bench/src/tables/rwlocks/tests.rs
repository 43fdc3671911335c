//! Tests of `rwlocks.rs`.

use std::time::Duration;

use corelocal_support::measure::engine::Plan;
use corelocal_support::schema::Machine;

use super::*;
use crate::tables::locks::foreign::is_missing;

#[test]
fn every_row_on_several_threads() {
    let short = Duration::from_millis(1);
    let plan = Plan { slice: short, contest: short, rounds: 5, ..Plan::QUICK };
    for table in [RwLocks::READ, RwLocks::WRITE, RwLocks::MIXED] {
        let machine = Machine::default();
        let table = table.on(&[1, 5], &Context::new(plan, &machine));
        let points = if table.x_label.is_some() { 2 } else { 1 };
        assert_eq!(table.rows.len(), 10);
        for row in &table.rows {
            let points = if is_missing(&row.id) { 0 } else { points };
            assert_eq!(row.points.len(), points, "{}: {:?}", row.id, row.unavailable);
        }
    }
}

#[test]
fn a_mixture_is_as_it_says() {
    let made = Worked::<std::sync::RwLock<Pair>, MIXTURE> {
        lock: ReadWrite::new().unwrap(),
        until_write: shards(),
        writes: shards(),
        torn: AtomicU64::new(0),
    };
    // However the turns are cut.
    let mut until_write = 1;
    let mut writes = 0;
    for turns in [1, 98, 1, 1, 7, 300, 592] {
        let (more, _, until) = made.mix(turns, until_write);
        (writes, until_write) = (writes + more, until);
    }
    assert_eq!((writes, until_write), (10, 1));
}

#[test]
fn who_does_not_exclude_leaves_the_table() {
    struct Torn;
    impl ReadWrite for Torn {
        fn new() -> anyhow::Result<Self> {
            Ok(Torn)
        }

        fn read<R>(&self, f: impl FnOnce(&Pair) -> R) -> R {
            f(&Pair::torn())
        }

        fn write(&self, _: impl FnOnce(&mut Pair)) {}
    }
    let made = turns::<Torn, READS_ONLY>().unwrap();
    made.work(0, 3);
    assert!(made.check(3).unwrap_err().to_string().contains("let 3 readers in"));
    let made = turns::<Torn, WRITES_ONLY>().unwrap();
    made.work(0, 3);
    assert!(made.check(3).is_err());
}
