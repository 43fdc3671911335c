//! Slots by node: every container on them, and under attack. Where their memory lies: `placement.rs`.

mod cpus;
mod sandbox;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use corelocal::cid::{self, Busy, Cid, NodeCid, Policy, capacity_of, compact_of, freeze_of};
use corelocal::percpu::{self, Area, Counter, CounterVec, Gauge, Histogram, Lock, Max, Min};
use corelocal::percpu::{PerCpu, Pool, Queue, Ring, Stack, Word};
use proptest::prelude::*;
use sandbox::{When, run_in_child, run_refusing};
use storm::scaled;

#[test]
fn every_container() {
    let counter: Counter<NodeCid> = Counter::new();
    let vector: CounterVec<4, NodeCid> = CounterVec::new();
    let gauge: Gauge<NodeCid> = Gauge::new();
    let histogram: Histogram<5, NodeCid> = Histogram::new();
    let (max, min): (Max<NodeCid>, Min<NodeCid>) = (Max::new(), Min::new());
    let stack: Stack<Box<u64>, 64, NodeCid> = Stack::new();
    let pool: Pool<Box<u64>, 64, NodeCid> = Pool::default();
    let ring: Ring<u64, 64, NodeCid> = Ring::new();
    let queue: Queue<Box<u64>, NodeCid> = Queue::new();
    let each: PerCpu<AtomicU64, NodeCid> = PerCpu::new(AtomicU64::default);
    let lock: Lock<u64, NodeCid> = Lock::default();
    let word: Word<NodeCid> = Word::new();
    for n in 1..=20u64 {
        cpus::hop(n as u32);
        counter.add(1);
        vector.add(3, 2).unwrap();
        gauge.add(3);
        histogram.record(n);
        max.record(n);
        min.record(n);
        stack.push(Box::new(n)).unwrap();
        pool.put(Box::new(n));
        ring.push(n).unwrap();
        queue.push(Box::new(n)).unwrap();
        each.get().fetch_add(1, Ordering::Relaxed);
        *lock.lock() += 1;
        word.add_fetch(1);
        if n % 5 == 0 {
            // Refused without membarrier, and while another test does the same.
            let _ = (compact_of::<NodeCid>(), percpu::trim());
        }
    }
    assert_eq!((counter.get(), vector.get(3), gauge.get()), (20, Ok(40), 60));
    assert_eq!((histogram.count(), max.get(), min.get()), (20, Some(20), Some(1)));
    assert_eq!((stack.len(), pool.len(), ring.len()), (20, 20, 20));
    let mut all: Vec<u64> = queue.drain().map(|item| *item).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(1..=20));
    assert_eq!(each.fold(0, |sum, n| sum + n.load(Ordering::Relaxed)), 20);
    assert_eq!(word.iter().map(|(_, n)| n).sum::<u64>(), 20);
    // From afar. Slots that another test has frozen for long are told.
    let mut sum = 0;
    if lock.for_each_locked(|_, n| sum += *n).is_ok() {
        assert_eq!(sum, 20);
    }
    let mut drained = 0;
    if word.drain(|_, n| drained += n).is_ok() {
        assert_eq!(drained, 20);
    }
    let mut items = 0;
    while !stack.is_empty() && stack.drain_all(|_| items += 1).is_err() {}
    assert!(stack.is_empty() && items == 20);
}

#[test]
fn an_area() {
    let area: Area<2, NodeCid> = Area::with_image([0, 100]);
    let cell = area.take().unwrap();
    for n in 1..=20 {
        cpus::hop(n);
        cell.at::<0>().add(1);
        cell.at::<1>().add(2);
        let _ = area.trim();
    }
    let mut sums = [0; 2];
    let added = cell.drain(|_, [first, second]| sums = [sums[0] + first, sums[1] + second - 100]);
    assert!(added.is_err() || sums == [20, 40], "{sums:?}");
}

/// Threads wander over all cpus, and nodes, while slots are frozen, compacted and trimmed.
#[test]
fn a_storm_of_freezes_loses_nothing() {
    static COUNTER: Counter<NodeCid> = Counter::new();
    static STACK: Stack<u64, 64, NodeCid> = Stack::new();
    static QUEUE: Queue<u64, NodeCid> = Queue::new();
    let (each, done) = (scaled(200_000), AtomicBool::new(false));
    let (put, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let take = |n: u64| _ = taken.fetch_add(n, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let freezer = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for slot in 0..cid::high_water::<NodeCid>() {
                    match freeze_of::<NodeCid>(slot) {
                        Ok(mut frozen) => _ = STACK.drain_frozen(&mut frozen, take),
                        Err(Busy::Frozen | Busy::Fence(_)) => {}
                        Err(busy) => panic!("{busy}"),
                    }
                }
                let _ = (compact_of::<NodeCid>(), percpu::trim());
            }
        });
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (put, take) = (&put, &take);
                scope.spawn(move || {
                    for n in 0..each {
                        if n % 512 == 0 {
                            cpus::hop((n / 512) as u32 + worker);
                        }
                        COUNTER.add(1);
                        if STACK.push(n).is_ok() {
                            put.fetch_add(n, Ordering::Relaxed);
                        }
                        QUEUE.push(n).unwrap();
                        put.fetch_add(n, Ordering::Relaxed);
                        STACK.pop().into_iter().chain(QUEUE.try_pop()).for_each(take);
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
        freezer.join().unwrap();
    });
    assert_eq!(COUNTER.get(), 4 * each as i64);
    while !STACK.is_empty() && STACK.drain_all(take).is_err() {}
    QUEUE.drain().for_each(take);
    assert_eq!(put.load(Ordering::Relaxed), taken.load(Ordering::Relaxed));
}

