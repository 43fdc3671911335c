//! Loom models: threads wait for items, time out, and are notified in every way. Then mutants with one fault each,
//! which the same checks must catch.

use super::guard::sealed;
use super::*;
use crate::primitive::cell::UnsafeCell;
use crate::sync::mutex::Lock;
use ::loom::thread;
use std::boxed::Box;
use std::vec::Vec;

/// A lock, the items it protects, and a condition variable for threads that want one.
struct Model {
    lock: Lock<Private>,
    items: UnsafeCell<u32>,
    changed: Condvar,
    ways: Algorithm,
}

// SAFETY: the cell is used under the lock; loom reports violations.
unsafe impl Sync for Model {}

/// The ways in which threads wait and notify. Models replace one by a wrong one.
#[derive(Clone, Copy)]
struct Algorithm {
    sleep: fn(&'static Model, Option<Deadline>) -> bool,
    /// Adds this many items and notifies.
    push: fn(&'static Model, u32),
    adopt: fn(&Lock<Private>, u32),
}

/// The lock of the model, held.
struct Held<'a>(&'a Model);

impl sealed::CondvarGuard for Held<'_> {
    unsafe fn release(&self) {
        // SAFETY: `self` stands for the held lock.
        unsafe { self.0.lock.unlock() };
    }

    unsafe fn reacquire(&self) {
        self.0.lock.lock_as_guest();
    }

    fn lock_address(&self) -> usize {
        core::ptr::from_ref(&self.0.lock).addr()
    }

    fn adopt(&self, requeue: &mut dyn FnMut(u32, sealed::Place<'_>) -> u32) {
        let lock = &self.0.lock;
        let moved = requeue(lock.room_for_guests(), sealed::Place::new(lock.queue()));
        (self.0.ways.adopt)(lock, moved);
    }
}

/// The lock of the model, held, and passed by value for a wait.
struct Owned(&'static Model);

impl sealed::OwnedGuard for Owned {
    type Lock = &'static Model;
    type Locked = ();

    fn unlock(self) -> &'static Model {
        // SAFETY: `self` stands for the held lock.
        unsafe { self.0.lock.unlock() };
        self.0
    }

    fn relock(model: &'static Model) {
        model.lock.lock();
    }
}

fn adopt(lock: &Lock<Private>, moved: u32) {
    if moved > 0 {
        // SAFETY: the caller has held the lock since before the requeue.
        unsafe { lock.expect_guests(moved) };
    }
}

const RIGHT: Algorithm = Algorithm {
    sleep: |model, until| model.changed.sleep(&mut Held(model), until),
    push: one_by_one,
    adopt,
};

/// Waiters that cannot be requeued.
const OWNED: Algorithm =
    Algorithm { sleep: |model, until| model.changed.sleep_owned(Owned(model), until).1, ..RIGHT };

fn one_by_one(model: &'static Model, count: u32) {
    for _ in 0..count {
        model.with_lock(|model| model.change(1));
        model.changed.notify_one();
    }
}

fn all_at_once(model: &'static Model, count: u32) {
    model.with_lock(|model| model.change(count));
    model.changed.notify_all();
}

fn one_by_one_locked(model: &'static Model, count: u32) {
    for _ in 0..count {
        model.with_lock(|model| {
            model.change(1);
            model.changed.notify_one_locked(&Held(model));
        });
    }
}

fn all_at_once_locked(model: &'static Model, count: u32) {
    model.with_lock(|model| {
        model.change(count);
        model.changed.notify_all_locked(&Held(model));
    });
}

impl Model {
    /// Leaked: loom panics in its own drop after a deadlock.
    fn leaked(ways: Algorithm) -> &'static Model {
        let (lock, items) = (Lock::new(), UnsafeCell::new(0));
        Box::leak(Box::new(Model { lock, items, changed: Condvar::new(), ways }))
    }

    fn with_lock(&'static self, act: impl FnOnce(&'static Model)) {
        self.lock.lock();
        act(self);
        // SAFETY: locked above.
        unsafe { self.lock.unlock() };
    }

    fn change(&self, more: u32) {
        // SAFETY: the lock is held.
        self.items.with_mut(|items| unsafe { *items += more });
    }

    /// Takes an item. False if it timed out first.
    fn take(&'static self, gives_up: bool) -> bool {
        let mut took = false;
        self.with_lock(|model| {
            // SAFETY: the lock is held.
            while model.items.with(|items| unsafe { *items }) == 0 {
                if !(model.ways.sleep)(model, gives_up.then(Deadline::now)) {
                    return;
                }
            }
            // SAFETY: the lock is held.
            model.items.with_mut(|items| unsafe { *items -= 1 });
            took = true;
        });
        took
    }
}

/// One waiter for each entry, with a deadline or without, and one item for each. No waiter sleeps on while an item is
/// left.
fn explore(ways: Algorithm, waiters: &'static [bool]) {
    crate::explore::within(2, move || {
        let model = Model::leaked(ways);
        let threads: Vec<_> =
            waiters.iter().map(|&gives_up| thread::spawn(move || model.take(gives_up))).collect();
        (ways.push)(model, waiters.len() as u32);
        for (thread, gives_up) in threads.into_iter().zip(waiters) {
            assert!(thread.join().unwrap() || *gives_up);
        }
        assert_eq!(super::waiters(model.changed.state.load(Relaxed)), 0);
        model.with_lock(|_| ());
    });
}

const WAITS: bool = false;
const GIVES_UP: bool = true;

#[test]
fn loom_each_is_told() {
    explore(RIGHT, &[WAITS, WAITS]);
}

