//! The directory of slots: which id has which slot. Slots are assigned at first use, and can be taken away.
//!
//! The kernel's ids are not compact everywhere: before 6.3 there are cpu numbers only, and since 6.19 a process that
//! is confined to fewer cpus keeps its old ids. So slots are numbers of this library. The first thread that meets an
//! id without a slot takes the lowest free one. A slot can be taken away, and the next thread with that id takes
//! another one. Neither operation blocks.
//!
//! ```text
//!   offsets[id]   offset of the id's slot ──────── read by critical sections, at every operation
//!                 or a "nothing" number             (where slots go by node: an id on a node)
//!   owners[slot]  FREE → claim → frozen → FREE
//! ```
//!
//! # Invariants
//! 1. A critical section uses a slot only through `offsets`, read inside the section.
//! 2. Between the moment a slot's offset leaves `offsets` and the moment its owner becomes FREE there is a fence that
//!    ends every section (`membarrier`). So two ids never use a slot at the same time, and a thread that has frozen a
//!    slot has exclusive access to it.
//! 3. An id has at most one slot. A slot whose owner is an id, yet is not in `offsets`, is about to be published by
//!    some thread. A freeze in between makes that publication fail, since it replaces the "nothing" that the
//!    publisher expects. Each "nothing" and each claim has a unique number, so a late thread notices any number of
//!    changes.
//!
//! # Race: a freeze meets a publication
//! ```text
//!   publisher of (id 5, slot 2)              freezer of slot 2
//!   reads nothing #8 in offsets[5]
//!   owners[2]: FREE → claim #8 of id 5
//!                                            owners[2]: claim #8 of id 5 → frozen
//!                                            offsets[5]: nothing #8 → nothing #9
//!   offsets[5]: nothing #8 → slot 2  fails
//!   owners[2]: claim #8 of id 5 → FREE       fails: the freezer has it
//! ```
//! If a process forks between the publisher's two steps, its child has a slot that no id uses; the child's next
//! freeze of it frees it. If it forks while another thread has a slot frozen, the freezer does not exist in the child
//! (`sys/forks.rs`). The slot may then be revoked again, from the id that lost it, since the freezer may have been
//! interrupted before that step.

use super::gate::Gate;
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::primitive::global;
use crate::rseq::{is_offset, offset, slot_at};
use crate::sys::forks::Identity;

const FREE: u64 = 0;
/// A claim consists of its number, above these bits, and one more than the id.
const ID_BITS: u32 = 18;
/// A frozen slot has this bit, the thread that froze it in place of a claim's number, and the id that lost it.
const FROZEN: u64 = 1 << 63;
const _: () = assert!(ID_BITS + Identity::BITS <= 63);

/// Returns the thread that froze the slot with this owner word.
fn freezer(owner: u64) -> Option<Identity> {
    (owner & FROZEN != 0).then(|| Identity::of_number((owner & !FROZEN) >> ID_BITS))
}

/// The slots of one kind of id.
///
/// `repr(C)`: the table is at the start, so that its address is that of the static.
#[repr(C)]
pub(crate) struct Directory<const IDS: usize, const SLOTS: usize> {
    offsets: [AtomicU64; IDS],
    owners: [AtomicU64; SLOTS],
    /// The last number assigned to a "nothing" or a claim.
    numbers: AtomicU64,
    high_water: AtomicU32,
    gate: Gate,
    upkeep: Upkeep,
}

/// State for keeping a directory compact. Both are hints.
#[derive(Debug)]
pub struct Upkeep {
    /// One more than the number of slots in use when all were last taken back to make room.
    pub(crate) taken_back_at: global::AtomicU32,
    /// The generation of the process (`sys/forks.rs`) that last freed the slots that a fork left frozen. 0 is the
    /// first generation, so that an unused directory is all zeros, and takes no space in the program's file.
    pub(crate) thawed_in: global::AtomicU32,
}

impl Upkeep {
    const fn new() -> Upkeep {
        let (taken_back_at, thawed_in) = (global::AtomicU32::new(0), global::AtomicU32::new(0));
        Upkeep { taken_back_at, thawed_in }
    }
}

