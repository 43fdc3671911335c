//! Model: one thread sleeps until there is memory, and two make some, in every order. Then mutants with one fault
//! each, which the same checks must catch.

use super::*;
use ::loom::thread;
use std::boxed::Box;

/// The work of each thread. Models replace a part by a wrong one.
#[derive(Clone, Copy)]
struct Algorithm {
    sleep: fn(&Model),
    wake: fn(&Sleeper),
}

const RIGHT: Algorithm = Algorithm {
    sleep: |model| model.sleeper.sleep_unless(None, || model.is_anything()),
    wake: Sleeper::wake,
};

struct Model {
    dirty: AtomicU32,
    sleeper: Sleeper,
}

impl Model {
    fn is_anything(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) != 0
    }

    fn make(&self, wake: fn(&Sleeper)) {
        self.dirty.fetch_add(1, Ordering::Relaxed);
        wake(&self.sleeper);
    }
}

/// The sleeper takes all that is made: if it sleeps on, that is a deadlock.
fn explore(ways: Algorithm) {
    crate::explore::within(3, move || {
        let sleeper = Sleeper { word: AtomicU32::new(AWAKE) };
        // Leaked: loom panics in its own drop after a deadlock.
        let model: &'static Model =
            Box::leak(Box::new(Model { dirty: AtomicU32::new(0), sleeper }));
        let taker = thread::spawn(move || {
            let mut taken = 0;
            while taken < 2 {
                (ways.sleep)(model);
                taken += model.dirty.swap(0, Ordering::Relaxed);
            }
        });
        let maker = thread::spawn(move || model.make(ways.wake));
        model.make(ways.wake);
        maker.join().unwrap();
        taker.join().unwrap();
    });
}

#[test]
fn loom_nobody_sleeps_while_there_is_something() {
    explore(RIGHT);
}

/// As `Sleeper::sleep_unless`.
fn sleep_with(model: &Model, barrier: fn(), is_anything: impl FnOnce() -> bool) {
    model.sleeper.word.swap(SLEEPS, Ordering::Relaxed);
    barrier();
    if !is_anything() {
        let _: Wake = sleep::wait(&model.sleeper.word, SLEEPS, None, Scope::Private);
    }
    model.sleeper.word.swap(AWAKE, Ordering::Relaxed);
}

/// As `Sleeper::wake`.
fn wake_with(sleeper: &Sleeper, barrier: fn()) {
    barrier();
    if sleeper.word.load(Ordering::Relaxed) != AWAKE {
        sleeper.wake_cold();
    }
}

fn barrier() {
    fence(Ordering::SeqCst);
}

/// Otherwise the mutants below would prove nothing.
#[test]
fn loom_twins_without_a_fault_pass() {
    explore(Algorithm {
        sleep: |model| sleep_with(model, barrier, || model.is_anything()),
        wake: |sleeper| wake_with(sleeper, barrier),
    });
}

/// The check of the word overtakes the store of the memory: both threads miss each other.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_maker_without_a_fence() {
    explore(Algorithm { wake: |sleeper| wake_with(sleeper, || ()), ..RIGHT });
}

/// The check for memory overtakes the store of the word: both threads miss each other.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_sleeper_without_a_fence() {
    let sleep = |model: &Model| sleep_with(model, || (), || model.is_anything());
    explore(Algorithm { sleep, ..RIGHT });
}

/// Memory made between the check and the store of the word is never found.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_sleeper_that_looks_too_soon() {
    let sleep = |model: &Model| {
        let is_anything = model.is_anything();
        sleep_with(model, barrier, || is_anything);
    };
    explore(Algorithm { sleep, ..RIGHT });
}

/// The sleeper has checked but does not sleep yet: the wake-up does not find it, and it then sleeps.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_wake_up_that_leaves_no_trace() {
    let wake = |sleeper: &Sleeper| {
        barrier();
        if sleeper.word.load(Ordering::Relaxed) != AWAKE {
            sleep::wake(&sleeper.word, 1, Scope::Private);
        }
    };
    explore(Algorithm { wake, ..RIGHT });
}
