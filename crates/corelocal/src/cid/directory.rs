//! Which slot goes with which id: compact slots, given to ids at first use, and taken back.
//!
//! The kernel's ids are not compact everywhere: before 6.3 there are cpu numbers only, and since 6.19
//! a process that is confined to fewer cpus keeps its old ids. So slots are numbers of our own.
//! The first thread that meets an id without a slot takes the lowest free one; a slot can be taken
//! away again, and whoever uses that id next gets another one. Neither blocks anybody.
//!
//! ```text
//!   offsets[id]   offset of the id's slot ──────── sections look here, at every operation
//!                 or a nothing
//!   owners[slot]  FREE → claim → FROZEN → FREE
//! ```
//!
//! # Invariants
//! 1. A section uses a slot only through `offsets`, read inside the section.
//! 2. Between the moment a slot's offset leaves `offsets` and the moment its owner becomes FREE lies
//!    a fence that ends every section (`membarrier`). So no two ids ever use a slot at a time, and who
//!    has frozen a slot has it for itself.
//! 3. An id has at most one slot. A slot whose owner is an id, yet is not in `offsets`, is one that
//!    somebody is about to publish; a freeze meanwhile makes the publication fail, since it replaces
//!    the nothing that the publisher expects to find. Each nothing and each claim is unique: they are
//!    numbered, so that whoever was late by any number of changes notices.
//!
//! # Race: a freeze meets a publication
//! ```text
//!   publisher of (id 5, slot 2)              freezer of slot 2
//!   reads nothing #8 in offsets[5]
//!   owners[2]: FREE → claim #8 of id 5
//!                                            owners[2]: claim #8 of id 5 → FROZEN
//!                                            offsets[5]: nothing #8 → nothing #9
//!   offsets[5]: nothing #8 → slot 2  fails
//!   owners[2]: claim #8 of id 5 → FREE       fails: the freezer has it
//! ```
//! A process that forks between the publisher's two steps leaves its child a slot that nobody uses;
//! the child's next freeze of it frees it.

use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::rseq::{is_offset, offset, slot_at};

const FREE: u64 = 0;
const FROZEN: u64 = u64::MAX;
/// A claim is its number above these bits, and one more than the id in them.
const ID_BITS: u32 = 16;

/// The slots of one kind of id.
pub(crate) struct Directory<const IDS: usize> {
    offsets: [AtomicU64; IDS],
    owners: [AtomicU64; IDS],
    /// The last number given to a nothing or a claim.
    numbers: AtomicU64,
    high_water: AtomicU32,
}