/// The operations on the slots of a kind that do not depend on its ids.
pub trait Revoke: Sync {
    /// Returns one more than the largest slot that was ever assigned.
    fn high_water(&self) -> u32;
    /// Returns the number of slots that ids have now.
    fn in_use(&self) -> u32;
    /// Takes a slot away from its id, for `me`. `Ok(true)` if sections may still use it: then a fence must come
    /// before any access, and `thaw` after. `Err` if another living thread has it frozen.
    fn revoke(&self, slot: u32, me: Identity) -> Result<bool, AlreadyFrozen>;
    /// Returns whether `me` has the slot frozen.
    fn is_frozen_by(&self, slot: u32, me: Identity) -> bool;
    /// Returns whether the slot is frozen by a thread that, as seen by `me`, does not exist in this process.
    #[cfg(not(loom))]
    fn is_left_frozen(&self, slot: u32, me: Identity) -> bool;
    /// Allows a slot that `me` has frozen to be assigned again. Does nothing if another thread has it frozen.
    fn thaw(&self, slot: u32, me: Identity);
    /// Begins a compaction (`gate.rs`). Until `end`, ids are assigned only slots below the current high-water mark.
    /// Returns that mark; `None` if another living thread is compacting.
    fn begin(&self, me: Identity) -> Option<u32>;
    /// Ends a compaction that `me` has begun.
    fn end(&self, me: Identity);
    fn upkeep(&self) -> &Upkeep;
}

