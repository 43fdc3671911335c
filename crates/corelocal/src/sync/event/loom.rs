//! An event that is set and reset while threads wait. Then twins with one fault each.

use super::*;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;

struct Model {
    event: ManualEvent,
    told: UnsafeCell<u32>,
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    crate::explore::within(3, model);
}

/// Leaked: loom panics in the drop of its own, after a deadlock.
fn leaked() -> &'static Model {
    Box::leak(Box::new(Model { event: ManualEvent::new(false), told: UnsafeCell::new(0) }))
}

/// Waiters see what was done before it was set.
fn explore(set: fn(&ManualEvent), wait: fn(&ManualEvent)) {
    check(move || {
        let model = leaked();
        let waiters = [(); 2].map(|()| {
            thread::spawn(move || {
                wait(&model.event);
                // SAFETY: written before it was set.
                assert_eq!(model.told.with(|told| unsafe { *told }), 1);
            })
        });
        // SAFETY: the waiters read after it was set.
        model.told.with_mut(|told| unsafe { *told = 1 });
        set(&model.event);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

/// A waiter that was there leaves, though the event is reset before it looks.
fn explore_pulse(wait: fn(&ManualEvent, u32)) {
    check(move || {
        let model = leaked();
        let start = model.event.start();
        let waiter = thread::spawn(move || wait(&model.event, start));
        model.event.set();
        model.event.reset();
        waiter.join().unwrap();
    });
}

fn set(event: &ManualEvent) {
    event.set();
}

#[test]
fn loom_an_event_lets_all_go() {
    explore(set, ManualEvent::wait);
}

#[test]
fn loom_a_pulse_lets_go_who_was_there() {
    explore_pulse(|event, start| {
        while let Some(expected) = event.announce(start) {
            event.word.wait(expected, None);
        }
    });
}

#[test]
fn loom_a_wait_that_ends_leaves_the_others_alone() {
    check(|| {
        let model = leaked();
        let stays = thread::spawn(|| model.event.wait());
        let leaves = thread::spawn(|| model.event.wait_cold(Some(Deadline::now())));
        model.event.set();
        stays.join().unwrap();
        leaves.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_pulse_that_is_not_counted() {
    explore_pulse(|event, _| {
        while let Some(expected) = event.announce(event.start()) {
            event.word.wait(expected, None);
        }
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_set_that_wakes_one() {
    explore(
        |event| {
            if event.word.swap(SET | ONCE, Ordering::Release) & AWAITED != 0 {
                Futex::wake(&event.word, 1);
            }
        },
        ManualEvent::wait,
    );
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_set_without_release() {
    explore(
        |event| {
            if event.word.swap(SET | ONCE, Ordering::Relaxed) & AWAITED != 0 {
                Futex::wake(&event.word, u32::MAX);
            }
        },
        ManualEvent::wait,
    );
}

/// It says that it sleeps after the event was set, and wipes that out.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_waiter_that_does_not_look_again() {
    explore(set, |event| {
        while !event.is_set() {
            event.word.store(AWAITED, Ordering::Relaxed);
            event.word.wait(AWAITED, None);
        }
    });
}
