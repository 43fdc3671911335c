//! The histogram beside a sorted vector, and under attack: threads, signals, migrations, takes, threads
//! without a registration, fork.

mod forked;
mod storm;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{env, process, thread};

use corelocal::cid;
use corelocal::percpu::histogram::{Bits, Bucket, Precision, Snapshot};
use corelocal::percpu::{self, Histogram};
use proptest::prelude::*;

/// Is recorded to from threads and signal handlers.
static STORM: Histogram = Histogram::new();

fn record_in_storm() {
    STORM.record(3);
    STORM.record(1000);
}

#[test]
fn a_storm_loses_nothing() {
    let done = storm::rage_doing(64, storm::scaled(20_000_000 / 64), record_in_storm);
    let buckets: Vec<_> = STORM.buckets().collect();
    let expected =
        [Bucket { low: 3, high: 3, count: done }, Bucket { low: 992, high: 1007, count: done }];
    assert_eq!(buckets, expected);
}

/// What takers take and what is left is what was recorded, and no count is ever negative.
#[test]
fn concurrent_takes_add_up() {
    static HISTOGRAM: Histogram<7> = Histogram::new();
    const THREADS: u64 = 4;
    let each = storm::scaled(200_000);
    let done = AtomicBool::new(false);
    let all = Mutex::new(Snapshot::<7>::new());
    thread::scope(|scope| {
        let recorders: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(move || (0..each).for_each(|n| HISTOGRAM.record(n % 1000))))
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let taken = HISTOGRAM.take();
                    assert!(taken.count() <= THREADS * each, "{taken:?}");
                    all.lock().unwrap().merge(&taken);
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(HISTOGRAM.count() <= THREADS * each);
            }
        });
        for recorder in recorders {
            recorder.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let mut all = all.into_inner().unwrap();
    all.merge(&HISTOGRAM.take());
    let mut expected = Snapshot::new();
    let one: Histogram<7> = Histogram::new();
    (0..each).for_each(|n| one.record_n(n % 1000, THREADS));
    one.take_into(&mut expected);
    assert_eq!(all, expected);
}

fn stay_on_one_cpu() {
    // SAFETY: all-zero bytes are the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel's number of the cpu is within the set; a valid set.
    unsafe {
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Slots are taken from their ids and trimmed while others record and take: what is moved is neither
/// lost nor told twice, and no count is ever negative.
#[test]
fn takes_among_trims_add_up() {
    static HISTOGRAM: Histogram = Histogram::new();
    const THREADS: u64 = 3;
    let each = storm::scaled(300_000);
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        let recorders: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(move || (0..each).for_each(|n| HISTOGRAM.record(n % 100))))
            .collect();
        // A trim spares as many slots as its thread may use cpus.
        stay_on_one_cpu();
        while !recorders.iter().all(|recorder| recorder.is_finished()) {
            // The ids in use get higher slots, which the trim then takes back. Refused, they stay where
            // they are.
            let frozen = cid::freeze(0);
            thread::sleep(Duration::from_micros(100));
            drop(frozen);
            let _ = percpu::trim();
            assert!(HISTOGRAM.count() <= THREADS * each);
            taken.fetch_add(HISTOGRAM.take().count(), Ordering::Relaxed);
        }
    });
    assert_eq!(taken.into_inner() + HISTOGRAM.count(), THREADS * each);
    // Each value came so often, and from 64 on two share a bucket.
    let most = THREADS * each.div_ceil(100);
    let is_sound = |bucket: Bucket| bucket.count <= most * (bucket.high - bucket.low + 1);
    assert!(HISTOGRAM.buckets().all(is_sound));
}

/// Resets lose nothing of what is recorded afterwards.
#[test]
fn reset_and_go_on() {
    static HISTOGRAM: Histogram<2> = Histogram::new();
    for round in 0..100 {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10).for_each(|n| HISTOGRAM.record(n << 20)));
            }
        });
        assert_eq!(HISTOGRAM.count(), 40, "round {round}");
        HISTOGRAM.reset();
        assert_eq!(HISTOGRAM.snapshot(), Snapshot::new());
    }
}

