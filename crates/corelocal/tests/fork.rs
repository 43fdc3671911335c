//! Children that are forked while other threads of their parent have slots frozen and values on the move.
//! A child has one thread, and what the others held must not stay held there for ever. (`leaks.rs` has
//! what becomes of items.)

mod cpus;
mod forked;
mod pthreads;
mod sandbox;
mod storm;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

use corelocal::cid::{self, Busy, Cid, NodeCid, Policy, Revocable};
use corelocal::percpu::{self, Counter, CounterVec, Stack};
use forked::End;
use sandbox::{run_in_child, skip};
use storm::{Tell, scaled};

/// Forks `times` times; each child runs `body`, which says what is wrong, makes async-signal-safe calls
/// and uses the heap as little as it can.
fn fork(times: u64, body: impl Fn() -> Option<u8>) {
    for _ in 0..times {
        let child = forked::fork(|| body().map_or(0, i32::from));
        assert_eq!(child.wait(), End::Code(0), "a child complained");
        thread::yield_now();
    }
}

/// What is wrong with the slots of a child; nothing, if all of them can be had.
fn slots_are_free() -> Option<u8> {
    if matches!(percpu::trim(), Err(Busy::Frozen)) {
        return Some(10);
    }
    // One after the other, and at most two at a time, for this thread's id must have one, too.
    let busy = (0..cid::capacity()).any(|slot| matches!(cid::freeze(slot), Err(Busy::Frozen)));
    busy.then_some(11)
}

/// Freezers and trimmers at work while the process forks: their slots are free in the child, the child's
/// trims work, its sums stand still when they are read.
fn what_others_froze_is_free(threads: u32) {
    static COUNTER: Counter = Counter::new();
    static VECTOR: CounterVec<64> = CounterVec::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _at_end = Tell(&done);
        for number in 0..threads {
            let done = &done;
            scope.spawn(move || {
                // Confined to one cpu a thread's trims freeze all slots but one.
                cpus::hop(number);
                while !done.load(Ordering::Relaxed) {
                    match number % 3 {
                        0 => drop(percpu::trim()),
                        1 => (0..cid::capacity()).for_each(|slot| drop(cid::freeze(slot))),
                        _ => drop(cid::compact()),
                    }
                    for i in 0..64 {
                        COUNTER.add(1);
                        VECTOR.add(i, 1).unwrap();
                    }
                }
            });
        }
        fork(scaled(100).max(10), || {
            let before = COUNTER.get();
            for _ in 0..100 {
                COUNTER.add(1);
            }
            if COUNTER.get() != before + 100 {
                return Some(1);
            }
            if let Some(wrong) = slots_are_free() {
                return Some(wrong);
            }
            COUNTER.add(1);
            // Nothing but this thread's id has a slot, and that one has: sections run.
            if cid::compact().is_ok() && cid::policy() != Policy::Lease {
                COUNTER.add(1);
                if cid::in_use::<Cid>() == 0 {
                    return Some(2);
                }
            }
            None
        });
    });
}

/// A child counts, whatever slots of this kind another thread of its parent has frozen.
fn a_child_counts_among_freezes<I: Revocable>(counter: &Counter<I>) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _tell = Tell(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                (0..cid::capacity()).for_each(|slot| drop(cid::freeze_of::<I>(slot)));
            }
        });
        fork(scaled(200).max(5), || {
            let before = counter.get();
            (0..1000).for_each(|_| counter.add(1));
            (counter.get() != before + 1000).then_some(1)
        });
    });
}

#[test]
fn fork_among_freezes() {
    run_in_child(
        "fork_among_freezes",
        |_| (),
        || {
            let counter: Counter<Cid> = Counter::new();
            counter.add(1);
            a_child_counts_among_freezes(&counter);
        },
    );
}

#[test]
fn fork_among_freezes_by_node() {
    run_in_child(
        "fork_among_freezes_by_node",
        |_| (),
        || {
            let counter: Counter<NodeCid> = Counter::new();
            counter.add(1);
            a_child_counts_among_freezes(&counter);
        },
    );
}

#[test]
fn frozen_slots_do_not_stay_frozen() {
    run_in_child("frozen_slots_do_not_stay_frozen", |_| (), || what_others_froze_is_free(3));
}

