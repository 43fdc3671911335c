//! What a section works on: which id, where that id's slot is, and whose slots.

use crate::primitive::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::primitive::global;

/// Distance between neighbouring slots: 1 MiB, as a power of two. The longest block of an object.
pub(crate) const SLOT_SHIFT: u32 = 20;

/// Where a section finds its id, and where it looks up the slot that goes with it.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    /// Of the rseq area, from the thread pointer.
    pub(crate) area: isize,
    /// Of the field that holds the id, from the thread pointer.
    pub(crate) id: isize,
    /// A word for each id: the [`offset`] of its slot, or something that is no offset.
    pub(crate) offsets: *const global::AtomicU64,
}

/// Where a slot lies, from an object's base: slots grow downward, so that an offset added to a base
/// carries, while nothing else that stands in its place does.
pub(crate) const fn offset(slot: u32) -> u64 {
    ((slot as u64 + 1) << SLOT_SHIFT).wrapping_neg()
}

/// The slot whose [`offset`] this is.
pub(crate) const fn slot_at(offset: u64) -> u32 {
    (offset.wrapping_neg() >> SLOT_SHIFT) as u32 - 1
}

/// Whether this is the [`offset`] of a slot.
pub(crate) const fn is_offset(word: u64) -> bool {
    word >= 1 << 63
}

/// The slots of one object: where they are.
///
/// Sections use the slots below `base`, atomics the shared ones from `base` on. One addition in a
/// section serves three ends: it finds the slot, and it does not carry when the object has no memory
/// yet (`base` is null) or the id has no slot (the offset is none).
///
/// Invariant: `base` goes from null to its final value once.
///
/// The layout is known to the assembly: `base` at 0.
#[repr(C)]
pub(crate) struct Slots {
    base: AtomicPtr<u8>,
    shared: AtomicU32,
}

impl Slots {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Slots {
        Slots { base: AtomicPtr::new(core::ptr::null_mut()), shared: AtomicU32::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Slots {
        Slots { base: AtomicPtr::new(core::ptr::null_mut()), shared: AtomicU32::new(0) }
    }

    /// Slots at a base that is final.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn bound(base: *mut u8) -> Slots {
        Slots { base: AtomicPtr::new(base), shared: AtomicU32::new(0) }
    }

    /// What lies between the slots of sections and the shared ones, or null.
    pub(crate) fn base(&self) -> *mut u8 {
        // Acquire: partner is the Release in `bind`; what it points to is ready to be used.
        self.base.load(Ordering::Acquire)
    }

    /// Sets the base if nobody has; returns the one that is set.
    pub(crate) fn bind(&self, fresh: *mut u8) -> *mut u8 {
        let null = core::ptr::null_mut();
        // Release: partner is the Acquire in `base`, and the section's load (loads are not reordered
        // on x86-64). On failure Acquire, for the winner's memory.
        match self.base.compare_exchange(null, fresh, Ordering::Release, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(winner) => winner,
        }
    }

    /// Takes the base away: sections that come later end in the cold path. For one that may be bound again, to the same
    /// base. A section that has read the base goes on with it.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn unbind(&self) {
        // Release: partner is the Acquire in `base`; who finds none here finds what was bound instead before.
        self.base.store(core::ptr::null_mut(), Ordering::Release);
    }

    /// Shared slots below this one may have been used; trims use the first one of any object.
    pub(crate) fn opened_shared(&self) -> u32 {
        // Acquire: partner is the Release in `open_shared`.
        self.shared.load(Ordering::Acquire).max(1)
    }

    /// Lets readers see the shared slots up to this one. The base must be set.
    pub(crate) fn open_shared(&self, slot: u32) {
        // Relaxed: a bound that is high enough was published by whoever raised it, and never falls. The
        // look keeps the line, which every section reads, from going to and fro.
        if self.shared.load(Ordering::Relaxed) > slot {
            return;
        }
        // Release: partner is the Acquire in `opened_shared`; a reader that sees the bound sees the
        // base.
        self.shared.fetch_max(slot + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_an_offset_carries_and_nothing_else_does() {
        let bases = [1u64 << 40, 0x7fff_f000_0000];
        for slot in [0, 1, 8191] {
            assert!(is_offset(offset(slot)));
            assert_eq!(slot_at(offset(slot)), slot);
            assert!(bases.iter().all(|base| base.overflowing_add(offset(slot)).1));
            assert!(!0u64.overflowing_add(offset(slot)).1);
        }
        for nothing in [0, 1, 1 << 48] {
            assert!(!is_offset(nothing));
            assert!(bases.iter().all(|base| !base.overflowing_add(nothing).1));
        }
    }
}
