//! Parking and unparking in every order. Then twins with one fault each.

use super::*;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;

struct Model {
    parker: Parker,
    told: UnsafeCell<u32>,
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    crate::explore::within(3, model);
}

/// Leaked: loom panics in the drop of its own, after a deadlock.
fn leaked() -> &'static Model {
    Box::leak(Box::new(Model { parker: Parker::new(), told: UnsafeCell::new(0) }))
}

/// The thread that parks sees what was done before the unpark.
fn explore(unpark: fn(&Parker), park: fn(&Parker)) {
    check(move || {
        let model = leaked();
        let parked = thread::spawn(move || {
            park(&model.parker);
            // SAFETY: written before the unpark.
            assert_eq!(model.told.with(|told| unsafe { *told }), 1);
        });
        // SAFETY: read after the unpark.
        model.told.with_mut(|told| unsafe { *told = 1 });
        unpark(&model.parker);
        parked.join().unwrap();
        assert!(!model.parker.is_unparked());
    });
}

/// Two threads park: each unpark releases one, which unparks the other.
fn explore_two(unpark: fn(&Parker), park: fn(&Parker)) {
    check(move || {
        let model = leaked();
        let both = [(); 2].map(|()| {
            thread::spawn(move || {
                park(&model.parker);
                unpark(&model.parker);
            })
        });
        unpark(&model.parker);
        both.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(model.parker.is_unparked());
    });
}

#[test]
fn loom_an_unpark_lets_go() {
    explore(Parker::unpark, Parker::park);
}

#[test]
fn loom_each_unpark_lets_one_go() {
    explore_two(Parker::unpark, Parker::park);
}

/// A thread that gives up leaves an unpark that it did not receive to the next park.
#[test]
fn loom_a_park_that_ends_takes_nothing_along() {
    check(|| {
        let model = leaked();
        let parked = thread::spawn(|| {
            if model.parker.park_until(Deadline::now()).timed_out() {
                model.parker.park();
            }
        });
        model.parker.unpark();
        parked.join().unwrap();
        assert!(!model.parker.is_unparked());
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_an_unpark_that_wakes_nobody() {
    explore(|parker| parker.word.store(TOLD, Ordering::Release), Parker::park);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_an_unpark_without_release() {
    explore(
        |parker| {
            if parker.word.swap(TOLD, Ordering::Relaxed) == PARKED {
                Futex::wake(&parker.word, u32::MAX);
            }
        },
        Parker::park,
    );
}

/// The other thread sleeps on, without any sign of it.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_an_unpark_that_wakes_one() {
    explore_two(
        |parker| {
            if parker.word.swap(TOLD, Ordering::Release) == PARKED {
                Futex::wake(&parker.word, 1);
            }
        },
        Parker::park,
    );
}

/// It sets PARKED after the unpark, and thereby erases it.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_park_that_does_not_look_again() {
    explore(Parker::unpark, |parker| {
        while !parker.take() {
            parker.word.store(PARKED, Ordering::Relaxed);
            parker.word.wait(PARKED, None);
        }
    });
}
