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
//! A thread keeps nothing: what it frees stays with the core it runs on, and the next one that runs there uses
//! it. So memory follows the cores in use, not the threads alive; and what one thread allocates and another
//! one frees costs what everything costs.
//!
//! # Data's way
//! ```text
//!   allocate → class of the size → one section on this core's stack of the class → done      front.rs
//!      empty: a batch from the class's depot, or from its fullest span               central.rs, spans.rs
//!      no span: chunks that nobody has, the lowest first                                       store.rs
//!   deallocate → the map's byte for the chunk → one section → done                             range.rs
//!      full: a batch goes the way back
//! ```
//! No thread-local state, no atomic instruction, no look at what the machine can do. More than a mebibyte is
//! a run of chunks of its own (`large.rs`).
//!
//! # Where it may be used
//! Everywhere: before constructors, in destructors of threads, in signal handlers, in the child of a fork,
//! whatever the other threads were doing. Nothing waits for a lock whose holder cannot run (`central.rs`),
//! but for 100 ms when memory has run out.
//! What other threads had in their hands at a fork the child does not have. Not in a child of `vfork` whose
//! parent has other threads, unless its `vfork` is that of `corelocal-malloc`.
//!
//! # Errors
//! Without memory the result is null, and `errno` is untouched. Before that all caches are emptied and all that is idle
//! goes back to the kernel, and there is another attempt. A pointer that cannot be one of ours, or is
//! free already, ends the process with a line on stderr, as soon as it is noticed: at once where it points
//! outside of all objects or was freed last of its class on this core; else when it goes back to its span.
//!
//! # Memory that goes back to the kernel
//! With [`CoreLocal`] alone, what is free stays in the process until memory runs out, nothing looks for pressure, and
//! no huge pages are made. (`libcorelocal_malloc.so` does all of that by itself.) A line at the program's beginning
//! changes it, with one thread or several:
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
//! The hook runs when a cache is filled or emptied: at any allocation or release, in a signal handler too. So it takes
//! no lock that the program holds elsewhere, and does not panic. At [`Moment::Taken`] it may also allocate, start
//! threads and call [`watch_pressure`]; at [`Moment::Given`] it does none of these.
//!
//! A thread gives memory back also while the program does nothing:
//!
//! ```
//! use corelocal::alloc;
//! use std::thread;
//! use std::time::Duration;
//!
//! thread::spawn(|| loop {
//!     thread::sleep(Duration::from_millis(500));
//!     // Opens files for a moment: not where another thread closes descriptors that it does not know.
//!     alloc::watch_pressure();
//!     let released = alloc::release_idle();
//!     if !alloc::use_huge_pages() && released == 0 {
//!         // Returns at once while something is idle.
//!         alloc::wait_for_idle();
//!     }
//! });
//! # thread::sleep(Duration::from_millis(1200));
//! ```
//!
//! # What the environment says
//! `CORELOCAL_MALLOC` makes a process look for more: `check` at all objects, `guard` at some (`check.rs`, `guard.rs`;
//! docs/malloc.md). Of its other words `count`, `profile`, `profile-rate`, `nodes` and `resident` work here as in
//! `libcorelocal_malloc.so`, but no file is written at the end: see [`profile::dump_next`]. `stats` and `stats-signal`
//! only count, for [`stats()`], and `pressure:no` only concerns [`watch_pressure`]. `background`, `hugepages`, `tally`
//! and `profile-signal` do nothing here.
//!
//! # Invariants
//! 1. An object is in one place: a program's hands, a stack, a depot, among the orphans, a buffer of a
//!    function here, the quarantine, or its span.
//! 2. Nothing here uses a heap, or a thread's own memory but its rseq area.

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

/// What all objects are aligned to.
const ALIGNED: usize = 16;
/// The size of an object for who does not know it.
const UNKNOWN: usize = usize::MAX;

/// The allocator for `#[global_allocator]`; see the module's text.
///
/// Freed memory stays in the process, unless the program
/// [says how it goes back](self#memory-that-goes-back-to-the-kernel).
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreLocal;

/// Allocates `size` bytes, aligned to 16; null without memory. Of size 0 it is an object like any other.
#[inline]
pub fn allocate(size: usize) -> *mut u8 {
    allocate_or(size, null)
}

