//! The ring under attack: signals, migrations, several consumers, fork, panics, and random scripts beside
//! a naive model. What is accepted comes out once, whole, each slot's items in order.

mod cpus;
mod forked;
mod fragile;
mod sandbox;
mod storm;

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use corelocal::cid::{self, Cid, CpuId};
use corelocal::percpu::{PushError, Ring};
use forked::End;
use fragile::Fragile;
use proptest::prelude::*;
use sandbox::run_in_child;
use storm::scaled;
use storm::tokens::{self, Contained, fresh, no_token_is_lost_or_doubled, see, see_wide, wide};

static NARROW: Ring<usize, 64> = Ring::new();
static WIDE: Ring<tokens::Wide, 16> = Ring::new();

enum Rings {}

impl Contained for Rings {
    const CONSUMERS: u32 = 2;

    fn step(number: usize) {
        let Some(token) = fresh() else { return };
        match number % 3 {
            0 => {
                WIDE.push(wide(token)).err().into_iter().for_each(|PushError(item)| see_wide(item))
            }
            _ => NARROW.push(token).err().into_iter().for_each(|PushError(item)| see(item)),
        }
    }

    fn consume(round: u32) {
        match round % 3 {
            0 => drop(NARROW.drain(see)),
            1 => drop(NARROW.drain_slot(round % cid::capacity(), see)),
            _ => (0..20).for_each(|_| NARROW.pop().into_iter().for_each(see)),
        }
        WIDE.drain(see_wide);
    }

    fn empty() -> bool {
        NARROW.drain(see);
        WIDE.drain(see_wide);
        true
    }

    fn is_empty() -> bool {
        NARROW.is_empty() && WIDE.is_empty()
    }
}

#[test]
fn a_storm() {
    no_token_is_lost_or_doubled::<Rings>(scaled(100_000));
}

#[test]
fn a_storm_without_sections() {
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("a_storm_without_sections", off, || {
        no_token_is_lost_or_doubled::<Rings>(scaled(20_000));
    });
}

/// Threads hop from cpu to cpu; in each slot the items of each thread are in order, for each consumer.
#[test]
fn a_slot_keeps_its_order() {
    let ring: Ring<(u32, u32), 256, CpuId> = Ring::new();
    let each = scaled(400_000) as u32;
    let done = AtomicBool::new(false);
    let (ring, done) = (&ring, &done);
    let (pushed, taken) = thread::scope(|scope| {
        let pushers: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn(move || {
                    let mut pushed = 0;
                    for n in 0..each {
                        pushed += usize::from(ring.push((thread, n)).is_ok());
                        if n % 1024 == 0 {
                            cpus::hop(n / 1024);
                        }
                    }
                    pushed
                })
            })
            .collect();
        let consumers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    let mut last = HashMap::new();
                    let mut taken = 0;
                    while !done.load(Ordering::Relaxed) {
                        for slot in 0..cid::high_water::<CpuId>() {
                            taken += ring.drain_slot(slot, |(thread, n)| {
                                let before = last.insert((slot, thread), n);
                                assert!(before < Some(n), "{before:?} {n}");
                            });
                        }
                    }
                    taken
                })
            })
            .collect();
        let pushed: usize = pushers.into_iter().map(|pusher| pusher.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        let taken: usize = consumers.into_iter().map(|consumer| consumer.join().unwrap()).sum();
        (pushed, taken)
    });
    assert_eq!(taken + ring.drain(drop), pushed);
}

/// The child has copies, and both go on from there without meeting; whatever locks other threads held.
#[test]
fn fork_while_others_take() {
    let ring: Ring<u64, 64> = Ring::new();
    let done = AtomicBool::new(false);
    // The first child's that is not 0. Told after the threads were.
    let mut end = End::Code(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = ring.push(1);
                    ring.drain(drop);
                }
            });
        }
        for _ in 0..scaled(200) {
            let child = forked::fork(|| {
                // Whatever is there comes out, and the locks that others held are free again.
                while ring.drain(drop) > 0 {}
                let empty = ring.is_empty();
                let works = (0..100).all(|n| ring.push(n).is_ok() && ring.pop() == Some(n));
                i32::from(!empty) + 2 * i32::from(!works)
            });
            end = child.wait();
            if end != End::Code(0) {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(end, End::Code(0), "the child's ring does not work");
}

#[test]
fn what_is_left_is_dropped_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let fragile = |panics| Fragile { drops: drops.clone(), panics };
    let ring: Ring<Fragile, 64> = Ring::new();
    (0..40).for_each(|_| assert!(ring.push(fragile(false)).is_ok()));
    drop(ring.pop());
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    drop(ring);
    assert_eq!((drops.load(Ordering::Relaxed), Arc::strong_count(&drops)), (40, 1));

    let fragile = |panics| Fragile { drops: drops.clone(), panics };
    let ring: Ring<Fragile, 64> = Ring::new();
    (0..40).for_each(|n| assert!(ring.push(fragile(n == 10)).is_ok()));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(ring))).is_err());
    assert_eq!((drops.load(Ordering::Relaxed), Arc::strong_count(&drops)), (80, 1));
}