impl<const IDS: usize> Directory<IDS> {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Directory {
            offsets: [const { AtomicU64::new(0) }; IDS],
            owners: [const { AtomicU64::new(FREE) }; IDS],
            numbers: AtomicU64::new(0),
            high_water: AtomicU32::new(0),
        }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Directory {
            offsets: core::array::from_fn(|_| AtomicU64::new(0)),
            owners: core::array::from_fn(|_| AtomicU64::new(FREE)),
            numbers: AtomicU64::new(0),
            high_water: AtomicU32::new(0),
        }
    }

    /// What sections look up.
    #[inline(always)]
    pub(crate) fn offsets(&self) -> *const AtomicU64 {
        self.offsets.as_ptr()
    }

    /// One more than the largest slot that was ever given.
    pub(crate) fn high_water(&self) -> u32 {
        // Acquire: partner is the Release in `publish`: whoever walks the slots below it sees them.
        self.high_water.load(Ordering::Acquire)
    }

    /// The slot of an id, if it has one.
    #[cfg(any(test, not(loom)))]
    pub(crate) fn slot_of(&self, id: u32) -> Option<u32> {
        // Relaxed: it may be another one by the time the caller looks at it.
        let entry = self.offsets.get(id as usize)?.load(Ordering::Relaxed);
        is_offset(entry).then(|| slot_at(entry))
    }

    /// How many slots ids have now.
    pub(crate) fn in_use(&self) -> u32 {
        let high_water = self.high_water() as usize;
        let owned = |owner: &&AtomicU64| !matches!(owner.load(Ordering::Relaxed), FREE | FROZEN);
        self.owners[..high_water].iter().filter(owned).count() as u32
    }

    /// The slot of an id, now given the lowest free one below `bound` if it had none. `None` when
    /// there is none. Lock-free; async-signal-safe; linear in the slots in use.
    pub(crate) fn assign(&self, id: u32, bound: u32) -> Option<u32> {
        // Acquire: partner is the AcqRel in `revoke`; see the race above.
        let nothing = self.offsets.get(id as usize)?.load(Ordering::Acquire);
        if is_offset(nothing) {
            return Some(slot_at(nothing));
        }
        let claim = self.number() << ID_BITS | u64::from(id + 1);
        let slots = bound.min(IDS as u32);
        let slot = (0..slots).find(|slot| self.claim(*slot, claim))?;
        self.publish(id, slot, nothing, claim)
    }

    /// Gives an id a certain slot, where slots are fixed. `None` when it is frozen, or when another
    /// thread is about to do the same. As `assign` otherwise.
    pub(crate) fn assign_fixed(&self, id: u32, slot: u32) -> Option<u32> {
        // Acquire: as in `assign`.
        let nothing = self.offsets.get(id as usize)?.load(Ordering::Acquire);
        if is_offset(nothing) {
            return Some(slot_at(nothing));
        }
        let claim = self.number() << ID_BITS | u64::from(id + 1);
        if !self.claim(slot, claim) {
            return None;
        }
        self.publish(id, slot, nothing, claim)
    }

    /// A number that was never given before. Never 0.
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn claim(&self, slot: u32, claim: u64) -> bool {
        let owner = &self.owners[slot as usize];
        // Acquire: partner is the Release in `thaw`; what was done to the frozen slot is done. The
        // look before keeps the line shared while slots are taken.
        owner.load(Ordering::Relaxed) == FREE
            && owner.compare_exchange(FREE, claim, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn publish(&self, id: u32, slot: u32, nothing: u64, claim: u64) -> Option<u32> {
        // Release: partner is the Acquire in `high_water`.
        self.high_water.fetch_max(slot + 1, Ordering::Release);
        // Release: partner is the section's load; it uses the slot after what `claim` acquired.
        let published = self.offsets[id as usize].compare_exchange(
            nothing,
            offset(slot),
            Ordering::Release,
            Ordering::Relaxed,
        );
        match published {
            Ok(_) => Some(slot),
            Err(now) => {
                // Fails when a freezer has taken the slot meanwhile; then it is no longer ours.
                // Release: as in `thaw`.
                let _ = self.owners[slot as usize].compare_exchange(
                    claim,
                    FREE,
                    Ordering::Release,
                    Ordering::Relaxed,
                );
                is_offset(now).then(|| slot_at(now))
            }
        }
    }

    /// Takes a slot away from its id. `Ok(true)` when sections may still be in it: a fence must come
    /// before anything is done to it, then `thaw`. `Err` when it is frozen already.
    pub(crate) fn revoke(&self, slot: u32) -> Result<bool, AlreadyFrozen> {
        let word = self.owners.get(slot as usize).ok_or(AlreadyFrozen)?;
        let mut owner = word.load(Ordering::Relaxed);
        loop {
            if owner == FROZEN {
                return Err(AlreadyFrozen);
            }
            // Acquire: partner is the Release of whoever freed it.
            match word.compare_exchange(owner, FROZEN, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => owner = now,
            }
        }
        if owner == FREE {
            return Ok(false);
        }
        let id = owner as usize % (1 << ID_BITS) - 1;
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

    /// Lets a frozen slot be given to an id again.
    pub(crate) fn thaw(&self, slot: u32) {
        // Release: partner is the Acquire in `claim`.
        self.owners[slot as usize].store(FREE, Ordering::Release);
    }
}

/// Somebody else has the slot frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlreadyFrozen;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    type Few = Directory<8>;

    #[test]
    fn slots_are_given_from_the_lowest() {
        let few = Few::new();
        assert_eq!(few.slot_of(5), None);
        assert_eq!(few.assign(5, 8), Some(0));
        assert_eq!(few.assign(7, 8), Some(1));
        assert_eq!(few.assign(5, 8), Some(0));
        assert_eq!((few.slot_of(5), few.slot_of(7), few.high_water()), (Some(0), Some(1), 2));
        assert_eq!(few.assign(1, 2), None);
        assert_eq!(few.assign(99, 8), None);
        assert_eq!(few.in_use(), 2);
    }

    #[test]
    fn a_frozen_slot_is_nobodys() {
        let few = Few::new();
        assert_eq!(few.assign(5, 8), Some(0));
        assert_eq!(few.revoke(0), Ok(true));
        assert_eq!(few.revoke(0), Err(AlreadyFrozen));
        assert_eq!(few.slot_of(5), None);
        assert_eq!(few.assign(5, 8), Some(1));
        few.thaw(0);
        assert_eq!(few.assign(6, 8), Some(0));
        assert_eq!(few.revoke(3), Ok(false));
        few.thaw(3);
        assert_eq!(few.revoke(8), Err(AlreadyFrozen));
    }

    /// A forked child's slot between two steps of a publication that nobody will finish.
    #[test]
    fn an_unpublished_slot_can_be_frozen() {
        let few = Few::new();
        let nothing = few.offsets[5].load(Ordering::Relaxed);
        let claim = few.number() << ID_BITS | 6;
        assert!(few.claim(2, claim));
        assert_eq!(few.revoke(2), Ok(false));
        few.thaw(2);
        // The publisher wakes up after all: too late.
        assert_eq!(few.publish(5, 2, nothing, claim), None);
        assert_eq!(few.slot_of(5), None);
    }

    #[test]
    fn fixed_slots() {
        let few = Few::new();
        assert_eq!(few.assign_fixed(4, 4), Some(4));
        assert_eq!(few.assign_fixed(4, 4), Some(4));
        assert_eq!(few.revoke(4), Ok(true));
        assert_eq!(few.assign_fixed(4, 4), None);
        few.thaw(4);
        assert_eq!(few.assign_fixed(4, 4), Some(4));
    }

    /// Whatever ids come and whatever is frozen, an id has at most one slot and a slot one id.
    #[test]
    fn threads_agree() {
        use std::sync::atomic::{AtomicBool, AtomicU32};
        static DIRECTORY: Directory<8> = Directory::new();
        static USERS: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for n in 0..20_000u32 {
                        let slot = n % 8;
                        if DIRECTORY.revoke(slot).is_ok() {
                            // Alone with it, were there sections and a fence.
                            assert_eq!(USERS[slot as usize].fetch_add(1, Ordering::Relaxed), 0);
                            USERS[slot as usize].fetch_sub(1, Ordering::Relaxed);
                            DIRECTORY.thaw(slot);
                        }
                    }
                    done.store(true, Ordering::Relaxed);
                });
            }
            for id in 0..4 {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        DIRECTORY.assign(id, 8);
                    }
                });
            }
        });
        let mut slots: std::vec::Vec<u32> = (0..4).filter_map(|id| DIRECTORY.slot_of(id)).collect();
        let given = slots.len();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), given);
        assert_eq!(DIRECTORY.in_use() as usize, given);
    }
}

