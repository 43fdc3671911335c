//! The stack under attack: signals, migrations, drains, fork, threads that come and go. What goes in comes
//! out once, whole, wherever. (`stack_scripts.rs` has random scripts beside naive models.)

mod forked;
mod sandbox;
mod storm;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use corelocal::cid::{self, Busy, Cid, CpuId};
use corelocal::percpu::{Batch, PushError, Stack};
use sandbox::{run_in_child, skip};
use storm::scaled;
use storm::tokens::{self, Contained, fresh, no_token_is_lost_or_doubled, see, see_wide, wide};

/// All items, others' too; `None` where the kernel refuses the fence. Another test's drain may have a
/// slot frozen for a moment.
fn drain<T: Send + 'static, const CAPACITY: usize>(stack: &Stack<T, CAPACITY>) -> Option<Vec<T>> {
    let mut items = Vec::new();
    loop {
        match stack.drain_all(|item| items.push(item)) {
            Ok(_) => return Some(items),
            Err(Busy::Frozen) => thread::yield_now(),
            Err(_) => return None,
        }
    }
}

static NARROW: Stack<usize, 8> = Stack::new();
static WIDE: Stack<tokens::Wide, 8> = Stack::new();

enum Stacks {}

impl Contained for Stacks {
    const CONSUMERS: u32 = 1;

    fn step(number: usize) {
        let (mut narrow, mut wides): (Batch<usize, 5>, Batch<tokens::Wide, 5>) = Default::default();
        match number % 4 {
            0 => NARROW.pop().into_iter().for_each(see),
            1 => WIDE.pop().into_iter().for_each(see_wide),
            2 => {
                NARROW.pop_some(&mut narrow);
                narrow.by_ref().for_each(see);
            }
            _ => {
                WIDE.pop_some(&mut wides);
                wides.by_ref().for_each(see_wide);
            }
        }
        match number / 4 % 4 {
            0 => {
                let refused = fresh().and_then(|token| NARROW.push(token).err());
                refused.into_iter().for_each(|PushError(item)| see(item));
            }
            1 => {
                let refused = fresh().and_then(|token| WIDE.push(wide(token)).err());
                refused.into_iter().for_each(|PushError(item)| see_wide(item));
            }
            2 => {
                narrow.fill(std::iter::from_fn(fresh).take(1 + number % 5));
                NARROW.push_some(&mut narrow);
                narrow.for_each(see);
            }
            _ => {
                wides.fill(std::iter::from_fn(fresh).take(1 + number % 5).map(wide));
                WIDE.push_some(&mut wides);
                wides.for_each(see_wide);
            }
        }
    }

    fn consume(round: u32) {
        let _ = match round % 5 {
            0 => NARROW.drain_all(see).map(drop),
            1 => WIDE.drain_all(see_wide).map(drop),
            2 => cid::compact().map(drop),
            _ => {
                let slot = round % cid::high_water::<Cid>().max(1);
                cid::freeze(slot).map(|mut frozen| {
                    NARROW.drain_frozen(&mut frozen, see);
                    WIDE.drain_frozen(&mut frozen, see_wide);
                })
            }
        };
        thread::yield_now();
    }

    fn empty() -> bool {
        let (Some(narrow), Some(wide)) = (drain(&NARROW), drain(&WIDE)) else { return false };
        narrow.into_iter().for_each(see);
        wide.into_iter().for_each(see_wide);
        true
    }

    fn is_empty() -> bool {
        NARROW.is_empty() && WIDE.is_empty()
    }
}

/// Tokens go in and out, one by one and in batches, while slots are drained and ids lose their slots.
fn storm_of_stacks(each: u64) {
    if !no_token_is_lost_or_doubled::<Stacks>(each) {
        skip("a_storm", "membarrier is refused");
    }
}

#[test]
fn a_storm() {
    storm_of_stacks(scaled(100_000));
}

#[test]
fn a_storm_without_sections() {
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("a_storm_without_sections", off, || {
        storm_of_stacks(scaled(20_000));
    });
}

