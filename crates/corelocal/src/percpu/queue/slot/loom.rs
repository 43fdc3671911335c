//! Loom models of a shared slot's list. Mutants with one fault each must be caught by the same check.

use super::*;
use ::loom::thread;
use std::boxed::Box;
use std::vec::Vec;

/// The ways in which threads use a slot of numbers. Models replace one by a wrong one.
#[derive(Clone, Copy)]
struct Algorithm {
    push: fn(&Slot, u32),
    pop: fn(&Slot) -> Option<u32>,
}

fn push(slot: &Slot, n: u32) {
    assert!(slot.push_shared(Words::new(n)).is_ok());
}

fn pop(slot: &Slot) -> Option<u32> {
    // SAFETY: the slot's items are numbers, each taken once.
    unsafe { slot.pop::<u32>().map(|words| words.into_item()) }
}

const RIGHT: Algorithm = Algorithm { push, pop };

/// Two threads push, and one of them and a third one take: each item comes out once.
fn explore(ways: Algorithm) {
    crate::explore::within(3, move || {
        // Leaked: loom panics in a drop after a failure.
        let slot: &'static Slot = Box::leak(Box::new(Slot::zeroed()));
        (ways.push)(slot, 1);
        let pusher = thread::spawn(move || (ways.push)(slot, 2));
        let consumer = thread::spawn(move || (ways.pop)(slot));
        let mut taken: Vec<u32> = (ways.pop)(slot).into_iter().collect();
        pusher.join().unwrap();
        taken.extend(consumer.join().unwrap());
        taken.extend(core::iter::from_fn(|| (ways.pop)(slot)));
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

/// As `Slot::push_shared`, with this order.
fn push_with(slot: &Slot, n: u32, order: Ordering) {
    let node = slot.take_room::<u32>().unwrap();
    let newest = &slot.producers.newest;
    let mut older = newest.load(Ordering::Relaxed);
    loop {
        let (link, newer) = (AtomicPtr::new(older), AtomicPtr::new(ptr::null_mut()));
        let words = UnsafeCell::new(Words::new(n));
        // SAFETY: a place of this thread's own.
        unsafe { node.write(Node { older: link, newer, words }) };
        match newest.compare_exchange(older, node.cast(), order, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => older = now,
        }
    }
}

/// As `Slot::pop`, under this lock, with a list that `take` takes.
fn pop_with(slot: &Slot, lock: &TryLock, take: fn(&Slot) -> *mut u8) -> Option<u32> {
    let locked = lock.try_lock()?;
    if slot.consumers.oldest.load(Ordering::Relaxed).is_null() {
        let node = take(slot);
        if node.is_null() {
            return None;
        }
        turn_round(slot, node.cast());
    }
    // SAFETY: numbers, and a lock.
    unsafe { slot.pop_shared::<u32>(&locked).map(|words| words.into_item()) }
}

/// As `Slot::turn_round`, for a list that was taken.
fn turn_round(slot: &Slot, mut node: *mut Node<u32>) {
    let mut newer = ptr::null_mut::<Node<u32>>();
    while !node.is_null() {
        // SAFETY: this thread's node, if `take` is right.
        let Node { older, newer: link, .. } = unsafe { &*node };
        link.store(newer.cast(), Ordering::Relaxed);
        (newer, node) = (node, older.load(Ordering::Relaxed).cast());
    }
    slot.consumers.oldest.store(newer.cast(), Ordering::Release);
}

#[test]
fn loom_items_of_a_list_come_out_once() {
    explore(RIGHT);
}

/// Unmodified copies pass. Otherwise the mutants below would show nothing.
#[test]
fn loom_twins_without_a_fault_pass() {
    explore(Algorithm {
        push: |slot, n| push_with(slot, n, Ordering::Release),
        pop: |slot| pop_with(slot, &slot.consumers.consumer, Slot::take_newest),
    });
}

/// A thread that takes a node does not see its item.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_push_without_release() {
    explore(Algorithm { push: |slot, n| push_with(slot, n, Ordering::Relaxed), ..RIGHT });
}

/// The same, on the taking side.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_list_taken_without_acquire() {
    fn take(slot: &Slot) -> *mut u8 {
        slot.producers.newest.swap(ptr::null_mut(), Ordering::Relaxed)
    }
    explore(Algorithm { pop: |slot| pop_with(slot, &slot.consumers.consumer, take), ..RIGHT });
}

/// A node that is pushed between the read and the store is lost.
#[test]
#[should_panic(expected = "assertion")]
fn loom_catches_a_list_taken_in_two_steps() {
    fn take(slot: &Slot) -> *mut u8 {
        let newest = slot.producers.newest.load(Ordering::Acquire);
        if !newest.is_null() {
            slot.producers.newest.store(ptr::null_mut(), Ordering::Release);
        }
        newest
    }
    explore(Algorithm { pop: |slot| pop_with(slot, &slot.consumers.consumer, take), ..RIGHT });
}

/// Two consumers take the same item.
#[test]
#[should_panic]
fn loom_catches_consumers_without_a_lock() {
    let pop = |slot: &Slot| pop_with(slot, &TryLock::new(), Slot::take_newest);
    explore(Algorithm { pop, ..RIGHT });
}

/// The place of the first item of a slot that is never empty.
#[derive(Clone, Copy)]
enum First {
    Newer,
    Older,
}

/// A slot with an item at every moment, while another thread adds one and takes one.
fn explore_emptiness(
    first: First,
    is_empty: impl Fn(&Slot) -> bool + Copy + Send + Sync + 'static,
) {
    crate::explore::within(3, move || {
        // Leaked: loom panics in a drop after a failure.
        let slot: &'static Slot = Box::leak(Box::new(Slot::zeroed()));
        if let First::Older = first {
            push(slot, 0);
        }
        push(slot, 1);
        if let First::Older = first {
            assert_eq!(pop(slot), Some(0));
        }
        let mover = thread::spawn(move || {
            push(slot, 2);
            assert_eq!(pop(slot), Some(1));
        });
        assert!(!is_empty(slot));
        mover.join().unwrap();
        assert_eq!(pop(slot), Some(2));
        assert!(is_empty(slot));
    });
}

/// Lets other threads run before one of the loads of `look`: loom 0.7 alone does not stop a thread before it loads a
/// value that another one loads and then stores.
fn before(load: u32) -> impl Fn(u32) + Copy {
    move |next| {
        if next == load {
            thread::yield_now();
        }
    }
}

#[test]
fn loom_a_slot_that_is_never_empty_never_looks_so() {
    for first in [First::Newer, First::Older] {
        explore_emptiness(first, Slot::is_empty);
        for load in 1..=5 {
            explore_emptiness(first, move |slot| slot.look_pausing(before(load)).is_some());
        }
    }
}

/// The newer list is read first, then the older one, whose last item is taken meanwhile.
#[test]
#[should_panic(expected = "!is_empty")]
fn loom_catches_a_look_at_newer_items_first() {
    explore_emptiness(First::Older, |slot| {
        slot.producers.newest.load(Ordering::Acquire).is_null() && {
            thread::yield_now();
            slot.consumers.oldest.load(Ordering::Acquire).is_null()
        }
    });
}

/// The older list is read first, then the newer one, whose items move to the older one meanwhile.
#[test]
#[should_panic(expected = "!is_empty")]
fn loom_catches_a_look_at_older_items_first() {
    explore_emptiness(First::Newer, |slot| {
        slot.consumers.oldest.load(Ordering::Acquire).is_null() && {
            thread::yield_now();
            slot.producers.newest.load(Ordering::Acquire).is_null()
        }
    });
}
