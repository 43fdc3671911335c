//! Loom mutants of the lists with one fault each, and the check that must catch them. (The lists themselves, with
//! items, are explored in `machinery/slot.rs`.)

use super::*;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;

type Two = Lists<2>;

/// The ways in which a place is put on a list and taken off. Models replace one by a wrong one.
#[derive(Clone, Copy)]
struct Algorithm {
    put_on: fn(&Two, &AtomicU64, usize),
    take_off: fn(&Two, &AtomicU64) -> Option<usize>,
}

const RIGHT: Algorithm = Algorithm { put_on: Two::put_on, take_off: Two::take_off };

struct Model {
    ways: Algorithm,
    lists: Two,
    items: [UnsafeCell<u64>; 2],
}

impl Model {
    fn push(&self, item: u64) {
        let free = || (self.ways.take_off)(&self.lists, &self.lists.free);
        let place = free().or_else(|| self.lists.claim()).unwrap();
        // SAFETY: this thread owns the place; loom checks it.
        self.items[place].with_mut(|it| unsafe { *it = item });
        (self.ways.put_on)(&self.lists, &self.lists.full, place);
    }

    /// The item, or 0.
    fn pop(&self) -> u64 {
        (self.ways.take_off)(&self.lists, &self.lists.full).map_or(0, |place| {
            // SAFETY: as in `push`.
            let item = self.items[place].with(|it| unsafe { *it });
            (self.ways.put_on)(&self.lists, &self.lists.free, place);
            item
        })
    }
}

/// A place is taken off and put on again between another thread's read of the head and its exchange.
fn explore(ways: Algorithm) {
    crate::explore::within(3, move || {
        let items = [UnsafeCell::new(0), UnsafeCell::new(0)];
        // Leaked: loom panics in a drop after a failure.
        let model: &'static _ = Box::leak(Box::new(Model { ways, lists: Two::new(), items }));
        model.push(1);
        model.push(2);
        let other = thread::spawn(|| model.pop());
        let first = model.pop();
        let second = model.pop();
        model.push(4);
        let left = model.pop() + model.pop();
        assert_eq!(first + second + left + other.join().unwrap(), 7);
    });
}

/// As `Lists::take_off`.
fn take_off_with(lists: &Two, list: &AtomicU64, order: Ordering, tag: u64) -> Option<usize> {
    let mut head = list.load(order);
    loop {
        let place = ((head & PLACE) as usize).checked_sub(1)?;
        let behind = lists.links[place].load(Ordering::Relaxed);
        let next = (head & !PLACE).wrapping_add(tag) | u64::from(behind);
        match list.compare_exchange(head, next, order, order) {
            Ok(_) => return Some(place),
            Err(now) => head = now,
        }
    }
}

/// As `Lists::put_on`.
fn put_on_with(lists: &Two, list: &AtomicU64, place: usize, order: Ordering) {
    let mut head = list.load(Ordering::Relaxed);
    loop {
        lists.links[place].store((head & PLACE) as u32, Ordering::Relaxed);
        let next = head & !PLACE | (place as u64 + 1);
        match list.compare_exchange(head, next, order, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

#[test]
fn loom_lists_as_they_are_pass() {
    explore(RIGHT);
}

/// Unmodified copies pass. Otherwise the mutants below would show nothing.
#[test]
fn loom_twins_without_a_fault_pass() {
    explore(Algorithm {
        put_on: |lists, list, place| put_on_with(lists, list, place, Ordering::Release),
        take_off: |lists, list| take_off_with(lists, list, Ordering::Acquire, TAG),
    });
}

/// A head that looks unchanged has changed: a place is on the list and owned by a thread.
#[test]
#[should_panic]
fn loom_catches_heads_without_a_tag() {
    let take_off = |lists: &Two, list: &AtomicU64| take_off_with(lists, list, Ordering::Acquire, 0);
    explore(Algorithm { take_off, ..RIGHT });
}

/// A thread that takes a place does not see the item.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_place_put_on_without_release() {
    let put_on = |lists: &Two, list: &AtomicU64, place| {
        put_on_with(lists, list, place, Ordering::Relaxed);
    };
    explore(Algorithm { put_on, ..RIGHT });
}

/// The same, on the taking side.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_place_taken_without_acquire() {
    let take_off =
        |lists: &Two, list: &AtomicU64| take_off_with(lists, list, Ordering::Relaxed, TAG);
    explore(Algorithm { take_off, ..RIGHT });
}