#[test]
fn frozen_slots_do_not_stay_frozen_without_sections() {
    let test = "frozen_slots_do_not_stay_frozen_without_sections";
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child(test, off, || what_others_froze_is_free(3));
}

/// Every slot is frozen by a thread that the child does not have: its first operation gets one all the same.
#[test]
fn sections_run_although_all_slots_were_frozen() {
    let test = "sections_run_although_all_slots_were_frozen";
    run_in_child(
        test,
        |_| (),
        || {
            static COUNTER: Counter = Counter::new();
            COUNTER.add(1);
            let (tell, told) = mpsc::channel();
            let (let_go, wait) = mpsc::channel::<()>();
            thread::scope(|scope| {
                let let_go = let_go;
                scope.spawn(move || {
                    let frozen: Vec<_> = (0..cid::capacity()).map(cid::freeze).collect();
                    tell.send(frozen.iter().all(Result::is_ok)).unwrap();
                    let _ = wait.recv();
                });
                if !told.recv().unwrap() {
                    skip(test, "membarrier is refused");
                } else if cid::policy() != Policy::Lease {
                    assert_eq!(cid::in_use::<Cid>(), 0);
                    fork(1, || {
                        COUNTER.add(1);
                        if COUNTER.get() != 2 {
                            return Some(1);
                        }
                        // One; or more, where ids are cpu numbers and the child was moved before it added.
                        (cid::in_use::<Cid>() == 0).then_some(2)
                    });
                    // The parent's are as they were.
                    COUNTER.add(1);
                    assert_eq!(cid::in_use::<Cid>(), 0);
                }
                drop(let_go);
            });
            let before = COUNTER.get();
            COUNTER.add(1);
            assert_eq!(COUNTER.get(), before + 1);
        },
    );
}

/// A slot that the forking thread itself had frozen stays so in the child, until it lets go of it.
#[test]
fn a_childs_own_frozen_slot() {
    run_in_child(
        "a_childs_own_frozen_slot",
        |_| (),
        || {
            // The first thread of a process forks another one that is the first thread of its own.
            let stack: Stack<u64> = Stack::new();
            stack.push(7).unwrap();
            let slot = cid::current::<Cid>();
            let Ok(mut frozen) = cid::freeze(slot) else { return };
            let frozen = RefCell::new(&mut frozen);
            fork(1, || {
                let is_frozen = matches!(cid::freeze(slot), Err(Busy::Frozen));
                let taken = stack.drain_frozen(&mut frozen.borrow_mut(), drop);
                (!is_frozen || taken > 1).then_some(1)
            });
            assert_eq!(stack.len(), 1);
        },
    );
}

/// What the forking thread has frozen no other thread of the child gets, whichever asks first; each item comes out once.
#[test]
fn a_slot_frozen_over_a_fork_has_one_owner() {
    let test = "a_slot_frozen_over_a_fork_has_one_owner";
    run_in_child(
        test,
        |_| (),
        || {
            const ITEMS: u64 = 50;
            let stack: Stack<u64> = Stack::new();
            let slot = cid::current::<Cid>();
            (0..ITEMS).for_each(|item| stack.push(item).unwrap());
            let Ok(mut frozen) = cid::freeze(slot) else {
                return skip(test, "membarrier is refused");
            };
            let frozen = RefCell::new(&mut frozen);
            for _ in 0..scaled(20).max(3) {
                fork(1, || {
                    let (busy, drained) = (AtomicU32::new(0), AtomicU32::new(0));
                    let meddle = || {
                        let is_busy = matches!(cid::freeze(slot), Err(Busy::Frozen));
                        busy.fetch_add(is_busy.into(), Ordering::Relaxed);
                    };
                    // Before it drains, and between two items.
                    if !pthreads::run::<2, _>(meddle) {
                        return Some(1);
                    }
                    let mut is_first = true;
                    let out = stack.drain_frozen(&mut frozen.borrow_mut(), |_| {
                        if std::mem::take(&mut is_first) {
                            pthreads::run::<2, _>(meddle);
                        }
                        drained.fetch_add(1, Ordering::Relaxed);
                    });
                    let expected = if out > 0 { 4 } else { 2 };
                    let is_right = busy.load(Ordering::Relaxed) == expected
                        && drained.load(Ordering::Relaxed) as usize == out;
                    (!is_right).then_some(2)
                });
            }
        },
    );
}
