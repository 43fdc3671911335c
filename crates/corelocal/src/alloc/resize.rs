//! Changes of an object's size, and how much of it may be used.

use super::allocate::allocate;
use super::background::or_reclaimed;
use super::deallocate::deallocate;
use super::debug::{self, guard};
use super::fault::{self, Fault};
use super::layout::class::{self, GUARDED, INSIDE, LARGE};
use super::layout::range::{Range, kind_of, kind_of_object};
use super::page_heap::large;
use super::{config, front, hook};

/// Changes an object's size, moving the object if necessary. The result holds the object's first bytes, up to the
/// smaller of both sizes. If `ptr` is null, allocates. Returns null when out of memory; the object is then unchanged.
///
/// # Safety
/// - The conditions of [`deallocate`] hold for `ptr`.
/// - If the result is not null, `ptr` has been freed.
pub unsafe fn reallocate(ptr: *mut u8, size: usize) -> *mut u8 {
    if ptr.is_null() {
        return allocate(size);
    }
    // SAFETY: not null, so an object that the caller owns.
    if let Some(kind) = unsafe { kind_of_object(ptr) }.filter(|_| !config::is_known_to_check()) {
        if (1..=class::CLASSES).contains(&kind) {
            let usable = class::shape(kind).size;
            if is_worth_keeping(usable, size) {
                return ptr;
            }
            if size <= class::LARGEST {
                // SAFETY: an object of this kind, with `usable` bytes, that the caller owns.
                return unsafe { move_object(ptr, kind, usable, size) };
            }
        }
    }
    // SAFETY: not null, so an object that the caller owns.
    unsafe { resize(ptr, size) }
}

/// Returns `true` if an object stays in place when resized to `size`. Up to half of it may be wasted, which is cheaper
/// than a copy: programs that shrink an object often grow it again.
#[inline]
fn is_worth_keeping(usable: usize, size: usize) -> bool {
    size <= usable && size >= usable / 2
}

/// Moves an object of a class to a new object of a size that has a class.
///
/// # Safety
/// - `ptr` is an object of class `kind` with `usable` bytes.
/// - The conditions of [`deallocate`] hold for `ptr`.
#[inline]
unsafe fn move_object(ptr: *mut u8, kind: usize, usable: usize, size: usize) -> *mut u8 {
    // An object that grows gets a quarter more at least, so that one that grows in small steps is not moved each time.
    let has_room = size > usable && config::may_have_room();
    let with_room = if has_room { size.max(usable + usable / 4) } else { size };
    let mut moved = allocate(with_room.min(class::LARGEST));
    if moved.is_null() {
        moved = allocate(size);
    }
    if moved.is_null() {
        // Shrinking never fails: the old object has room.
        return if size <= usable { ptr } else { moved };
    }
    // SAFETY: two distinct objects of the caller's, each with room for this many bytes.
    unsafe {
        moved.copy_from_nonoverlapping(ptr, size.min(usable));
        front::push(kind, ptr);
    }
    moved
}

/// Does what [`reallocate`] does, for an object that may have to move.
///
/// # Safety
/// - The conditions of [`reallocate`]; `ptr` is not null.
#[inline(never)]
unsafe fn resize(ptr: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: an object that the caller owns.
    let usable = unsafe { usable_size(ptr) };
    if debug::is_exact(ptr) {
        // SAFETY: an object that the caller owns, with `usable` bytes.
        return unsafe { move_exact(ptr, usable, size) };
    }
    if is_worth_keeping(usable, size) {
        return ptr;
    }
    let large = Range::get().filter(|_| kind_of(ptr) == Some(usize::from(LARGE)));
    let was_large = large.is_some();
    if let Some(range) = large {
        if size > class::LARGEST && large::resize(range, ptr, size) {
            debug::large_made(range, ptr, size);
            return ptr;
        }
    }
    let moved = match Range::get().filter(|_| size > usable && size > class::LARGEST) {
        Some(range) => {
            hook::after_growth(range);
            let grown =
                or_reclaimed(range, size, || large::allocate_to_grow(range, size, was_large));
            if let Some(grown) = grown {
                debug::large_made(range, grown, size);
            }
            grown.unwrap_or(core::ptr::null_mut())
        }
        None => allocate(size),
    };
    if moved.is_null() {
        // Shrinking never fails: the old object has room.
        return if size <= usable { ptr } else { moved };
    }
    // SAFETY: two distinct objects of the caller's, each with room for this many bytes.
    unsafe {
        moved.copy_from_nonoverlapping(ptr, size.min(usable));
        deallocate(ptr);
    }
    moved
}

/// Does what [`reallocate`] does, for an object whose exact end is checked. Such an object always moves.
///
/// # Safety
/// - The conditions of [`reallocate`].
/// - `ptr` is an object of `before` bytes.
#[cold]
unsafe fn move_exact(ptr: *mut u8, before: usize, size: usize) -> *mut u8 {
    let moved = allocate(size);
    if !moved.is_null() {
        // SAFETY: two distinct objects of the caller's, each with room for this many bytes.
        unsafe {
            moved.copy_from_nonoverlapping(ptr, size.min(before));
            deallocate(ptr);
        }
    }
    moved
}

/// Returns the number of bytes of an object that may be used: at least as many as were asked for. 0 for null.
///
/// # Safety
/// - The conditions of [`deallocate`].
pub unsafe fn usable_size(ptr: *mut u8) -> usize {
    if let Some(size) = debug::exact_size(ptr) {
        return size;
    }
    match (Range::get(), kind_of(ptr)) {
        (_, Some(kind)) if (1..=class::CLASSES).contains(&kind) => class::shape(kind).size,
        (Some(range), Some(kind)) if kind as u8 == LARGE => large::usable(range, ptr),
        (_, Some(kind)) if kind as u8 == GUARDED => guard::usable_size(ptr),
        (_, None) if ptr.is_null() => 0,
        (_, None) => fault::report(Fault::Foreign, ptr as usize),
        (_, Some(kind)) if kind as u8 == INSIDE => fault::report(Fault::Misaligned, ptr as usize),
        _ => fault::report(Fault::Twice, ptr as usize),
    }
}
