//! `machinery/block.rs` under loom: a block is two slots of each kind on the heap, made of loom's atomics.

use core::marker::PhantomData;
use std::boxed::Box;

use super::slot::Zeroed;
use crate::cid::SlotIndex;
use crate::percpu::shard::Shard;

/// Slots of each kind in the model.
const SLOTS: usize = 2;

/// See `machinery/block.rs`.
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
    pub(crate) fn allocate<I: SlotIndex>() -> Option<Block<T>> {
        let slots: Box<[T; 2 * SLOTS]> = Box::new(core::array::from_fn(|_| T::zeroed()));
        Some(Block { base: Box::into_raw(slots).cast(), content: PhantomData })
    }

    /// # Safety
    /// - The caller owns the block, and all uses of it have ended and happen before this call.
    pub(crate) unsafe fn free<I: SlotIndex>(self, _shared: u32) {
        // SAFETY: made by `allocate`; the caller guarantees that all uses have ended.
        drop(unsafe { Box::from_raw(self.base.cast::<[T; 2 * SLOTS]>()) });
    }

    pub(crate) fn slot(self, slot: u32) -> &'static T {
        // SAFETY: `2 * SLOTS` initialised elements, alive until `free`.
        unsafe { &*self.base.cast::<T>().add(slot as usize % SLOTS) }
    }

    pub(crate) fn slot_at(self, offset: u64) -> &'static T {
        self.slot(crate::rseq::slot_at(offset))
    }

    pub(crate) fn part_at(self, at: *const T) -> Shard {
        let slot = (at as usize - self.base as usize) / size_of::<T>();
        match slot.checked_sub(SLOTS) {
            Some(shared) => Shard::Shared(shared as u32),
            None => Shard::Slot(slot as u32),
        }
    }

    pub(crate) fn shared(self, slot: u32) -> &'static T {
        // SAFETY: as in `slot`.
        unsafe { &*self.base.cast::<T>().add(SLOTS + slot as usize % SLOTS) }
    }

    pub(crate) fn base(self) -> *mut u8 {
        self.base
    }

    /// # Safety
    /// - `base` is null, or the base of a block of `T` that has not been freed.
    pub(crate) unsafe fn from_base(base: *mut u8) -> Option<Block<T>> {
        (!base.is_null()).then_some(Block { base, content: PhantomData })
    }
}
