//! The entry of all objects that have a class: the hot paths of `malloc` and `free`, and the cold ones behind them.
//!
//! ```text
//!   pop ── the section on this core's stack ── straight ──► the object
//!     │ empty, no section, or a mode is on
//!   pop_cold ── a mode that counts: the counting section ── straight ──► the object
//!     │
//!   pop_slowly: the class, once ── a mode? ──► debug/ ── otherwise ──► core_cache/refill.rs
//! ```
//! A free takes the same way: `push`, a cold function for what its caller knows, and `push_otherwise`.
//!
//! Invariant: modes (`config.rs`) are one branch of the cold functions; hot ones contain nothing for them
//! (`core_cache/slots.rs`).

use super::background::{allow_background, at_cold_path, or_reclaimed};
use super::central::place::Place;
use super::core_cache::refill::pop_or_refill;
use super::core_cache::slots::{
    WATCHED, bind, has_ticked, pop_counted_section, pop_front, push_freed, push_front,
};
use super::core_cache::spill::push_or_spill;
use super::debug::profile::asked;
use super::debug::{self, UNKNOWN, instrumented};
use super::layout::class::{self, ALIGNED, CLASSES};
use super::layout::range::{Range, kind_of};
use super::layout::stack;
use super::page_heap::large::deallocate_other;
use super::reports::begin_in_program;
use super::{config, hook, inspect};
use crate::rseq::hot::FRONT;

/// Called when out of memory: returns null, and may do something else, such as set `errno`.
pub(super) type Missing = extern "C" fn() -> *mut u8;

/// Pops an object from the stack at offset `at`, which must be the stack of this size and alignment. Returns
/// `missing()` when out of memory.
///
/// The cold functions use the C calling convention, which does not unwind, so that the hot function ends in a jump to
/// them and needs no stack frame.
#[inline(always)]
pub(super) fn pop(at: usize, align: usize, size: usize, missing: Missing) -> *mut u8 {
    pop_or(at, align, size, missing, pop_cold)
}

/// Does what [`pop`] does, for a program that has this malloc inside: the cold path [begins](begin_in_program) what the
/// environment asks for, and may [allow a background thread](allow_background).
#[inline(always)]
pub(super) fn pop_in_program(
    at: usize,
    size: usize,
    missing: Missing,
    background: bool,
) -> *mut u8 {
    let cold = if background { pop_cold_with_background } else { pop_cold_in_program };
    pop_or(at, ALIGNED, size, missing, cold)
}

/// The cold path of an allocation of this size and alignment: the size first, where hot paths have it.
type Cold = extern "C" fn(usize, usize, Missing) -> *mut u8;

#[inline(always)]
fn pop_or(at: usize, align: usize, size: usize, missing: Missing, cold: Cold) -> *mut u8 {
    let (exit, item) = pop_front(at);
    if exit.is_straight() {
        // SAFETY: the section committed, so the item is an initialised word.
        return core::ptr::with_exposed_provenance_mut(unsafe { item.assume_init() } as usize);
    }
    cold(size, align, missing)
}

/// Frees an object: pushes it onto its class's stack, or takes a cold path.
///
/// # Safety
/// - `kind` is what the map says of the object.
/// - If `kind` is a class, the object belongs to the caller alone.
#[inline(always)]
pub(super) unsafe fn push(kind: usize, object: *mut u8) {
    if push_freed(stack::at(kind), object as u64).is_straight() {
        return;
    }
    push_cold(object, kind);
}

/// Does what [`push`] does, for callers that know the size that was asked for, which the debugging modes check. The
/// cold path gets the size instead of the kind and looks the kind up again: the hot path would have to save a register
/// to pass both.
///
/// # Safety
/// - The conditions of [`push`].
#[inline(always)]
pub(super) unsafe fn push_sized(kind: usize, object: *mut u8, size: usize) {
    if push_freed(stack::at(kind), object as u64).is_straight() {
        return;
    }
    push_sized_cold(object, size);
}

/// Does what [`push_sized`] does, for an object of its size's class, unless a debugging mode has replaced it.
///
/// # Safety
/// - The object belongs to the caller alone.
/// - Unless a debugging mode is on, it is of the class whose stack is at `at`.
#[inline(always)]
pub(super) unsafe fn push_of_class(at: usize, object: *mut u8, size: usize) {
    if push_front(at, object as u64).is_straight() {
        return;
    }
    push_of_class_cold(object, size);
}

