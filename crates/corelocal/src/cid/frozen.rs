//! Slots taken back: frozen one by one, or all at once.
//!
//! Invariants:
//! 1. A [`Frozen`] slot has no user: its id has lost it, and a fence has ended the sections that were
//!    in it. So its owner may read and write what sections alone may otherwise write.
//! 2. A slot whose fence failed is never given to anybody again, nor is it called frozen.

use core::fmt;

use super::capacity;
use crate::sys;
use crate::sys::Errno;
#[cfg(not(loom))]
use crate::sys::membarrier;

/// A slot that no thread uses, and none gets, until this is dropped.
///
/// See [`freeze`].
#[derive(Debug)]
pub struct Frozen {
    slot: u32,
}

impl Frozen {
    /// The slot's number.
    pub fn slot(&self) -> u32 {
        self.slot
    }
}

/// Why a slot could not be frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Another thread has it frozen.
    Frozen,
    /// `membarrier(2)` is refused, and threads may be in their critical sections.
    Fence(Errno),
    /// There is no such slot.
    NoSlot,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Busy::Frozen => f.write_str("another thread has the slot frozen"),
            Busy::Fence(errno) => write!(f, "membarrier(2) failed: {errno}"),
            Busy::NoSlot => f.write_str("no such slot"),
        }
    }
}

impl core::error::Error for Busy {}

/// Takes a slot of kind [`Cid`](super::Cid) away from its id, in all containers at once.
///
/// When it returns no thread is in a critical section on that slot, and none will be until the result
/// is dropped. Nobody waits: the threads of that id get another slot at their next operation.
///
/// One `membarrier(2)` over all cpus, since an id is not a cpu: 1 to 3 microseconds with running
/// siblings; more on a large machine. Nothing but a compare-exchange if no id has the slot. Not for
/// signal handlers.
///
/// Memory ordering: what sections did to the slot before happens before the return; what is done
/// before the drop happens before the next id's use of it.
///
/// # Errors
/// [`Busy`]: another thread has frozen it, the fence is refused (kernels before 5.10, seccomp), or the
/// number is not below [`capacity`].
pub fn freeze(slot: u32) -> Result<Frozen, Busy> {
    if slot >= capacity() {
        return Err(Busy::NoSlot);
    }
    imp::freeze(slot)
}

/// Takes all slots back, so that the ids in use get the lowest ones at their next operation; returns
/// how many had been given.
///
/// Costs as [`freeze`], and every id in use once more the microsecond of its first use. For a process
/// that was confined to fewer cpus meanwhile. Where the kernel's ids are cpu numbers the library does it
/// by itself: when more slots are given than the calling thread has cpus.
///
/// # Errors
/// As [`freeze`].
pub fn compact() -> Result<u32, Busy> {
    freeze_from(0).map(|frozen| frozen.given)
}

/// Slots from some number on, frozen together behind one fence.
pub(crate) struct FrozenRange {
    first: u32,
    end: u32,
    given: u32,
    /// A bit for each: frozen by us.
    ours: [u64; super::IDS / 64],
}

impl FrozenRange {
    /// The slots.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        (self.first..self.end).filter(|slot| self.has(*slot))
    }

    fn has(&self, slot: u32) -> bool {
        self.ours[slot as usize / 64] & 1 << (slot % 64) != 0
    }
}

/// Freezes every slot from `first` up to the high water that nobody else has frozen.
pub(crate) fn freeze_from(first: u32) -> Result<FrozenRange, Busy> {
    imp::freeze_from(first)
}

/// The first slot that a process confined as the calling thread is can do without: as many as the
/// cpus it may run on come before it.
pub(crate) fn spare() -> u32 {
    sys::allowed_cpus().clamp(1, capacity())
}

#[cfg(not(loom))]
pub(crate) use imp::make_room;

#[cfg(not(loom))]
mod imp {
    use super::super::directories::CIDS;
    use super::*;
    use crate::primitive::global::{AtomicU32, Ordering};