/// In signal handlers as well, while threads are thrown from cpu to cpu.
#[test]
fn a_storm_of_signals_loses_nothing() {
    static COUNTER: Counter<NodeCid> = Counter::new();
    let before = COUNTER.get();
    let added = storm::rage_doing(16, scaled(300_000), || COUNTER.add(1));
    assert_eq!((COUNTER.get() - before) as u64, added);
}

/// Frozen for good, every one of them: operations go on all the same, and by node again afterwards.
#[test]
fn no_slot_is_left() {
    run_in_child(
        "no_slot_is_left",
        |_| (),
        || {
            let all = 0..capacity_of::<NodeCid>();
            let frozen: Vec<_> = all.map_while(|slot| freeze_of::<NodeCid>(slot).ok()).collect();
            assert_eq!(freeze_of::<NodeCid>(capacity_of::<NodeCid>()).err(), Some(Busy::NoSlot));
            let counter: Counter<NodeCid> = Counter::new();
            (0..1000).for_each(|_| counter.add(1));
            assert_eq!(counter.get(), 1000);
            if frozen.len() == capacity_of::<NodeCid>() as usize {
                assert_eq!(cid::in_use::<NodeCid>(), 0);
            }
            // The other kind has slots of its own.
            let other: Counter = Counter::new();
            other.add(1);
            // More than one where the thread moved in the middle of it.
            assert_eq!(cid::in_use::<Cid>() > 0, cid::policy() != Policy::Lease);
            drop(frozen);
            counter.add(1);
            assert_eq!(counter.get(), 1001);
            assert_eq!(cid::in_use::<NodeCid>() > 0, cid::policy() != Policy::Lease);
        },
    );
}

/// A filter that refuses to place memory is told of; nothing else changes.
#[test]
fn no_mbind() {
    run_refusing("no_mbind", libc::SYS_mbind, When::Always, libc::EPERM, || {
        assert_eq!(percpu::memory().displaced, 0);
        let (by_node, other): (Counter<NodeCid>, Counter) = Default::default();
        by_node.add(1);
        other.add(1);
        assert_eq!((by_node.get(), other.get()), (1, 1));
        assert_eq!(percpu::memory().displaced, 1);
    });
}

#[derive(Clone, Debug)]
enum Op {
    Hop(u32),
    Add(i64),
    Take,
    Push(u64),
    Pop,
    Exchange(u64),
    Drain,
    Freeze(u32),
    Compact,
    Trim,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        any::<u32>().prop_map(Op::Hop),
        any::<i64>().prop_map(Op::Add),
        Just(Op::Take),
        any::<u64>().prop_map(Op::Push),
        Just(Op::Pop),
        any::<u64>().prop_map(Op::Exchange),
        Just(Op::Drain),
        (0..8u32).prop_map(Op::Freeze),
        Just(Op::Compact),
        Just(Op::Trim),
    ]
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to slots, what was put in is what comes out.
    #[test]
    fn behaves_like_one_of_each(script in proptest::collection::vec(op(), 1..100)) {
        let counter: Counter<NodeCid> = Counter::new();
        let mut stack: Stack<u64, 256, NodeCid> = Stack::new();
        let word: Word<NodeCid> = Word::new();
        let (mut sum, mut items, mut words) = (0i64, Vec::new(), 0u64);
        let take = |items: &mut Vec<u64>, item: u64| {
            let at = items.iter().position(|other| *other == item).expect("nobody pushed that");
            items.swap_remove(at);
        };
        for op in script {
            match op {
                Op::Hop(number) => cpus::hop(number),
                Op::Add(n) => {
                    counter.add(n);
                    sum = sum.wrapping_add(n);
                }
                Op::Take => prop_assert_eq!(counter.take(), std::mem::take(&mut sum)),
                Op::Push(item) => {
                    stack.push(item).unwrap();
                    items.push(item);
                }
                Op::Pop => stack.pop().into_iter().for_each(|item| take(&mut items, item)),
                Op::Exchange(n) => {
                    let old = word.exchange(n);
                    words = words.wrapping_sub(old).wrapping_add(n);
                }
                Op::Drain => _ = stack.drain_all(|item| take(&mut items, item)),
                Op::Freeze(slot) => _ = freeze_of::<NodeCid>(slot).map(|_frozen| counter.add(0)),
                Op::Compact => _ = compact_of::<NodeCid>(),
                Op::Trim => _ = percpu::trim(),
            }
            prop_assert_eq!(counter.get(), sum);
            prop_assert_eq!(stack.len(), items.len());
            prop_assert_eq!(word.iter().fold(0u64, |sum, (_, n)| sum.wrapping_add(n)), words);
        }
        stack.drain_mut().for_each(|item| take(&mut items, item));
        prop_assert!(items.is_empty());
    }
}
