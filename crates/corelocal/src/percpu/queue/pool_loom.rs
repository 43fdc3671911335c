//! `pool.rs` under loom: segments on the heap.

use crate::rseq::SEGMENT;
use std::alloc::{Layout, alloc_zeroed, dealloc};

fn layout() -> Layout {
    Layout::from_size_align(SEGMENT, SEGMENT).unwrap()
}

/// See `pool.rs`.
pub(super) fn take() -> Option<(*mut u8, u32)> {
    // SAFETY: not of size 0.
    let at = unsafe { alloc_zeroed(layout()) };
    (!at.is_null()).then_some((at, 0))
}

/// # Safety
/// - `take` returned the segment, and no reference to it is left.
pub(super) unsafe fn give(segment: *mut u8, _number: u32) {
    // SAFETY: allocated by `take`.
    unsafe { dealloc(segment, layout()) };
}
