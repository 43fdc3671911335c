//! The counter under attack: many threads, signals, migrations, threads that come and go, fork,
//! and random scripts beside a naive model.

mod forked;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use corelocal::percpu::Counter;
use proptest::prelude::*;

/// 10^8 increments from 64 threads under random signals and affinity flips.
#[test]
fn a_storm_loses_nothing() {
    let each = storm::scaled(100_000_000 / 64);
    let before = storm::COUNTER.get();
    let added = storm::rage(64, each);
    assert!(added >= 64 * each as i64);
    assert_eq!(storm::COUNTER.get() - before, added);
}

#[test]
fn threads_come_and_go_by_the_thousand() {
    static COUNTER: Counter = Counter::new();
    let rounds = storm::scaled(100);
    for _ in 0..rounds {
        thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| COUNTER.add(1));
            }
        });
    }
    assert_eq!(COUNTER.get(), 40 * rounds as i64);
}

/// Counters are made and dropped while others count: a cell never has two owners.
#[test]
fn counters_come_and_go() {
    thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                for round in 0..2000 {
                    let counters: Vec<Counter> = (0..8).map(|_| Counter::new()).collect();
                    for (i, counter) in counters.iter().enumerate() {
                        counter.add(seed + round + i as i64);
                    }
                    for (i, counter) in counters.iter().enumerate() {
                        assert_eq!(counter.get(), seed + round + i as i64);
                    }
                }
            });
        }
    });
}

/// What takers take and what is left is what was added.
#[test]
fn concurrent_takes_add_up() {
    static COUNTER: Counter = Counter::new();
    static TAKEN: AtomicI64 = AtomicI64::new(0);
    const EACH: i64 = 200_000;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let adders: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..EACH).for_each(|_| COUNTER.add(1)))).collect();
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let taken = COUNTER.take();
                    assert!(taken >= 0, "{taken}");
                    TAKEN.fetch_add(taken, Ordering::Relaxed);
                }
            });
        }
        for adder in adders {
            adder.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(TAKEN.load(Ordering::Relaxed) + COUNTER.get(), 4 * EACH);
}

/// The child has the parent's count, and both go on from there without meeting.
#[test]
fn fork_splits_the_count() {
    static COUNTER: Counter = Counter::new();
    COUNTER.add(10);
    let child = forked::judge(|| {
        (0..1000).for_each(|_| COUNTER.add(1));
        COUNTER.get() == 1010
    });
    COUNTER.add(5);
    child.succeeds();
    assert_eq!(COUNTER.get(), 15);
}

/// A thread may count until its very last destructor.
#[test]
fn thread_local_destructors_count() {
    static COUNTER: Counter = Counter::new();
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            COUNTER.add(1);
        }
    }
    thread_local!(static LAST: Last = const { Last });
    for _ in 0..50 {
        thread::spawn(|| LAST.with(|_| COUNTER.add(1))).join().unwrap();
    }
    assert_eq!(COUNTER.get(), 100);
}

#[derive(Clone, Debug)]
enum Op {
    Add(usize, i64),
    Sub(usize, i64),
    Get(usize),
    Take(usize),
    Replace(usize),
}

const COUNTERS: usize = 3;

fn op() -> impl Strategy<Value = Op> {
    let which = 0..COUNTERS;
    prop_oneof![
        (which.clone(), any::<i64>()).prop_map(|(i, n)| Op::Add(i, n)),
        (which.clone(), any::<i64>()).prop_map(|(i, n)| Op::Sub(i, n)),
        which.clone().prop_map(Op::Get),
        which.clone().prop_map(Op::Take),
        which.prop_map(Op::Replace),
    ]
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any script of operations gives what plain integers give.
    #[test]
    fn behaves_like_an_integer(script in proptest::collection::vec(op(), 1..200)) {
        let mut counters: [Counter; COUNTERS] = Default::default();
        let mut model = [0i64; COUNTERS];
        for op in script {
            match op {
                Op::Add(i, n) => {
                    counters[i].add(n);
                    model[i] = model[i].wrapping_add(n);
                }
                Op::Sub(i, n) => {
                    counters[i].sub(n);
                    model[i] = model[i].wrapping_sub(n);
                }
                Op::Get(i) => prop_assert_eq!(counters[i].get(), model[i]),
                Op::Take(i) => prop_assert_eq!(counters[i].take(), std::mem::take(&mut model[i])),
                Op::Replace(i) => {
                    counters[i] = Counter::new();
                    model[i] = 0;
                }
            }
        }
    }
}
