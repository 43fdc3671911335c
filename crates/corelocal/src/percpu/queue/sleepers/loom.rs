//! Loom models of producers that check for sleeping consumers, and of consumers that sleep. Then mutants with one
//! fault each, which the same checks must catch.

use super::*;
use ::loom::thread;
use std::boxed::Box;

/// The work of producers and consumers. Models replace a part by a wrong one.
#[derive(Clone, Copy)]
struct Algorithm {
    notify: fn(&Sleepers),
    sleep: fn(&Sleepers, &dyn Fn() -> bool),
}

const RIGHT: Algorithm = Algorithm {
    notify: Sleepers::notify,
    sleep: |sleepers, is_anything| sleepers.sleep(None, is_anything),
};

/// A slot for each producer, with room for one item: whether it was pushed, whether it was taken.
struct Model {
    ways: Algorithm,
    slots: [(AtomicU32, AtomicU32); 2],
    sleepers: Sleepers,
}

impl Model {
    /// Leaked: loom panics in its own drop after a deadlock.
    fn leaked(ways: Algorithm) -> &'static Model {
        let slots = [(); 2].map(|()| (AtomicU32::new(0), AtomicU32::new(0)));
        Box::leak(Box::new(Model { ways, slots, sleepers: Sleepers::new() }))
    }

    /// As a critical section and the code after it: the commit orders earlier accesses only.
    fn push(&self, slot: usize) {
        self.slots[slot].0.store(1, Ordering::Release);
        (self.ways.notify)(&self.sleepers);
    }

    fn try_pop(&self) -> bool {
        self.slots.iter().any(|(pushed, taken)| {
            pushed.load(Ordering::Acquire) == 1 && taken.swap(1, Ordering::Relaxed) == 0
        })
    }

    fn is_anything(&self) -> bool {
        self.slots.iter().any(|(pushed, taken)| {
            pushed.load(Ordering::Acquire) == 1 && taken.load(Ordering::Acquire) == 0
        })
    }

    fn pop(&self) {
        while !self.try_pop() {
            (self.ways.sleep)(&self.sleepers, &|| self.is_anything());
        }
    }
}

/// This many pushes and consumers, each of which gets one item, whichever consumer is chosen for which push.
fn explore(ways: Algorithm, items: usize) {
    // A single item has few interleavings.
    crate::explore::within(if items > 1 { 2 } else { 8 }, move || {
        let model = Model::leaked(ways);
        let consumers: std::vec::Vec<_> =
            (0..items).map(|_| thread::spawn(|| model.pop())).collect();
        (0..items).for_each(|slot| model.push(slot));
        for consumer in consumers {
            consumer.join().unwrap();
        }
        // No consumer waits, and no wake-up is left over.
        let waiting = model.sleepers.waiting.load(Ordering::Relaxed) & !FENCE;
        assert_eq!((waiting, model.sleepers.wakes.load(Ordering::Relaxed)), (0, 0));
    });
}

fn explore_notify(notify: fn(&Sleepers)) {
    explore(Algorithm { notify, ..RIGHT }, 2);
}

fn explore_sleep(sleep: fn(&Sleepers, &dyn Fn() -> bool)) {
    explore(Algorithm { sleep, ..RIGHT }, 2);
}

/// A consumer sleeps and a producer does not: at least one of them sees the other.
#[test]
fn loom_a_consumer_does_not_sleep_on() {
    explore(RIGHT, 1);
}

#[test]
fn loom_two_consumers_do_not_sleep_on() {
    explore(RIGHT, 2);
}

/// As `Sleepers::sleep`, with this barrier and this leave.
fn sleep_with(
    sleepers: &Sleepers,
    is_anything: &dyn Fn() -> bool,
    barrier: fn(),
    leave: fn(&Sleepers),
) {
    sleepers.waiting.fetch_add(1, Ordering::Relaxed);
    barrier();
    if is_anything() {
        return leave(sleepers);
    }
    while !sleepers.take_wake() {
        wait(&sleepers.wakes, 0, None);
    }
}

fn barrier() {
    let _ = heavy_barrier();
}

/// An unmodified copy passes. Otherwise the mutants below would show nothing.
#[test]
fn loom_a_twin_without_a_fault_passes() {
    explore_sleep(|sleepers, is_anything| {
        sleep_with(sleepers, is_anything, barrier, Sleepers::leave);
    });
}

/// The read of the word passes the push: consumer and producer miss each other. (At the second push: the first one
/// finds the bit, and executes a fence.)
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_producer_without_a_barrier() {
    explore_notify(|sleepers| {
        if sleepers.waiting.load(Ordering::Relaxed) != 0 {
            sleepers.notify_cold();
        }
    });
}

/// The check of the queue passes the store to the word: consumer and producer miss each other.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_consumer_without_a_barrier() {
    explore_sleep(|sleepers, is_anything| {
        sleep_with(sleepers, is_anything, || (), Sleepers::leave);
    });
}

/// An item that was pushed before the consumer announced itself is never found.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_consumer_that_does_not_look_again() {
    explore_sleep(|sleepers, _| sleep_with(sleepers, &|| false, barrier, Sleepers::leave));
}

/// An item that was pushed between the check and the announcement is never found.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_consumer_that_looks_too_soon() {
    explore_sleep(|sleepers, is_anything| {
        let is_anything = is_anything();
        sleep_with(sleepers, &|| is_anything, barrier, Sleepers::leave);
    });
}

/// A consumer that was chosen waits for its wake-up for ever.
#[test]
#[should_panic(expected = "maximum number of branches")]
fn loom_catches_a_wake_up_that_leaves_no_trace() {
    explore_notify(|sleepers| {
        light_barrier();
        if sleepers.waiting.load(Ordering::Relaxed) & !FENCE != 0 {
            sleepers.waiting.fetch_sub(1, Ordering::Relaxed);
            wake_one(&sleepers.wakes);
        }
    });
}

/// A consumer stays counted. The next producer chooses it in place of one that sleeps.
#[test]
#[should_panic(expected = "assertion")]
fn loom_catches_a_consumer_that_does_not_leave() {
    explore_sleep(|sleepers, is_anything| {
        sleep_with(sleepers, is_anything, barrier, |_| ());
    });
}
