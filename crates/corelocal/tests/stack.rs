//! The stack under attack: signals, migrations, drains, fork, threads that come and go. What goes in comes
//! out once, whole, wherever. (`stack_scripts.rs` has random scripts beside naive models.)

mod sandbox;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use corelocal::cid::{self, Busy, Cid, CpuId};
use corelocal::percpu::{Batch, Stack};
use sandbox::{run_in_child, skip};
use storm::scaled;

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

const TOKENS: usize = 64;
/// A token that is in nobody's hands and on no stack.
static PARKED: [AtomicBool; TOKENS] = [const { AtomicBool::new(false) }; TOKENS];
/// A token that is in somebody's hands.
static HELD: [AtomicBool; TOKENS] = [const { AtomicBool::new(false) }; TOKENS];
static WRONG: AtomicUsize = AtomicUsize::new(0);
static NARROW: Stack<usize, 8> = Stack::new();
static WIDE: Stack<Wide, 8> = Stack::new();

/// A token of several words, which tell whether they belong together.
#[derive(Clone, Copy)]
struct Wide([usize; 3]);

impl Wide {
    fn new(token: usize) -> Wide {
        Wide([token, !token, token ^ 0x5555])
    }

    fn token(self) -> usize {
        if self.0 != Wide::new(self.0[0]).0 {
            WRONG.fetch_add(1, Ordering::Relaxed);
        }
        self.0[0]
    }
}

/// A token comes into the caller's hands, who must be the only one to have it.
fn hold(token: usize) -> usize {
    if token >= TOKENS || HELD[token].swap(true, Ordering::AcqRel) {
        WRONG.fetch_add(1, Ordering::Relaxed);
    }
    token % TOKENS
}

/// The caller is about to give it away.
fn let_go(token: usize) -> usize {
    HELD[token].store(false, Ordering::Release);
    token
}

fn park(token: usize) {
    if PARKED[let_go(token)].swap(true, Ordering::AcqRel) {
        WRONG.fetch_add(1, Ordering::Relaxed);
    }
}

/// One step of a thread or of a signal handler: takes tokens from somewhere and puts them somewhere.
fn pass_tokens() {
    static STEP: AtomicUsize = AtomicUsize::new(0);
    let step = STEP.fetch_add(1, Ordering::Relaxed);
    let mut hands = [None; 5];
    let parked = &PARKED[step * 7 % TOKENS];
    match step % 4 {
        0 => hands[0] = NARROW.pop(),
        1 => hands[0] = WIDE.pop().map(Wide::token),
        2 => {
            let mut batch: Batch<usize, 5> = Batch::new();
            NARROW.pop_some(&mut batch);
            hands.iter_mut().for_each(|hand| *hand = batch.pop());
        }
        _ => {
            let mut batch: Batch<Wide, 4> = Batch::new();
            WIDE.pop_some(&mut batch);
            hands.iter_mut().for_each(|hand| *hand = batch.pop().map(Wide::token));
        }
    }
    if hands[0].is_none() && parked.swap(false, Ordering::AcqRel) {
        hands[0] = Some(step * 7 % TOKENS);
    }
    let hands = hands.map(|hand| hand.map(hold));
    let hands = hands.into_iter().flatten();
    match step / 4 % 4 {
        0 => hands.for_each(|token| {
            let _ = NARROW.push(let_go(token)).map_err(|token| park(hold(token)));
        }),
        1 => hands.for_each(|token| {
            let _ = WIDE.push(Wide::new(let_go(token))).map_err(|wide| park(hold(wide.token())));
        }),
        2 => {
            let mut batch: Batch<usize, 5> = Batch::new();
            batch.fill(hands.map(let_go));
            NARROW.push_some(&mut batch);
            batch.for_each(|token| park(hold(token)));
        }
        _ => {
            let mut batch: Batch<Wide, 5> = Batch::new();
            batch.fill(hands.map(|token| Wide::new(let_go(token))));
            WIDE.push_some(&mut batch);
            batch.for_each(|wide| park(hold(wide.token())));
        }
    }
}

/// Tokens go round among threads and signal handlers, while slots are drained and ids lose their slots:
/// at the end each of them is somewhere, once.
fn no_token_is_lost_or_doubled(each: u64) {
    (0..TOKENS).for_each(|token| PARKED[token].store(true, Ordering::Relaxed));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0u32.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let _ = match round % 5 {
                    0 => NARROW.drain_all(|token| park(hold(token))).map(drop),
                    1 => WIDE.drain_all(|wide| park(hold(wide.token()))).map(drop),
                    2 => cid::compact().map(drop),
                    _ => {
                        let slot = round % cid::high_water::<Cid>().max(1);
                        cid::freeze(slot).map(|mut frozen| {
                            NARROW.drain_frozen(&mut frozen, |token| park(hold(token)));
                            WIDE.drain_frozen(&mut frozen, |wide| park(hold(wide.token())));
                        })
                    }
                };
                thread::yield_now();
            }
        });
        storm::rage_doing(16, each, pass_tokens);
        done.store(true, Ordering::Relaxed);
    });
    let mut seen = [0; TOKENS];
    PARKED.iter().zip(&mut seen).for_each(|(parked, seen)| {
        *seen += u32::from(parked.swap(false, Ordering::AcqRel));
    });
    let (Some(narrow), Some(wide)) = (drain(&NARROW), drain(&WIDE)) else {
        return skip("a_storm", "membarrier is refused");
    };
    narrow.into_iter().for_each(|token| seen[token] += 1);
    wide.into_iter().for_each(|wide| seen[wide.token()] += 1);
    assert_eq!(WRONG.load(Ordering::Relaxed), 0);
    assert_eq!(seen, [1; TOKENS]);
    assert!(NARROW.is_empty() && WIDE.is_empty());
}

#[test]
fn a_storm() {
    no_token_is_lost_or_doubled(scaled(300_000));
}

#[test]
fn a_storm_without_sections() {
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("a_storm_without_sections", off, || {
        no_token_is_lost_or_doubled(scaled(20_000));
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

/// Others' items, found by whoever asks.
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
    // SAFETY: the child pushes, pops and leaves: no lock, no heap.
    let child = unsafe { libc::fork() };
    if child == 0 {
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
        // SAFETY: ends the child.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    assert!(child > 0);
    let mut status = -1;
    // SAFETY: the child is ours and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child lost items");
    assert_eq!(STACK.len(), 10);
}

#[test]
fn what_can_be_shared() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Stack<u32>>();
    is_shared::<Stack<std::cell::Cell<Box<u32>>, 3, CpuId>>();
    is_shared::<Batch<u32, 3>>();
}