/// [`allocate`], whose result without memory is that of `missing`: for those who set `errno` then, say.
#[inline]
pub fn allocate_or(size: usize, missing: extern "C" fn() -> *mut u8) -> *mut u8 {
    match class::stack_of_size(size) {
        Some(stack) => front::pop(stack, ALIGNED, size, missing),
        None => allocate_large(ALIGNED, size, false, missing),
    }
}

/// [`allocate`], with all bytes 0.
#[inline]
pub fn allocate_zeroed(size: usize) -> *mut u8 {
    match class::stack_of_size(size) {
        // SAFETY: so many bytes, the caller's, if it is not null.
        Some(stack) => unsafe { zeroed(front::pop(stack, ALIGNED, size, null), size) },
        None => allocate_large(ALIGNED, size, true, null),
    }
}

/// [`allocate`], aligned to `align`; null also if that is no power of two.
#[inline]
pub fn allocate_aligned(align: usize, size: usize) -> *mut u8 {
    // Known at compile time in most programs.
    if align <= ALIGNED && align.is_power_of_two() {
        return allocate(size);
    }
    allocate_aligned_or(align, size, null)
}

/// [`allocate_aligned`], whose result is that of `missing` without memory, and if `align` is no power of two.
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

/// [`allocate_aligned`], with all bytes 0.
fn allocate_aligned_zeroed(align: usize, size: usize) -> *mut u8 {
    match class::stack_of_aligned(align, size) {
        // SAFETY: so many bytes, the caller's, if it is not null.
        Some(stack) => unsafe { zeroed(front::pop(stack, align, size, null), size) },
        None if align.is_power_of_two() => allocate_large(align, size, true, null),
        None => null(),
    }
}

/// No object.
extern "C" fn null() -> *mut u8 {
    core::ptr::null_mut()
}

/// Makes all bytes of an object 0.
///
/// # Safety
/// It is null, or the caller's and has so many.
#[inline(always)]
unsafe fn zeroed(object: *mut u8, size: usize) -> *mut u8 {
    if !object.is_null() {
        // SAFETY: the caller's promise.
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
        // SAFETY: an object of so many bytes, nobody else's.
        unsafe { large::zero(range, object, size) };
    }
    object
}

/// What an attempt to get `size` bytes gives, or another one, once caches are empty and what was idle is the kernel's;
/// `None` without memory. Nothing is reclaimed for what the range has no room for at all.
fn or_reclaimed<T>(range: Range, size: usize, attempt: impl Fn() -> Option<T>) -> Option<T> {
    attempt().or_else(|| {
        let is_possible = size / range::CHUNK < range.chunks();
        if !is_possible {
            return None;
        }
        // Though nothing was idle: another thread that gives memory back may have held it just now.
        release::reclaim(range);
        attempt()
    })
}

/// Gives an object back. Nothing happens for null.
///
/// # Safety
/// `ptr` is null, or was returned by a function of this module and not given back since; nobody uses the
/// object any more.
#[inline]
pub unsafe fn deallocate(ptr: *mut u8) {
    // SAFETY: the caller's promise.
    match unsafe { kind_of_object(ptr) } {
        // SAFETY: likewise.
        Some(kind) => unsafe { front::push(kind, ptr) },
        None => deallocate_foreign(ptr),
    }
}

/// [`deallocate`], for callers who know the size that they asked for. A program that is checked ends if it was
/// another one.
///
/// # Safety
/// As there; `size` is the one of its allocation.
#[inline]
pub unsafe fn deallocate_sized(ptr: *mut u8, size: usize) {
    // SAFETY: the caller's promise.
    match unsafe { kind_of_object(ptr) } {
        // SAFETY: likewise.
        Some(kind) => unsafe { front::push_sized(kind, ptr, size) },
        None => deallocate_foreign(ptr),
    }
}

/// [`deallocate`], for callers who know size and alignment.
///
/// # Safety
/// As there; `align` and `size` are those of its allocation.
#[inline]
pub unsafe fn deallocate_aligned_sized(ptr: *mut u8, _align: usize, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { deallocate_sized(ptr, size) }
}

/// What is no object of a class.
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

