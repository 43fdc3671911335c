//! Loom models of a shared slot. Mutants with one fault each must be caught by the same check.

use super::*;
use ::loom::thread;
use std::boxed::Box;
use std::vec::Vec;

type Two = Slot<u32, 2>;

/// The ways in which threads use a slot. Models replace one by a wrong one.
#[derive(Clone, Copy)]
struct Algorithm {
    push: fn(&Two, u32) -> bool,
    pop: fn(&Two) -> Option<u32>,
}

const RIGHT: Algorithm = Algorithm {
    push: |slot, n| slot.push_shared(Words::new(n)).is_ok(),
    pop: |slot| {
        let mut item = None;
        // SAFETY: it was pushed, and taken once.
        slot.take(1, |words| item = Some(unsafe { words.into_item() }))?;
        item
    },
};

/// One thread pushes more than fits, two push one each, and two take: every accepted item comes out once.
fn explore(ways: Algorithm) {
    crate::explore::within(2, move || {
        // Leaked: loom panics in a drop after a failure.
        let slot: &'static Two = Box::leak(Box::new(Two::zeroed()));
        let mut pushed = Vec::from([1]);
        assert!((ways.push)(slot, 1));
        let pusher = thread::spawn(move || (ways.push)(slot, 2));
        let consumer = thread::spawn(move || (ways.pop)(slot));
        let mut taken: Vec<u32> = (ways.pop)(slot).into_iter().collect();
        pushed.extend((3..5).filter(|n| (ways.push)(slot, *n)));
        pushed.extend(pusher.join().unwrap().then_some(2));
        taken.extend(consumer.join().unwrap());
        taken.extend(core::iter::from_fn(|| (ways.pop)(slot)));
        taken.sort_unstable();
        pushed.sort_unstable();
        assert_eq!(taken, pushed);
    });
}

/// As `Slot::push_shared`, under this lock.
fn push_with(slot: &Two, n: u32, lock: &TryLock, order: Ordering) -> bool {
    let Some(_locked) = lock.try_lock() else { return false };
    let tail = slot.producer.tail.load(Ordering::Relaxed);
    let is_room = tail - slot.consumer.head.load(Ordering::Acquire) <= Two::MASK;
    if is_room {
        // SAFETY: a free place; loom checks that this thread alone accesses it.
        slot.place(tail).with_mut(|words| unsafe { words.write(Words::new(n)) });
        slot.producer.tail.store(tail + 1, order);
    }
    is_room
}

/// As `Slot::take` of one item, under this lock.
fn pop_with(slot: &Two, lock: &TryLock, order: Ordering) -> Option<u32> {
    let _locked = lock.try_lock()?;
    let head = slot.consumer.head.load(Ordering::Relaxed);
    if slot.producer.tail.load(Ordering::Acquire) == head {
        return None;
    }
    // SAFETY: an item; loom checks that it is visible.
    let item = slot.place(head).with(|words| unsafe { words.read().into_item() });
    slot.consumer.head.store(head + 1, order);
    Some(item)
}

#[test]
fn loom_items_come_out_once() {
    explore(RIGHT);
}

/// Unmodified copies pass. Otherwise the mutants below would show nothing.
#[test]
fn loom_twins_without_a_fault_pass() {
    explore(Algorithm {
        push: |slot, n| push_with(slot, n, &slot.producer.producers, Ordering::Release),
        pop: |slot| pop_with(slot, &slot.consumer.consumers, Ordering::Release),
    });
}

/// A thread that takes an item does not see its content.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_tail_without_release() {
    explore(Algorithm {
        push: |slot, n| push_with(slot, n, &slot.producer.producers, Ordering::Relaxed),
        ..RIGHT
    });
}

/// A place is overwritten while its old item is read.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_head_without_release() {
    explore(Algorithm {
        pop: |slot| pop_with(slot, &slot.consumer.consumers, Ordering::Relaxed),
        ..RIGHT
    });
}

/// Two producers write to one place.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_producers_without_a_lock() {
    explore(Algorithm {
        push: |slot, n| push_with(slot, n, &TryLock::new(), Ordering::Release),
        ..RIGHT
    });
}

/// Two consumers take the same item.
#[test]
#[should_panic]
fn loom_catches_consumers_without_a_lock() {
    explore(Algorithm { pop: |slot| pop_with(slot, &TryLock::new(), Ordering::Release), ..RIGHT });
}

/// Runs the steps of the critical section `ring_push` (`rseq.rs`): one producer, without a lock.
fn section(slot: &Two, n: u32, head: Ordering, commit: Ordering) -> bool {
    let tail = slot.producer.tail.load(Ordering::Relaxed);
    let is_room = tail - slot.consumer.head.load(head) <= Two::MASK;
    if is_room {
        // SAFETY: a free place; loom checks that this thread alone accesses it.
        slot.place(tail).with_mut(|words| unsafe { words.write(Words::new(n)) });
        slot.producer.tail.store(tail + 1, commit);
    }
    is_room
}

/// A core pushes more than fits while another one takes: every accepted item comes out once, in order.
fn explore_section(head: Ordering, commit: Ordering) {
    crate::explore::within(3, move || {
        // Leaked: loom panics in a drop after a failure.
        let slot: &'static Two = Box::leak(Box::new(Two::zeroed()));
        let consumer = thread::spawn(move || {
            [(RIGHT.pop)(slot), (RIGHT.pop)(slot)].into_iter().flatten().collect::<Vec<u32>>()
        });
        let pushed: Vec<u32> = (1..5).filter(|n| section(slot, *n, head, commit)).collect();
        let mut taken = consumer.join().unwrap();
        taken.extend(core::iter::from_fn(|| (RIGHT.pop)(slot)));
        assert_eq!(taken, pushed);
    });
}

#[test]
fn loom_a_section_and_a_consumer_agree() {
    explore_section(Ordering::Acquire, Ordering::Release);
}

/// The commit is a plain store.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_section_without_release() {
    explore_section(Ordering::Acquire, Ordering::Relaxed);
}

/// The section overwrites a place while its old item is read.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_section_without_acquire() {
    explore_section(Ordering::Relaxed, Ordering::Release);
}
