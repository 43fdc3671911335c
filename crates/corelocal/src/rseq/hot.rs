//! The sections of the malloc's hot paths, on two objects that they name: so their operands have no address of the object.
//! They do what [`pop_at`](super::pop_at) and [`push_at`](super::push_at) do.

use super::{Exit, Index, Popped, Slots, arch};

/// Where hot paths allocate (`alloc/core_cache/slots.rs`).
pub(crate) static FRONT: Slots = Slots::new();
/// Where objects are freed to whose class is looked up.
pub(crate) static FREED: Slots = Slots::new();

/// Pops a word from the stack at `offset` bytes into the slot of `FRONT`.
///
/// # Safety
/// - As [`pop_at`](super::pop_at).
#[inline(always)]
pub(crate) unsafe fn pop_front(index: Index, offset: usize) -> Popped {
    // SAFETY: the caller keeps the conditions.
    unsafe { arch::pop_front(index, offset) }
}

/// Pushes a word onto the stack at `offset` bytes into the slot of `FRONT`.
///
/// # Safety
/// - As [`push_at`](super::push_at).
#[inline(always)]
pub(crate) unsafe fn push_front(index: Index, offset: usize, item: u64) -> Exit {
    // SAFETY: the caller keeps the conditions.
    unsafe { arch::push_front(index, offset, item) }
}

/// Pushes a word onto the stack at `offset` bytes into the slot of `FREED`.
///
/// # Safety
/// - As [`push_at`](super::push_at).
#[inline(always)]
pub(crate) unsafe fn push_freed(index: Index, offset: usize, item: u64) -> Exit {
    // SAFETY: the caller keeps the conditions.
    unsafe { arch::push_freed(index, offset, item) }
}
