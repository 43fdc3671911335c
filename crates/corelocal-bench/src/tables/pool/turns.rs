//! Turns: take an object, give it back. And the check that none was lost.
//!
//! Invariant: each object has a number of its own among those made since the last check. Objects
//! that a pool refused or that ended with a thread are counted, so all that were made are known to
//! be somewhere.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use anyhow::{bail, ensure};
use corelocal_support::measure::loops::opaque;

use crate::tables::checked::{Made, Subject};

/// The object in the pools, behind a box as objects worth pooling are.
#[derive(Default)]
#[repr(C)]
pub struct Object {
    number: u64,
    /// The link of lists that are threaded through the objects.
    pub link: AtomicPtr<Object>,
    _rest: [u64; 14],
}

/// An object on its way.
pub type Item = Box<Object>;

impl Object {
    fn boxed(number: u64) -> Item {
        Box::new(Object { number, link: AtomicPtr::default(), _rest: [0; 14] })
    }
}

/// A pool as the turns use it.
pub trait Store: Send + Sync + 'static {
    /// Returns an object, if there is one.
    fn take(&self) -> Option<Item>;

    /// Gives an object back.
    ///
    /// # Errors
    ///
    /// The object, if there is no room for it.
    fn give(&self, item: Item) -> Result<(), Item>;

    /// Takes all objects, whichever thread gave them. Called while no other thread uses the pool.
    fn drain(&self, each: &mut dyn FnMut(Item)) {
        while let Some(item) = self.take() {
            each(item);
        }
    }

    /// Returns how many objects went away with the threads that had them, since the last call.
    fn gone(&self) -> u64 {
        0
    }
}

/// Turns on this pool, as a contestant.
pub fn turns(store: impl Store) -> Made {
    Ok(Arc::new(Turns { store, counts: Counts::default() }))
}

struct Turns<S> {
    store: S,
    counts: Counts,
}

impl<S: Store> Subject for Turns<S> {
    fn work(&self, _: usize, operations: u64) {
        for _ in 0..operations {
            let item = self.store.take().unwrap_or_else(|| self.counts.make());
            if let Err(item) = self.store.give(used(item)) {
                self.counts.refuse(item);
            }
        }
    }

    /// Leaves the pool empty for the next round.
    fn check(&self, _asked: u64) -> anyhow::Result<()> {
        let mut found = Vec::new();
        self.store.drain(&mut |item| found.push(item));
        self.counts.check(found, self.store.gone())
    }
}

/// Objects that were made and that went away, since the last check.
///
/// Relaxed throughout: numbers, read after joining the threads.
#[derive(Default)]
pub struct Counts {
    made: AtomicU64,
    refused: AtomicU64,
    failed: AtomicBool,
}

impl Counts {
    /// Returns a new object.
    #[cold]
    pub fn make(&self) -> Item {
        Object::boxed(self.made.fetch_add(1, Ordering::Relaxed))
    }

    /// Refuses an object for which there was no room.
    #[cold]
    pub fn refuse(&self, item: Item) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        drop(item);
    }

    /// Fails: not all turns were taken.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Drops what was found in the pool, unless it is not what was made but for `gone` objects.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self, found: Vec<Item>, gone: u64) -> anyhow::Result<()> {
        ensure!(!self.failed.load(Ordering::Relaxed), "a thread failed");
        let numbers: BTreeSet<u64> = found.iter().map(|item| item.number).collect();
        if numbers.len() < found.len() {
            let twice = found.len() - numbers.len();
            // Dropped twice they would take the process with them.
            mem::forget(found);
            bail!("returned {twice} objects twice, so its speed is meaningless");
        }
        let made = self.made.swap(0, Ordering::Relaxed);
        let there = numbers.len() as u64 + self.refused.swap(0, Ordering::Relaxed) + gone;
        ensure!(
            there == made && numbers.last().is_none_or(|&last| last < made),
            "{made} objects were made and {there} found, so its speed is meaningless"
        );
        Ok(())
    }
}

/// Returns the item, as if other code had used it, so that the compiler can assume nothing about it.
#[inline(always)]
fn used(item: Item) -> Item {
    // SAFETY: the pointer is the one that the box was, and nothing else has it.
    unsafe { Box::from_raw(opaque(Box::into_raw(item))) }
}

/// Takes the turn without a pool.
pub fn allocation() -> Made {
    struct Allocation;
    impl Subject for Allocation {
        fn work(&self, _: usize, operations: u64) {
            for number in 0..operations {
                drop(used(Object::boxed(number)));
            }
        }

        fn check(&self, _asked: u64) -> anyhow::Result<()> {
            Ok(())
        }
    }
    Ok(Arc::new(Allocation))
}

#[cfg(test)]
mod tests;
