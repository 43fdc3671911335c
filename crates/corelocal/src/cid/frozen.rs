//! Slots taken back: frozen one by one, or all at once.
//!
//! Invariants:
//! 1. A [`Frozen`] slot has no user: its id has lost it, and a fence has ended the sections that were
//!    in it. So its owner may read and write what sections alone may otherwise write.
//! 2. A slot whose fence failed is never given to anybody again, nor is it called frozen.
//! 3. A frozen slot names its freezer. In a forked child whose parent's other threads had some frozen,
//!    these are free again before an id is given one, and may be frozen at once. That the slot itself is taken over is
//!    sound: what a consumer does to it in between leaves it whole at every store (`percpu`).
//! 4. What the forking thread had frozen is frozen in the child, for every thread there, until it is dropped: no slot has
//!    two owners. In doubt a freezer counts as present (`sys/forks.rs`).

use core::fmt;
use core::marker::PhantomData;

use super::{Cid, Revocable, SlotIndex, capacity};
use crate::sys;
use crate::sys::Errno;
use crate::sys::forks::Identity;
#[cfg(not(loom))]
use crate::sys::membarrier;

/// A slot that no thread uses, and none gets, until this is dropped.
///
/// See [`freeze`].
pub struct Frozen<I: Revocable = Cid> {
    slot: u32,
    freezer: Identity,
    /// Not `Send`: the thread that froze the slot has it, so a forked child knows by that thread whether the owner is
    /// there (4).
    kind: PhantomData<(I, *mut ())>,
}

impl<I: Revocable> Frozen<I> {
    /// The slot's number.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Whether it still is: nothing takes it from the thread that has this.
    #[cfg(not(loom))]
    pub(crate) fn is_kept(&self) -> bool {
        imp::is_kept(self)
    }

    /// Whether it still is.
    #[cfg(loom)]
    pub(crate) fn is_kept(&self) -> bool {
        true
    }
}

impl<I: Revocable> fmt::Debug for Frozen<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen").field("slot", &self.slot).finish_non_exhaustive()
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

/// Takes a slot of kind [`Cid`] away from its id, in all containers at once.
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
/// A forked child has the slots frozen that the thread which forked had, for all of its threads; those of other threads
/// are free.
///
/// # Errors
/// [`Busy`]: another thread has frozen it, the fence is refused (kernels before 5.10, seccomp), or the
/// number is not below [`capacity`].
pub fn freeze(slot: u32) -> Result<Frozen, Busy> {
    freeze_of(slot)
}

/// Whether the calling thread has the slot frozen.
pub(crate) fn is_frozen_here<I: Revocable>(slot: u32) -> bool {
    imp::is_frozen_here::<I>(slot)
}

/// [`freeze`] for the slots of any kind that can be taken back.
///
/// # Errors
/// As [`freeze`]; [`Busy::NoSlot`] if the number is not below [`capacity_of`](super::capacity_of).
///
/// ```
/// use corelocal::cid::{self, NodeCid};
///
/// match cid::freeze_of::<NodeCid>(0) {
///     Ok(frozen) => println!("slot {} is in nobody's use", frozen.slot()),
///     Err(busy) => println!("{busy}"),
/// }
/// ```
pub fn freeze_of<I: Revocable>(slot: u32) -> Result<Frozen<I>, Busy> {
    if slot >= super::capacity_of::<I>() {
        return Err(Busy::NoSlot);
    }
    imp::freeze(slot)
}

/// Takes all slots back, so that the ids in use get the lowest ones at their next operation; returns
/// how many had been given.
///
/// Costs as [`freeze`], and every id in use once more the microsecond of its first use. Until it returns, ids that
/// have lost their slots use shared ones: they get no higher ones instead. Slots that are frozen by others stay
/// theirs. For a process that was confined to fewer cpus meanwhile. Where the kernel's ids are cpu numbers the library
/// does it by itself: when more slots are given than the calling thread has cpus.
///
/// # Errors
/// As [`freeze`]; [`Busy::Frozen`] while another thread compacts or trims. Then no id loses its slot.
pub fn compact() -> Result<u32, Busy> {
    compact_of::<Cid>()
}

/// [`compact`] for the slots of any kind that can be taken back. Those of [`NodeCid`](super::NodeCid) go to
/// ids of their own node again.
///
/// # Errors
/// As [`freeze`].
pub fn compact_of<I: Revocable>() -> Result<u32, Busy> {
    imp::freeze_all::<I>().map(|frozen| frozen.given)
}

