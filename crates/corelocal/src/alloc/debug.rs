//! Modes in which objects are treated specially: counting, checking, guarding and profiling (`config.rs`).
//!
//! Hot paths contain nothing for them (`core_cache/slots.rs`). All modes but `check` use `instrumented.rs`.
//!
//! Invariant: an object that a mode treated specially is recognised when it is freed, by the map or by its trailer.

pub(super) mod call_stack;
pub(super) mod check;
mod fill;
pub(super) mod guard;
mod guard_report;
pub(super) mod instrumented;
pub mod profile;
mod quarantine;
mod sampling;
pub(super) mod stats;

use super::central::place::Place;
use super::config::{self, Modes};
use super::core_cache::slots;
use super::core_cache::spill::push_or_spill;
use super::layout::class::{CLASSES, GUARDED};
use super::layout::range::{Range, kind_of};
use super::page_heap::large::deallocate_other;
use sampling::{Lot, Odds};

/// Sentinel: the caller does not know the object's size.
pub(super) const UNKNOWN: usize = usize::MAX;

/// Returns the probabilities with which objects are selected.
fn odds(modes: Modes) -> Odds {
    let rate = config::profile_rate().filter(|_| modes.profiles());
    Odds { guard: modes.guards().then(config::guard_rate), rate }
}

/// Returns `true` if an object's exact end is checked. Its usable size is then the size asked for, not that of its
/// class.
#[inline]
pub(super) fn is_exact(object: *mut u8) -> bool {
    config::is_known_to_check_or_guard() && (config::is_known_to_check() || is_guarded(object))
}

/// Returns the exact size of an object of a class, in checking mode.
#[inline]
pub(super) fn exact_size(object: *mut u8) -> Option<usize> {
    if config::is_known_to_check() { check::size_of(object) } else { None }
}

fn is_guarded(object: *mut u8) -> bool {
    kind_of(object) == Some(usize::from(GUARDED))
}

/// Allocates an object of a class when a mode is on; `None` when out of memory.
pub(super) fn allocate(modes: Modes, place: Place, align: usize, size: usize) -> Option<u64> {
    match modes.checks() {
        true => allocate_checked(modes, place.range, align, size),
        false => instrumented::allocate(odds(modes), place, align, size),
    }
}

fn allocate_checked(modes: Modes, range: Range, align: usize, size: usize) -> Option<u64> {
    if odds(modes).at_once(size) == Lot::Guarded {
        if let Some(object) = guard::allocate(range, align, size) {
            return Some(object as u64);
        }
    }
    let Some(place) = check::place(range, align, size) else {
        return check::allocate_large(range, align, size, false).map(|(at, _)| at as u64);
    };
    if modes.counts() {
        slots::count_pop(place.class);
    }
    check::allocate(place, size)
}

/// Frees any object when a mode is on; `size` is the one that its owner knows, or [`UNKNOWN`].
pub(super) fn deallocate(modes: Modes, range: Range, object: *mut u8, size: usize) {
    if is_guarded(object) {
        return guard::deallocate(object, size);
    }
    let Some(class) = kind_of(object).filter(|kind| (1..=CLASSES).contains(kind)) else {
        if modes.checks() {
            return check::deallocate_other(range, object, size);
        }
        if modes.has_profiled() {
            profile::forget(range, object);
        }
        return deallocate_other(object);
    };
    let place = Place::new(range, class);
    if !modes.checks() {
        return push_or_spill(place, object as u64);
    }
    if modes.counts() {
        slots::count_push(class);
    }
    check::deallocate(place, object as usize, size);
}

/// To be called after a large object was made or resized.
pub(super) fn large_made(range: Range, object: *mut u8, size: usize) {
    if let Some(modes) = config::modes().filter(|modes| modes.has_profiled()) {
        let is_sampled = odds(modes).without_guard().at_once(size) == Lot::Sampled;
        profile::large_made(range, object, size, is_sampled);
    }
}