/// The protocol between sections, freezers and publishers. A section is a mutex of its id's thread, held
/// while it runs, since the kernel lets nobody see half of one; the fence takes and releases all of
/// them, as `membarrier` waits for the end of every section.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    const SLOTS: usize = 2;

    struct Machine {
        directory: Directory<SLOTS>,
        /// What sections write to without atomics: loom sees two at a time.
        slots: [UnsafeCell<u32>; SLOTS],
        running: [Mutex<()>; SLOTS],
        has_fence: bool,
    }

    // SAFETY: the protocol under test is what makes it so.
    unsafe impl Sync for Machine {}

    impl Machine {
        fn new(has_fence: bool) -> Arc<Machine> {
            Arc::new(Machine {
                directory: Directory::new(),
                slots: core::array::from_fn(|_| UnsafeCell::new(0)),
                running: core::array::from_fn(|_| Mutex::new(())),
                has_fence,
            })
        }

        fn section(&self, id: usize) -> bool {
            let _running = self.running[id].lock();
            // Acquire: what a load is on x86-64; partner is the Release in `publish`.
            let entry = self.directory.offsets[id].load(Ordering::Acquire);
            if !is_offset(entry) {
                return false;
            }
            self.slots[slot_at(entry) as usize].with_mut(|slot| {
                // SAFETY: loom panics if it is not the only access.
                unsafe { *slot += 1 };
            });
            true
        }

        fn operate(&self, id: usize) {
            for _ in 0..2 {
                if self.section(id) {
                    return;
                }
                self.directory.assign(id as u32, SLOTS as u32);
            }
        }

        fn freeze_and_use(&self, slot: u32) {
            let Ok(was_published) = self.directory.revoke(slot) else { return };
            if was_published && self.has_fence {
                self.running.iter().for_each(|running| drop(running.lock()));
            }
            self.slots[slot as usize].with_mut(|slot| {
                // SAFETY: as in `section`.
                unsafe { *slot += 100 };
            });
            self.directory.thaw(slot);
        }
    }

    fn explore(has_fence: bool) {
        let mut model = loom::model::Builder::new();
        // All orders of three threads take too long; a fault needs two changes of thread.
        model.preemption_bound = Some(2);
        model.check(move || {
            let machine = Machine::new(has_fence);
            machine.operate(0);
            let threads: std::vec::Vec<_> = [0, 1]
                .into_iter()
                .map(|id| {
                    let machine = machine.clone();
                    thread::spawn(move || machine.operate(id))
                })
                .collect();
            machine.freeze_and_use(0);
            for thread in threads {
                thread.join().unwrap();
            }
            let slots = [0, 1].map(|id| machine.directory.slot_of(id));
            assert!(slots[0].is_none() || slots[0] != slots[1]);
        });
    }

    #[test]
    fn loom_a_frozen_slot_has_one_user() {
        explore(true);
    }

    /// Else the test above would show nothing.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_without_a_fence_there_are_two() {
        explore(false);
    }
}
