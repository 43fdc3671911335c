//! The front end: for each core and size class, a stack of free objects.
//!
//! `malloc` pops from the class's stack and `free` pushes onto it: one critical section each, on memory that only
//! this core uses. All stacks of a core lie in its slot of 1 MiB, at the class number times the length of a stack, so
//! a stack is found without a table (`stack::at`).
//!
//! ```text
//!   slot:   stack 0, with limit 0 │ stack 1 │ stack 2 │ …     one page or more each, populated on use
//!   stack:  top, limit, count, items …                        one cache line more than two pages long, so that the
//!                                                             first lines of stacks, which every operation uses,
//!                                                             fall into different cache sets
//! ```
//! An empty stack is refilled with a batch from the middle end (`central/`). A stack that has reached its limit spills
//! a batch. Threads without critical sections lease shared slots, which have a lock each. If the lock is held, they go
//! to the middle end.
//!
//! This file is a core's cache: its stacks, the limits to which each may grow, and counts.
//!
//! A limit starts low and grows each time its stack has been both empty and full, until the core's budget is used up.
//! After that it grows at the expense of other stacks, which in turn lose half of what they have beyond their first
//! limit.
//!
//! Invariants: those of `slots.rs`. Everything but the stacks may be changed by any thread at any time. If two
//! threads change a limit at once, one of both values stays, and the sum of the limits may be off by the difference.

pub(super) mod all;
mod batch;
mod memory;
pub(super) mod refill;
pub(super) mod slots;
pub(super) mod spill;

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::central;
use super::central::place::Place;
use super::layout::class::{self, CLASSES, KINDS, MOST_BATCH, Shape};
use super::layout::range::Range;
use super::layout::stack::Stack;
use crate::percpu::{Kind, Zeroed};
use crate::sys::try_lock::TryLock;

/// The most bytes that the limits of a core's stacks may have in all beyond their first limits.
const BUDGET: usize = 5 << 18;

const R: Ordering = Ordering::Relaxed;

/// The slot of a core.
#[repr(C)]
pub(super) struct CoreCache {
    pub(super) stacks: [Stack; KINDS],
    /// The lock of a shared slot.
    pub(super) lock: TryLock,
    /// Bytes of the budget in use, approximately.
    spent: AtomicU64,
    /// The class whose limit was reduced last.
    turn: AtomicU8,
    /// A hash of all counts at the last check for idleness.
    seen: AtomicU64,
    /// Whether the stack has been empty since it last was full.
    pub(super) was_empty: [AtomicU8; KINDS],
    /// Counts of operations, by class.
    pub(super) counts: [Counts; KINDS],
}

// SAFETY: atomics and a free lock, for all of which zero is valid.
unsafe impl Zeroed for CoreCache {
    const KIND: Kind = Kind::Opaque;
}

/// Returns the first limit of a stack.
fn first_limit(shape: &Shape) -> usize {
    2 * shape.batch
}

/// Numbers of operations on a class in a slot. Two threads that count at once may count as one, except in a debugging
/// mode: so these are lower bounds.
#[repr(C)]
pub(super) struct Counts {
    /// Objects allocated, in a debugging mode, and objects that are [left](CoreCache::left).
    pub(super) popped: AtomicU64,
    /// Objects freed, in checking mode.
    pub(super) pushed: AtomicU64,
    /// Batches fetched from the middle end, and spilled to it.
    pub(super) refills: AtomicU64,
    pub(super) spills: AtomicU64,
}

/// The counts of slots whose pages were released.
pub(super) static COUNTED: [Counts; KINDS] = [const { Counts::new() }; KINDS];

impl Counts {
    const fn new() -> Counts {
        Counts {
            popped: AtomicU64::new(0),
            pushed: AtomicU64::new(0),
            refills: AtomicU64::new(0),
            spills: AtomicU64::new(0),
        }
    }

    pub(super) fn all(&self) -> [&AtomicU64; 4] {
        [&self.popped, &self.pushed, &self.refills, &self.spills]
    }
}

/// Adds one. For cold paths of threads that usually have the slot to themselves.
pub(super) fn count(what: &AtomicU64) {
    what.store(what.load(R).wrapping_add(1), R);
}

impl CoreCache {
    /// Returns the number of objects of a class that are given out until one is looked at, that one included; 0 until
    /// it is set. Used only in a process that counts (`debug/instrumented.rs`).
    pub(super) fn left(&self, class: usize) -> &AtomicU64 {
        &self.stacks[class - 1].left_of_next
    }

    /// Raises the limit of a stack: the first time, and once each time that it has been empty before it was full.
    pub(super) fn grow(&self, place: Place) -> bool {
        let (stack, shape) = (&self.stacks[place.class], place.shape());
        let limit = stack.limit.load(R) as usize;
        let was_empty = self.was_empty[place.class].swap(0, R) != 0;
        if limit >= shape.most || limit > 0 && !was_empty {
            return false;
        }
        let next = match limit {
            0 => first_limit(shape),
            limit => limit + shape.batch,
        };
        let next = next.min(shape.most);
        let more = (next - limit) * shape.size;
        if limit > 0 {
            let spent = self.spent.load(R) as usize;
            let over = (spent + more).saturating_sub(BUDGET);
            let taken = if over > 0 { self.take_limits(place.class, over) } else { 0 };
            if taken < over {
                self.spent.store(spent.saturating_sub(taken) as u64, R);
                return false;
            }
            self.spent.store((spent + more).saturating_sub(taken) as u64, R);
        }
        stack.limit.store(next as u64, R);
        true
    }