    /// Fences every section, if there can be any.
    fn fence() -> Result<(), Busy> {
        match membarrier::private_expedited_rseq() {
            Ok(()) => Ok(()),
            // No thread of this process can be in a section.
            Err(_) if !sys::rseq::any_registered() => Ok(()),
            Err(errno) => Err(Busy::Fence(errno)),
        }
    }

    pub(super) fn freeze(slot: u32) -> Result<Frozen, Busy> {
        // Refused now, nothing has changed yet.
        membarrier_works()?;
        match CIDS.revoke(slot) {
            Err(_) => Err(Busy::Frozen),
            Ok(false) => Ok(Frozen { slot }),
            // Invariant 2 on failure.
            Ok(true) => fence().map(|()| Frozen { slot }),
        }
    }

    /// Asks beforehand; the registration it makes costs the next fence nothing.
    fn membarrier_works() -> Result<(), Busy> {
        match membarrier::register_private_expedited_rseq() {
            Err(errno) if sys::rseq::any_registered() => Err(Busy::Fence(errno)),
            _ => Ok(()),
        }
    }

    pub(super) fn freeze_from(first: u32) -> Result<FrozenRange, Busy> {
        membarrier_works()?;
        let end = CIDS.high_water();
        let mut range = FrozenRange { first, end, given: 0, ours: [0; super::super::IDS / 64] };
        for slot in first..end {
            if let Ok(was_given) = CIDS.revoke(slot) {
                range.given += u32::from(was_given);
                range.ours[slot as usize / 64] |= 1 << (slot % 64);
            }
        }
        if range.given > 0 {
            if let Err(refused) = fence() {
                // Invariant 2.
                range.ours = [0; super::super::IDS / 64];
                return Err(refused);
            }
        }
        Ok(range)
    }

    impl Drop for Frozen {
        fn drop(&mut self) {
            CIDS.thaw(self.slot);
        }
    }

    impl Drop for FrozenRange {
        fn drop(&mut self) {
            let (first, end) = (self.first, self.end);
            for slot in first..end {
                if self.has(slot) {
                    CIDS.thaw(slot);
                }
            }
        }
    }

    /// Before another slot is given where ids are cpu numbers: takes them all back if more are given
    /// than the thread has cpus, since some then belong to cpus that are used no longer. At most once
    /// for each number of slots, so that threads confined to different cpus do not keep doing it.
    pub(crate) fn make_room() {
        static DONE_AT: AtomicU32 = AtomicU32::new(0);
        if super::super::policy() != super::super::Policy::CompactCpu {
            return;
        }
        let given = CIDS.in_use();
        if given < DONE_AT.load(Ordering::Relaxed).max(spare()) {
            return;
        }
        // Relaxed: whoever comes at the same time does it too, at worst.
        DONE_AT.store(given + 1, Ordering::Relaxed);
        // Refused, the slots in use are merely not compact.
        let _ = freeze_from(0);
    }
}

/// Sections are never available in a model; `directory.rs` has the protocol's.
#[cfg(loom)]
mod imp {
    use super::*;

    pub(super) fn freeze(slot: u32) -> Result<Frozen, Busy> {
        Ok(Frozen { slot })
    }

    pub(super) fn freeze_from(first: u32) -> Result<FrozenRange, Busy> {
        Ok(FrozenRange { first, end: first, given: 0, ours: [0; super::super::IDS / 64] })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cid::{self, Cid};

    #[test]
    fn a_frozen_slot_is_given_to_nobody() {
        // Other tests freeze slots as well.
        let slot = cid::current::<Cid>();
        let Ok(frozen) = freeze(slot) else { return };
        assert_eq!(freeze(slot).err(), Some(Busy::Frozen));
        if cid::policy() != cid::Policy::Lease {
            assert_ne!(cid::current::<Cid>(), frozen.slot());
        }
        drop(frozen);
        assert_eq!(freeze(capacity()).err(), Some(Busy::NoSlot));
    }
}
