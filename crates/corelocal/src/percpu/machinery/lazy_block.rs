//! A container's block and its lifetime: unbound, bound at first use, freed when dropped.
//!
//! Invariants:
//! 1. If the base of `slots` is set, it is that of a block of `T` that this owns or that was lent to it.
//! 2. Slots are accessed by critical sections indexed by `I`; shared slots by atomics or under a lock.

use core::marker::PhantomData;
#[cfg(not(loom))]
use core::mem::ManuallyDrop;

use super::block::Block;
use super::slot::Zeroed;
use crate::cid::{self, SlotIndex};
use crate::percpu::shard::Shard;
use crate::rseq::{self, Ended, Index, Slots};

/// A container's block, bound at first use and freed when this is dropped.
#[repr(C)]
pub(in crate::percpu) struct Owned<T: Zeroed, I: SlotIndex> {
    slots: Slots,
    content: PhantomData<(&'static T, I)>,
}

/// This bit marks the number of a shared shard.
const SHARED: u32 = 1 << 31;

/// The way out if no critical section could run.
pub(in crate::percpu) enum Fallback<T: 'static> {
    /// Use this shared slot with atomics or under a lock.
    Shared(&'static T),
    /// There is no memory for a block.
    Unbound,
}

impl<T: Zeroed, I: SlotIndex> Owned<T, I> {
    const_fn! {
        pub(in crate::percpu) const fn new() -> Self {
            Owned { slots: Slots::new(), content: PhantomData }
        }
    }

    /// Uses this block from the start, without owning it. It is never freed here.
    ///
    /// # Safety
    /// - The block was allocated for `I`.
    /// - Until the block is given back, only this object uses it. Afterwards this object and all references from it
    ///   are unused: references are `'static` because most blocks stay mapped.
    #[cfg(not(loom))]
    pub(in crate::percpu) unsafe fn lent(block: Block<T>) -> ManuallyDrop<Self> {
        let slots = Slots::new();
        slots.bind(block.base());
        ManuallyDrop::new(Owned { slots, content: PhantomData })
    }

    /// Returns the block, and the number below which its shared slots may have been used.
    #[cfg(not(loom))]
    pub(in crate::percpu) fn used(&self) -> Option<(Block<T>, u32)> {
        self.block().map(|block| (block, self.slots.opened_shared()))
    }

    /// Runs `section` on this block once, inline, and everything else out of line. The section must access the slot
    /// that it locates as a `T`.
    ///
    /// `Err` says what to do instead. Pass a closure that owns what it captures: operands captured by reference would
    /// have to live in memory.
    #[inline(always)]
    pub(in crate::percpu) fn run<E: Ended>(
        &self,
        section: impl Fn(Index, &Slots) -> E,
    ) -> Result<E, Fallback<T>> {
        let ended = self.run_once(&section);
        if ended.is_done() { Ok(ended) } else { self.run_cold(ended, section) }
    }

    /// Runs the first half of `run`. If the section did not commit, `run_cold` with the same section does the rest.
    /// For callers that put the second half, with their operands, into a cold function of their own.
    #[inline(always)]
    pub(in crate::percpu) fn run_once<E: Ended>(&self, section: impl Fn(Index, &Slots) -> E) -> E {
        section(I::index(), &self.slots)
    }

    /// Runs the second half of `run`.
    #[cold]
    #[inline(never)]
    pub(in crate::percpu) fn run_cold<E: Ended>(
        &self,
        first: E,
        section: impl Fn(Index, &Slots) -> E,
    ) -> Result<E, Fallback<T>> {
        let Some(block) = self.bind() else { return Err(Fallback::Unbound) };
        if let Some(slot) = cid::shared_slot_for_good(&self.slots) {
            return Err(Fallback::Shared(block.shared(slot)));
        }
        let attempt = || section(I::index(), &self.slots);
        match rseq::retry(first, cid::prepare::<I>, attempt) {
            Some(ended) => Ok(ended),
            None => Err(self.share().map_or(Fallback::Unbound, Fallback::Shared)),
        }
    }

    /// Returns the data of every slot that an object has used, as critical sections access it.
    pub(in crate::percpu) fn slots(&self) -> impl Iterator<Item = &'static T> + use<T, I> {
        let opened = cid::high_water::<I>();
        let block = self.block();
        block.into_iter().flat_map(move |block| (0..opened).map(move |slot| block.slot(slot)))
    }

