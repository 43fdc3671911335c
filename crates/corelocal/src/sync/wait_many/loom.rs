//! Model: threads wait for one or two semaphores, and givers, in every order. Then mutants of a semaphore with one
//! fault each, which the same checks must catch.

use super::waitable::sealed::Sealed;
use super::*;
use crate::primitive::atomic::AtomicU32;
use crate::sync::Semaphore;
use crate::sys::futex::Scope;
use ::loom::thread;
use std::boxed::Box;

/// A semaphore, or a mutant of one.
trait Kind: Send + Sync + 'static {
    fn take(permits: &Semaphore, has_slept: bool) -> bool {
        permits.take(0, has_slept)
    }

    fn leave(permits: &Semaphore) {
        permits.leave();
    }
}

struct Right;

impl Kind for Right {}

/// A mutant that takes as if it had not slept.
struct Unmarked;

impl Kind for Unmarked {
    fn take(permits: &Semaphore, _: bool) -> bool {
        permits.try_acquire_raw()
    }
}

/// A mutant that keeps the wake-up of an object from which it does not take.
struct Keeps;

impl Kind for Keeps {
    fn leave(_: &Semaphore) {}
}

struct Thing<K>(Semaphore, core::marker::PhantomData<K>);

impl<K: Kind> Sealed for Thing<K> {
    fn start(&self) -> u32 {
        self.0.start()
    }

    fn take(&self, _: u32, has_slept: bool) -> bool {
        K::take(&self.0, has_slept)
    }

    fn is_there(&self, start: u32) -> bool {
        self.0.is_there(start)
    }

    fn announce(&self, start: u32) -> Option<u32> {
        self.0.announce(start)
    }

    fn leave(&self) {
        K::leave(&self.0);
    }

    fn give_back(&self) {
        self.0.give_back();
    }

    fn word(&self) -> &AtomicU32 {
        self.0.word()
    }

    fn scope(&self) -> Scope {
        self.0.scope()
    }
}

/// Leaked: loom panics in its own drop after a deadlock.
fn leaked<K: Kind, const N: usize>() -> &'static [Thing<K>; N] {
    let things = [(); N].map(|()| Thing(Semaphore::new(0), core::marker::PhantomData));
    Box::leak(Box::new(things))
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    crate::explore::within(2, model);
}

/// Two threads wait for one object, which is given twice.
fn explore_one<K: Kind>(wait: fn(&Thing<K>)) {
    check(move || {
        let things = leaked::<K, 1>();
        let takers = [(); 2].map(|()| thread::spawn(move || wait(&things[0])));
        things[0].0.release();
        things[0].0.release();
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        assert_eq!(things[0].0.available(), 0);
    });
}

/// One thread waits for both objects, another one for the second only: what the first takes from that one it gives
/// back.
fn explore_two<K: Kind>(deadline: fn() -> Option<Deadline>) {
    check(move || {
        let things = leaked::<K, 2>();
        let both = thread::spawn(move || {
            if any(&[&things[0], &things[1]], deadline(), sleep::wait_any) == Ok(1) {
                things[1].0.release();
            }
        });
        let second = thread::spawn(move || things[1].0.acquire_raw());
        things[0].0.release();
        things[1].0.release();
        both.join().unwrap();
        second.join().unwrap();
        assert_eq!(things[1].0.available(), 0);
    });
}

fn never() -> Option<Deadline> {
    None
}

fn take_any<K: Kind>(thing: &Thing<K>) {
    assert_eq!(any(&[thing], None, sleep::wait_any), Ok(0));
}

#[test]
fn loom_each_of_two_that_wait_for_any_goes() {
    explore_one::<Right>(take_any);
}

#[test]
fn loom_each_of_two_that_wait_for_all_goes() {
    explore_one::<Right>(|thing| assert_eq!(all(&[thing], None), Ok(())));
}

#[test]
fn loom_what_is_not_taken_wakes_another() {
    explore_two::<Right>(never);
}

/// In a model the deadline passes at any time.
#[test]
fn loom_who_gives_up_takes_no_wake_up_along() {
    explore_two::<Right>(|| Some(Deadline::now()));
}

/// Each takes two objects, in its own order.
#[test]
fn loom_all_or_none() {
    check(|| {
        let things = leaked::<Right, 2>();
        things.iter().for_each(|thing| thing.0.release());
        let eat = |first: usize, second: usize| {
            assert_eq!(all(&[&things[first], &things[second]], None), Ok(()));
            assert!(things.iter().all(|thing| thing.0.available() == 0));
            things.iter().for_each(|thing| thing.0.release());
        };
        let other = thread::spawn(move || eat(0, 1));
        eat(1, 0);
        other.join().unwrap();
    });
}

/// Of two sleepers the first takes as if there were no other, and the next giver wakes no thread.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_one_that_takes_as_if_it_had_not_slept() {
    explore_one::<Unmarked>(take_any);
}

/// Both objects have woken it; it takes from the first, and the sleeper of the second is not woken.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_one_that_keeps_the_wake_up_of_another() {
    explore_two::<Keeps>(never);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_one_that_gives_up_with_a_wake_up() {
    explore_two::<Keeps>(|| Some(Deadline::now()));
}
