//! Counter vectors, gauges and extremes beside plain integers, and under attack: threads, signals,
//! migrations, fork.

mod forked;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::{env, process, thread};

use corelocal::cid::CpuId;
use corelocal::percpu::{CounterVec, Gauge, Max, Min, OutOfRange};
use proptest::prelude::*;

static COUNTERS: CounterVec<20> = CounterVec::new();
static GAUGE: Gauge = Gauge::new();
static BY_CPU: Gauge<CpuId> = Gauge::new();
static TICKETS: AtomicU64 = AtomicU64::new(0);
static LARGEST: Max = Max::new();
static SMALLEST: Min = Min::new();
const PLENTY: u64 = 1 << 40;

/// From threads and signal handlers.
fn act() {
    let ticket = TICKETS.fetch_add(1, Ordering::Relaxed);
    assert_eq!(COUNTERS.add(ticket as usize % 20, 1), Ok(()));
    GAUGE.add(3);
    BY_CPU.add(1);
    LARGEST.record(ticket);
    SMALLEST.record(PLENTY - ticket);
    GAUGE.sub(2);
}

#[test]
fn a_storm_loses_nothing() {
    let done = storm::rage_doing(64, storm::scaled(10_000_000 / 64), act);
    assert_eq!(TICKETS.load(Ordering::Relaxed), done);
    let expected = |i: u64| (done / 20 + u64::from(i < done % 20)) as i64;
    let counts = COUNTERS.snapshot();
    assert!(counts.iter().zip(0..).all(|(&count, i)| count == expected(i)), "{counts:?} of {done}");
    assert_eq!(COUNTERS.take_all(), counts);
    assert_eq!(COUNTERS.sum(), 0);
    assert_eq!((GAUGE.get(), BY_CPU.get()), (done as i64, done as i64));
    assert_eq!((LARGEST.get(), SMALLEST.get()), (Some(done - 1), Some(PLENTY + 1 - done)));
}

/// What takers take and what is left is what was added, of each counter.
#[test]
fn concurrent_takes_add_up() {
    static COUNTERS: CounterVec<10> = CounterVec::new();
    static TAKEN: [AtomicI64; 10] = [const { AtomicI64::new(0) }; 10];
    let each = storm::scaled(300_000) as i64;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let adders: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    (0..each).for_each(|n| COUNTERS.add(n as usize % 10, 1).unwrap())
                })
            })
            .collect();
        for single in [false, true] {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let taken = match single {
                        true => std::array::from_fn(|i| COUNTERS.take(i).unwrap()),
                        false => COUNTERS.take_all(),
                    };
                    for (sum, taken) in TAKEN.iter().zip(taken) {
                        assert!(taken >= 0);
                        sum.fetch_add(taken, Ordering::Relaxed);
                    }
                }
            });
        }
        for adder in adders {
            adder.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let total: i64 = TAKEN.iter().map(|sum| sum.load(Ordering::Relaxed)).sum();
    assert_eq!(total + COUNTERS.sum(), 4 * each);
    let first = TAKEN[0].load(Ordering::Relaxed) + COUNTERS.get(0).unwrap();
    assert_eq!(first, 4 * ((each + 9) / 10));
}

/// A gauge is set while others add: what the setters saw and what is left differ by what was added.
#[test]
fn sets_lose_no_addition() {
    static GAUGE: Gauge = Gauge::new();
    static GAINED: AtomicI64 = AtomicI64::new(0);
    let each = storm::scaled(200_000) as i64;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let adders: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    for _ in 0..each {
                        GAUGE.add(5);
                        GAUGE.sub(2);
                    }
                })
            })
            .collect();
        for value in [1000, -1000] {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    // What it rose by between the last set and this one.
                    GAINED.fetch_add(GAUGE.set(value) - value, Ordering::Relaxed);
                }
            });
        }
        for adder in adders {
            adder.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(GAINED.load(Ordering::Relaxed) + GAUGE.get(), 4 * 3 * each);
}

#[test]
fn fork_splits_the_values() {
    static COUNTERS: CounterVec<3> = CounterVec::new();
    static GAUGE: Gauge = Gauge::new();
    static MIN: Min = Min::new();
    COUNTERS.add(2, 10).unwrap();
    GAUGE.set(10);
    MIN.record(10);
    let child = forked::judge(|| {
        (0..1000).for_each(|_| {
            GAUGE.add(1);
            let _ = COUNTERS.add(2, 1);
        });
        MIN.record(5);
        let right = (COUNTERS.get(2), GAUGE.set(3), MIN.get()) == (Ok(1010), 1010, Some(5));
        right && GAUGE.get() == 3
    });
    COUNTERS.add(2, 1).unwrap();
    GAUGE.sub(1);
    MIN.record(7);
    child.succeeds();
    assert_eq!((COUNTERS.snapshot(), GAUGE.get(), MIN.get()), ([0, 0, 11], 9, Some(7)));
}