/// Slots from some number on, frozen together behind one fence.
pub(crate) struct FrozenRange<I: SlotIndex> {
    first: u32,
    end: u32,
    given: u32,
    freezer: Identity,
    /// Ids get no slots above them as long as they are frozen.
    is_capped: bool,
    /// A bit for each: frozen by us.
    ours: [u64; super::MOST_SLOTS / 64],
    kind: PhantomData<I>,
}

impl<I: SlotIndex> FrozenRange<I> {
    /// The slots.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        (self.first..self.end).filter(|slot| self.has(*slot))
    }

    fn has(&self, slot: u32) -> bool {
        self.ours[slot as usize / 64] & 1 << (slot % 64) != 0
    }
}

/// Freezes every slot from `first` up to the high water that nobody else has frozen. Ids that lose theirs get no
/// higher ones meanwhile, unless another thread is just about the same.
pub(crate) fn freeze_from<I: SlotIndex>(first: u32) -> Result<FrozenRange<I>, Busy> {
    imp::freeze_from(first)
}

/// The first slot that a process confined as the calling thread is can do without: as many as the
/// cpus it may run on come before it, and as many on each node where slots go by node.
pub(crate) fn spare<I: SlotIndex>() -> u32 {
    spare_ids() * I::stride()
}

fn spare_ids() -> u32 {
    sys::allowed_cpus().clamp(1, capacity())
}

#[cfg(not(loom))]
pub(crate) use imp::make_room;

#[cfg(not(loom))]
mod imp {
    use super::*;
    use crate::primitive::global::Ordering;
    use crate::sys::forks;

    /// Fences every section, if there can be any.
    fn fence() -> Result<(), Busy> {
        match membarrier::private_expedited_rseq() {
            Ok(()) => Ok(()),
            // No thread of this process can be in a section.
            Err(_) if !sys::rseq::any_registered() => Ok(()),
            Err(errno) => Err(Busy::Fence(errno)),
        }
    }

    pub(super) fn freeze<I: Revocable>(slot: u32) -> Result<Frozen<I>, Busy> {
        // Refused now, nothing has changed yet.
        membarrier_works()?;
        let freezer = Identity::of_this_thread();
        let given = I::directory().revoke(slot, freezer).map_err(|_| Busy::Frozen)?;
        if given {
            // Invariant 2 on failure.
            fence()?;
        }
        Ok(Frozen { slot, freezer, kind: PhantomData })
    }

    pub(super) fn is_kept<I: Revocable>(frozen: &Frozen<I>) -> bool {
        I::directory().is_frozen_by(frozen.slot, frozen.freezer)
    }

    pub(super) fn is_frozen_here<I: Revocable>(slot: u32) -> bool {
        I::directory().is_frozen_by(slot, Identity::of_this_thread())
    }

    /// In a forked child, once: frees what threads had frozen that are gone (invariant 3). Not inlined: an id gets its
    /// slot on any thread's stack, and mostly without this.
    #[inline(never)]
    fn thaw_left<I: Revocable>() {
        let (directory, generation) = (I::directory(), forks::generation());
        let done_in = &directory.upkeep().thawed_in;
        if done_in.load(Ordering::Relaxed).max(1) == generation {
            return;
        }
        let me = Identity::of_this_thread();
        let slots = 0..I::capacity();
        for slot in slots.filter(|slot| directory.is_left_frozen(*slot, me)) {
            // Refused, it stays as it is.
            drop(freeze::<I>(slot));
        }
        if !forks::is_first_thread_known() {
            // In doubt all of them stayed: to be tried again.
            return;
        }
        // Relaxed: whoever comes at the same time does it too, at worst.
        done_in.store(generation, Ordering::Relaxed);
    }

    /// Asks beforehand; the registration it makes costs the next fence nothing.
    fn membarrier_works() -> Result<(), Busy> {
        match membarrier::register_private_expedited_rseq() {
            Err(errno) if sys::rseq::any_registered() => Err(Busy::Fence(errno)),
            _ => Ok(()),
        }
    }

    pub(super) fn freeze_all<I: SlotIndex>() -> Result<FrozenRange<I>, Busy> {
        membarrier_works()?;
        let freezer = Identity::of_this_thread();
        let end = I::directory().begin(freezer).ok_or(Busy::Frozen)?;
        freeze_range(0, end, freezer, true)
    }