/// Histograms are made and dropped while others record: memory never has two owners.
#[test]
fn histograms_come_and_go() {
    thread::scope(|scope| {
        for seed in 0..4u64 {
            scope.spawn(move || {
                for round in 0..storm::scaled(500) {
                    let histogram: Histogram = Histogram::new();
                    histogram.record_n(seed << 40, round + 1);
                    let only = histogram.buckets().map(|bucket| bucket.count).collect::<Vec<_>>();
                    assert_eq!(only, [round + 1]);
                }
            });
        }
    });
}

/// The child has the parent's values, and both go on from there without meeting.
#[test]
fn fork_splits_the_values() {
    static HISTOGRAM: Histogram = Histogram::new();
    HISTOGRAM.record(10);
    let child = forked::judge(|| {
        (0..1000).for_each(|_| HISTOGRAM.record(11));
        let seen = HISTOGRAM.take();
        let right = seen.count() == 1001 && seen.quantile(1.0) == Some(11);
        right && HISTOGRAM.count() == 0
    });
    HISTOGRAM.record(12);
    child.succeeds();
    let values: Vec<_> = HISTOGRAM.buckets().map(|bucket| bucket.low).collect();
    assert_eq!(values, [10, 12]);
}

/// A thread may record until its very last destructor.
#[test]
fn thread_local_destructors_record() {
    static HISTOGRAM: Histogram = Histogram::new();
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            HISTOGRAM.record(1);
        }
    }
    thread_local!(static LAST: Last = const { Last });
    for _ in 0..50 {
        thread::spawn(|| LAST.with(|_| HISTOGRAM.record(0))).join().unwrap();
    }
    assert_eq!(HISTOGRAM.count(), 100);
}

/// In a process where no thread has a registration everything works all the same; likewise where there
/// is no memory.
#[test]
fn without_rseq_and_without_memory() {
    const CHILD: &str = "CORELOCAL_TEST_HISTOGRAM_CHILD";
    if env::var_os(CHILD).is_none() {
        let name = "without_rseq_and_without_memory";
        let status = process::Command::new(env::current_exe().unwrap())
            .args(["--exact", name, "--test-threads=1"])
            .env(CHILD, "1")
            .env("CORELOCAL_RSEQ", "off")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    static HISTOGRAM: Histogram = Histogram::new();
    static RECORDED: AtomicU64 = AtomicU64::new(0);
    let none = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &none) }, 0);
    (0..100).for_each(|_| HISTOGRAM.record(5));
    let early = HISTOGRAM.take();
    (0..7).for_each(|_| HISTOGRAM.record(5));
    let plenty = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, ..none };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &plenty) }, 0);
    assert_eq!((early.count(), HISTOGRAM.count()), (100, 7));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                (0..10_000).for_each(|_| HISTOGRAM.record(5));
                RECORDED.fetch_add(10_000, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(HISTOGRAM.take().count(), RECORDED.load(Ordering::Relaxed) + 7);
    assert_eq!(HISTOGRAM.count(), 0);
}

/// Values of all magnitudes.
fn value() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0u32..64).prop_map(|(value, shift)| value >> shift)
}

