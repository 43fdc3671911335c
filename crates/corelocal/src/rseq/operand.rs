//! What a section works on: which id, and whose slots.

use crate::primitive::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Where a section finds its id: offsets from the thread pointer.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    /// Of the rseq area.
    pub(crate) area: isize,
    /// Of the field that holds the id.
    pub(crate) id: isize,
}

/// The slots of one object: where they are and which of them may be used.
///
/// `opened` is one more than the largest id the object met, so one compare in a section serves
/// three ends: the bound of the memory, the first use of an id, and the object that has no memory
/// yet (0). Readers walk the slots below it.
///
/// Invariants:
/// 1. `base` goes from null to its final value once, before `opened` leaves 0.
/// 2. `opened` only grows, and never beyond the slots there are.
///
/// The layout is known to the assembly: `base` at 0, `opened` at 8.
#[repr(C)]
pub(crate) struct Slots {
    base: AtomicPtr<u8>,
    opened: AtomicU32,
}

impl Slots {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Slots {
        Slots { base: AtomicPtr::new(core::ptr::null_mut()), opened: AtomicU32::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Slots {
        Slots { base: AtomicPtr::new(core::ptr::null_mut()), opened: AtomicU32::new(0) }
    }

    /// Slot 0, or null.
    pub(crate) fn base(&self) -> *mut u8 {
        // Acquire: partner is the Release in `bind`; what it points to is ready to be used.
        self.base.load(Ordering::Acquire)
    }

    /// Ids below this one may be used.
    pub(crate) fn opened(&self) -> u32 {
        // Acquire: partner is the Release in `open`; a reader that sees the bound sees the base.
        self.opened.load(Ordering::Acquire)
    }

    /// Sets the base if nobody has; returns the one that is set.
    pub(crate) fn bind(&self, fresh: *mut u8) -> *mut u8 {
        let null = core::ptr::null_mut();
        // Release: partner is the Acquire in `base`. On failure Acquire, for the winner's memory.
        match self.base.compare_exchange(null, fresh, Ordering::Release, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(winner) => winner,
        }
    }

    /// Lets sections use the slots up to `id`'s. The base must be set.
    pub(crate) fn open(&self, id: u32) {
        // Release: partners are the Acquire in `opened` and the section's compare, which loads the
        // bound before it loads the base (loads are not reordered on x86-64).
        self.opened.fetch_max(id + 1, Ordering::Release);
    }
}