    /// Returns the data of every shared slot in use, as atomics and locks access it.
    pub(in crate::percpu) fn shared(&self) -> impl Iterator<Item = &'static T> + use<T, I> {
        let opened = self.slots.opened_shared();
        let block = self.block();
        block.into_iter().flat_map(move |block| (0..opened).map(move |slot| block.shared(slot)))
    }

    /// Returns the data of this slot, if it is in use.
    pub(in crate::percpu) fn slot(&self, slot: u32) -> Option<&'static T> {
        (slot < cid::high_water::<I>()).then(|| self.block())?.map(|block| block.slot(slot))
    }

    /// Returns the numbers of all shards in use, in ascending order: slots, then shared ones. A shard keeps its number
    /// when others come into use.
    pub(in crate::percpu) fn numbers(&self) -> impl Iterator<Item = u32> + use<T, I> {
        let shared = 0..self.slots.opened_shared();
        (0..cid::high_water::<I>()).chain(shared.map(|slot| SHARED | slot))
    }

    /// Returns the shard with this number, if it is in use. Constant time.
    #[inline]
    pub(in crate::percpu) fn shard(&self, number: u32) -> Option<&'static T> {
        if number & SHARED == 0 { self.slot(number) } else { self.shared_slot(number & !SHARED) }
    }

    /// Returns the calling thread's shared slot, which is in use from now on. `None` if there is no memory.
    #[cold]
    pub(in crate::percpu) fn share(&self) -> Option<&'static T> {
        Some(self.bind()?.shared(cid::shared_slot(&self.slots)))
    }

    /// Returns the data of the calling thread's slot, or of its shared slot if it has none. `None` if there is no
    /// memory. It is a hint, for data that any thread may access at any time.
    #[inline]
    pub(in crate::percpu) fn near(&self) -> Option<&'static T> {
        match cid::offset_of_this_thread::<I>() {
            // SAFETY: the base is that of a block this owns (invariant 1); the offset is that of a slot that every
            // region has.
            Some(offset) => match unsafe { Block::from_base(self.slots.base()) } {
                Some(block) => Some(block.slot_at(offset)),
                None => self.near_cold(),
            },
            None => self.near_cold(),
        }
    }

    #[cold]
    fn near_cold(&self) -> Option<&'static T> {
        let block = self.bind()?;
        if cid::prepare::<I>() {
            if let Some(offset) = cid::offset_of_this_thread::<I>() {
                return Some(block.slot_at(offset));
            }
        }
        self.share()
    }

    /// Returns the data of this shared slot, as atomics and locks access it, if it is in use.
    pub(in crate::percpu) fn shared_slot(&self, slot: u32) -> Option<&'static T> {
        (slot < self.slots.opened_shared()).then(|| self.block())?.map(|block| block.shared(slot))
    }

    /// Returns the shard that this address belongs to.
    #[inline]
    pub(in crate::percpu) fn part_at(&self, at: *const T) -> Shard {
        self.block().map_or(Shard::Inline, |block| block.part_at(at))
    }

    /// Returns the base, which is final from now on; null if there is no memory.
    #[cfg(not(any(loom, miri)))]
    pub(in crate::percpu) fn base(&self) -> *const u8 {
        self.bind();
        self.slots.base()
    }

    fn block(&self) -> Option<Block<T>> {
        // SAFETY: null, or the base of a block that this owns (invariant 1).
        unsafe { Block::from_base(self.slots.base()) }
    }

    /// Returns the block, allocated at its first use. `None` if there is no memory.
    fn bind(&self) -> Option<Block<T>> {
        if let Some(block) = self.block() {
            return Some(block);
        }
        let fresh = Block::<T>::allocate::<I>()?;
        let bound = self.slots.bind(fresh.base());
        if bound != fresh.base() {
            // SAFETY: no other thread has seen `fresh`, and none of its slots was used.
            unsafe { fresh.free::<I>(0) };
        }
        // SAFETY: null, or the base of a block that this owns (invariant 1).
        unsafe { Block::from_base(bound) }
    }
}

impl<T: Zeroed, I: SlotIndex> Drop for Owned<T, I> {
    fn drop(&mut self) {
        if let Some(block) = self.block() {
            // SAFETY: this owns the block (invariant 1); `&mut self` excludes all other users.
            unsafe { block.free::<I>(self.slots.opened_shared()) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitive::atomic::AtomicU64;

    /// Otherwise a walk along the numbers could miss a shard when a slot comes into use meanwhile.
    #[test]
    fn a_part_keeps_its_number() {
        let shards = Owned::<AtomicU64, cid::Cid>::new();
        let shared: *const AtomicU64 = shards.share().expect("memory");
        let number_of = |shard| shards.numbers().find(|number| at(&shards, *number) == Some(shard));
        let number = number_of(shared).expect("in use");
        cid::current::<cid::Cid>();
        assert_eq!(number_of(shared), Some(number));
        assert!(number >= SHARED && shards.numbers().all(|number| shards.shard(number).is_some()));
        assert!(shards.numbers().is_sorted() && shards.shard(SHARED - 1).is_none());
    }

    fn at(shards: &Owned<AtomicU64, cid::Cid>, number: u32) -> Option<*const AtomicU64> {
        shards.shard(number).map(core::ptr::from_ref)
    }
}
