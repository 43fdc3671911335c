//! Loom models of the critical sections `queue_push` and `queue_link`, with the slot's own consumer. Mutants with one
//! fault each must be caught by the same check.
//!
//! Items are references to cells that loom watches: the thread that takes one must see what was written to it.

use super::*;
use ::loom::cell::UnsafeCell as Watched;
use ::loom::thread;
use std::boxed::Box;
use std::vec::Vec;

type Item = &'static Watched<u32>;

/// The orders in which the sections store their words.
#[derive(Clone, Copy)]
struct Orders {
    push: Ordering,
    link: Ordering,
}

const RIGHT: Orders = Orders { push: Ordering::Release, link: Ordering::Release };

/// Runs the steps of the sections of one core (`rseq.rs`): there is one producer.
fn section(slot: &Slot, item: Item, orders: Orders) {
    let Producers { end, start, .. } = &slot.producers;
    let at = end.load(Ordering::Relaxed);
    if segment::is_end(at) {
        // The item is written before the section; `start` of a slot without segments.
        assert!(at.is_null());
        let first = Segment::take().expect("memory").into_raw();
        // SAFETY: a segment of this thread's own, which the slot has from now on.
        let place = unsafe {
            let segment = Segment::from_raw(first);
            let place = segment.first::<Words<Item>>();
            place.write(Words::new(item));
            segment.into_raw();
            place
        };
        start.store(place.cast(), Ordering::Relaxed);
        end.store(place.wrapping_add(1).cast(), orders.link);
        return;
    }
    let place = at.cast::<Words<Item>>();
    // SAFETY: the place at the end, which this producer alone writes to.
    unsafe { place.write(Words::new(item)) };
    end.store(place.wrapping_add(1).cast(), orders.push);
}

/// Returns the numbers of what is taken.
fn pop(slot: &Slot) -> Option<u32> {
    // SAFETY: the slot's items are of this type, each taken once.
    let item = unsafe { slot.pop::<Item>()?.into_item() };
    // SAFETY: loom checks that it is visible, and that no thread writes to it.
    Some(item.with(|number| unsafe { *number }))
}

/// A core pushes two items, the first with a segment, while another one takes; `linked` says whether that one sees the
/// segment from the start, without which it would have no place to read.
fn explore(orders: Orders, linked: bool) {
    crate::explore::within(3, move || {
        // Leaked: loom panics in a drop after a failure.
        let slot: &'static Slot = Box::leak(Box::new(Slot::zeroed()));
        let push = move |number| {
            let item: Item = Box::leak(Box::new(Watched::new(0)));
            // SAFETY: no other thread has it yet.
            item.with_mut(|at| unsafe { *at = number });
            section(slot, item, orders);
        };
        if linked {
            push(1);
        }
        let consumer = thread::spawn(move || {
            [pop(slot), pop(slot)].into_iter().flatten().collect::<Vec<u32>>()
        });
        if !linked {
            push(1);
        }
        push(2);
        let mut taken = consumer.join().unwrap();
        taken.extend(core::iter::from_fn(|| pop(slot)));
        assert_eq!(taken, [1, 2]);
    });
}

#[test]
fn loom_sections_and_a_consumer_agree() {
    explore(RIGHT, false);
    explore(RIGHT, true);
}

/// A consumer takes an item whose content it does not see.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_push_by_a_section_without_release() {
    explore(Orders { push: Ordering::Relaxed, ..RIGHT }, true);
}

/// A consumer that finds an end finds a start: as `go_on` does, which would go to null.
fn explore_start(link: Ordering) {
    crate::explore::within(3, move || {
        let slot: &'static Slot = Box::leak(Box::new(Slot::zeroed()));
        let consumer = thread::spawn(move || {
            let Producers { end, start, .. } = &slot.producers;
            let is_linked = !end.load(Ordering::Acquire).is_null();
            assert!(!is_linked || !start.load(Ordering::Relaxed).is_null(), "no start");
        });
        let item: Item = Box::leak(Box::new(Watched::new(0)));
        section(slot, item, Orders { link, ..RIGHT });
        consumer.join().unwrap();
    });
}

#[test]
fn loom_a_consumer_finds_the_start() {
    explore_start(Ordering::Release);
}

#[test]
#[should_panic(expected = "no start")]
fn loom_catches_a_link_without_release() {
    explore_start(Ordering::Relaxed);
}
