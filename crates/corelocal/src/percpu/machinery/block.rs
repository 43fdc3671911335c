//! A typed block of a region: the data that one object has in each slot.
//!
//! Invariant: a block belongs to one owner from `allocate` to `free`, and starts as all zeros. References to its
//! slots are `'static`, because regions are never unmapped. Those of an area are unmapped, and its cells return no
//! references (`Owned::lent`).

use core::marker::PhantomData;

use super::region::{self, List, SHORTEST, SLOT_LEN, Wipe};
use super::slot::{Class, Kind, Zeroed};
use crate::cid::{self, NodeCid, SlotIndex};
use crate::percpu::shard::Shard;
use crate::rseq::{SLOT_SHIFT, is_offset, offset, slot_at};
use crate::sys::memory::page_size::SHORTEST_PAGE;

/// A block whose slots each hold a `T`. Copies refer to the same block; the code that allocated it keeps its
/// ownership.
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
    /// The base-2 logarithm of the block's length in each slot.
    const SHIFT: u32 = {
        assert!(size_of::<T>() <= SLOT_LEN, "a core's part of an object is at most 1 MiB");
        assert!(align_of::<T>() <= SHORTEST_PAGE);
        let len = size_of::<T>().next_power_of_two();
        let shift = len.trailing_zeros();
        if shift < SHORTEST { SHORTEST } else { shift }
    };

    /// Returns the class of regions that it lies in.
    const fn class<I: SlotIndex>() -> Class {
        Class { kind: if I::COMPACT { T::KIND } else { Kind::Fixed }, by_node: I::BY_NODE }
    }

    /// Allocates a block whose slots are indexed by `I`. `None` if the kernel provides no memory.
    ///
    /// Lock-free. Constant time on average.
    #[cold]
    pub(crate) fn allocate<I: SlotIndex>() -> Option<Block<T>> {
        let base = region::allocate(Self::class::<I>(), Self::SHIFT)?;
        Some(Block { base, content: PhantomData })
    }

    /// Does what `allocate` does, in the regions of this list.
    pub(in crate::percpu) fn allocate_in<I: SlotIndex>(regions: &List) -> Option<Block<T>> {
        let base = regions.allocate(Self::class::<I>(), Self::SHIFT)?;
        Some(Block { base, content: PhantomData })
    }

    /// Returns the address space of a region of such blocks, in bytes.
    pub(crate) fn region_len<I: SlotIndex>() -> usize {
        region::mapping_len(Self::class::<I>(), Self::SHIFT)
    }

    /// Returns the length of the block in each slot, in bytes.
    pub(crate) const fn len() -> usize {
        1 << Self::SHIFT
    }

    /// Frees the block, of which the shared slots below `shared` were used.
    ///
    /// # Safety
    /// - The caller owns the block, which was allocated for the same `I`.
    /// - All uses of it have ended and happen before this call.
    pub(crate) unsafe fn free<I: SlotIndex>(self, shared: u32) {
        // SAFETY: the caller owns the block and guarantees that all uses of it have ended.
        unsafe { region::release(self.base, Self::class::<I>(), Self::SHIFT, shared) };
    }

    /// Does what `free` does, into this list of regions. `wipe` clears the bytes.
    ///
    /// # Safety
    /// - As [`free`](Self::free).
    /// - The block was allocated by [`allocate_in`](Self::allocate_in) from this list.
    pub(in crate::percpu) unsafe fn free_in<I: SlotIndex>(
        self,
        regions: &List,
        shared: u32,
        wipe: Wipe,
    ) {
        // SAFETY: the caller owns the block, which is from this list, and guarantees that all uses of it have ended.
        unsafe { regions.release(self.base, (Self::class::<I>(), Self::SHIFT), shared, wipe) };
    }

    /// Returns the data of a slot below `cid::capacity_of::<I>()`, used by critical sections.
    pub(crate) fn slot(self, slot: u32) -> &'static T {
        let is_slot = || slot < cid::capacity_of::<NodeCid>();
        debug_assert!(slot < cid::capacity_of::<cid::Cid>() || is_slot());
        let at = self.base.wrapping_add(offset(slot) as usize);
        // SAFETY: inside the region, which has this slot and stays mapped while the block has an owner. The bytes are
        // all zero or a `T`, and `T` is `Zeroed`.
        unsafe { &*at.cast::<T>() }
    }

    /// Returns the data of a shared slot below `cid::shared_capacity()`, used by atomics and locks.
    pub(crate) fn shared(self, slot: u32) -> &'static T {
        debug_assert!(slot < cid::shared_capacity());
        let at = self.base.wrapping_add((slot as usize) << SLOT_SHIFT);
        // SAFETY: as in `slot`.
        unsafe { &*at.cast::<T>() }
    }

    /// Returns the data of the slot at this offset, used by critical sections.
    #[inline]
    pub(crate) fn slot_at(self, offset: u64) -> &'static T {
        // SAFETY: as in `slot`; an offset is that of a slot that every region has.
        unsafe { &*self.base.wrapping_add(offset as usize).cast::<T>() }
    }

    /// Returns the shard that this address belongs to.
    #[inline]
    pub(crate) fn part_at(self, at: *const T) -> Shard {
        let distance = (at as usize).wrapping_sub(self.base as usize) as u64;
        match is_offset(distance) {
            true => Shard::Slot(slot_at(distance)),
            false => Shard::Shared((distance >> SLOT_SHIFT) as u32),
        }
    }

    /// Returns the address from which critical sections find the slots.
    pub(crate) fn base(self) -> *mut u8 {
        self.base
    }

    /// Returns the block with this base. `None` for null.
    ///
    /// # Safety
    /// - `base` is null, or the base of a block of `T` that has not been freed.
    pub(crate) unsafe fn from_base(base: *mut u8) -> Option<Block<T>> {
        (!base.is_null()).then_some(Block { base, content: PhantomData })
    }
}

#[cfg(test)]
mod tests;
