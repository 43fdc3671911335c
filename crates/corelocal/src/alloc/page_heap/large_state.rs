//! State of a large object, in its map byte: arbitrates concurrent frees of one object.
//!
//! # Invariants
//! 1. An allocated object is freed once; any further free is detected.
//! 2. What was stored into the object's record before it was allocated happens before what the thread that frees it
//!    reads.

use crate::primitive::atomic::{AtomicU8, Ordering};

/// The caller's object is out from here on.
pub(in crate::alloc) fn give(byte: &AtomicU8, is_out: u8) {
    // Marks the caller's object as allocated.
    byte.store(is_out, Ordering::Release);
}

/// Makes an object the caller's that is out; false if it is not out any more.
pub(in crate::alloc) fn take_back(byte: &AtomicU8, is_out: u8, is_not: u8) -> bool {
    // Takes an allocated object back; false if it is not allocated any more.
    byte.compare_exchange(is_out, is_not, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

#[cfg(all(test, loom))]
mod loom;
