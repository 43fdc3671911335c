//! The byte of the map that says that a large object is out: who frees it, when two do so at once.
//!
//! # Invariants
//! 1. An object that was given out is taken back once; whoever comes later is told.
//! 2. What was written down of the object before it was given out happens before what the one who takes it
//!    back reads.

use crate::primitive::atomic::{AtomicU8, Ordering};

/// The caller's object is out from here on.
pub(super) fn give(byte: &AtomicU8, is_out: u8) {
    // Release: partner is the Acquire in `take_back`.
    byte.store(is_out, Ordering::Release);
}

/// Makes an object the caller's that is out; false if it is not out any more.
pub(super) fn take_back(byte: &AtomicU8, is_out: u8, is_not: u8) -> bool {
    // Acquire: partner is the Release in `give`.
    byte.compare_exchange(is_out, is_not, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

#[cfg(all(test, loom))]
#[path = "large_state_loom.rs"]
mod loom_tests;
