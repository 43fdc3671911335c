//! Tests of `grace_period.rs`.

use super::*;
use core::cell::Cell;
use std::vec::Vec;

/// Readers inside, by period, and the current period.
#[derive(Default)]
struct Made {
    inside: [Cell<i64>; 2],
    current: Cell<u32>,
    barriers: Cell<u32>,
    refuses: Cell<bool>,
}

impl Readers for Made {
    fn period(&self) -> u32 {
        self.current.get()
    }

    fn flip(&self, from: u32) {
        if self.current.get() == from {
            self.current.set(from ^ 1);
        }
    }

    fn begun(&self, period: u32) -> i64 {
        self.inside[period as usize].get() + 5
    }

    fn ended(&self, _period: u32) -> i64 {
        5
    }

    fn barrier(&self) -> Result<(), Errno> {
        self.barriers.set(self.barriers.get() + 1);
        if self.refuses.get() { Err(Errno::EPERM) } else { Ok(()) }
    }
}

fn steps(progress: &Progress, number: Number, readers: &Made) -> Vec<Step> {
    let mut steps = Vec::new();
    while !progress.is_complete(number) && steps.last() != Some(&Step::Waiting) {
        steps.push(progress.step(number, readers).unwrap());
    }
    steps
}

#[test]
fn without_readers_one_barrier_is_enough() {
    let (progress, readers) = (Progress::new(), Made::default());
    let number = progress.ticket(1);
    assert!(!progress.is_complete(number));
    assert_eq!(steps(&progress, number, &readers), [Step::Changed; 2]);
    assert_eq!((readers.barriers.get(), readers.current.get()), (1, 0));
}

#[test]
fn both_periods_are_awaited() {
    let (progress, readers) = (Progress::new(), Made::default());
    readers.inside[0].set(1);
    readers.inside[1].set(1);
    let number = progress.ticket(1);
    // The other period first.
    assert_eq!(steps(&progress, number, &readers), [Step::Changed, Step::Waiting]);
    readers.inside[1].set(0);
    assert_eq!(steps(&progress, number, &readers), [Step::Changed, Step::Waiting]);
    assert_eq!(readers.current.get(), 1);
    // New readers delay nothing.
    readers.inside[1].set(9);
    readers.inside[0].set(0);
    assert_eq!(steps(&progress, number, &readers), [Step::Changed]);
}

#[test]
fn a_grace_period_that_runs_is_too_early() {
    let (progress, readers) = (Progress::new(), Made::default());
    let first = progress.ticket(1);
    assert_eq!(progress.ticket(1), first);
    progress.step(first, &readers).unwrap();
    let second = progress.ticket(1);
    assert!(second > first);
    steps(&progress, first, &readers);
    assert!(progress.is_complete(first) && !progress.is_complete(second));
    steps(&progress, second, &readers);
    assert!(progress.is_complete(second));
}

#[test]
fn a_refused_barrier_ends_nothing() {
    let (progress, readers) = (Progress::new(), Made::default());
    let number = progress.ticket(1);
    progress.step(number, &readers).unwrap();
    readers.refuses.set(true);
    assert_eq!(progress.step(number, &readers), Err(Errno::EPERM));
    assert!(!progress.is_complete(number));
    readers.refuses.set(false);
    assert_eq!(steps(&progress, number, &readers), [Step::Changed]);
}

/// A step that began in the parent does not count in the child.
#[test]
fn a_child_begins_anew() {
    let (progress, readers) = (Progress::new(), Made::default());
    let of_parent = progress.ticket(1);
    progress.step(of_parent, &readers).unwrap();
    let of_child = progress.ticket(2);
    assert_eq!(of_child.generation(), 2);
    steps(&progress, of_child, &readers);
    assert!(progress.is_complete(of_child) && !progress.is_complete(of_parent));
}
