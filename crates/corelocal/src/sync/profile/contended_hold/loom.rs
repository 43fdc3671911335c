//! Model: waiters and owners in every order. Then mutants with one fault each, which the same checks must catch.
//!
//! Times are readings of each thread's clock; a thread may use them late.

use super::*;
use ::loom::sync::Arc;
use ::loom::thread;

/// The functions that waiters call, of which a mutant replaces one.
#[derive(Clone, Copy)]
struct Algorithm {
    begin: fn(&Stretch, u64),
    end: fn(&Stretch, u64),
}

const RIGHT: Algorithm = Algorithm {
    begin: |stretch, now| stretch.begin(now),
    end: |stretch, now| stretch.end(now, true),
};

/// A thread begins to wait while the owner unlocks: it has not waited before that.
fn explore_beginning(ways: Algorithm) {
    ::loom::model(move || {
        let stretch = Arc::new(Stretch::new(5));
        let waiter = {
            let stretch = stretch.clone();
            thread::spawn(move || (ways.begin)(&stretch, 10))
        };
        let told = stretch.let_go(20);
        assert!(told.is_none() || told == Some(10), "too long: {told:?}");
        waiter.join().unwrap();
        let rest = stretch.let_go(30);
        assert!(rest == Some(if told.is_some() { 10 } else { 20 }), "too long: {rest:?}");
    });
}

/// A former waiter owns the lock, and another thread begins to wait for it.
fn explore_holding(ways: Algorithm) {
    ::loom::model(move || {
        let stretch = Arc::new(Stretch::new(0));
        stretch.begin(10);
        let holder = {
            let stretch = stretch.clone();
            thread::spawn(move || {
                (ways.end)(&stretch, 20);
                stretch.let_go(40)
            })
        };
        (ways.begin)(&stretch, 30);
        let told = holder.join().unwrap();
        // Since it got the lock, or since the other one arrived, if it saw no waiter before.
        assert!(matches!(told, None | Some(10 | 20)), "too long: {told:?}");
        let rest = stretch.let_go(50);
        match told {
            Some(_) => assert_eq!(rest, Some(10)),
            None => assert!(matches!(rest, Some(20 | 30)), "too long: {rest:?}"),
        }
        assert_eq!(stretch.waiting(), 1);
    });
}

#[test]
fn loom_no_stretch_is_longer_than_the_wait() {
    explore_beginning(RIGHT);
}

#[test]
fn loom_a_stretch_begins_with_its_holder() {
    explore_holding(RIGHT);
}

/// The owner finds a waiter, and an old time.
#[test]
#[should_panic(expected = "too long")]
fn loom_catches_a_waiter_that_counts_itself_first() {
    let begin = |stretch: &Stretch, now| {
        if stretch.waiting.fetch_add(1, Ordering::Release) == 0 {
            stretch.since.fetch_max(now, Ordering::Relaxed);
        }
    };
    explore_beginning(Algorithm { begin, ..RIGHT });
}

/// All the time before is attributed to it.
#[test]
#[should_panic(expected = "too long")]
fn loom_catches_a_holder_that_does_not_say_since_when() {
    let end = |stretch: &Stretch, now| stretch.end(now, false);
    explore_holding(Algorithm { end, ..RIGHT });
}

/// It arrived when no waiter was counted, and found the time of an earlier owner.
#[test]
#[should_panic(expected = "too long")]
fn loom_catches_a_waiter_that_says_nothing_of_when_it_came() {
    let begin = |stretch: &Stretch, _| {
        stretch.waiting.fetch_add(1, Ordering::Release);
    };
    explore_beginning(Algorithm { begin, ..RIGHT });
}
