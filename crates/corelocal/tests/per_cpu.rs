//! Storage per core under attack: first uses that race, initialisers that panic, signals, migrations,
//! trims, fork, refused memory, and every value dropped once.

mod forked;
mod sandbox;
mod storm;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use corelocal::cid::{self, CpuId};
use corelocal::percpu::{self, PerCpu, Shard};
use proptest::prelude::*;
use sandbox::{When, run_in_child, run_refusing};
use storm::scaled;

/// 3, in a way that stray zeros or bytes of others would show.
fn made() -> [AtomicU64; 5] {
    [const { AtomicU64::new(3) }; 5]
}

static WORDS: PerCpu<[AtomicU64; 5]> = PerCpu::new(made);

fn add() {
    WORDS.get().iter().for_each(|word| {
        word.fetch_add(1, Ordering::Relaxed);
    });
}

fn nothing_is_lost(threads: usize, each: u64) {
    let sums = || {
        WORDS.fold([0; 5], |sums: [u64; 5], words| {
            core::array::from_fn(|i| sums[i] + words[i].load(Ordering::Relaxed) - 3)
        })
    };
    let before = sums();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !done.load(Ordering::Relaxed) {
                n += 1;
                drop(cid::freeze(n % cid::capacity()));
                let _ = percpu::trim();
                let _ = cid::compact();
                thread::yield_now();
            }
        });
        let added = storm::rage_doing(threads, each, add);
        done.store(true, Ordering::Relaxed);
        assert_eq!(sums(), before.map(|before| before + added));
    });
}

#[test]
fn a_storm() {
    nothing_is_lost(32, scaled(100_000));
}

#[test]
fn a_storm_without_sections() {
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("a_storm_without_sections", off, || nothing_is_lost(8, scaled(50_000)));
}

static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Counts itself; odd ones take long to make.
struct Value(AtomicU64);

impl Value {
    fn new() -> Value {
        if LIVE.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            thread::yield_now();
        }
        Value(AtomicU64::new(0))
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Threads that come first all at once: the values they got are those that are there, and each is dropped
/// once, those made in vain too.
#[test]
fn first_uses_race() {
    for round in 0..scaled(300).max(10) {
        let values: PerCpu<Value> = PerCpu::new(Value::new);
        let start = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..10 {
                        values.get().0.fetch_add(1, Ordering::Relaxed);
                        if let Ok(value) = values.try_get() {
                            value.0.fetch_add(1, Ordering::Relaxed);
                        } else {
                            values.get().0.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(values.fold(0, |sum, value| sum + value.0.load(Ordering::Relaxed)), 160);
        assert_eq!(LIVE.load(Ordering::Relaxed), values.iter().count());
        match round % 3 {
            0 => drop(values),
            1 => assert!(values.into_iter().count() > 0),
            _ => drop(values.into_iter().next()),
        }
        assert_eq!(LIVE.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn an_initialiser_may_panic() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let values: PerCpu<usize> = PerCpu::new(|| match CALLS.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => panic!("for the test"),
        n => n,
    });
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| *values.get())).is_err());
        assert_eq!(values.iter().count(), 0);
    }
    assert!(*values.get() >= 2);
}

/// An initialiser may use the object itself, if that ends.
#[test]
fn an_initialiser_may_come_back() {
    static DEEP: AtomicUsize = AtomicUsize::new(0);
    static VALUES: PerCpu<usize> = PerCpu::new(|| match DEEP.fetch_add(1, Ordering::Relaxed) {
        0 => *VALUES.get() + 100,
        n => n,
    });
    assert!([1, 101].contains(VALUES.get()));
}