#[test]
fn loom_all_are_told() {
    explore(Algorithm { push: all_at_once, ..RIGHT }, &[WAITS, WAITS]);
}

#[test]
fn loom_each_is_told_under_the_lock() {
    explore(Algorithm { push: one_by_one_locked, ..RIGHT }, &[WAITS, WAITS]);
}

#[test]
fn loom_all_are_told_under_the_lock() {
    explore(Algorithm { push: all_at_once_locked, ..RIGHT }, &[WAITS, WAITS]);
}

#[test]
fn loom_one_gives_up() {
    explore(RIGHT, &[WAITS, GIVES_UP]);
}

#[test]
fn loom_one_gives_up_when_all_are_told() {
    explore(Algorithm { push: all_at_once, ..RIGHT }, &[WAITS, GIVES_UP]);
}

#[test]
fn loom_one_gives_up_under_the_lock() {
    explore(Algorithm { push: all_at_once_locked, ..RIGHT }, &[WAITS, GIVES_UP]);
}

#[test]
fn loom_each_is_told_whose_guard_was_taken() {
    explore(OWNED, &[WAITS, WAITS]);
}

#[test]
fn loom_all_are_told_whose_guards_were_taken() {
    explore(Algorithm { push: all_at_once, ..OWNED }, &[WAITS, WAITS]);
}

#[test]
fn loom_one_gives_up_whose_guard_was_taken() {
    explore(Algorithm { push: all_at_once, ..OWNED }, &[WAITS, GIVES_UP]);
}

/// One waiter on each of two locks, and a notification of both by the owner of the first lock.
fn explore_two_locks(notify: fn(&'static Model, &'static Model)) {
    crate::explore::within(2, move || {
        let (one, other) = (Model::leaked(RIGHT), Model::leaked(RIGHT));
        let threads = [one, other].map(|model| {
            thread::spawn(move || {
                model.lock.lock();
                // SAFETY: the lock is held.
                while model.items.with(|items| unsafe { *items }) == 0 {
                    one.changed.sleep(&mut Held(model), None);
                }
                // SAFETY: locked above.
                unsafe { model.lock.unlock() };
            })
        });
        other.with_lock(|other| other.change(1));
        notify(one, other);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(super::waiters(one.changed.state.load(Relaxed)), 0);
        one.with_lock(|_| ());
        other.with_lock(|_| ());
    });
}

#[test]
fn loom_waiters_of_two_locks_are_told() {
    explore_two_locks(|one, _| {
        one.with_lock(|one| one.change(1));
        one.changed.notify_all();
    });
}

#[test]
fn loom_waiters_of_two_locks_are_told_under_one_of_them() {
    explore_two_locks(|one, _| {
        one.with_lock(|one| {
            one.change(1);
            one.changed.notify_all_locked(&Held(one));
        });
    });
}

/// One waiter with a lock, and a notification by the owner of another lock.
#[test]
fn loom_told_under_a_lock_that_is_not_the_waiters() {
    crate::explore::within(2, || {
        let (model, other) = (Model::leaked(RIGHT), Model::leaked(RIGHT));
        let waiter = thread::spawn(move || model.take(false));
        model.with_lock(|model| model.change(1));
        other.with_lock(|other| model.changed.notify_all_locked(&Held(other)));
        assert!(waiter.join().unwrap());
        other.with_lock(|_| ());
    });
}

/// The lock does not count the waiters that were requeued to it.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_move_that_the_lock_does_not_know_of() {
    explore(Algorithm { push: all_at_once_locked, adopt: |_, _| (), ..RIGHT }, &[WAITS, WAITS]);
}

/// The waiter misses a change between its unlock and its check.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_waiter_that_looks_after_it_unlocked() {
    let sleep = |model: &'static Model, until: Option<Deadline>| {
        let changed = &model.changed;
        changed.state.fetch_add(1, Relaxed);
        // SAFETY: the guard holds the lock.
        unsafe { model.lock.unlock() };
        let sequence = changed.sequence.load(Relaxed);
        let wake = changed.sequence.wait(sequence, until);
        model.lock.lock_as_guest();
        changed.state.fetch_sub(1, Acquire);
        wake != Wake::TimedOut
    };
    explore(Algorithm { sleep, ..RIGHT }, &[WAITS]);
}

/// A waiter that is about to sleep is not counted.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_waiter_that_is_counted_too_late() {
    let sleep = |model: &'static Model, until: Option<Deadline>| {
        let changed = &model.changed;
        let sequence = changed.sequence.load(Relaxed);
        // SAFETY: the guard holds the lock.
        unsafe { model.lock.unlock() };
        changed.state.fetch_add(1, Relaxed);
        let wake = changed.sequence.wait(sequence, until);
        model.lock.lock_as_guest();
        changed.state.fetch_sub(1, Acquire);
        wake != Wake::TimedOut
    };
    explore(Algorithm { sleep, ..RIGHT }, &[WAITS]);
}

/// The wake-up comes before the waiter falls asleep.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_notification_that_leaves_no_trace() {
    let push = |model: &'static Model, count: u32| {
        model.with_lock(|model| model.change(count));
        Futex::wake(&model.changed.sequence, 1);
    };
    explore(Algorithm { push, ..RIGHT }, &[WAITS]);
}

/// The first waiter does not learn that others are to be requeued.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_notification_of_all_that_wakes_one() {
    let push = |model: &'static Model, count: u32| {
        model.with_lock(|model| model.change(count));
        model.changed.next();
        Futex::wake(&model.changed.sequence, 1);
    };
    explore(Algorithm { push, ..RIGHT }, &[WAITS, WAITS]);
}
