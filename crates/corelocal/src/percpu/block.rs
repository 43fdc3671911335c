//! A block of a region, typed: what one object has in every slot.
//!
//! Invariant: a block belongs to one owner from `allocate` to `free`; it starts out as all zeros.
//! References to its slots are `'static`: regions stay. Those of an area do not, and its cells give no
//! reference out (`Owned::lent`).

use core::marker::PhantomData;

use super::region::{self, List, SHORTEST, SLOT_LEN, Wipe};
use super::shard::Shard;
use super::slot::{Class, Kind, Zeroed};
use crate::cid::{self, NodeCid, SlotIndex};
use crate::rseq::{SLOT_SHIFT, is_offset, offset, slot_at};
use crate::sys::page_size::SHORTEST_PAGE;

/// A block whose slots each hold a `T`. Copyable; ownership is kept by whoever allocated it.
pub(crate) struct Block<T: 'static> {
    base: *mut u8,
    content: PhantomData<&'static T>,
}

impl<T> Clone for Block<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Block<T> {}

impl<T: Zeroed> Block<T> {
    /// The length of the block in each slot, as a power of two.
    const SHIFT: u32 = {
        assert!(size_of::<T>() <= SLOT_LEN, "a core's part of an object is at most 1 MiB");
        assert!(align_of::<T>() <= SHORTEST_PAGE);
        let len = size_of::<T>().next_power_of_two();
        let shift = len.trailing_zeros();
        if shift < SHORTEST { SHORTEST } else { shift }
    };

    /// Among which blocks it lies.
    const fn class<I: SlotIndex>() -> Class {
        Class { kind: if I::COMPACT { T::KIND } else { Kind::Fixed }, by_node: I::BY_NODE }
    }

    /// Takes a free block whose slots are those of kind `I`; `None` when the kernel gives no memory.
    ///
    /// Lock-free; constant time on average.
    #[cold]
    pub(crate) fn allocate<I: SlotIndex>() -> Option<Block<T>> {
        let base = region::allocate(Self::class::<I>(), Self::SHIFT)?;
        Some(Block { base, content: PhantomData })
    }

    /// As `allocate`, in regions of one's own.
    pub(super) fn allocate_in<I: SlotIndex>(regions: &List) -> Option<Block<T>> {
        let base = regions.allocate(Self::class::<I>(), Self::SHIFT)?;
        Some(Block { base, content: PhantomData })
    }

    /// Bytes of address space of a region of such blocks.
    pub(crate) fn region_len<I: SlotIndex>() -> usize {
        region::mapping_len(Self::class::<I>(), Self::SHIFT)
    }

    /// The length of the block in each slot.
    pub(crate) const fn len() -> usize {
        1 << Self::SHIFT
    }

    /// Gives the block back, of which the shared slots below `shared` were used.
    ///
    /// # Safety
    /// The caller owns the block, allocated for the same `I`; everybody who used it is done and ordered
    /// before this call.
    pub(crate) unsafe fn free<I: SlotIndex>(self, shared: u32) {
        // SAFETY: the caller's promise.
        unsafe { region::release(self.base, Self::class::<I>(), Self::SHIFT, shared) };
    }

    /// As `free`, to the regions it was taken from, left as `wipe` does it.
    ///
    /// # Safety
    /// As [`free`](Self::free); made by [`allocate_in`](Self::allocate_in) of this list.
    pub(super) unsafe fn free_in<I: SlotIndex>(self, regions: &List, shared: u32, wipe: Wipe) {
        // SAFETY: the caller's promise.
        unsafe { regions.release(self.base, (Self::class::<I>(), Self::SHIFT), shared, wipe) };
    }