/// In a process where no thread has a registration everything works all the same; likewise where there
/// is no memory.
#[test]
fn without_rseq_and_without_memory() {
    const CHILD: &str = "CORELOCAL_TEST_STATS_CHILD";
    if env::var_os(CHILD).is_none() {
        let status = process::Command::new(env::current_exe().unwrap())
            .args(["--exact", "without_rseq_and_without_memory", "--test-threads=1"])
            .env(CHILD, "1")
            .env("CORELOCAL_RSEQ", "off")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    static COUNTERS: CounterVec<9> = CounterVec::new();
    static GAUGE: Gauge = Gauge::new();
    static MIN: Min = Min::new();
    let none = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &none) }, 0);
    let added = COUNTERS.add(8, 5);
    GAUGE.add(5);
    MIN.record(70_000);
    let (counted, gauged, least) = (COUNTERS.take(8), GAUGE.set(2), MIN.get());
    let plenty = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, ..none };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &plenty) }, 0);
    assert_eq!((added, counted, gauged, least), (Ok(()), Ok(5), 5, Some(70_000)));
    thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for n in 0..10_000 {
                    GAUGE.add(1);
                    assert_eq!(COUNTERS.add(thread, 1), Ok(()));
                    MIN.record(20_000 - n - thread as u64);
                }
            });
        }
    });
    assert_eq!(
        COUNTERS.take_all(),
        [10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 0]
    );
    assert_eq!((GAUGE.get(), MIN.get()), (80_002, Some(20_000 - 9_999 - 7)));
}

#[derive(Clone, Debug)]
enum Op {
    Add(usize, i64),
    Sub(usize, i64),
    Get(usize),
    Take(usize),
    TakeAll,
    Snapshot,
    Set(i64),
    Record(u64),
}

const N: usize = 10;

fn op() -> impl Strategy<Value = Op> {
    // One too many.
    let which = 0..N + 1;
    prop_oneof![
        4 => (which.clone(), any::<i64>()).prop_map(|(i, n)| Op::Add(i, n)),
        2 => (which.clone(), any::<i64>()).prop_map(|(i, n)| Op::Sub(i, n)),
        1 => which.clone().prop_map(Op::Get),
        1 => which.prop_map(Op::Take),
        1 => Just(Op::TakeAll),
        1 => Just(Op::Snapshot),
        1 => any::<i64>().prop_map(Op::Set),
        2 => (any::<u64>(), 0..64).prop_map(|(value, shift)| Op::Record(value >> shift)),
    ]
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any script of operations gives what plain integers give.
    #[test]
    fn behave_like_integers(script in proptest::collection::vec(op(), 1..200)) {
        let counters: CounterVec<N> = CounterVec::new();
        let gauge: Gauge = Gauge::new();
        let (max, min): (Max, Min) = (Max::new(), Min::new());
        let (mut counts, mut level) = ([0i64; N], 0i64);
        let (mut largest, mut smallest) = (None, None);
        for op in script {
            let missing = |index| OutOfRange { index, len: N };
            match op {
                Op::Add(i, n) => {
                    let added = counts.get_mut(i).map(|count| *count = count.wrapping_add(n));
                    prop_assert_eq!(counters.add(i, n), added.ok_or(missing(i)));
                    gauge.add(n);
                    level = level.wrapping_add(n);
                }
                Op::Sub(i, n) => {
                    let added = counts.get_mut(i).map(|count| *count = count.wrapping_sub(n));
                    prop_assert_eq!(counters.sub(i, n), added.ok_or(missing(i)));
                    gauge.sub(n);
                    level = level.wrapping_sub(n);
                }
                Op::Get(i) => {
                    prop_assert_eq!(counters.get(i), counts.get(i).copied().ok_or(missing(i)));
                    prop_assert_eq!(gauge.get(), level);
                }
                Op::Take(i) => {
                    let count = counts.get_mut(i).map(std::mem::take);
                    prop_assert_eq!(counters.take(i), count.ok_or(missing(i)));
                }
                Op::TakeAll => prop_assert_eq!(counters.take_all(), std::mem::take(&mut counts)),
                Op::Snapshot => {
                    prop_assert_eq!(counters.snapshot(), counts);
                    prop_assert!(counters.iter().eq(counts));
                    let sum = counts.iter().fold(0i64, |sum, &count| sum.wrapping_add(count));
                    prop_assert_eq!(counters.sum(), sum);
                }
                Op::Set(value) => prop_assert_eq!(gauge.set(value), std::mem::replace(&mut level, value)),
                Op::Record(value) => {
                    max.record(value);
                    min.record(value);
                    let kept = value.min(i64::MAX as u64 - 1);
                    largest = largest.max(Some(kept));
                    smallest = Some(smallest.map_or(kept, |least: u64| least.min(kept)));
                    prop_assert_eq!((max.get(), min.get()), (largest, smallest));
                }
            }
        }
    }
}
