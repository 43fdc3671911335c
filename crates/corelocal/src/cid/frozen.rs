//! Slots taken away from their ids: frozen one by one, or all at once.
//!
//! Invariants:
//! 1. A [`Frozen`] slot has no user: its id has lost it, and a fence has ended the sections that used it. So the
//!    thread that froze it may access the memory that otherwise only sections write.
//! 2. If the fence fails, the slot is never assigned again, and is not reported as frozen.
//! 3. A frozen slot records the thread that froze it. In a forked child, slots that other threads of the parent had
//!    frozen are freed before an id is assigned one, and may be frozen at once. Taking over such a slot is sound:
//!    consumers leave it valid at every store (`percpu`).
//! 4. Slots that the forking thread had frozen are frozen in the child, for every thread there, until they are
//!    dropped. So no slot has two owners. When in doubt a freezer counts as present (`sys/forks.rs`).

use core::fmt;
use core::marker::PhantomData;

use super::{Cid, Revocable, SlotIndex, capacity};
use crate::sys;
use crate::sys::Errno;
use crate::sys::forks::Identity;
#[cfg(not(loom))]
use crate::sys::membarrier;

/// A frozen slot: no thread uses it, and no id is assigned it, until this is dropped.
///
/// See [`freeze`].
#[must_use = "the slot is frozen until this is dropped"]
pub struct Frozen<I: Revocable = Cid> {
    slot: u32,
    freezer: Identity,
    /// Not `Send`: the slot records the thread that froze it, so that a forked child knows whether that thread exists
    /// in it (invariant 4).
    kind: PhantomData<(I, *mut ())>,
}

impl<I: Revocable> Frozen<I> {
    /// Returns the number of the slot.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Returns whether it is still frozen by this thread.
    #[cfg(not(loom))]
    pub(crate) fn is_kept(&self) -> bool {
        imp::is_kept(self)
    }

    /// Returns whether it is still frozen.
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

/// The reason why a slot could not be frozen.
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
/// When it returns no thread is in a critical section on that slot, and none will be until the result is dropped. It
/// does not block: the threads of that id get another slot at their next operation.
///
/// It costs one `membarrier(2)` over all cpus, since an id is not bound to a cpu: 1 to 3 microseconds with running
/// siblings, more on a large machine. If no id has the slot, it costs a compare-exchange only. Not for signal
/// handlers.
///
/// Memory ordering: what sections did to the slot happens before the return. What is done before the drop happens
/// before the next id's use of it.
///
/// In a forked child the slots that the forking thread had frozen stay frozen, for all of its threads. Those of other
/// threads are free.
///
/// # Errors
/// [`Busy`]: another thread has frozen it, the fence is refused (kernels before 5.10, seccomp), or the number is not
/// below [`capacity`].
pub fn freeze(slot: u32) -> Result<Frozen, Busy> {
    freeze_of(slot)
}

/// Returns whether the calling thread has the slot frozen.
pub(crate) fn is_frozen_here<I: Revocable>(slot: u32) -> bool {
    imp::is_frozen_here::<I>(slot)
}

/// Does what [`freeze`] does for the slots of any kind that can be taken away.
///
/// # Errors
/// As [`freeze`]; [`Busy::NoSlot`] if the number is not below [`capacity_of`](super::capacity_of).
///
/// ```
/// use corelocal::cid::{self, NodeCid};
///
/// match cid::freeze_of::<NodeCid>(0) {
///     Ok(frozen) => println!("slot {} is unused", frozen.slot()),
///     Err(busy) => println!("{busy}"),
/// }
/// ```
pub fn freeze_of<I: Revocable>(slot: u32) -> Result<Frozen<I>, Busy> {
    if slot >= super::capacity_of::<I>() {
        return Err(Busy::NoSlot);
    }
    imp::freeze(slot)
}

/// Takes all slots back, so that the ids in use get the lowest ones at their next operation. Returns how many were
/// assigned.
///
/// It costs as much as [`freeze`], and every id in use takes another microsecond at its next operation. Until it
/// returns, ids without a slot use shared ones, so that they do not get higher ones. Slots that other threads have
/// frozen stay frozen. Use it in a process that was confined to fewer cpus. Where the kernel's ids are cpu numbers
/// the library does it automatically, when more slots are assigned than the calling thread has cpus.
///
/// # Errors
/// As [`freeze`]. [`Busy::Frozen`] while another thread compacts or trims. Then no id loses its slot.
pub fn compact() -> Result<u32, Busy> {
    compact_of::<Cid>()
}

/// Does what [`compact`] does for the slots of any kind that can be taken away. Those of [`NodeCid`](super::NodeCid)
/// are again assigned to ids of their own node.
///
/// # Errors
/// As [`freeze`].
pub fn compact_of<I: Revocable>() -> Result<u32, Busy> {
    imp::freeze_all::<I>().map(|frozen| frozen.given)
}

/// Slots from some number on, frozen together with one fence.
pub(crate) struct FrozenRange<I: SlotIndex> {
    first: u32,
    end: u32,
    given: u32,
    freezer: Identity,
    /// Ids get no slots above them while they are frozen.
    is_capped: bool,
    /// One bit for each slot that this thread has frozen.
    ours: [u64; super::MOST_SLOTS / 64],
    kind: PhantomData<I>,
}

impl<I: SlotIndex> FrozenRange<I> {
    /// Returns the slots.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        (self.first..self.end).filter(|slot| self.has(*slot))
    }

