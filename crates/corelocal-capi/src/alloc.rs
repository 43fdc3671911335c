//! Memory of the malloc's caches, without a preloaded malloc.

use core::alloc::{GlobalAlloc as _, Layout};
use core::ffi::c_void;
use core::ptr::null_mut;

use corelocal::alloc::CoreLocal;

static ALLOCATOR: CoreLocal = CoreLocal;

fn layout(size: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(size.max(1), align).ok()
}

/// Allocates size bytes at a multiple of align, a power of two, from caches that belong to cores: some nanoseconds.
///
/// Returns null if there is no memory, or align is no power of two. The memory is not that of malloc and free: give it back
/// by corelocal_deallocate, by any thread. docs/malloc.md says how it works; its variable CORELOCAL_MALLOC holds here, too.
/// Where the malloc is preloaded this is another one beside it.
///
/// May be called by any thread, in signal handlers, before main, at thread exit and in children of fork.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_allocate(size: usize, align: usize) -> *mut c_void {
    // SAFETY: not 0 bytes.
    layout(size, align).map_or(null_mut(), |layout| unsafe { ALLOCATOR.alloc(layout) }.cast())
}

/// Frees what corelocal_allocate returned for this size and align. Nothing happens for null.
///
/// # Safety
/// - See the crate's invariant 3. So it is, and it is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_deallocate(at: *mut c_void, size: usize, align: usize) {
    if let (Some(layout), false) = (layout(size, align), at.is_null()) {
        // SAFETY: by the contract.
        unsafe { ALLOCATOR.dealloc(at.cast(), layout) };
    }
}
