//! Tests of `trim.rs`.

use super::*;
use crate::percpu::{Counter, CounterVec, Max};
use crate::scaled::scaled;
use std::vec::Vec;

/// Concurrent trims of several tests would disturb each other.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// All values under slots are moved, since no slot is spared, and none is lost.
#[test]
fn nothing_is_lost_by_a_trim() {
    let _alone = alone();
    let (counter, max) = (Counter::<cid::Cid>::new(), Max::<cid::Cid>::new());
    let many: Vec<Counter> = (0..1000).map(|_| Counter::new()).collect();
    let line: CounterVec<16> = CounterVec::new();
    let rounds = scaled(20);
    for round in 1..=rounds {
        counter.add(5);
        max.record(7 * round);
        many.iter().for_each(|counter| counter.add(1));
        assert!(line.add(3, 2).is_ok());
        // Refused without membarrier, and while another test does the same.
        let _ = trim_from(0, 0);
        assert_eq!(counter.get(), 5 * round as i64);
        assert_eq!(max.get(), Some(7 * round));
        assert!(many.iter().all(|counter| counter.get() == round as i64));
        assert_eq!(line.get(3), Ok(2 * round as i64));
    }
    assert_eq!(counter.take(), 5 * rounds as i64);
}

#[test]
fn counts_among_trims_are_exact() {
    let _alone = alone();
    static COUNTER: Counter = Counter::new();
    static TAKEN: AtomicI64 = AtomicI64::new(0);
    let (each, trims) = (scaled(50_000), scaled(200));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..each).for_each(|_| COUNTER.add(1)));
        }
        scope.spawn(|| {
            for _ in 0..trims {
                TAKEN.fetch_add(COUNTER.take(), Ordering::Relaxed);
            }
        });
        for _ in 0..trims {
            let _ = trim_from(0, 0);
        }
    });
    assert_eq!(COUNTER.get() + TAKEN.load(Ordering::Relaxed), 4 * each as i64);
}

/// A value that is moved while it is read is not missed, whichever thread is preempted during the move.
#[test]
fn readers_among_trims_see_everything() {
    let _alone = alone();
    static COUNTER: Counter = Counter::new();
    static ADDED: AtomicI64 = AtomicI64::new(0);
    let all = scaled(2000) as i64;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                loop {
                    let added = ADDED.load(Ordering::Acquire);
                    let seen = COUNTER.get();
                    assert!(seen >= added, "{seen} of {added}");
                    if added == all {
                        break;
                    }
                }
            });
        }
        for added in 1..=all {
            COUNTER.add(1);
            ADDED.store(added, Ordering::Release);
            let _ = trim_from(0, 0);
        }
    });
}

#[test]
fn memory_comes_back() {
    let _alone = alone();
    let vectors: Vec<CounterVec<512>> = (0..100).map(|_| CounterVec::new()).collect();
    for counters in &vectors {
        (0..512).for_each(|i| assert!(counters.add(i, 1).is_ok()));
    }
    let before = memory();
    assert!(before.blocks >= 100 && before.per_core >= 100 * 4096, "{before:?}");
    assert!(before.resident >= 100 * 4096 && before.resident <= before.reserved, "{before:?}");
    if let Ok(bytes) = trim_from(0, 0) {
        assert!(cid::policy() == cid::Policy::Lease || bytes >= 50 * 4096, "{bytes}");
    }
    assert!(vectors.iter().all(|counters| (0..512).all(|i| counters.get(i) == Ok(1))));
}