/// What a histogram of `values` tells, compared with the sorted values.
fn agrees<const P: u32>(values: &[u64], q: f64)
where
    Bits<P>: Precision,
{
    let histogram: Histogram<P> = Histogram::new();
    values.iter().for_each(|&value| histogram.record(value));
    let snapshot = histogram.snapshot();
    let mut sorted = values.to_vec();
    sorted.sort_unstable();

    assert_eq!(snapshot.count(), values.len() as u64);
    assert_eq!(snapshot.is_empty(), values.is_empty());
    assert!(snapshot.buckets().eq(histogram.buckets()));
    let mut rest = &sorted[..];
    for bucket in snapshot.buckets() {
        let (these, others) = rest.split_at(bucket.count as usize);
        assert!(these.iter().all(|value| (bucket.low..=bucket.high).contains(value)), "{bucket:?}");
        rest = others;
    }

    let Some((&least, &largest)) = sorted.first().zip(sorted.last()) else {
        assert_eq!((snapshot.quantile(q), snapshot.mean()), (None, None));
        return;
    };
    assert!(snapshot.min().unwrap() <= least && snapshot.max().unwrap() >= largest);
    let near = |estimate: u64, value: u64| {
        assert!(
            u128::from(estimate.abs_diff(value)) << (P + 1) <= u128::from(value),
            "{estimate} for {value} at {P} bits"
        );
    };
    let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
    near(snapshot.quantile(q).unwrap(), sorted[rank - 1]);
    near(snapshot.quantile(0.0).unwrap(), least);
    near(snapshot.quantile(1.0).unwrap(), largest);
    let bucket = snapshot.quantile_bucket(q).unwrap();
    assert!((bucket.low..=bucket.high).contains(&sorted[rank - 1]));

    let sum: u128 = values.iter().map(|&value| u128::from(value)).sum();
    assert!(snapshot.sum().abs_diff(sum) << (P + 1) <= sum, "{} for {sum}", snapshot.sum());
    let mean = sum as f64 / values.len() as f64;
    let error = (snapshot.mean().unwrap() - mean).abs();
    // What the sum is off by, and a little for the arithmetic.
    assert!(error <= mean * (0.5f64.powi(P as i32 + 1) + 1e-9), "{error} at {mean}");
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tells_what_a_sorted_vector_tells(
        values in proptest::collection::vec(value(), 0..300),
        q in 0.0..=1.0f64,
    ) {
        agrees::<0>(&values, q);
        agrees::<5>(&values, q);
        agrees::<6>(&values, q);
    }

    /// In whatever order snapshots are merged, the result is that of all values together.
    #[test]
    fn merges_are_associative(
        parts in proptest::collection::vec(proptest::collection::vec(value(), 0..50), 3),
    ) {
        let of = |values: &[u64]| {
            let histogram: Histogram = Histogram::new();
            values.iter().for_each(|&value| histogram.record(value));
            histogram.take()
        };
        let merged = |mut a: Snapshot, b: &Snapshot| {
            a.merge(b);
            a
        };
        let [a, b, c] = [of(&parts[0]), of(&parts[1]), of(&parts[2])];
        let all = of(&parts.concat());
        prop_assert_eq!(&merged(merged(a.clone(), &b), &c), &all);
        prop_assert_eq!(&merged(a.clone(), &merged(b.clone(), &c)), &all);
        prop_assert_eq!(&merged(merged(c, &b), &a), &all);
        prop_assert_eq!(&merged(all.clone(), &Snapshot::new()), &all);
    }

    /// Any script of operations gives what a list of values gives.
    #[test]
    fn behaves_like_a_list(
        script in proptest::collection::vec((0u8..8, value(), 0u64..1000), 1..100),
    ) {
        let histogram: Histogram<4> = Histogram::new();
        let model: Histogram<4> = Histogram::new();
        let mut count = 0;
        let mut taken = Snapshot::new();
        for (operation, value, n) in script {
            match operation {
                0 => {
                    prop_assert_eq!(histogram.count(), count);
                    taken.merge(&histogram.take());
                    count = 0;
                }
                1 => prop_assert_eq!(histogram.snapshot().count(), count),
                2..5 => {
                    histogram.record_n(value, n);
                    (0..n).for_each(|_| model.record(value));
                    count += n;
                }
                _ => {
                    histogram.record(value);
                    model.record(value);
                    count += 1;
                }
            }
        }
        taken.merge(&histogram.snapshot());
        prop_assert_eq!(taken, model.snapshot());
    }
}
