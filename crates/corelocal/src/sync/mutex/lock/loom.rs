//! Model: threads lock, wait, lose patience and give up, in every order. Then mutants with one fault each, which the
//! same checks must catch.

use super::*;
use crate::primitive::cell::UnsafeCell;
use crate::sync::Private;
use crate::sync::mutex::uncontended_unlock;
use crate::sync::mutex::word::*;
use ::loom::thread;
use std::boxed::Box;
use std::vec::Vec;

/// The functions with which threads lock and unlock, of which a mutant replaces one.
#[derive(Clone, Copy)]
struct Algorithm {
    lock: fn(&Lock<Private>),
    unlock: fn(&Lock<Private>),
}

const RIGHT: Algorithm = Algorithm {
    lock: |lock| {
        lock.lock();
    },
    // SAFETY: locked before.
    unlock: |lock| unsafe { lock.unlock() },
};

/// A lock and what it protects; loom reports races on it.
struct Model {
    lock: Lock<Private>,
    count: UnsafeCell<u32>,
}

// SAFETY: the cell is used under the lock; loom reports exceptions.
unsafe impl Sync for Model {}

impl Model {
    /// Leaked: loom panics in its own drop after a deadlock.
    fn leaked(lock: Lock<Private>) -> &'static Model {
        Box::leak(Box::new(Model { lock, count: UnsafeCell::new(0) }))
    }

    fn count(&self) {
        // SAFETY: the lock is owned.
        self.count.with_mut(|count| unsafe { *count += 1 });
    }

    fn pass(&self, ways: Algorithm) {
        (ways.lock)(&self.lock);
        self.count();
        (ways.unlock)(&self.lock);
    }
}

/// This many threads take the lock once each, this thread among them.
fn explore_with(make: fn() -> Lock<Private>, ways: Algorithm, threads: u32) {
    crate::explore::within(2, move || {
        let model = Model::leaked(make());
        let others: Vec<_> =
            (1..threads).map(|_| thread::spawn(move || model.pass(ways))).collect();
        model.pass(ways);
        others.into_iter().for_each(|other| other.join().unwrap());
        // SAFETY: all other threads have ended.
        assert_eq!(model.count.with(|count| unsafe { *count }), threads);
        assert!(is_free(model.lock.word.load(Relaxed)));
        assert_eq!(waiters(model.lock.queue.load(Relaxed)), 0);
    });
}

fn explore(ways: Algorithm) {
    explore_with(Lock::new, ways, 3);
}

#[test]
fn loom_one_at_a_time_and_nobody_sleeps_on() {
    explore(RIGHT);
}

#[test]
fn loom_impatient_waiters() {
    explore_with(Lock::timed, RIGHT, 3);
}

#[test]
fn loom_fair_unlocks() {
    // SAFETY: locked before.
    explore(Algorithm { unlock: |lock| unsafe { lock.unlock_fairly() }, ..RIGHT });
}

/// Waiters that give up leave the lock to the others, and finally an idle lock.
#[test]
fn loom_waiters_that_give_up() {
    crate::explore::within(2, || {
        let model = Model::leaked(Lock::new());
        let others = [true, false].map(|gives_up| {
            thread::spawn(move || {
                if !gives_up {
                    model.pass(RIGHT);
                } else if model.lock.lock_until(Deadline::now()).is_some() {
                    model.count();
                    (RIGHT.unlock)(&model.lock);
                }
            })
        });
        model.pass(RIGHT);
        others.into_iter().for_each(|other| other.join().unwrap());
        model.pass(RIGHT);
        assert!(is_free(model.lock.word.load(Relaxed)));
        assert_eq!(waiters(model.lock.queue.load(Relaxed)), 0);
    });
}

/// A lock without waiters is as fast as a new one.
#[test]
fn loom_nothing_is_left() {
    crate::explore::within(2, || {
        let model = Model::leaked(Lock::new());
        let other = thread::spawn(move || model.pass(RIGHT));
        model.pass(RIGHT);
        other.join().unwrap();
        model.pass(RIGHT);
        assert!(model.lock.is_at_rest());
    });
}

#[test]
fn loom_unlocks_by_sections() {
    explore_with(Lock::with_sections, RIGHT, 3);
}

/// Later unlocks wake a waiter that arrived during an unlock by a section.
#[test]
fn loom_unlocks_by_sections_again_and_again() {
    crate::explore::within(2, || {
        let model = Model::leaked(Lock::with_sections());
        let other = thread::spawn(move || (0..2).for_each(|_| model.pass(RIGHT)));
        (0..2).for_each(|_| model.pass(RIGHT));
        other.join().unwrap();
        model.pass(RIGHT);
        assert!(model.lock.is_at_rest());
    });
}

/// A section may clear a waiter's flags, and the waiter sleeps until its next check. One check suffices once the
/// sections that began before the wait have ended.
#[test]
fn loom_waiters_look_again_where_fences_are_refused() {
    explore_with(Lock::without_fences, RIGHT, 3);
}

/// The fault of a mutant.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Nothing,
    NoToken,
    LateCount,
    TidyOnce,
    KeepsWaking,
    FreeFirst,
    RelaxedUnlock,
    NoFence,
    EarlyFence,
    LateFence,
    NoLook,
}