#[test]
fn a_panicking_drop() {
    static LEFT: AtomicUsize = AtomicUsize::new(0);
    static PANIC: AtomicBool = AtomicBool::new(false);
    struct Value;
    impl Drop for Value {
        fn drop(&mut self) {
            LEFT.fetch_sub(1, Ordering::Relaxed);
            if PANIC.swap(false, Ordering::Relaxed) {
                panic!("for the test");
            }
        }
    }
    let values: PerCpu<Value, CpuId> = PerCpu::new(|| {
        LEFT.fetch_add(1, Ordering::Relaxed);
        Value
    });
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..1000).for_each(|_| _ = values.get()));
        }
    });
    assert!(LEFT.load(Ordering::Relaxed) >= 1);
    // Not before: of two values made at once for one cpu, one is dropped by its maker.
    PANIC.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(values))).is_err());
    assert_eq!(LEFT.load(Ordering::Relaxed), 0);
}

#[test]
fn values_do_not_share_lines() {
    let bytes: PerCpu<AtomicU64, CpuId> = PerCpu::default();
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                (0..10_000).for_each(|_| _ = bytes.get().fetch_add(1, Ordering::Relaxed))
            });
        }
    });
    let lines: Vec<usize> = bytes.iter().map(|byte| byte.as_ptr() as usize / 64).collect();
    assert_eq!(lines.iter().collect::<HashSet<_>>().len(), lines.len());
    for (part, byte) in bytes.shards() {
        if let Shard::Slot(slot) = part {
            assert!(std::ptr::eq(bytes.get_slot(slot).unwrap(), byte));
        }
    }
}

#[test]
fn fork_copies_the_values() {
    let values: PerCpu<AtomicU64> = PerCpu::default();
    let sum = || values.fold(0, |sum, value| sum + value.load(Ordering::Relaxed));
    values.get().fetch_add(10, Ordering::Relaxed);
    let child = forked::judge(|| {
        values.get().fetch_add(5, Ordering::Relaxed);
        sum() == 15
    });
    values.get().fetch_add(1, Ordering::Relaxed);
    child.succeeds();
    assert_eq!(sum(), 11);
}

#[test]
fn without_memory() {
    run_refusing("without_memory", libc::SYS_mmap, When::Always, libc::ENOMEM, || {
        static VALUES: PerCpu<[AtomicU64; 33]> = PerCpu::new(|| [const { AtomicU64::new(7) }; 33]);
        assert!(VALUES.try_get().is_err());
        assert_eq!(VALUES.get()[32].load(Ordering::Relaxed), 7);
        assert!(std::ptr::eq(VALUES.get(), VALUES.get()));
        assert_eq!(VALUES.shards().map(|(part, _)| part).next(), Some(Shard::Inline));
    });
}

#[derive(Clone, Debug)]
enum Op {
    Add(u64),
    TryAdd(u64),
    Double,
    Fold,
    Consume,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..1000u64).prop_map(Op::Add),
        4 => (0..1000u64).prop_map(Op::TryAdd),
        1 => Just(Op::Double),
        2 => Just(Op::Fold),
        1 => Just(Op::Consume),
    ]
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever value is got, the sum over all is that of a plain integer.
    #[test]
    fn values_add_up(script in proptest::collection::vec(op(), 1..50)) {
        let mut values: PerCpu<AtomicU64> = PerCpu::default();
        let mut model = 0;
        for op in script {
            match op {
                Op::Add(n) => {
                    values.get().fetch_add(n, Ordering::Relaxed);
                    model += n;
                }
                Op::TryAdd(n) => {
                    values.try_get().unwrap().fetch_add(n, Ordering::Relaxed);
                    model += n;
                }
                Op::Double => {
                    values.iter_mut().for_each(|value| *value.get_mut() = value.get_mut().wrapping_mul(2));
                    model = model.wrapping_mul(2);
                }
                Op::Fold => {
                    let sum = values.fold(0u64, |sum, value| sum.wrapping_add(value.load(Ordering::Relaxed)));
                    prop_assert_eq!(sum, model);
                }
                Op::Consume => {
                    let sum = values.into_iter().fold(0u64, |sum, value| sum.wrapping_add(value.into_inner()));
                    prop_assert_eq!(sum, model);
                    values = PerCpu::default();
                    model = 0;
                }
            }
        }
    }
}
