//! Allocation: by size, aligned, zeroed, and of objects that have no class.

use super::background::or_reclaimed;
use super::debug::{self, check};
use super::layout::class::{self, ALIGNED};
use super::layout::range::Range;
use super::page_heap::large;
use super::{config, front, hook};

/// Allocates `size` bytes, aligned to 16. Returns null when out of memory. An object of size 0 is a distinct object,
/// too.
#[inline]
pub fn allocate(size: usize) -> *mut u8 {
    allocate_or(size, null)
}

/// Does what [`allocate`] does, but returns `missing()` when out of memory: for callers that set `errno` then.
#[inline]
pub fn allocate_or(size: usize, missing: extern "C" fn() -> *mut u8) -> *mut u8 {
    match class::stack_of_size(size) {
        Some(stack) => front::pop(stack, ALIGNED, size, missing),
        None => allocate_large(size, ALIGNED, false, missing),
    }
}

/// Does what [`allocate`] does, with all bytes 0.
#[inline]
pub fn allocate_zeroed(size: usize) -> *mut u8 {
    match class::stack_of_size(size) {
        // SAFETY: `front::pop` returns null or an object of at least `size` bytes, which belongs to the caller.
        Some(stack) => unsafe { zeroed(front::pop(stack, ALIGNED, size, null), size) },
        None => allocate_large(size, ALIGNED, true, null),
    }
}

/// Does what [`allocate`] does, aligned to `align`. Also returns null if `align` is not a power of two.
#[inline]
pub fn allocate_aligned(align: usize, size: usize) -> *mut u8 {
    // The alignment is a compile-time constant in most programs, and this test then vanishes.
    if align <= ALIGNED && align.is_power_of_two() {
        return allocate(size);
    }
    allocate_aligned_or(align, size, null)
}

/// Does what [`allocate_aligned`] does, but returns `missing()` when out of memory or if `align` is not a power of two.
#[inline(always)]
pub fn allocate_aligned_or(
    align: usize,
    size: usize,
    missing: extern "C" fn() -> *mut u8,
) -> *mut u8 {
    match class::stack_of_aligned(align, size) {
        Some(stack) => front::pop(stack, align, size, missing),
        None => allocate_large_aligned(align, size, missing),
    }
}

#[cold]
#[inline(never)]
extern "C" fn allocate_large_aligned(
    align: usize,
    size: usize,
    missing: extern "C" fn() -> *mut u8,
) -> *mut u8 {
    match align.is_power_of_two() {
        true => allocate_large(size, align, false, missing),
        false => missing(),
    }
}

/// Does what [`allocate_aligned`] does, with all bytes 0.
pub(super) fn allocate_aligned_zeroed(align: usize, size: usize) -> *mut u8 {
    match class::stack_of_aligned(align, size) {
        // SAFETY: `front::pop` returns null or an object of at least `size` bytes, which belongs to the caller.
        Some(stack) => unsafe { zeroed(front::pop(stack, align, size, null), size) },
        None if align.is_power_of_two() => allocate_large(size, align, true, null),
        None => null(),
    }
}

/// Returns the result of an allocation that failed.
pub(super) extern "C" fn null() -> *mut u8 {
    core::ptr::null_mut()
}

/// Fills the first `size` bytes of an object with 0.
///
/// # Safety
/// - `object` is null, or an object of at least `size` bytes.
/// - The object belongs to the caller alone.
#[inline(always)]
pub(super) unsafe fn zeroed(object: *mut u8, size: usize) -> *mut u8 {
    if !object.is_null() {
        // SAFETY: not null, so an object of at least `size` bytes that the caller alone uses.
        unsafe { object.write_bytes(0, size) };
    }
    object
}

#[cold]
#[inline(never)]
extern "C" fn allocate_large(
    size: usize,
    align: usize,
    is_zeroed: bool,
    missing: extern "C" fn() -> *mut u8,
) -> *mut u8 {
    let Some(range) = Range::make() else { return missing() };
    front::begin(range);
    let attempt = || match config::is_checked() {
        true => check::allocate_large(range, align, size, is_zeroed),
        false => large::allocate(range, align, size),
    };
    let Some((object, is_zero)) = or_reclaimed(range, size, attempt) else { return missing() };
    hook::after_growth(range);
    debug::large_made(range, object, size);
    if is_zeroed && !is_zero {
        // SAFETY: a new object of `size` bytes, which only this function knows.
        unsafe { large::zero(range, object, size) };
    }
    object
}
