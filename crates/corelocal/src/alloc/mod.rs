//! A malloc whose caches belong to cores, not to threads.
//!
//! ```
//! use corelocal::alloc::CoreLocal;
//!
//! #[global_allocator]
//! static MEMORY: CoreLocal = CoreLocal;
//!
//! let numbers: Vec<u32> = (0..1000).collect();
//! assert_eq!(numbers.iter().sum::<u32>(), 499_500);
//! ```
//!
//! Threads own no memory: what a thread frees stays with the core it runs on, and the next thread that runs there
//! uses it. Memory therefore follows the cores in use, not the threads alive, and an object that is freed by another
//! thread costs no more than any other.
//!
//! # How data flows
//! ```text
//!   front end    allocate(40): size class → one section pops from this core's stack       front.rs, core_cache.rs
//!                deallocate: the map's byte for the chunk → one section pushes            range.rs
//!                    │ stack empty: a batch in        │ stack full: a batch out
//!   middle end   the class's depot, an array of pointers; behind it the fullest span      central.rs, spans.rs
//!                    │ no span with a free object     │ a span becomes empty
//!   back end     chunks of 64 KiB, lowest address first; large objects                    store.rs, large.rs
//!                    │ map                            │ give back idle memory
//!                the kernel
//! ```
//! `malloc(40)`: 40 bytes belong to the class of 48. A section pops the top pointer of that class's stack on the
//! current core. That is all in the common case: no thread-local state, no atomic instruction, no test of what the
//! machine supports. An object of more than 1 MiB is a run of chunks of its own.
//!
//! # Where it may be used
//! Everywhere: before constructors, in destructors of threads, in signal handlers, and in the child of a fork,
//! whatever the parent's other threads were doing. No call waits for a lock whose holder cannot run (`central.rs`);
//! the one bounded wait is 100 ms when memory has run out. A forked child does not get the few objects that other
//! threads of the parent were moving at that moment. In a child of `vfork` whose parent has other threads, the malloc
//! may be used only if the `vfork` is that of `corelocal-malloc`.
//!
//! # Errors
//! Out of memory, the result is null, and `errno` is left alone. Before that, all caches are emptied, all idle memory
//! goes back to the kernel, and the allocation is tried again. A pointer that is not an object of this malloc, or
//! that is already free, ends the process with a line on stderr as soon as it is noticed: at once if it points
//! outside of all objects or was the last object of its class that this core freed; otherwise when the object goes
//! back to its span.
//!
//! # Memory that goes back to the kernel
//! With [`CoreLocal`] alone, free memory stays in the process until memory runs out, memory pressure is not watched,
//! and no huge pages are made. (`libcorelocal_malloc.so` does all of this by itself.) One line at the program's start
//! changes that, with one thread or several:
//!
//! ```
//! use corelocal::alloc::{self, CoreLocal};
//!
//! #[global_allocator]
//! static MEMORY: CoreLocal = CoreLocal;
//!
//! alloc::set_cold_hook(32 << 20, |_| _ = alloc::release_by_time());
//! # let pieces: Vec<_> = (0..1000).map(|_| vec![0_u8; 64 << 10]).collect();
//! # drop(pieces);
//! ```
//! The hook runs when a cache is filled or emptied: during any allocation or release, in signal handlers as well. So
//! it must not panic, nor take a lock that the program holds around an allocation. At [`Moment::Taken`] it may also
//! allocate, start threads and call [`watch_pressure`]; at [`Moment::Given`] it may not.
//!
//! A thread gives memory back even while the rest of the program does nothing:
//!
//! ```
//! use corelocal::alloc;
//! use std::thread;
//! use std::time::Duration;
//!
//! thread::spawn(|| loop {
//!     thread::sleep(Duration::from_millis(500));
//!     // Opens files for a moment: do not use this where another thread closes descriptors that it did not open.
//!     alloc::watch_pressure();
//!     let released = alloc::release_idle();
//!     if !alloc::use_huge_pages() && released == 0 {
//!         // Returns at once if idle memory remains.
//!         alloc::wait_for_idle();
//!     }
//! });
//! # thread::sleep(Duration::from_millis(1200));
//! ```
//!
//! # Environment
//! `CORELOCAL_MALLOC=check` checks every object, `guard` a random selection (`check.rs`, `guard.rs`, docs/malloc.md).
//! `count`, `profile`, `profile-rate`, `nodes` and `resident` work as in `libcorelocal_malloc.so`, except that no
//! file is written when the program ends: see [`profile::dump_next`]. `stats` and `stats-signal` only enable the
//! counts that [`stats()`] returns, and `pressure:no` only affects [`watch_pressure`]. `background`, `hugepages`,
//! `tally` and `profile-signal` have no effect here.
//!
//! # Invariants
//! 1. An object is in exactly one place: in use by the program, on a core's stack, in a depot, on an orphan list, in
//!    a local buffer of a function of this module, in the quarantine, or free in its span.
//! 2. This module uses no heap and no thread-local memory except the thread's rseq area.

