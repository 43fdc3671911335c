//! Loom models: several threads call the same `Once`. Then mutants with one fault each, which the same checks must
//! catch.

use super::*;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;

struct Model {
    once: Once,
    done: UnsafeCell<u32>,
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    crate::explore::within(3, model);
}

/// Leaked: loom panics in its own drop after a deadlock.
fn leaked() -> &'static Model {
    Box::leak(Box::new(Model { once: Once::new(), done: UnsafeCell::new(0) }))
}

/// Three threads call it. Each then sees that one closure ran.
fn explore(end: fn(Claim<'_>), is_completed: fn(&Once) -> bool) {
    check(move || {
        let model = leaked();
        let want = move || {
            if !is_completed(&model.once) {
                if let Begin::Run(claim) = model.once.begin() {
                    // SAFETY: one closure runs at a time, and the cell is read only after it has completed.
                    model.done.with_mut(|done| unsafe { *done += 1 });
                    end(claim);
                }
            }
            // SAFETY: a closure has completed.
            assert_eq!(model.done.with(|done| unsafe { *done }), 1);
        };
        let others = [(); 2].map(|()| thread::spawn(want));
        want();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn loom_it_is_done_once() {
    explore(|claim| claim.finish(), Once::is_completed);
}

#[test]
fn loom_a_sealed_run_is_done_once() {
    explore(
        |claim| {
            assert!(claim.seal());
            claim.finish();
        },
        Once::is_completed,
    );
}

/// The first run is given back. The next one sees its effects.
#[test]
fn loom_what_was_cut_short_is_done_again() {
    check(|| {
        let model = leaked();
        let want = move || {
            while let Begin::Run(claim) = model.once.begin() {
                // SAFETY: one closure runs at a time.
                let run = model.done.with_mut(|done| unsafe {
                    *done += 1;
                    *done
                });
                match run {
                    1 => drop(claim),
                    2 => {
                        assert!(claim.state.was_cut_short());
                        claim.give_back();
                    }
                    _ => claim.finish(),
                }
            }
            // SAFETY: a closure has completed.
            assert_eq!(model.done.with(|done| unsafe { *done }), 3);
        };
        let other = thread::spawn(want);
        want();
        other.join().unwrap();
    });
}

/// One thread waits, from before or after a run begins. One run is cut short, and the next one completes.
fn explore_waiting(claim: fn(&Once) -> Option<Claim<'_>>) {
    check(move || {
        let model = leaked();
        let other = thread::spawn(move || {
            let claimed = || loop {
                // The waiter's flag may come in between.
                if let Some(claim) = claim(&model.once) {
                    return claim;
                }
            };
            drop(claimed());
            let claim = claimed();
            // SAFETY: one closure runs at a time, and the cell is read only after it has completed.
            model.done.with_mut(|done| unsafe { *done += 1 });
            claim.finish();
        });
        model.once.wait();
        // SAFETY: a closure has completed.
        assert_eq!(model.done.with(|done| unsafe { *done }), 1);
        other.join().unwrap();
    });
}

/// Claims an idle `Once`.
fn claim_idle(once: &Once) -> Option<Claim<'_>> {
    match once.look() {
        Seen::Idle(word) => once.claim(word),
        _ => None,
    }
}

#[test]
fn loom_a_waiter_sees_it_done() {
    explore_waiting(claim_idle);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_claim_that_forgets_waiters() {
    explore_waiting(|once| {
        let word = once.word.load(Ordering::Acquire);
        let tag = owner_tag::tag::<TAG_BITS>();
        let is_idle = word != DONE && !is_running(word);
        let claimed = RUNNING | tag;
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        (is_idle && once.word.compare_exchange(word, claimed, success, failure).is_ok())
            .then(|| Claim { once, tag, state: OnceState { was_cut_short: false } })
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_an_end_that_wakes_nobody() {
    explore(
        |claim| {
            claim.once.word.store(DONE, Ordering::Release);
            core::mem::forget(claim);
        },
        Once::is_completed,
    );
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_an_end_without_release() {
    explore(
        |claim| {
            if claim.once.word.swap(DONE, Ordering::Relaxed) & AWAITED != 0 {
                Futex::wake(&claim.once.word, u32::MAX);
            }
            core::mem::forget(claim);
        },
        Once::is_completed,
    );
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_look_without_acquire() {
    explore(|claim| claim.finish(), |once| once.word.load(Ordering::Relaxed) == DONE);
}
