//! The way of objects in a process that counts them and takes some out: `stats`, `guard` and `profile`.
//!
//! Such a process has no slots where the hot paths of `malloc` look (`front.rs`). They end in the cold one at once,
//! and that begins with a section that pops and counts: `left`, a number for each class and core, says how many objects
//! go out until chance takes one out (`sampling.rs`). So a call in thousands comes here, and the others pay for one
//! number that they count down. `free` knows by the map what was taken out, and is as hot as ever; but for Rust's,
//! who know the size, and would not look there.
//!
//! ```text
//!   left:   0 nobody has drawn a distance yet │ 1 the next object is looked at │ more: one less with each object
//!   asked for = what was drawn, and objects that came from the store − what is left
//! ```
//!
//! # Invariants
//! 1. Whoever brings `left` from 1 to the next distance, by compare-exchange, looks at one object for it.
//! 2. An object that the section did not count is judged by itself: so each is judged once.
//! 3. In a process that checks, `left` stays 0: so the section pops nothing there.

use core::sync::atomic::{AtomicU64, Ordering};

use super::core_cache::{COUNTED, CoreCache};
use super::front::{self, Popped};
use super::sampling::{Lot, Odds};
use super::spans::Place;
use super::{guard, profile};

const R: Ordering = Ordering::Relaxed;

/// Attempts, of which two would do if nobody ever came between.
const ATTEMPTS: u32 = 8;

/// An object of a class; `None` without memory.
pub(super) fn allocate(odds: Odds, place: Place, align: usize, size: usize) -> Option<u64> {
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
    object.or_else(|| front::pop_or_refill(place))
}

fn guarded(otherwise: Odds, place: Place, align: usize, size: usize) -> Option<u64> {
    if let Some(object) = guard::allocate(place.range, align, size) {
        // Guarded ones have a count of their own.
        popped(place.class).fetch_sub(1, R);
        return Some(object as u64);
    }
    // One that cannot be guarded is sampled as often as any.
    match otherwise.at_once(size) {
        Lot::Sampled => profile::allocate(place, align, size),
        _ => None,
    }
}

/// Where objects are counted that were asked for.
fn popped(class: usize) -> &'static AtomicU64 {
    &front::near().map_or(&COUNTED[class], |core_cache| &core_cache.counts[class]).popped
}

/// Somebody asks for an object before it is known who watches.
pub(super) fn count_early(class: usize) {
    COUNTED[class].popped.fetch_add(1, R);
}

enum Next {
    /// One that was counted.
    Object(u64),
    /// The one that is looked at, which is counted.
    Due,
    /// There is none on this core.
    Uncounted,
}

fn next(odds: Odds, place: Place) -> Next {
    for _ in 0..ATTEMPTS {
        match front::pop_counted(place.class, |core_cache| pop_alone(core_cache, odds, place)) {
            Popped::Object(object) => return Next::Object(object),
            Popped::Otherwise(next) => return next,
            Popped::Nothing => {}
        }
        // Perhaps not the slot where it was: then that one is found as it is by whoever comes next.
        match front::near().map(|core_cache| draw(core_cache, odds, place)) {
            Some(Drawn::Due) => return Next::Due,
            Some(Drawn::Fresh) => {}
            Some(Drawn::Left) | None => break,
        }
    }
    Next::Uncounted
}

enum Drawn {
    /// The distance is over, and the next one begun.
    Due,
    /// The first distance is begun, by whomever.
    Fresh,
    /// There is something left.
    Left,
}

fn draw(core_cache: &CoreCache, odds: Odds, place: Place) -> Drawn {
    let left = core_cache.left(place.class);
    let seen = left.load(R);
    if seen > 1 {
        return Drawn::Left;
    }
    let distance = odds.distance(place.shape().size);
    // Sections do not write to it as long as it is this (`stack.rs`, 4).
    if left.compare_exchange(seen, distance, R, R).is_err() {
        return Drawn::Fresh;
    }
    core_cache.counts[place.class].popped.fetch_add(distance, R);
    if seen == 1 { Drawn::Due } else { Drawn::Fresh }
}

/// As the section does it, in a shared slot that is locked.
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