/// A closure that panics loses the few items that were taken out with the one it saw, and no others.
#[test]
fn a_panic_in_a_drain() {
    let drops = Arc::new(AtomicUsize::new(0));
    let ring: Ring<Fragile, 64> = Ring::new();
    for _ in 0..50 {
        assert!(ring.push(Fragile { drops: drops.clone(), panics: false }).is_ok());
    }
    let seen = Cell::new(0);
    let drain = || {
        ring.drain(|item| {
            seen.set(seen.get() + 1);
            drop(item);
            assert!(seen.get() < 20, "meant to");
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(drain)).is_err());
    assert_eq!(seen.get(), 20);
    let dropped = drops.load(Ordering::Relaxed);
    assert!((20..36).contains(&dropped), "{dropped}");
    assert_eq!(ring.drain(drop), 50 - dropped);
    assert_eq!(drops.load(Ordering::Relaxed), 50);
}

/// A closure may use the ring that it drains.
#[test]
fn a_closure_uses_the_ring() {
    let ring: Ring<u64, 64> = Ring::new();
    (0..30).for_each(|n| ring.push(n).unwrap());
    let mut sum = 0;
    ring.drain(|n| {
        let next = ring.pop();
        sum += n + next.unwrap_or(0);
        // Moved to another core in between, the thread may find the later items first.
        if n == 0 || next == Some(0) {
            ring.push(1000).unwrap();
        }
    });
    ring.drain(|n| sum += n);
    assert_eq!(sum, (0..30).sum::<u64>() + 1000);
}

#[test]
fn items_of_all_shapes() {
    #[repr(align(64))]
    #[derive(Clone, Debug, PartialEq)]
    struct Line(u8);

    fn check<T: Clone + Debug + PartialEq + Send + 'static>(item: T) {
        let ring: Ring<T, 4> = Ring::default();
        for _ in 0..10 {
            for _ in 0..3 {
                ring.push(item.clone()).expect("room");
            }
            assert_eq!(ring.pop().as_ref(), Some(&item));
            assert_eq!(ring.drain(|taken| assert_eq!(taken, item)), 2);
        }
    }
    check(());
    check(7u8);
    check((7u8, 500u16));
    check(Box::new(7));
    check(String::from("more than a word"));
    check(Line(9));
    check([3u64; 200]);
    check(Some(1.5f64));
}

#[derive(Clone, Debug)]
enum Op {
    Push(u16),
    Pop,
    Drain,
    Len,
    Replace,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => any::<u16>().prop_map(Op::Push),
        4 => Just(Op::Pop),
        1 => Just(Op::Drain),
        1 => Just(Op::Len),
        1 => Just(Op::Replace),
    ]
}

/// On one cpu a ring of cpus is one ring.
fn behaves_like_a_deque<T>(script: Vec<Op>, item: fn(u16) -> T) -> Result<(), TestCaseError>
where
    T: Clone + Debug + PartialEq + Send + 'static,
{
    cpus::stay();
    let mut ring: Ring<T, 8, CpuId> = Ring::new();
    let mut model = VecDeque::new();
    for op in script {
        match op {
            Op::Push(n) => {
                let pushed = ring.push(item(n));
                if model.len() < 8 {
                    prop_assert_eq!(pushed, Ok(()));
                    model.push_back(item(n));
                } else {
                    prop_assert_eq!(pushed, Err(PushError(item(n))));
                }
            }
            Op::Pop => prop_assert_eq!(ring.pop(), model.pop_front()),
            Op::Drain => {
                let mut drained = VecDeque::new();
                prop_assert_eq!(ring.drain(|item| drained.push_back(item)), model.len());
                prop_assert_eq!(drained, std::mem::take(&mut model));
            }
            Op::Len => prop_assert_eq!(ring.len(), model.len()),
            Op::Replace => {
                ring = Ring::new();
                model.clear();
            }
        }
    }
    Ok(())
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn narrow_items(script in proptest::collection::vec(op(), 1..200)) {
        behaves_like_a_deque(script, |n| n)?;
    }

    #[test]
    fn wide_items(script in proptest::collection::vec(op(), 1..200)) {
        behaves_like_a_deque(script, |n| format!("item {n}"))?;
    }
}

#[test]
fn sends_what_can_be_sent() {
    fn shared<T: Send + Sync>() {}
    shared::<Ring<Cell<u8>, 8>>();
    shared::<Ring<Box<dyn Send>, 8, Cid>>();
}
