//! The operands of a critical section: the id, the table from ids to slots, and the object's slots.

use crate::primitive::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::primitive::global;

/// The distance between neighbouring slots: 1 MiB, as a base-2 logarithm. Also the longest block of an object.
pub(crate) const SLOT_SHIFT: u32 = 20;

/// The place of a critical section's id, and of the table from ids to slots.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    /// The offset of the rseq area from the thread pointer.
    pub(crate) area: isize,
    /// The offset of the id's field from the thread pointer.
    pub(crate) id: isize,
    /// A word for each id: the [`offset`] of its slot, or a word that is not an offset.
    pub(crate) offsets: *const global::AtomicU64,
}

/// Returns the distance of a slot from an object's base. Slots grow downward: adding an offset to a base carries, and
/// adding any other word of the table does not.
pub(crate) const fn offset(slot: u32) -> u64 {
    ((slot as u64 + 1) << SLOT_SHIFT).wrapping_neg()
}

/// Returns the slot whose [`offset`] this is.
pub(crate) const fn slot_at(offset: u64) -> u32 {
    (offset.wrapping_neg() >> SLOT_SHIFT) as u32 - 1
}

/// Returns `true` if this is the [`offset`] of a slot.
pub(crate) const fn is_offset(word: u64) -> bool {
    word >= 1 << 63
}

/// The slots of one object.
///
/// Critical sections use the slots below `base`, atomics the shared ones from `base` on. One addition in a section
/// serves two ends: it finds the slot, and it does not carry if the object has no memory yet (`base` is null) or the
/// id has no slot (its word is not an offset).
///
/// Invariant: `base` changes from null to its final value once.
///
/// The assembly relies on the layout: `base` at 0.
#[repr(C)]
pub(crate) struct Slots {
    base: AtomicPtr<u8>,
    shared: AtomicU32,
}

impl Slots {
    const_fn! {
        pub(crate) const fn new() -> Slots {
            Slots { base: AtomicPtr::new(core::ptr::null_mut()), shared: AtomicU32::new(0) }
        }
    }

    /// Returns the slots with this base, which is final.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn bound(base: *mut u8) -> Slots {
        Slots { base: AtomicPtr::new(base), shared: AtomicU32::new(0) }
    }

    /// Returns the address between the slots of critical sections and the shared ones, or null.
    pub(crate) fn base(&self) -> *mut u8 {
        // Acquire: partner is the Release in `bind`. The memory is then ready for use.
        self.base.load(Ordering::Acquire)
    }

    /// Sets the base unless it is set. Returns the base that is set.
    pub(crate) fn bind(&self, fresh: *mut u8) -> *mut u8 {
        let null = core::ptr::null_mut();
        // Release: partner is the Acquire in `base`, and the section's load: the addresses of what it accesses depend on
        // the base. On failure Acquire, for the memory of the thread that was faster.
        match self.base.compare_exchange(null, fresh, Ordering::Release, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(winner) => winner,
        }
    }

    /// Removes the base, so that later sections end in the cold path. The object may be bound again, to the same
    /// base. A section that has read the base continues with it.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn unbind(&self) {
        // Release: partner is the Acquire in `base`. A thread that finds no base here finds its replacement.
        self.base.store(core::ptr::null_mut(), Ordering::Release);
    }

    /// Shared slots below this one may have been used. Trims use the first one of every object.
    pub(crate) fn opened_shared(&self) -> u32 {
        // Acquire: partner is the Release in `open_shared`.
        self.shared.load(Ordering::Acquire).max(1)
    }

    /// Makes the shared slots up to this one visible to readers. The base must be set.
    pub(crate) fn open_shared(&self, slot: u32) {
        // Relaxed: a sufficient bound was published by the thread that raised it, and never falls. The read keeps the
        // cache line, which every section reads, shared.
        if self.shared.load(Ordering::Relaxed) > slot {
            return;
        }
        // Release: partner is the Acquire in `opened_shared`. A reader that sees the bound sees the base.
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