impl<const IDS: usize, const SLOTS: usize> Directory<IDS, SLOTS> {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        const { assert!(IDS < 1 << ID_BITS) };
        Directory {
            offsets: [const { AtomicU64::new(0) }; IDS],
            owners: [const { AtomicU64::new(FREE) }; SLOTS],
            numbers: AtomicU64::new(0),
            high_water: AtomicU32::new(0),
            gate: Gate::new(),
            upkeep: Upkeep::new(),
        }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Directory {
            offsets: core::array::from_fn(|_| AtomicU64::new(0)),
            owners: core::array::from_fn(|_| AtomicU64::new(FREE)),
            numbers: AtomicU64::new(0),
            high_water: AtomicU32::new(0),
            gate: Gate::new(),
            upkeep: Upkeep::new(),
        }
    }

    /// Returns the table that critical sections read.
    #[inline(always)]
    pub(crate) fn offsets(&self) -> *const AtomicU64 {
        self.offsets.as_ptr()
    }

    /// Returns the slot of an id, if it has one.
    #[cfg(any(test, not(loom)))]
    pub(crate) fn slot_of(&self, id: u32) -> Option<u32> {
        // Relaxed: it may have changed by the time the caller uses it.
        let entry = self.offsets.get(id as usize)?.load(Ordering::Relaxed);
        is_offset(entry).then(|| slot_at(entry))
    }

    /// Does what [`assign_if`](Directory::assign_if) does, for any slot.
    #[cfg(test)]
    pub(crate) fn assign(
        &self,
        id: u32,
        slots: impl IntoIterator<Item = u32> + Clone,
    ) -> Option<u32> {
        self.assign_if(id, slots, |_| true)
    }

    /// Returns the slot of an id. If it had none, the first free one of `slots` is assigned. `None` if there is none,
    /// or none below the limit of a running compaction (`gate.rs`). Lock-free; async-signal-safe; linear in the slots
    /// in use.
    ///
    /// `is_ready` is called before the id gets the slot. If it returns false, no other slot is tried.
    pub(crate) fn assign_if(
        &self,
        id: u32,
        slots: impl IntoIterator<Item = u32> + Clone,
        is_ready: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        loop {
            // Acquire: partner is the AcqRel in `revoke`; see the race above.
            let nothing = self.offsets.get(id as usize)?.load(Ordering::Acquire);
            if is_offset(nothing) {
                return Some(slot_at(nothing));
            }
            let claim = self.number() << ID_BITS | u64::from(id + 1);
            let pass = self.gate.ask();
            let mut slots = slots.clone().into_iter().filter(|slot| *slot < pass.limit);
            let slot = slots.find(|slot| self.claim(*slot, claim))?;
            let is_ready = is_ready(slot);
            if is_ready && self.gate.confirms(pass) {
                return self.publish(id, slot, nothing, claim);
            }
            self.disclaim(slot, claim);
            if !is_ready {
                return None;
            }
        }
    }

    /// Returns a number that was never used before. Never 0.
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn claim(&self, slot: u32, claim: u64) -> bool {
        let Some(owner) = self.owners.get(slot as usize) else { return false };
        // Acquire: partner is the Release in `thaw`. Accesses to the frozen slot have ended. The read before the
        // exchange keeps the line shared while slots are taken.
        owner.load(Ordering::Relaxed) == FREE
            && owner.compare_exchange(FREE, claim, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn publish(&self, id: u32, slot: u32, nothing: u64, claim: u64) -> Option<u32> {
        // Release: partner is the Acquire in `high_water`.
        self.high_water.fetch_max(slot + 1, Ordering::Release);
        // Release: partner is the section's load. It uses the slot after what `claim` acquired.
        let published = self.offsets[id as usize].compare_exchange(
            nothing,
            offset(slot),
            Ordering::Release,
            Ordering::Relaxed,
        );
        match published {
            Ok(_) => Some(slot),
            Err(now) => {
                self.disclaim(slot, claim);
                is_offset(now).then(|| slot_at(now))
            }
        }
    }

    fn disclaim(&self, slot: u32, claim: u64) {
        let owner = &self.owners[slot as usize];
        // Fails if a freezer has taken the slot meanwhile; then it belongs to the freezer. Release: as in `thaw`.
        let _ = owner.compare_exchange(claim, FREE, Ordering::Release, Ordering::Relaxed);
    }
}

impl<const IDS: usize, const SLOTS: usize> Revoke for Directory<IDS, SLOTS> {
    fn high_water(&self) -> u32 {
        // Acquire: partner is the Release in `publish`. A walk over the slots below the mark sees them.
        self.high_water.load(Ordering::Acquire)
    }

    fn in_use(&self) -> u32 {
        let high_water = self.high_water() as usize;
        let owned = |owner: &&AtomicU64| {
            let owner = owner.load(Ordering::Relaxed);
            owner != FREE && freezer(owner).is_none()
        };
        self.owners[..high_water].iter().filter(owned).count() as u32
    }

    fn revoke(&self, slot: u32, me: Identity) -> Result<bool, AlreadyFrozen> {
        let word = self.owners.get(slot as usize).ok_or(AlreadyFrozen)?;
        let mut owner = word.load(Ordering::Relaxed);
        loop {
            if freezer(owner).is_some_and(|freezer| !freezer.is_gone(me)) {
                return Err(AlreadyFrozen);
            }
            let frozen = FROZEN | me.number() << ID_BITS | (owner % (1 << ID_BITS));
            // Acquire: partner is the Release of the thread that freed it.
            match word.compare_exchange(owner, frozen, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => owner = now,
            }
        }
        let Some(id) = (owner as usize % (1 << ID_BITS)).checked_sub(1) else { return Ok(false) };
        let entry = &self.offsets[id];
        let mut found = entry.load(Ordering::Relaxed);
        while !is_offset(found) || slot_at(found) == slot {
            // AcqRel: partner is the Acquire in `assign`.
            match entry.compare_exchange(found, self.number(), Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => found = now,
            }
        }
        Ok(is_offset(found) && slot_at(found) == slot)
    }

    fn is_frozen_by(&self, slot: u32, me: Identity) -> bool {
        let owner =
            self.owners.get(slot as usize).map_or(FREE, |word| word.load(Ordering::Relaxed));
        freezer(owner) == Some(me)
    }

    #[cfg(not(loom))]
    fn is_left_frozen(&self, slot: u32, me: Identity) -> bool {
        let owner =
            self.owners.get(slot as usize).map_or(FREE, |word| word.load(Ordering::Relaxed));
        freezer(owner).is_some_and(|freezer| freezer.is_gone(me))
    }

    fn thaw(&self, slot: u32, me: Identity) {
        let word = &self.owners[slot as usize];
        let owner = word.load(Ordering::Relaxed);
        if freezer(owner) == Some(me) {
            // Release: partner is the Acquire in `claim`.
            let _ = word.compare_exchange(owner, FREE, Ordering::Release, Ordering::Relaxed);
        }
    }

    fn begin(&self, me: Identity) -> Option<u32> {
        let limit = self.high_water();
        if !self.gate.close(limit, me) {
            return None;
        }
        // Claims from before the compaction (`gate.rs`, invariant 2).
        let is_claimed = |owner: &AtomicU64| owner.load(Ordering::Relaxed) != FREE;
        let claimed = self.owners[limit as usize..].iter().rposition(is_claimed);
        Some(claimed.map_or(limit, |above| limit + above as u32 + 1))
    }

    fn end(&self, me: Identity) {
        self.gate.open(me, self.number());
    }

    fn upkeep(&self) -> &Upkeep {
        &self.upkeep
    }
}

/// Another thread has the slot frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyFrozen;

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom;