/// Cold path of [`pop`]; in a process that counts, the path of every allocation.
#[cold]
#[inline(never)]
extern "C" fn pop_cold(size: usize, align: usize, missing: Missing) -> *mut u8 {
    let stack = match align {
        ..=ALIGNED => class::stack_of_size(size),
        align => class::stack_of_aligned(align, size),
    };
    let at = stack.filter(|_| !WATCHED.base().is_null());
    let Some(at) = at else { return pop_slowly(size, align, missing) };
    let (exit, item) = pop_counted_section(&WATCHED, at);
    if exit.is_straight() {
        // SAFETY: the section committed, so the item is an initialised word.
        return core::ptr::with_exposed_provenance_mut(unsafe { item.assume_init() } as usize);
    }
    pop_slowly(size, align, missing)
}

#[cold]
#[inline(never)]
extern "C" fn pop_cold_with_background(size: usize, align: usize, missing: Missing) -> *mut u8 {
    allow_background();
    pop_cold_in_program(size, align, missing)
}

#[cold]
#[inline(never)]
extern "C" fn pop_cold_in_program(size: usize, align: usize, missing: Missing) -> *mut u8 {
    begin_in_program();
    pop_cold(size, align, missing)
}

#[cold]
#[inline(never)]
extern "C" fn pop_slowly(size: usize, align: usize, missing: Missing) -> *mut u8 {
    let Some(class) = class::of_aligned(align, size) else { return missing() };
    // Bind the slots before the range is made, which may use up the address space. Without slots, the middle end
    // serves.
    bind();
    let Some(range) = Range::make() else { return missing() };
    begin(range);
    let place = Place::new(range, class);
    let attempt = || match config::modes() {
        Some(modes) if modes.is_any() => debug::allocate(modes, place, align, size),
        Some(_) => {
            if has_ticked(class) {
                hook::after_growth(range);
            }
            pop_or_refill(place)
        }
        None => {
            instrumented::count_early(class);
            pop_or_refill(place)
        }
    };
    match or_reclaimed(range, size, attempt) {
        Some(object) => core::ptr::with_exposed_provenance_mut(object as usize),
        None => missing(),
    }
}

#[cold]
#[inline(never)]
extern "C" fn push_cold(object: *mut u8, kind: usize) {
    push_otherwise(kind, object, UNKNOWN);
}

#[cold]
#[inline(never)]
extern "C" fn push_sized_cold(object: *mut u8, size: usize) {
    push_otherwise(kind_of(object).unwrap_or_default(), object, size);
}

#[cold]
#[inline(never)]
extern "C" fn push_of_class_cold(object: *mut u8, size: usize) {
    if FRONT.base().is_null() {
        // A debugging mode is on: the map says whether the object was replaced.
        if let Some(kind) = kind_of(object) {
            if push_freed(stack::at(kind), object as u64).is_straight() {
                return;
            }
        }
    }
    push_otherwise(class::of_size(size).unwrap_or_default(), object, size);
}

/// Begins what a process has from its first slow call on: the hook by which memory goes back by itself, and the mark
/// for readers of its memory. Then follows what other processes ask for (`debug/profile/asked.rs`).
#[inline]
pub(super) fn begin(range: Range) {
    /// The memory used from which on memory is worth giving back.
    const WORTH: usize = 32 << 20;
    if !inspect::is_published(range) {
        hook::set_default(WORTH, at_cold_path);
        inspect::publish(range);
    }
    asked::look();
}

/// Frees an object for which the stack had no room, which has no class, or which a debugging mode handles.
fn push_otherwise(kind: usize, object: *mut u8, size: usize) {
    let Some(range) = Range::get() else { return deallocate_other(object) };
    if let Some(modes) = config::modes().filter(|modes| modes.is_or_was_any()) {
        return debug::deallocate(modes, range, object, size);
    }
    if kind == 0 || kind > CLASSES {
        return deallocate_other(object);
    }
    push_or_spill(Place::new(range, kind), object as u64);
}