/// As `Waiter`.
fn lock_with(lock: &Lock<Private>, fault: Fault) {
    if lock.take_at_once(owner::mine::<Private>()) {
        return;
    }
    let mut waiter = Waiter::new(lock, None, false);
    loop {
        let word = lock.word.load(Relaxed);
        if waiter.try_take(word).is_some() {
            if waiter.is_counted {
                lock.queue.fetch_sub(WAITER, Relaxed);
            }
            if is_deserted(lock.queue.load(Relaxed)) {
                tidy_with(lock, fault);
            }
            return;
        }
        if is_free(word) {
            continue;
        }
        let is_late = fault == Fault::LateCount;
        if !is_late && !waiter.is_counted {
            count_with(&mut waiter, fault);
        }
        let owes = waiter.owes && fault != Fault::KeepsWaking;
        let waits = word & !(if owes { WAKING } else { 0 }) | WAITERS;
        if lock.word.compare_exchange(word, waits, AcqRel, Relaxed).is_err() {
            continue;
        }
        waiter.owes = false;
        if is_late && !waiter.is_counted {
            waiter.count();
        }
        if fault == Fault::LateFence {
            uncontended_unlock::fence(lock);
        }
        let queue = lock.queue.load(Relaxed);
        if !waiter.take_token() && queue & TOKEN == 0 {
            lock.queue.wait(queue, None);
            waiter.take_token();
        }
    }
}

fn count_with(waiter: &mut Waiter<'_, Private>, fault: Fault) {
    match fault {
        Fault::NoFence | Fault::LateFence => {
            waiter.enter_queue();
        }
        Fault::EarlyFence => {
            uncontended_unlock::fence(waiter.lock);
            waiter.enter_queue();
        }
        _ => {
            waiter.count();
        }
    }
}

fn tidy_with(lock: &Lock<Private>, fault: Fault) {
    if fault != Fault::TidyOnce {
        lock.tidy();
    } else {
        lock.word.fetch_and(!FLAGS, AcqRel);
    }
}

/// As `Lock::unlock`, for a lock with sections.
fn unlock_by_section_with(lock: &Lock<Private>, fault: Fault) {
    if fault == Fault::NoLook {
        lock.word.store(0, Release);
        return;
    }
    // SAFETY: locked before.
    if !unsafe { uncontended_unlock::let_go(lock) } {
        unlock_with(lock, fault);
    }
}

/// As `Lock::unlock_slowly`.
fn unlock_with(lock: &Lock<Private>, fault: Fault) {
    let release = if fault == Fault::RelaxedUnlock { Relaxed } else { Release };
    let mut gave = false;
    let mut word = lock.word.load(Relaxed);
    loop {
        if wants_token(word) && !gave {
            word = lock.word.fetch_or(WAKING, Acquire) | WAKING;
            if is_deserted(lock.queue.load(Relaxed)) {
                tidy_with(lock, fault);
                word = lock.word.load(Relaxed);
            } else {
                if fault != Fault::NoToken && fault != Fault::FreeFirst {
                    lock.give_token();
                }
                gave = true;
            }
            continue;
        }
        match lock.word.compare_exchange(word, word & FLAGS, release, Relaxed) {
            Ok(_) => break,
            Err(now) => word = now,
        }
    }
    if gave {
        Futex::wake(&lock.queue, 1);
    }
    if gave && fault == Fault::FreeFirst {
        lock.give_token();
    }
}

macro_rules! twin {
    ($fault:ident) => {
        Algorithm {
            lock: |lock| lock_with(lock, Fault::$fault),
            unlock: |lock| unlock_with(lock, Fault::$fault),
        }
    };
}

/// A mutant whose unlocks are sections.
macro_rules! sectioned_twin {
    ($fault:ident) => {
        Algorithm { unlock: |lock| unlock_by_section_with(lock, Fault::$fault), ..twin!($fault) }
    };
}

fn explore_sections(ways: Algorithm) {
    explore_with(Lock::with_sections, ways, 2);
}

/// Otherwise the mutants below would prove nothing.
#[test]
fn loom_a_twin_without_a_fault_passes() {
    explore(twin!(Nothing));
}

/// The wake-up precedes its sleeper, which finds no sign of it.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_wake_up_without_a_token() {
    explore(twin!(NoToken));
}

/// The owner finds no waiter, and the waiter its bit.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_waiter_that_is_counted_too_late() {
    explore(twin!(LateCount));
}

/// A waiter arrived while the owner cleared its bit.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_holder_that_tidies_without_a_second_look() {
    explore(twin!(TidyOnce));
}

/// All threads believe that another one is on its way.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_waiter_that_sleeps_as_if_on_its_way() {
    explore(twin!(KeepsWaking));
}

/// The token arrives after the lock was freed, and the wake-up before the token.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_token_after_the_wake_up() {
    explore(twin!(FreeFirst));
}

/// The next owner does not see what one owner did.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_an_unlock_without_release() {
    explore(twin!(RelaxedUnlock));
}

/// Otherwise the mutants below would prove nothing.
#[test]
fn loom_a_twin_with_sections_passes() {
    explore_sections(sectioned_twin!(Nothing));
}

/// The owner found an empty queue, and clears the bit of a waiter that has arrived meanwhile.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_waiter_that_does_not_fence() {
    explore_sections(sectioned_twin!(NoFence));
}

/// The owner's section begins after the fence, and finds an empty queue.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_fence_before_the_count() {
    explore_sections(sectioned_twin!(EarlyFence));
}

/// The section that the fence ends has cleared the bit already.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_fence_after_the_bit() {
    explore_sections(sectioned_twin!(LateFence));
}

/// The owner does not check for waiters.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_an_unlock_that_does_not_look() {
    explore_sections(sectioned_twin!(NoLook));
}