    /// Returns the number of objects that move at once between a stack and the middle end: a quarter of the limit, once
    /// that exceeds the class's first batch.
    pub(super) fn batch(&self, place: Place) -> usize {
        let limit = self.stacks[place.class].limit.load(R) as usize;
        (limit / 4).clamp(place.shape().batch, MOST_BATCH)
    }

    /// Halves the limits of other stacks beyond their first limits, in turns, until `wanted` bytes are free. Returns
    /// how many are. A stack that needs its share gets it back in the same way.
    fn take_limits(&self, except: usize, wanted: usize) -> usize {
        let mut taken = 0;
        for _ in 0..CLASSES {
            let class = self.turn.load(R) as usize % CLASSES + 1;
            self.turn.store(class as u8, R);
            let (limit, shape) = (&self.stacks[class].limit, class::shape(class));
            let (now, least) = (limit.load(R) as usize, first_limit(shape).min(shape.most));
            if class != except && now > least {
                let next = least.max(now / 2);
                limit.store(next as u64, R);
                taken += (now - next) * shape.size;
            }
            if taken >= wanted {
                break;
            }
        }
        taken
    }

    /// Moves all objects to the middle end, and returns how many.
    pub(super) fn empty(&self, range: Range) -> usize {
        let mut objects = 0;
        for place in (1..=CLASSES).map(|class| Place::new(range, class)) {
            let stack = &self.stacks[place.class];
            loop {
                let mut batch = [0; MOST_BATCH];
                let popped = core::iter::from_fn(|| stack.pop());
                let n = batch.iter_mut().zip(popped).map(|(to, object)| *to = object).count();
                if n == 0 {
                    break;
                }
                central::give(place, &batch[..n]);
                objects += n;
            }
            stack.limit.store(0, R);
        }
        self.spent.store(0, R);
        objects
    }

    /// Adds the counts of this slot to [`COUNTED`].
    pub(super) fn leave_counts(&self) {
        for (class, sum) in COUNTED.iter().enumerate().skip(1) {
            let pairs = self.counts[class].all().into_iter().zip(sum.all());
            pairs.for_each(|(count, sum)| _ = sum.fetch_add(count.swap(0, R), R));
            sum.popped.fetch_sub(self.left(class).swap(0, R), R);
        }
    }

    /// Returns the counts of a class: allocated, freed, refills, spills.
    pub(super) fn counts_of(&self, class: usize) -> [u64; 4] {
        let [popped, others @ ..] = self.counts[class].all().map(|count| count.load(R));
        let [pushed, refills, spills] = others;
        [popped.wrapping_sub(self.left(class).load(R)), pushed, refills, spills]
    }

    /// Returns `true` if the cache has objects and none of its counts has changed since the last check.
    pub(super) fn rests(&self) -> bool {
        let counts = self.stacks.iter().map(|stack| stack.count.load(R));
        let look = counts.fold(0u64, |look, count| look.wrapping_mul(31).wrapping_add(count));
        if look == 0 {
            // No store unless necessary: the slot may be read-only (`memory.rs`).
            if self.seen.load(R) != 0 {
                self.seen.store(0, R);
            }
            return false;
        }
        self.seen.swap(look, R) == look
    }

    /// Returns the bytes of all objects in the stacks.
    pub(super) fn bytes(&self) -> usize {
        let stacks = self.stacks.iter().enumerate().skip(1).take(CLASSES);
        stacks.map(|(class, stack)| stack.count.load(R) as usize * class::shape(class).size).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory::pages;

    /// Returns a cache that belongs to no core.
    fn core_cache() -> &'static CoreCache {
        let at = pages::map(size_of::<CoreCache>()).unwrap().cast::<CoreCache>();
        // SAFETY: zeroed pages, which are never unmapped.
        unsafe { &*at }
    }

    fn limit(core_cache: &CoreCache, class: usize) -> usize {
        core_cache.stacks[class].limit.load(R) as usize
    }

    /// Grows a class's stack to its maximum, as if it became empty and full over and over.
    fn grow_all(core_cache: &CoreCache, class: usize) {
        let place = Place::new(Range::make().unwrap(), class);
        loop {
            core_cache.was_empty[class].store(1, R);
            if !core_cache.grow(place) {
                break;
            }
        }
    }

    #[test]
    fn limits_grow_within_the_budget_and_move_to_who_needs_them() {
        let core_cache = core_cache();
        let beyond = |class: usize| {
            let shape = class::shape(class);
            limit(core_cache, class).saturating_sub(first_limit(shape)) * shape.size
        };
        let all = || (1..=CLASSES).map(beyond).sum::<usize>();
        // Together more than the budget.
        for class in 1..=CLASSES {
            grow_all(core_cache, class);
            assert!(
                limit(core_cache, class)
                    >= first_limit(class::shape(class)).min(class::shape(class).most)
            );
        }
        assert!(all() <= BUDGET, "{}", all());
        assert_eq!(all(), core_cache.spent.load(R) as usize);
        // A class that comes late gets its share all the same.
        let class = class::of_size(128).unwrap();
        grow_all(core_cache, class);
        assert_eq!(limit(core_cache, class), class::shape(class).most);
        assert!(all() <= BUDGET && all() == core_cache.spent.load(R) as usize);
        // A stack that was not empty in between keeps its limit.
        let other = class::of_size(256).unwrap();
        core_cache.was_empty[other].store(0, R);
        assert!(!core_cache.grow(Place::new(Range::make().unwrap(), other)));
    }
}
