//! Loom models of readers and a writer. A barrier in all threads is a fence on both sides; a critical section is one
//! atomic step. Mutants with one fault each follow, which the same checks must catch.

use super::*;
use crate::explore;
use crate::primitive::atomic::{AtomicI64, AtomicU32};
use ::loom::cell::UnsafeCell;
use ::loom::sync::Arc;
use ::loom::thread;
use std::panic;

/// The place where a reader counts: one of two cores, or the atomic words of threads without critical sections.
#[derive(Clone, Copy)]
struct Place(usize);
const ATOMIC: Place = Place(2);

/// The faults that are planted.
#[derive(Clone, Copy, Default)]
struct Faults {
    one_period: bool,
    begins_first: bool,
    no_barrier: bool,
    atomic_readers_missed: bool,
}

struct Model {
    current: AtomicU32,
    /// The readers that have begun, by place and period.
    begun: [[AtomicI64; 2]; 3],
    ended: [[AtomicI64; 2]; 3],
    faults: Faults,
    is_draining: AtomicU32,
    progress: Progress,
    /// The index of the published object.
    published: AtomicU32,
    objects: [UnsafeCell<u32>; 3],
}

fn words() -> [[AtomicI64; 2]; 3] {
    core::array::from_fn(|_| core::array::from_fn(|_| AtomicI64::new(0)))
}

impl Model {
    fn new(faults: Faults) -> Model {
        Model {
            current: AtomicU32::new(0),
            begun: words(),
            ended: words(),
            faults,
            is_draining: AtomicU32::new(0),
            progress: Progress::new(),
            published: AtomicU32::new(0),
            objects: core::array::from_fn(|nth| UnsafeCell::new(nth as u32 + 1)),
        }
    }

    fn sum(&self, words: &[[AtomicI64; 2]; 3], period: u32) -> i64 {
        let places = if self.faults.atomic_readers_missed { 2 } else { 3 };
        words[..places].iter().map(|it| it[period as usize].load(Ordering::Relaxed)).sum()
    }

    /// The planted fault `one_period`: the period that is not the current one is not awaited before the flip.
    fn is_ignored(&self, period: u32) -> bool {
        self.faults.one_period
            && self.is_draining.load(Ordering::Relaxed) == 0
            && period != self.current.load(Ordering::Relaxed)
    }

    fn read(&self, from: Place, to: Place) {
        let period = self.current.load(Ordering::Relaxed) as usize;
        self.begun[from.0][period].fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // Acquire: partner is the Release in `replace`.
        let nth = self.published.load(Ordering::Acquire);
        // SAFETY: the object is not freed while the reader is inside; loom checks it.
        assert_ne!(self.objects[nth as usize].with(|object| unsafe { *object }), 0);
        fence(Ordering::SeqCst);
        self.ended[to.0][period].fetch_add(1, Ordering::Relaxed);
    }

    /// Publishes the next object, and frees the old one after a grace period.
    fn replace(&self, nth: u32) {
        // Release: partner is the Acquire in `read`.
        self.published.store(nth + 1, Ordering::Release);
        let number = self.progress.ticket(1);
        while !self.progress.is_complete(number) {
            if self.progress.step(number, self) == Ok(Step::Waiting) {
                thread::yield_now();
            }
        }
        // SAFETY: no reader has the object any more; loom checks it.
        self.objects[nth as usize].with_mut(|object| unsafe { *object = 0 });
    }
}

impl Readers for Model {
    fn period(&self) -> u32 {
        // Only a grace period that starts asks for it.
        self.is_draining.store(0, Ordering::Relaxed);
        self.current.load(Ordering::Relaxed)
    }

    fn flip(&self, from: u32) {
        self.is_draining.store(1, Ordering::Relaxed);
        let _ = self.current.compare_exchange(from, from ^ 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn begun(&self, period: u32) -> i64 {
        if self.faults.begins_first {
            return self.sum(&self.ended, period);
        }
        if self.is_ignored(period) { 0 } else { self.sum(&self.begun, period) }
    }

    fn ended(&self, period: u32) -> i64 {
        if self.faults.begins_first {
            return self.sum(&self.begun, period);
        }
        if self.is_ignored(period) { 0 } else { self.sum(&self.ended, period) }
    }

    fn barrier(&self) -> Result<(), Errno> {
        if !self.faults.no_barrier {
            fence(Ordering::SeqCst);
        }
        Ok(())
    }
}

/// Readers, each with the places where it begins and ends, beside so many changes.
fn model(faults: Faults, readers: &'static [(Place, Place)], changes: u32, preemptions: usize) {
    explore::within(preemptions, move || {
        let model = Arc::new(Model::new(faults));
        let threads = readers.iter().map(|&(from, to)| {
            let model = model.clone();
            thread::spawn(move || model.read(from, to))
        });
        let threads: std::vec::Vec<_> = threads.collect();
        (0..changes).for_each(|nth| model.replace(nth));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

const ONE: &[(Place, Place)] = &[(Place(0), Place(0))];
const TWO: &[(Place, Place)] = &[(Place(0), Place(1)), (Place(1), Place(0))];
const WITHOUT_SECTIONS: &[(Place, Place)] = &[(ATOMIC, ATOMIC)];

#[test]
fn loom_a_reader_is_awaited() {
    model(Faults::default(), ONE, 1, 3);
    model(Faults::default(), WITHOUT_SECTIONS, 1, 3);
}

#[test]
fn loom_readers_that_change_cores_are_awaited() {
    model(Faults::default(), TWO, 1, 2);
}

/// A reader that loaded the period before the first flip counts after it.
#[test]
fn loom_two_grace_periods() {
    model(Faults::default(), TWO, 2, 3);
}

fn is_caught(faults: Faults, readers: &'static [(Place, Place)], changes: u32, preemptions: usize) {
    let found = panic::catch_unwind(|| model(faults, readers, changes, preemptions));
    assert!(found.is_err(), "the planted fault was not found");
}

#[test]
fn loom_mutant_without_a_barrier() {
    is_caught(Faults { no_barrier: true, ..Faults::default() }, ONE, 1, 3);
}

#[test]
fn loom_mutant_that_reads_begins_first() {
    is_caught(Faults { begins_first: true, ..Faults::default() }, TWO, 1, 3);
}

#[test]
fn loom_mutant_that_awaits_one_period() {
    is_caught(Faults { one_period: true, ..Faults::default() }, TWO, 2, 3);
}

#[test]
fn loom_mutant_that_misses_atomic_readers() {
    is_caught(Faults { atomic_readers_missed: true, ..Faults::default() }, WITHOUT_SECTIONS, 1, 3);
}