    fn has(&self, slot: u32) -> bool {
        self.ours[slot as usize / 64] & 1 << (slot % 64) != 0
    }
}

/// Freezes every slot from `first` up to the high-water mark that no other thread has frozen. Ids that lose theirs
/// get no higher ones meanwhile, unless another thread is already compacting.
pub(crate) fn freeze_from<I: SlotIndex>(first: u32) -> Result<FrozenRange<I>, Busy> {
    imp::freeze_from(first)
}

/// Returns the first slot that the process does not need, if it is confined as the calling thread is: below it are as
/// many slots as cpus that the thread may use, or where slots go by node, as many for each node.
pub(crate) fn spare<I: SlotIndex>() -> u32 {
    spare_ids() * I::stride()
}

fn spare_ids() -> u32 {
    sys::allowed_cpus().clamp(1, capacity())
}

#[cfg(not(loom))]
pub(crate) use imp::free_left_slots;

#[cfg(not(loom))]
mod imp {
    use super::*;
    use crate::primitive::global::Ordering;
    use crate::sys::forks;

    /// Ends every critical section, if there can be any.
    fn fence() -> Result<(), Busy> {
        match membarrier::private_expedited_rseq() {
            Ok(()) => Ok(()),
            // No thread of this process can be in a section.
            Err(_) if !sys::rseq::any_registered() => Ok(()),
            Err(errno) => Err(Busy::Fence(errno)),
        }
    }

    pub(super) fn freeze<I: Revocable>(slot: u32) -> Result<Frozen<I>, Busy> {
        // If membarrier is refused, fail before anything has changed.
        membarrier_works()?;
        let freezer = Identity::of_this_thread();
        let given = I::directory().revoke(slot, freezer).map_err(|_| Busy::Frozen)?;
        if given {
            // If this fails the slot stays unusable (invariant 2).
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

    /// Frees, once in a forked child, the slots of threads that do not exist in it (invariant 3). Not inlined: an id
    /// gets its slot on any thread's stack, and usually without this.
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
            // If it is refused, the slot stays frozen.
            drop(freeze::<I>(slot));
        }
        if !forks::is_first_thread_known() {
            // In doubt all of them stayed frozen. The next call tries again.
            return;
        }
        // Relaxed: at worst a concurrent thread does the same.
        done_in.store(generation, Ordering::Relaxed);
    }

    /// Checks beforehand. The registration that it makes saves the next fence time.
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
        // From here on its drop undoes the steps so far.
        let mut range = FrozenRange { first, end, given, freezer, is_capped, ours, kind };
        for slot in first..end {
            if let Ok(was_given) = I::directory().revoke(slot, freezer) {
                range.given += u32::from(was_given);
                range.ours[slot as usize / 64] |= 1 << (slot % 64);
            }
        }
        if range.given > 0 {
            if let Err(refused) = fence() {
                // The slots stay unusable (invariant 2).
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
            // Last, so that all slots are free when ids may take them again.
            if self.is_capped {
                I::directory().end(self.freezer);
            }
        }
    }

    /// Called before a slot is assigned: frees the slots that a fork left frozen. Then, where ids are cpu numbers,
    /// takes all slots back if more are assigned than the thread has cpus, since some then belong to cpus that are no
    /// longer used. At most once for each number of slots, so that threads confined to different cpus do not repeat
    /// it.
    pub(crate) fn free_left_slots<I: Revocable>() {
        thaw_left::<I>();
        if super::super::policy() != super::super::Policy::CompactCpu {
            return;
        }
        let directory = I::directory();
        let (given, taken_back_at) = (directory.in_use(), &directory.upkeep().taken_back_at);
        if given < taken_back_at.load(Ordering::Relaxed).max(spare_ids()) {
            return;
        }
        // Relaxed: at worst a concurrent thread does the same.
        taken_back_at.store(given + 1, Ordering::Relaxed);
        take_all_back::<I>();
    }

    /// Takes all back. Not inlined, like `thaw_left`.
    #[inline(never)]
    fn take_all_back<I: Revocable>() {
        // If it is refused, the slots in use are not compact, which is harmless.
        drop(freeze_all::<I>());
    }
}

/// Critical sections are never available in a model; `directory.rs` has the protocol's model.
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
        // Not `current`: if every other slot is frozen or assigned, a leased one is used, which may have the same
        // number.
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