mod address_range;
mod bits;
mod central;
mod check;
mod chunk_metadata;
mod class;
mod core_cache;
mod core_cache_memory;
mod core_caches;
mod debug;
mod deferred_spans;
mod fault;
mod front;
mod guard;
mod huge;
mod idle;
mod instrumented;
mod large;
mod large_state;
mod mapped_chunks;
mod node_ranges;
mod nodes;
mod orphans;
mod page_release;
mod pressure;
pub mod profile;
mod quarantine;
mod random;
mod range;
mod release;
mod report;
mod sampling;
mod spans;
mod stack;
mod stats;
mod store;
mod subrelease;
#[doc(hidden)]
pub mod testing;
mod timed_release;
mod trace;

pub use check::verify;
pub use huge::use_huge_pages;
pub use pressure::watch_pressure;
pub use release::{
    Moment, idle_bytes, release_idle, set_cold_hook, set_target, trim, wait_for_idle,
};
pub use stats::{ClassStats, NodeStats, Stats, cores, stats};
pub use timed_release::release_by_time;

use core::alloc::{GlobalAlloc, Layout};

use fault::Fault;
use range::{GUARDED, INSIDE, LARGE, Range, kind_of, kind_of_object};

/// The alignment of all objects.
const ALIGNED: usize = 16;
/// Sentinel: the caller does not know the object's size.
const UNKNOWN: usize = usize::MAX;

/// The allocator for `#[global_allocator]`; see the [module](self).
///
/// Freed memory stays in the process, unless the program [gives it back](self#memory-that-goes-back-to-the-kernel).
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreLocal;

/// Allocates `size` bytes, aligned to 16. Returns null when out of memory. An object of size 0 is a distinct object,
/// too.
#[inline]
pub fn allocate(size: usize) -> *mut u8 {
    allocate_or(size, null)
}

/// As [`allocate`], but returns `missing()` when out of memory: for callers that set `errno` then.
#[inline]
pub fn allocate_or(size: usize, missing: extern "C" fn() -> *mut u8) -> *mut u8 {
    match class::stack_of_size(size) {
        Some(stack) => front::pop(stack, ALIGNED, size, missing),
        None => allocate_large(ALIGNED, size, false, missing),
    }
}

/// As [`allocate`], with all bytes 0.
#[inline]
pub fn allocate_zeroed(size: usize) -> *mut u8 {
    match class::stack_of_size(size) {
        // SAFETY: `front::pop` returns null or an object of at least `size` bytes, which belongs to the caller.
        Some(stack) => unsafe { zeroed(front::pop(stack, ALIGNED, size, null), size) },
        None => allocate_large(ALIGNED, size, true, null),
    }
}

/// As [`allocate`], aligned to `align`. Also returns null if `align` is not a power of two.
#[inline]
pub fn allocate_aligned(align: usize, size: usize) -> *mut u8 {
    // The alignment is a compile-time constant in most programs, and this test then vanishes.
    if align <= ALIGNED && align.is_power_of_two() {
        return allocate(size);
    }
    allocate_aligned_or(align, size, null)
}

/// As [`allocate_aligned`], but returns `missing()` when out of memory or if `align` is not a power of two.
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
        true => allocate_large(align, size, false, missing),
        false => missing(),
    }
}

/// As [`allocate_aligned`], with all bytes 0.
fn allocate_aligned_zeroed(align: usize, size: usize) -> *mut u8 {
    match class::stack_of_aligned(align, size) {
        // SAFETY: `front::pop` returns null or an object of at least `size` bytes, which belongs to the caller.
        Some(stack) => unsafe { zeroed(front::pop(stack, align, size, null), size) },
        None if align.is_power_of_two() => allocate_large(align, size, true, null),
        None => null(),
    }
}

/// The result of an allocation that failed.
extern "C" fn null() -> *mut u8 {
    core::ptr::null_mut()
}

/// Fills the first `size` bytes of an object with 0.
///
/// # Safety
/// - `object` is null, or an object of at least `size` bytes.
/// - The object belongs to the caller alone.
#[inline(always)]
unsafe fn zeroed(object: *mut u8, size: usize) -> *mut u8 {
    if !object.is_null() {
        // SAFETY: not null, so an object of at least `size` bytes that the caller alone uses.
        unsafe { object.write_bytes(0, size) };
    }
    object
}

