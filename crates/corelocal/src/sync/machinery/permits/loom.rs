//! Model: takers and givers in every order. Then mutants with one fault each, which the same checks must catch.

use super::*;
use crate::sync::machinery::scope::Private;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;

type Permits = super::Permits<Private>;

/// The functions of takers and givers, of which a mutant replaces one.
#[derive(Clone, Copy)]
struct Algorithm {
    give: fn(&Permits),
    take: fn(&Permits),
    /// Takes a permit; returns false if it gave up.
    try_take: fn(&Permits) -> bool,
}

const RIGHT: Algorithm = Algorithm {
    give: |permits| {
        permits.give(1, Permits::MAX, false).expect("few");
    },
    take: |permits| assert!(permits.take_until(None, profile::Kind::Semaphore)),
    // In a model the deadline passes at any time.
    try_take: |permits| permits.take_until(Some(Deadline::now()), profile::Kind::Semaphore),
};

struct Model {
    permits: Permits,
    told: UnsafeCell<u32>,
}

/// Leaked: loom panics in its own drop after a deadlock.
fn leaked() -> &'static Model {
    Box::leak(Box::new(Model { permits: Permits::new(0), told: UnsafeCell::new(0) }))
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    crate::explore::within(3, model);
}

/// Explores one giver and one taker, which must see what the giver did before.
fn explore_one(ways: Algorithm) {
    check(move || {
        let model = leaked();
        let taker = thread::spawn(move || {
            (ways.take)(&model.permits);
            // SAFETY: the giver wrote it before it gave.
            assert_eq!(model.told.with(|told| unsafe { *told }), 1);
        });
        // SAFETY: the taker reads it after it took.
        model.told.with_mut(|told| unsafe { *told = 1 });
        (ways.give)(&model.permits);
        taker.join().unwrap();
        assert_eq!(model.permits.available(), 0);
    });
}

/// Two takers, and two permits one after the other.
fn explore_two(ways: Algorithm) {
    check(move || {
        let model = leaked();
        let takers = [(); 2].map(|()| thread::spawn(move || (ways.take)(&model.permits)));
        (ways.give)(&model.permits);
        (ways.give)(&model.permits);
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        assert_eq!(model.permits.available(), 0);
    });
}

/// One taker gives up, another one does not; a permit for the one that stays.
fn explore_giving_up(ways: Algorithm) {
    check(move || {
        let model = leaked();
        let stays = thread::spawn(move || (ways.take)(&model.permits));
        let leaves = thread::spawn(move || {
            if (ways.try_take)(&model.permits) {
                (ways.give)(&model.permits);
            }
        });
        (ways.give)(&model.permits);
        stays.join().unwrap();
        leaves.join().unwrap();
        assert_eq!(model.permits.available(), 0);
    });
}

#[test]
fn loom_a_taker_sees_what_the_giver_did() {
    explore_one(RIGHT);
}

#[test]
fn loom_each_permit_lets_one_go() {
    explore_two(RIGHT);
}

#[test]
fn loom_who_gives_up_takes_no_wake_up_along() {
    explore_giving_up(RIGHT);
}

/// Two permits at once, for two takers.
#[test]
fn loom_many_permits_let_many_go() {
    check(|| {
        let model = leaked();
        let takers = [(); 2].map(|()| thread::spawn(|| (RIGHT.take)(&model.permits)));
        model.permits.give(2, Permits::MAX, false);
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        assert_eq!(model.permits.available(), 0);
    });
}

/// A sleeper does not learn of the permit.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_giver_that_wakes_nobody() {
    let give = |permits: &Permits| {
        let word = permits.word.load(Ordering::Relaxed);
        if permits.word.fetch_add(1, Ordering::Release) & AWAITED != 0 {
            let _ = word;
        }
    };
    explore_one(Algorithm { give, ..RIGHT });
}

/// The taker does not see what the giver did.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_giver_without_release() {
    let give = |permits: &Permits| {
        if permits.word.fetch_add(1, Ordering::Relaxed) & AWAITED != 0 {
            Futex::wake(&permits.word, 1);
        }
    };
    explore_one(Algorithm { give, ..RIGHT });
}

/// Of two sleepers the first takes a permit as if there were no other, and the next giver wakes no thread.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_sleeper_that_forgets_the_others() {
    let take = |permits: &Permits| {
        while !permits.try_take() {
            permits.wait(None, false);
        }
    };
    explore_two(Algorithm { take, ..RIGHT });
}

/// The second giver finds no mark although a thread sleeps: only the woken thread can pass the permit on.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_sleeper_that_leaves_permits_to_nobody() {
    let take = |permits: &Permits| {
        loop {
            permits.wait(None, false);
            let word = permits.word.load(Ordering::Relaxed);
            let taken = (word.wrapping_sub(1)) | AWAITED;
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            if number(word) > 0
                && permits.word.compare_exchange(word, taken, success, failure).is_ok()
            {
                return;
            }
        }
    };
    explore_two(Algorithm { take, ..RIGHT });
}

/// The wake-up for the thread that stays went to the one that gives up.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_one_that_gives_up_without_a_word() {
    let try_take = |permits: &Permits| {
        // Woken, and it does not check again.
        permits.wait(Some(Deadline::now()), false);
        false
    };
    explore_giving_up(Algorithm { try_take, ..RIGHT });
}
