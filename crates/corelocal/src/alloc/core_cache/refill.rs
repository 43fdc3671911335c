//! Allocation from the calling core's stack, which is refilled from the middle end when it is empty.
//!
//! Invariants: those of `slots.rs`.

use core::sync::atomic::Ordering;

use super::batch::push_some;
use super::slots::{leased, near, pop_counted_section, pop_section, slots};
use super::{COUNTED, CoreCache, count};
use crate::alloc::central::place::Place;
use crate::alloc::layout::class::MOST_BATCH;
use crate::alloc::layout::stack;
use crate::alloc::{central, config, hook, random};
use crate::cid::{self, Cid};
use crate::rseq;

const R: Ordering = Ordering::Relaxed;

/// Allocates an object of a class from its stack or from the middle end; `None` when out of memory.
pub(in crate::alloc) fn pop_or_refill(place: Place) -> Option<u64> {
    let class = place.class;
    let popped = slots().and_then(|slots| {
        let attempt = || pop_section(slots, stack::at(class));
        let first = attempt();
        if first.0.is_straight() {
            // SAFETY: the section committed, so the item is an initialised word.
            return Some(unsafe { first.1.assume_init() });
        }
        match rseq::retry(first, cid::prepare::<Cid>, attempt) {
            // SAFETY: the section committed, so the item is an initialised word.
            Some((exit, item)) if exit.is_committed() => Some(unsafe { item.assume_init() }),
            Some(_) => None,
            None => leased(|core_cache| core_cache.stacks[class].pop()).flatten(),
        }
    });
    popped.or_else(|| refill(place))
}

/// The outcome of [`pop_counted`].
pub(in crate::alloc) enum Popped<T> {
    /// An object, which has been counted.
    Object(u64),
    /// The stack is empty, no objects are [left](CoreCache::left), or there are no slots.
    Nothing,
    /// The result of `alone`.
    Otherwise(T),
}

/// Pops an object of a class and counts it. In a thread without sections, runs `alone` on the leased shared slot.
pub(in crate::alloc) fn pop_counted<T>(
    class: usize,
    alone: impl FnOnce(&CoreCache) -> T,
) -> Popped<T> {
    let Some(slots) = slots() else { return Popped::Nothing };
    let attempt = || pop_counted_section(slots, stack::at(class));
    match rseq::retry(attempt(), cid::prepare::<Cid>, attempt) {
        // SAFETY: the section committed, so the item is an initialised word.
        Some((exit, item)) if exit.is_committed() => Popped::Object(unsafe { item.assume_init() }),
        Some(_) => Popped::Nothing,
        None => leased(alone).map_or(Popped::Nothing, Popped::Otherwise),
    }
}

/// Fetches a batch from the middle end, returns the object that should be used first, and pushes the others onto the
/// stack. `None` when out of memory.
fn refill(place: Place) -> Option<u64> {
    let near = near();
    let mut batch = [0; MOST_BATCH];
    let batch =
        &mut batch[..near.map_or(place.shape().batch, |core_cache| core_cache.batch(place))];
    let taken = central::take(place, batch);
    hook::after_growth(place.range);
    let batch = &mut batch[..taken];
    if config::is_known_to_check() {
        random::shuffle(batch);
    }
    if let Some(core_cache) = near {
        core_cache.was_empty[place.class].store(1, R);
        count(&core_cache.counts[place.class].refills);
    } else {
        COUNTED[place.class].refills.fetch_add(1, R);
    }
    let (first, others) = batch.split_last_mut()?;
    if !others.is_empty() {
        let pushed = push_some(place.class, others);
        if pushed < others.len() {
            central::give(place, &others[pushed..]);
        }
    }
    Some(*first)
}