/// Items that count their drops, through both hooks and a depot behind.
#[test]
fn spills_and_refills() {
    static LIVE: AtomicUsize = AtomicUsize::new(0);
    struct Item(u64);
    impl Drop for Item {
        fn drop(&mut self) {
            LIVE.fetch_sub(1, Ordering::Relaxed);
        }
    }
    static NEAR: Stack<Box<Item>, 16> = Stack::new();
    #[allow(clippy::vec_box, reason = "what travels is the box")]
    static FAR: Mutex<Vec<Box<Item>>> = Mutex::new(Vec::new());
    static SUM: AtomicU64 = AtomicU64::new(0);
    let each = scaled(50_000);
    let far = || FAR.lock().unwrap();
    thread::scope(|scope| {
        for thread in 0..6u64 {
            scope.spawn(move || {
                for n in 0..each {
                    // Bursts of pushes, then of pops.
                    if (n / 50 + thread) % 2 == 0 {
                        LIVE.fetch_add(1, Ordering::Relaxed);
                        SUM.fetch_add(n, Ordering::Relaxed);
                        let item = Box::new(Item(n));
                        NEAR.push_or_spill(item, |batch: Batch<_, 8>| far().extend(batch));
                    } else {
                        let item = NEAR.pop_or_refill(
                            |batch: &mut Batch<_, 8>| {
                                let mut far = far();
                                batch.fill(std::iter::from_fn(|| far.pop()));
                            },
                            |surplus| far().extend(surplus),
                        );
                        SUM.fetch_sub(item.map_or(0, |item| item.0), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let Some(near) = drain(&NEAR) else { return skip("spills_and_refills", "no membarrier") };
    let rest = near.into_iter().chain(std::mem::take(&mut *far()));
    assert_eq!(rest.map(|item| item.0).sum::<u64>(), SUM.load(Ordering::Relaxed));
    assert_eq!(LIVE.load(Ordering::Relaxed), 0);
}

#[test]
fn hooks_run_only_when_they_must() {
    run_in_child(
        "hooks_run_only_when_they_must",
        |_| (),
        || {
            let stack: Stack<u32, 4> = Stack::new();
            let mut spilled = Vec::new();
            // On one core the first four find room; the fifth takes one with it.
            for n in 0..5 {
                stack.push_or_spill(n, |batch: Batch<u32, 2>| spilled.extend(batch));
            }
            assert_eq!(stack.len() + spilled.len(), 5);
            // Even if there is no room for any but the item itself.
            let none: Stack<u32, 0> = Stack::new();
            none.push_or_spill(7, |batch: Batch<u32, 1>| spilled.extend(batch));
            assert_eq!(spilled.pop(), Some(7));
            let refilled = none.pop_or_refill(
                |batch: &mut Batch<u32, 3>| assert_eq!(batch.fill([1, 2, 3]), 3),
                |surplus| spilled.extend(surplus),
            );
            assert_eq!(refilled, Some(3));
            assert!(spilled.ends_with(&[2, 1]));
            let nothing = none.pop_or_refill(|_: &mut Batch<u32, 3>| (), |_| unreachable!());
            assert_eq!(nothing, None);
        },
    );
}

/// Items of other cores are found by every thread.
#[test]
fn drains_reach_every_thread() {
    let stack: Stack<String> = Stack::new();
    thread::scope(|scope| {
        for thread in 0..8 {
            let stack = &stack;
            scope.spawn(move || {
                (0..4).for_each(|n| stack.push(format!("{n} of {thread}")).unwrap());
            });
        }
    });
    assert_eq!(stack.len(), 32);
    let Some(mut items) = drain(&stack) else { return skip("drains", "membarrier is refused") };
    items.sort();
    items.dedup();
    assert_eq!((items.len(), stack.len()), (32, 0));
}

/// Stacks are made and dropped while others are used: no block has two owners, and nothing is left over.
#[test]
fn stacks_come_and_go() {
    let item = Arc::new(());
    thread::scope(|scope| {
        for _ in 0..4 {
            let item = &item;
            scope.spawn(move || {
                for _ in 0..scaled(500) {
                    let mut stacks: [Stack<Arc<()>, 5>; 4] = Default::default();
                    for stack in &mut stacks {
                        assert_eq!(stack.len(), 0);
                        let pushed = (0..7).filter(|_| stack.push(item.clone()).is_ok()).count();
                        assert!(pushed >= 5);
                        assert_eq!(stack.len(), pushed);
                        stack.drain_mut().next();
                    }
                }
            });
        }
    });
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn threads_and_their_destructors() {
    static STACK: Stack<u32, 1000> = Stack::new();
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            STACK.push(2).unwrap();
        }
    }
    thread_local!(static LAST: Last = const { Last });
    for _ in 0..50 {
        thread::spawn(|| LAST.with(|_| STACK.push(1).unwrap())).join().unwrap();
    }
    assert_eq!(STACK.len(), 100);
}

/// The child has copies of all items, and neither sees what the other does.
#[test]
fn fork_copies_the_items() {
    static STACK: Stack<u64, 100> = Stack::new();
    (0..10).for_each(|n| STACK.push(n).unwrap());
    let child = forked::judge(|| {
        let mut sum = 0;
        let mut right = STACK.push(100).is_ok();
        // Another cpu has another stack: all that there is comes out by a drain.
        while let Some(n) = STACK.pop() {
            sum += n;
        }
        right &= match STACK.drain_all(|n| sum += n) {
            Ok(_) => sum == 145 && STACK.is_empty(),
            Err(_) => true,
        };
        right
    });
    child.succeeds();
    assert_eq!(STACK.len(), 10);
}

#[test]
fn what_can_be_shared() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Stack<u32>>();
    is_shared::<Stack<std::cell::Cell<Box<u32>>, 3, CpuId>>();
    is_shared::<Batch<u32, 3>>();
}