    pub(super) fn freeze_from<I: SlotIndex>(first: u32) -> Result<FrozenRange<I>, Busy> {
        membarrier_works()?;
        let freezer = Identity::of_this_thread();
        match I::directory().begin(freezer) {
            Some(end) => freeze_range(first, end, freezer, true),
            None => freeze_range(first, I::directory().high_water(), freezer, false),
        }
    }

    fn freeze_range<I: SlotIndex>(
        first: u32,
        end: u32,
        freezer: Identity,
        is_capped: bool,
    ) -> Result<FrozenRange<I>, Busy> {
        let (given, ours, kind) = (0, [0; super::super::MOST_SLOTS / 64], PhantomData);
        // From here on its drop ends what was begun.
        let mut range = FrozenRange { first, end, given, freezer, is_capped, ours, kind };
        for slot in first..end {
            if let Ok(was_given) = I::directory().revoke(slot, freezer) {
                range.given += u32::from(was_given);
                range.ours[slot as usize / 64] |= 1 << (slot % 64);
            }
        }
        if range.given > 0 {
            if let Err(refused) = fence() {
                // Invariant 2.
                range.ours = [0; super::super::MOST_SLOTS / 64];
                return Err(refused);
            }
        }
        Ok(range)
    }

    impl<I: Revocable> Drop for Frozen<I> {
        fn drop(&mut self) {
            I::directory().thaw(self.slot, self.freezer);
        }
    }

    impl<I: SlotIndex> Drop for FrozenRange<I> {
        fn drop(&mut self) {
            let (first, end) = (self.first, self.end);
            for slot in first..end {
                if self.has(slot) {
                    I::directory().thaw(slot, self.freezer);
                }
            }
            // Last: all of them are free when ids get slots again.
            if self.is_capped {
                I::directory().end(self.freezer);
            }
        }
    }

    /// Before another slot is given: frees what a fork has left frozen. Then, where ids are cpu numbers,
    /// takes all slots back if more are given than the thread has cpus, since some then belong to cpus
    /// that are used no longer. At most once for each number of slots, so that threads confined to
    /// different cpus do not keep doing it.
    pub(crate) fn make_room<I: Revocable>() {
        thaw_left::<I>();
        if super::super::policy() != super::super::Policy::CompactCpu {
            return;
        }
        let directory = I::directory();
        let (given, taken_back_at) = (directory.in_use(), &directory.upkeep().taken_back_at);
        if given < taken_back_at.load(Ordering::Relaxed).max(spare_ids()) {
            return;
        }
        // Relaxed: whoever comes at the same time does it too, at worst.
        taken_back_at.store(given + 1, Ordering::Relaxed);
        take_all_back::<I>();
    }

    /// Not inlined: as `thaw_left`.
    #[inline(never)]
    fn take_all_back<I: Revocable>() {
        // Refused, the slots in use are merely not compact.
        drop(freeze_all::<I>());
    }
}

/// Sections are never available in a model; `directory.rs` has the protocol's.
#[cfg(loom)]
mod imp {
    use super::*;

    pub(super) fn freeze<I: Revocable>(slot: u32) -> Result<Frozen<I>, Busy> {
        Ok(Frozen { slot, freezer: Identity::of_this_thread(), kind: PhantomData })
    }

    pub(super) fn is_frozen_here<I: Revocable>(_slot: u32) -> bool {
        false
    }

    pub(super) fn freeze_all<I: SlotIndex>() -> Result<FrozenRange<I>, Busy> {
        freeze_from(0)
    }

    pub(super) fn freeze_from<I: SlotIndex>(first: u32) -> Result<FrozenRange<I>, Busy> {
        let (freezer, ours) = (Identity::of_this_thread(), [0; super::super::MOST_SLOTS / 64]);
        let (end, is_capped, kind) = (first, false, PhantomData);
        Ok(FrozenRange { first, end, given: 0, freezer, is_capped, ours, kind })
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
        assert!(is_frozen_here::<Cid>(slot));
        let elsewhere = std::thread::spawn(move || is_frozen_here::<Cid>(slot));
        assert!(!elsewhere.join().expect("no panic"));
        // Not `current`: with every other slot frozen, or given to other ids, a leased one serves, which may have
        // the same number.
        let given = || cid::offset_of_this_thread::<Cid>().map(cid::slot_at);
        let stop = std::time::Instant::now() + std::time::Duration::from_millis(20);
        while std::time::Instant::now() < stop {
            cid::current::<Cid>();
            assert_ne!(given(), Some(frozen.slot()));
            std::thread::yield_now();
        }
        drop(frozen);
        assert_eq!(freeze(capacity()).err(), Some(Busy::NoSlot));
    }
}
