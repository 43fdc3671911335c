//! The slow path of processes that count objects and select some: `stats`, `guard` and `profile`.
//!
//! Such a process leaves `FRONT` empty, where the hot path of `malloc` looks (`core_cache/slots.rs`). So it arrives at
//! the cold path at once, which begins with a section that pops and counts: `left`, a number for each class and core,
//! says how many objects are given out before the next one is selected at random (`sampling.rs`). One call in thousands
//! comes here; all others only decrement that number. `free` recognises selected objects by the map and stays on the
//! hot path, except for Rust's deallocation, which uses the size instead of the map.
//!
//! ```text
//!   left:   0 no distance drawn yet │ 1 the next object is selected │ more: decremented with each object
//!   allocated = distances drawn, and objects from the middle end, minus what is left
//! ```
//!
//! # Invariants
//! 1. The thread that changes `left` from 1 to the next distance, by compare-exchange, selects one object for it.
//! 2. An object that the section did not count is judged on its own. So each object is judged once.
//! 3. In checking mode `left` stays 0, so the section pops nothing.

use core::sync::atomic::{AtomicU64, Ordering};

use super::sampling::{Lot, Odds};
use super::{guard, profile};
use crate::alloc::central::place::Place;
use crate::alloc::core_cache::refill::{Popped, pop_counted, pop_or_refill};
use crate::alloc::core_cache::slots::near;
use crate::alloc::core_cache::{COUNTED, CoreCache};

const R: Ordering = Ordering::Relaxed;

/// Attempts. Two suffice unless other threads interfere.
const ATTEMPTS: u32 = 8;

/// Allocates an object of a class; `None` when out of memory.
pub(in crate::alloc) fn allocate(
    odds: Odds,
    place: Place,
    align: usize,
    size: usize,
) -> Option<u64> {
    let lot = match next(odds, place) {
        Next::Object(object) => return Some(object),
        Next::Due => odds.at_last(place.shape().size, size),
        Next::Uncounted => {
            popped(place.class).fetch_add(1, R);
            odds.at_once(size)
        }
    };
    let object = match lot {
        Lot::Plain => None,
        Lot::Guarded => guarded(odds.without_guard(), place, align, size),
        Lot::Sampled => profile::allocate(place, align, size),
    };
    object.or_else(|| pop_or_refill(place))
}

fn guarded(otherwise: Odds, place: Place, align: usize, size: usize) -> Option<u64> {
    if let Some(object) = guard::allocate(place.range, align, size) {
        // Guarded objects are counted separately.
        popped(place.class).fetch_sub(1, R);
        return Some(object as u64);
    }
    // An object that cannot be guarded is sampled with the usual probability.
    match otherwise.at_once(size) {
        Lot::Sampled => profile::allocate(place, align, size),
        _ => None,
    }
}

/// Returns the counter of allocated objects.
fn popped(class: usize) -> &'static AtomicU64 {
    &near().map_or(&COUNTED[class], |core_cache| &core_cache.counts[class]).popped
}

/// Counts an allocation before the process's modes are known.
pub(in crate::alloc) fn count_early(class: usize) {
    COUNTED[class].popped.fetch_add(1, R);
}

enum Next {
    /// An object, which has been counted.
    Object(u64),
    /// The object to select, which has been counted.
    Due,
    /// This core has no object.
    Uncounted,
}

fn next(odds: Odds, place: Place) -> Next {
    for _ in 0..ATTEMPTS {
        match pop_counted(place.class, |core_cache| pop_alone(core_cache, odds, place)) {
            Popped::Object(object) => return Next::Object(object),
            Popped::Otherwise(next) => return next,
            Popped::Nothing => {}
        }
        // Possibly another slot than before; the next thread on the former one finds it unchanged.
        match near().map(|core_cache| draw(core_cache, odds, place)) {
            Some(Drawn::Due) => return Next::Due,
            Some(Drawn::Fresh) => {}
            Some(Drawn::Left) | None => break,
        }
    }
    Next::Uncounted
}

enum Drawn {
    /// The distance has been used up, and the next one begun.
    Due,
    /// A first distance has begun, from this thread or another.
    Fresh,
    /// Something is left.
    Left,
}

fn draw(core_cache: &CoreCache, odds: Odds, place: Place) -> Drawn {
    let left = core_cache.left(place.class);
    let seen = left.load(R);
    if seen > 1 {
        return Drawn::Left;
    }
    let distance = odds.distance(place.shape().size);
    // Sections do not change values of 0 and 1 (`layout/stack.rs`, 4).
    if left.compare_exchange(seen, distance, R, R).is_err() {
        return Drawn::Fresh;
    }
    core_cache.counts[place.class].popped.fetch_add(distance, R);
    if seen == 1 { Drawn::Due } else { Drawn::Fresh }
}

/// Does what the section does, on a shared slot whose lock is held.
fn pop_alone(core_cache: &CoreCache, odds: Odds, place: Place) -> Next {
    loop {
        match draw(core_cache, odds, place) {
            Drawn::Due => return Next::Due,
            Drawn::Fresh => {}
            Drawn::Left => break,
        }
    }
    let Some(object) = core_cache.stacks[place.class].pop() else { return Next::Uncounted };
    core_cache.left(place.class).fetch_sub(1, R);
    Next::Object(object)
}