/// Changes an object's size, and moves it if need be: the result has its first bytes, as many as both sizes
/// have. Null without memory; the object is as it was then. Of null it is [`allocate`].
///
/// # Safety
/// As [`deallocate`]; unless the result is null, `ptr` was given back.
pub unsafe fn reallocate(ptr: *mut u8, size: usize) -> *mut u8 {
    if ptr.is_null() {
        return allocate(size);
    }
    // SAFETY: likewise.
    if let Some(kind) = unsafe { kind_of_object(ptr) }.filter(|_| !debug::is_known_to_check()) {
        if (1..=class::CLASSES).contains(&kind) {
            let usable = class::shape(kind).size;
            if is_worth_keeping(usable, size) {
                return ptr;
            }
            if size <= class::LARGEST {
                // SAFETY: an object of this kind, and the caller's.
                return unsafe { move_object(ptr, kind, usable, size) };
            }
        }
    }
    // SAFETY: likewise.
    unsafe { resize(ptr, size) }
}

/// Whether an object stays where it is when another size is asked for. Half of it may be wasted, rather than
/// copied: programs that shrink something grow it again.
#[inline]
fn is_worth_keeping(usable: usize, size: usize) -> bool {
    size <= usable && size >= usable / 2
}

/// Moves an object of a class to one of another size that has a class.
///
/// # Safety
/// It is of this kind and has so many bytes; otherwise as there.
#[inline]
unsafe fn move_object(ptr: *mut u8, kind: usize, usable: usize, size: usize) -> *mut u8 {
    // What grows by little at a time grows by a quarter at least, so that it does not move each time. A profile has the
    // size that was asked for.
    let has_room = size > usable && !debug::is_known_to_profile();
    let with_room = if has_room { size.max(usable + usable / 4) } else { size };
    let mut moved = allocate(with_room.min(class::LARGEST));
    if moved.is_null() {
        moved = allocate(size);
    }
    if moved.is_null() {
        // A smaller one has room where it is.
        return if size <= usable { ptr } else { moved };
    }
    // SAFETY: two objects, both of them the caller's, with room for so many bytes.
    unsafe {
        moved.copy_from_nonoverlapping(ptr, size.min(usable));
        front::push(kind, ptr);
    }
    moved
}

/// [`reallocate`], of an object that may have to move.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn resize(ptr: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    let usable = unsafe { usable_size(ptr) };
    if debug::is_exact(ptr) {
        // SAFETY: likewise.
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
        // A smaller one has room where it is.
        return if size <= usable { ptr } else { moved };
    }
    // SAFETY: two objects, both of them the caller's, with room for so many bytes.
    unsafe {
        moved.copy_from_nonoverlapping(ptr, size.min(usable));
        deallocate(ptr);
    }
    moved
}

/// [`reallocate`] of an object whose end is watched, and that therefore always moves.
///
/// # Safety
/// As there; `ptr` has `before` bytes.
#[cold]
unsafe fn move_exact(ptr: *mut u8, before: usize, size: usize) -> *mut u8 {
    let moved = allocate(size);
    if !moved.is_null() {
        // SAFETY: two objects, both of them the caller's, with room for so many bytes.
        unsafe {
            moved.copy_from_nonoverlapping(ptr, size.min(before));
            deallocate(ptr);
        }
    }
    moved
}

/// How many bytes of an object may be used: at least as many as were asked for. 0 of null.
///
/// # Safety
/// As [`deallocate`].
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

// SAFETY: objects are distinct, as long as their size says and aligned as it says; nothing unwinds.
unsafe impl GlobalAlloc for CoreLocal {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocate_aligned(layout.align(), layout.size())
    }

    // The size leads to the stack; what the map says of the object need not be waited for.
    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        match class::stack_of_size(layout.size()) {
            // SAFETY: the caller's promise: allocated with this size, or moved where that has another class.
            Some(stack) if layout.align() <= ALIGNED => unsafe {
                front::push_of_class(stack, ptr, layout.size());
            },
            // SAFETY: likewise.
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
                // SAFETY: the caller's promise.
                return unsafe { reallocate(ptr, size) };
            }
            // SAFETY: the caller's promise; where it is, it is aligned.
            if is_plain && before == after || !is_plain && size <= unsafe { usable_size(ptr) } {
                return ptr;
            }
        }
        let moved = allocate_aligned(layout.align(), size);
        if !moved.is_null() {
            // SAFETY: two objects with room for so many bytes.
            unsafe {
                moved.copy_from_nonoverlapping(ptr, size.min(layout.size()));
                self.dealloc(ptr, layout);
            }
        }
        moved
    }
}
