//! `region.rs` under loom: a cell is two slots on the heap, made of loom's atomics.

use super::Words;
use std::boxed::Box;

/// Slots of a cell in the model.
pub(crate) const SLOTS: usize = 2;

/// See `region.rs`.
#[derive(Clone, Copy)]
pub(crate) struct Cell {
    first: *mut u8,
}

impl Cell {
    pub(crate) fn allocate() -> Option<Cell> {
        let slots: Box<[Words; SLOTS]> = Box::new(core::array::from_fn(|_| Words::new()));
        Some(Cell { first: Box::into_raw(slots).cast() })
    }

    /// # Safety
    /// The caller owns the cell, and everybody who used it is done and ordered before this call.
    pub(crate) unsafe fn free(self, _opened: u32) {
        // SAFETY: made by `allocate`, not referred to any more.
        drop(unsafe { Box::from_raw(self.first.cast::<[Words; SLOTS]>()) });
    }

    pub(crate) fn words(self, slot: u32) -> &'static Words {
        // SAFETY: `SLOTS` initialised elements, alive until `free`.
        unsafe { &*self.first.cast::<Words>().add(slot as usize % SLOTS) }
    }

    pub(crate) fn base(self) -> *mut u8 {
        self.first
    }

    /// # Safety
    /// `first` is null, or was returned by `base` of a cell that has not been freed.
    pub(crate) unsafe fn from_base(first: *mut u8) -> Option<Cell> {
        (!first.is_null()).then_some(Cell { first })
    }
}
