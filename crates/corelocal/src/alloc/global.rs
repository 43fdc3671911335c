//! The allocator for `#[global_allocator]`.

use core::alloc::{GlobalAlloc, Layout};

use super::allocate::{allocate_aligned, allocate_aligned_zeroed, allocate_zeroed, null, zeroed};
use super::deallocate::deallocate_sized;
use super::layout::class::{self, ALIGNED};
use super::resize::{reallocate, usable_size};
use super::{debug, front};

/// The allocator for `#[global_allocator]`; see the [module](super).
///
/// ```
/// use corelocal::alloc::CoreLocal;
///
/// #[global_allocator]
/// static MEMORY: CoreLocal = CoreLocal;
/// ```
/// Calls of it [give idle memory back](super#memory-that-goes-back-to-the-kernel).
/// [`with_background`](Self::with_background) allows a thread for that.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreLocal {
    /// Constant in a static, so that the hot paths do not contain it.
    is_with_background: bool,
}

/// The [allocator](struct@CoreLocal) without a thread.
#[allow(
    non_upper_case_globals,
    reason = "the value of a unit struct, which this was, and reads as"
)]
pub const CoreLocal: CoreLocal = CoreLocal { is_with_background: false };

impl CoreLocal {
    /// Returns the allocator with a background thread, as in a program that preloads `libcorelocal_malloc.so`: once
    /// there are several threads and 32 MiB have been used, an allocation starts `corelocal-idle`. The thread gives
    /// memory back that was idle for half a second, also while the program does nothing; gives all idle memory back
    /// under [memory pressure](super::watch_pressure); and makes [huge pages](super::use_huge_pages).
    ///
    /// A program with one thread stays so: its calls give memory back, and watch the pressure. So do those of a forked
    /// child, unless `CORELOCAL_MALLOC` says `background:children`. `background:no` refuses the thread, `background:yes`
    /// demands it, also of [`CoreLocal`](const@CoreLocal).
    ///
    /// ```
    /// use corelocal::alloc::CoreLocal;
    ///
    /// #[global_allocator]
    /// static MEMORY: CoreLocal = CoreLocal::with_background();
    /// ```
    pub const fn with_background() -> CoreLocal {
        CoreLocal { is_with_background: true }
    }
}

// SAFETY: objects are disjoint, have at least the size and the alignment of their layout, and nothing unwinds.
unsafe impl GlobalAlloc for CoreLocal {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let stack = class::stack_of_size(layout.size());
        match stack.filter(|_| layout.align() <= ALIGNED) {
            Some(stack) => {
                front::pop_in_program(stack, layout.size(), null, self.is_with_background)
            }
            None => allocate_aligned(layout.align(), layout.size()),
        }
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
        let (align, size) = (layout.align(), layout.size());
        match class::stack_of_size(size) {
            Some(stack) if align <= ALIGNED => {
                let object = front::pop_in_program(stack, size, null, self.is_with_background);
                // SAFETY: null, or an object of at least `size` bytes, which belongs to the caller.
                unsafe { zeroed(object, size) }
            }
            None if align <= ALIGNED => allocate_zeroed(size),
            _ => allocate_aligned_zeroed(align, size),
        }
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
        // SAFETY: `GlobalAlloc`'s contract: a valid layout.
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
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
