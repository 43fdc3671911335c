//! Loom models: counting down while another thread waits. Then mutants with one fault each.

use super::*;
use crate::sync::machinery::scope::Private;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;

type Countdown = super::Countdown<Private>;

struct Model {
    countdown: Countdown,
    told: [UnsafeCell<u32>; 2],
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    crate::explore::within(3, model);
}

/// Leaked: loom panics in its own drop after a deadlock.
fn leaked(count: u32) -> &'static Model {
    let told = [(); 2].map(|()| UnsafeCell::new(0));
    Box::leak(Box::new(Model { countdown: Countdown::new(count), told }))
}

/// Two threads count down, and the third one waits for both.
fn explore(subtract: fn(&Countdown), wait: fn(&Countdown)) {
    check(move || {
        let model = leaked(2);
        let workers = [0, 1].map(|at| {
            thread::spawn(move || {
                // SAFETY: each thread writes its own cell, which is read after it counted down.
                model.told[at].with_mut(|told| unsafe { *told = 1 });
                subtract(&model.countdown);
            })
        });
        wait(&model.countdown);
        for told in &model.told {
            // SAFETY: both have counted down.
            assert_eq!(told.with(|told| unsafe { *told }), 1);
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

fn subtract(countdown: &Countdown) {
    countdown.subtract(1);
}

fn wait(countdown: &Countdown) {
    countdown.wait(None);
}

#[test]
fn loom_a_countdown_lets_go_at_zero() {
    explore(subtract, wait);
}

/// A thread that waits while the count is 0 for a moment leaves, even if the count rises again.
#[test]
fn loom_a_group_may_be_used_again_at_once() {
    check(|| {
        let model = leaked(1);
        let start = model.countdown.start();
        let waiter = thread::spawn(move || {
            while let Some(expected) = model.countdown.announce(start) {
                model.countdown.word.wait(expected, None);
            }
        });
        model.countdown.subtract(1);
        assert!(model.countdown.add(1));
        waiter.join().unwrap();
        assert_eq!(model.countdown.count(), 1);
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_last_one_that_wakes_nobody() {
    explore(
        |countdown| {
            countdown.word.fetch_sub(1, Ordering::Release);
        },
        wait,
    );
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_countdown_without_release() {
    explore(
        |countdown| {
            if left(countdown.word.fetch_sub(1, Ordering::Relaxed)) == 1 {
                Futex::wake(&countdown.word, u32::MAX);
            }
        },
        wait,
    );
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_wait_without_acquire() {
    explore(subtract, |countdown| {
        while left(countdown.word.load(Ordering::Relaxed)) > 0 {
            thread::yield_now();
        }
    });
}
