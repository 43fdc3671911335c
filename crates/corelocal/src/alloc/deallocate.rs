//! Frees: of a pointer alone, and with what its owner knows of it.

use super::front;
use super::layout::range::kind_of_object;
use super::page_heap::large::deallocate_foreign;

/// Frees an object. Does nothing if `ptr` is null.
///
/// # Safety
/// - `ptr` is null, or was returned by a function of this module and has not been freed since.
/// - The object is not used any more.
#[inline]
pub unsafe fn deallocate(ptr: *mut u8) {
    // SAFETY: null, or an object that the caller gives up.
    match unsafe { kind_of_object(ptr) } {
        // SAFETY: an object that the caller gives up; its kind was just read.
        Some(kind) => unsafe { front::push(kind, ptr) },
        None => deallocate_foreign(ptr),
    }
}

/// Does what [`deallocate`] does, for callers that know the size they asked for. In checking mode, another size ends
/// the process.
///
/// # Safety
/// - The conditions of [`deallocate`].
/// - `size` is the size that the object was allocated with.
#[inline]
pub unsafe fn deallocate_sized(ptr: *mut u8, size: usize) {
    // SAFETY: null, or an object that the caller gives up.
    match unsafe { kind_of_object(ptr) } {
        // SAFETY: an object that the caller gives up; its kind was just read.
        Some(kind) => unsafe { front::push_sized(kind, ptr, size) },
        None => deallocate_foreign(ptr),
    }
}

/// Does what [`deallocate`] does, for callers that know size and alignment.
///
/// # Safety
/// - The conditions of [`deallocate`].
/// - `align` and `size` are those that the object was allocated with.
#[inline]
pub unsafe fn deallocate_aligned_sized(ptr: *mut u8, _align: usize, size: usize) {
    // SAFETY: this function has the conditions of `deallocate_sized`.
    unsafe { deallocate_sized(ptr, size) }
}
