//! The allocator for `#[global_allocator]`.

use core::alloc::{GlobalAlloc, Layout};

use super::allocate::{allocate_aligned, allocate_aligned_zeroed, allocate_zeroed};
use super::deallocate::deallocate_sized;
use super::layout::class::{self, ALIGNED};
use super::resize::{reallocate, usable_size};
use super::{debug, front};

/// The allocator for `#[global_allocator]`; see the [module](super).
///
/// Freed memory stays in the process, unless the program [gives it back](super#memory-that-goes-back-to-the-kernel).
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreLocal;

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