    /// What sections use under a slot below `cid::capacity_of::<I>()`.
    pub(crate) fn slot(self, slot: u32) -> &'static T {
        let is_slot = || slot < cid::capacity_of::<NodeCid>();
        debug_assert!(slot < cid::capacity_of::<cid::Cid>() || is_slot());
        let at = self.base.wrapping_add(offset(slot) as usize);
        // SAFETY: inside the region, which has this slot and stays as long as the block has an owner;
        // all zero or written as a `T`, which is `Zeroed`.
        unsafe { &*at.cast::<T>() }
    }

    /// What atomics and locks use under a shared slot below `cid::shared_capacity()`.
    pub(crate) fn shared(self, slot: u32) -> &'static T {
        debug_assert!(slot < cid::shared_capacity());
        let at = self.base.wrapping_add((slot as usize) << SLOT_SHIFT);
        // SAFETY: as in `slot`.
        unsafe { &*at.cast::<T>() }
    }

    /// What sections use under the slot at this offset.
    #[inline]
    pub(crate) fn slot_at(self, offset: u64) -> &'static T {
        // SAFETY: as in `slot`; only slots of every region have an offset.
        unsafe { &*self.base.wrapping_add(offset as usize).cast::<T>() }
    }

    /// Which part of the block this is the address of.
    #[inline]
    pub(crate) fn part_at(self, at: *const T) -> Shard {
        let distance = (at as usize).wrapping_sub(self.base as usize) as u64;
        match is_offset(distance) {
            true => Shard::Slot(slot_at(distance)),
            false => Shard::Shared((distance >> SLOT_SHIFT) as u32),
        }
    }

    /// From where sections find the slots.
    pub(crate) fn base(self) -> *mut u8 {
        self.base
    }

    /// The block whose `base` this is; `None` for null.
    ///
    /// # Safety
    /// `base` is null, or was returned by `base` of a block of `T` that has not been freed.
    pub(crate) unsafe fn from_base(base: *mut u8) -> Option<Block<T>> {
        (!base.is_null()).then_some(Block { base, content: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cid::Cid;
    use crate::primitive::atomic::{AtomicI64, Ordering};
    use std::collections::HashSet;
    use std::vec::Vec;

    type Line = [AtomicI64; 8];

    #[test]
    fn blocks_are_distinct_and_come_back_zeroed() {
        let blocks: Vec<Block<Line>> =
            (0..20_000).map(|_| Block::allocate::<Cid>().unwrap()).collect();
        let distinct: HashSet<usize> = blocks.iter().map(|block| block.base() as usize).collect();
        assert_eq!(distinct.len(), blocks.len());
        // A slot that somebody used: only those are cleared.
        cid::current::<cid::CpuId>();
        let used = cid::highest_water(false) > 0;
        for block in &blocks {
            if used {
                block.slot(0)[3].store(7, Ordering::Relaxed);
            }
            block.shared(0)[7].store(9, Ordering::Relaxed);
        }
        for block in blocks {
            // SAFETY: allocated above, used by this thread alone.
            unsafe { block.free::<Cid>(1) };
        }
        for _ in 0..64 {
            let block = Block::<Line>::allocate::<Cid>().unwrap();
            let words = block.slot(0).iter().chain(block.shared(0));
            assert!(words.into_iter().all(|word| word.load(Ordering::Relaxed) == 0));
            // SAFETY: allocated above, used by this thread alone.
            unsafe { block.free::<Cid>(1) };
        }
    }

    #[test]
    fn long_blocks() {
        type Long = [[AtomicI64; 1 << 10]; 100];
        for _ in 0..5 {
            let block = Block::<Long>::allocate::<Cid>().unwrap();
            assert_eq!(block.base() as usize % SHORTEST_PAGE, 0);
            assert_eq!(block.shared(0)[99][1000].load(Ordering::Relaxed), 0);
            block.shared(0)[99][1000].store(1, Ordering::Relaxed);
            // SAFETY: allocated above, used by this thread alone.
            unsafe { block.free::<Cid>(1) };
        }
    }

    #[test]
    fn slots_do_not_share_lines() {
        let block = Block::<Line>::allocate::<Cid>().unwrap();
        let (first, shared) = (block.slot(0).as_ptr() as usize, block.shared(0).as_ptr() as usize);
        assert_eq!(shared - first, SLOT_LEN);
        if cid::capacity() > 1 {
            assert_eq!(first - block.slot(1).as_ptr() as usize, SLOT_LEN);
        }
        assert_eq!(block.base() as usize % size_of::<Line>(), 0);
        // SAFETY: allocated above, used by this thread alone.
        unsafe { block.free::<Cid>(0) };
    }
}