#[cold]
#[inline(never)]
extern "C" fn allocate_large(
    align: usize,
    size: usize,
    is_zeroed: bool,
    missing: extern "C" fn() -> *mut u8,
) -> *mut u8 {
    let Some(range) = Range::make() else { return missing() };
    let attempt = || match debug::is_checked() {
        true => check::allocate_large(range, align, size, is_zeroed),
        false => large::allocate(range, align, size),
    };
    let Some((object, is_zero)) = or_reclaimed(range, size, attempt) else { return missing() };
    release::after_growth(range);
    debug::large_made(range, object, size);
    if is_zeroed && !is_zero {
        // SAFETY: a new object of `size` bytes, which only this function knows.
        unsafe { large::zero(range, object, size) };
    }
    object
}

/// Runs `attempt`. If it fails, empties all caches, gives idle memory back to the kernel, and runs it once more.
/// `None` when out of memory. Nothing is reclaimed for a size that exceeds the whole range.
fn or_reclaimed<T>(range: Range, size: usize, attempt: impl Fn() -> Option<T>) -> Option<T> {
    attempt().or_else(|| {
        let is_possible = size / range::CHUNK < range.chunks();
        if !is_possible {
            return None;
        }
        // Try again even if nothing was reclaimed: another thread may have been giving this memory back.
        release::reclaim(range);
        attempt()
    })
}

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

/// As [`deallocate`], for callers that know the size they asked for. In checking mode, another size ends the process.
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

/// As [`deallocate`], for callers that know size and alignment.
///
/// # Safety
/// - The conditions of [`deallocate`].
/// - `align` and `size` are those that the object was allocated with.
#[inline]
pub unsafe fn deallocate_aligned_sized(ptr: *mut u8, _align: usize, size: usize) {
    // SAFETY: this function has the conditions of `deallocate_sized`.
    unsafe { deallocate_sized(ptr, size) }
}

/// Frees a pointer that is not an object of a size class.
#[cold]
fn deallocate_other(ptr: *mut u8) {
    match (Range::get(), kind_of(ptr).map(|kind| kind as u8)) {
        (Some(range), Some(LARGE)) => {
            large::deallocate(range, ptr);
            release::after_giving(range);
        }
        (_, Some(INSIDE)) => fault::report(Fault::Misaligned, ptr as usize),
        (_, None) => deallocate_foreign(ptr),
        _ => fault::report(Fault::Twice, ptr as usize),
    }
}

#[cold]
#[inline(never)]
extern "C" fn deallocate_foreign(ptr: *mut u8) {
    if !ptr.is_null() {
        fault::report(Fault::Foreign, ptr as usize);
    }
}

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
    if let Some(kind) = unsafe { kind_of_object(ptr) }.filter(|_| !debug::is_known_to_check()) {
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

/// Whether an object stays in place when resized to `size`. Up to half of it may be wasted, which is cheaper than a
/// copy: programs that shrink an object often grow it again.
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
    let has_room = size > usable && debug::may_have_room();
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

/// As [`reallocate`], for an object that may have to move.
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
            release::after_growth(range);
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

/// As [`reallocate`], for an object whose exact end is checked. Such an object always moves.
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

/// The number of bytes of an object that may be used: at least as many as were asked for. 0 for null.
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

// SAFETY: objects are disjoint, have at least the size and the alignment of their layout, and nothing unwinds.
unsafe impl GlobalAlloc for CoreLocal {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocate_aligned(layout.align(), layout.size())
    }

    // The size leads to the stack, so there is no wait for a load from the map.
    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        match class::stack_of_size(layout.size()) {
            // SAFETY: `GlobalAlloc`'s contract: allocated with this size, or moved since if the size has another
            // class.
            Some(stack) if layout.align() <= ALIGNED => unsafe {
                front::push_of_class(stack, ptr, layout.size());
            },
            // SAFETY: `GlobalAlloc`'s contract: an object of this size that is given up.
            _ => unsafe { deallocate_sized(ptr, layout.size()) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNED {
            return allocate_zeroed(layout.size());
        }
        allocate_aligned_zeroed(layout.align(), layout.size())
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (before, after) = (class::stack_of_size(layout.size()), class::stack_of_size(size));
        let is_plain = layout.align() <= ALIGNED;
        if !debug::is_exact(ptr) {
            if before.is_none() && after.is_none() && is_plain {
                // SAFETY: `GlobalAlloc`'s contract: an object that the caller owns.
                return unsafe { reallocate(ptr, size) };
            }
            // SAFETY: `GlobalAlloc`'s contract: an object that the caller owns. It is aligned where it is.
            if is_plain && before == after || !is_plain && size <= unsafe { usable_size(ptr) } {
                return ptr;
            }
        }
        let moved = allocate_aligned(layout.align(), size);
        if !moved.is_null() {
            // SAFETY: two distinct objects with room for this many bytes; `ptr` has this layout.
            unsafe {
                moved.copy_from_nonoverlapping(ptr, size.min(layout.size()));
                self.dealloc(ptr, layout);
            }
        }
        moved
    }
}
