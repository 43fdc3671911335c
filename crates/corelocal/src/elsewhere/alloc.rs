//! The allocator of systems that are not Linux: the system's own.

use core::alloc::{GlobalAlloc, Layout};

/// As a `#[global_allocator]`, the system's allocator. On Linux this is corelocal's malloc.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreLocal {
    /// Not a tuple, whose constructor would have the constant's name.
    nothing: (),
}

/// The allocator.
#[allow(non_upper_case_globals, reason = "as on Linux, where it reads like a unit struct")]
pub const CoreLocal: CoreLocal = CoreLocal { nothing: () };

impl CoreLocal {
    /// Returns the allocator. On Linux it may have a background thread.
    pub const fn with_background() -> CoreLocal {
        CoreLocal
    }
}

// SAFETY: each call is one of std's allocator.
unsafe impl GlobalAlloc for CoreLocal {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's conditions.
        unsafe { std::alloc::System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's conditions.
        unsafe { std::alloc::System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's conditions.
        unsafe { std::alloc::System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: the caller's conditions.
        unsafe { std::alloc::System.realloc(at, layout, len) }
    }
}
