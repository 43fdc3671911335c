//! Memory with a slot for each possible id, handed out in cells.
//!
//! A region is one mapping: a header page, then one slot of 64 KiB for each possible id. A cell is
//! the same 16 bytes of every slot, so the cells of one core lie side by side in that core's own
//! pages, whoever declared them, and no two cores ever share a line.
//!
//! ```text
//!  header │ slot 0: c0 c1 c2 … │ slot 1: c0 c1 c2 … │ slot 2 …
//!                    └──────────────────────┴── one cell
//! ```
//!
//! Invariants:
//! 1. A region has a slot for each id below `cid::capacity()`; pages become resident when an id
//!    first writes to them.
//! 2. A cell belongs to one owner from `allocate` to `free`; outside of that all its words are 0.
//! 3. Regions are never unmapped, so a stale base never points to foreign memory.
//! 4. Nothing here blocks or takes a heap: cells are made inside signal handlers and malloc.

use super::Words;
use crate::cid;
use crate::primitive::global::{AtomicPtr, AtomicU64, Ordering};
use crate::rseq::SLOT_SHIFT;
use crate::sys::pages;

const SLOT_LEN: usize = 1 << SLOT_SHIFT;
const CELLS: usize = SLOT_LEN / size_of::<Words>();
const GROUPS: usize = CELLS / 64;
const HEADER_LEN: usize = 4096;

/// The header of a region.
struct Region {
    /// The region made before this one.
    next: *const Region,
    /// A bit for each cell that has an owner.
    taken: [AtomicU64; GROUPS],
}

const _: () = assert!(size_of::<Region>() <= HEADER_LEN && align_of::<Region>() <= HEADER_LEN);
const _: () = assert!(CELLS % 64 == 0);

/// All regions, newest first. Never shrinks (invariant 3).
static NEWEST: AtomicPtr<Region> = AtomicPtr::new(core::ptr::null_mut());

/// A cell, by its words in slot 0. Copyable; ownership is kept by whoever allocated it.
#[derive(Clone, Copy)]
pub(crate) struct Cell {
    first: *mut u8,
}

impl Cell {
    /// Takes a free cell, making a region if there is none; `None` when the kernel gives no memory.
    ///
    /// Lock-free; linear in the number of regions in use.
    #[cold]
    pub(crate) fn allocate() -> Option<Cell> {
        loop {
            // Acquire: partner is the Release in `grow`; the header is initialised.
            let newest = NEWEST.load(Ordering::Acquire);
            let mut region = newest.cast_const();
            // SAFETY: regions on the list are initialised and never unmapped.
            while let Some(header) = unsafe { region.as_ref() } {
                if let Some(cell) = header.take() {
                    return Some(cell);
                }
                region = header.next;
            }
            grow(newest)?;
        }
    }

    /// Gives the cell back, of which the slots below `opened` were used.
    ///
    /// # Safety
    /// The caller owns the cell, and everybody who used it is done and ordered before this call.
    pub(crate) unsafe fn free(self, opened: u32) {
        for slot in 0..opened {
            let words = self.words(slot);
            for word in [&words.local, &words.shared] {
                // Plain stores will do, nobody else uses the cell. Looking first keeps the pages
                // of ids that never touched it unpopulated (invariant 1).
                if word.load(Ordering::Relaxed) != 0 {
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
        let (header, number) = self.locate();
        // Release: partner is the Acquire in `take`; the next owner sees the words zeroed.
        header.taken[number / 64].fetch_and(!(1 << (number % 64)), Ordering::Release);
    }

    /// The words in the slot of an id below `cid::capacity()`.
    pub(crate) fn words(self, slot: u32) -> &'static Words {
        debug_assert!(slot < cid::capacity());
        let at = self.first.wrapping_add((slot as usize) << SLOT_SHIFT);
        // SAFETY: inside the region (invariant 1), never unmapped (invariant 3), zeroed or written
        // as these atomics.
        unsafe { &*at.cast::<Words>() }
    }

    /// The cell's first word in slot 0, from which sections find the other slots.
    pub(crate) fn base(self) -> *mut u8 {
        self.first
    }

    /// The cell whose `base` this is; `None` for null.
    ///
    /// # Safety
    /// `first` is null, or was returned by `base` of a cell that has not been freed.
    pub(crate) unsafe fn from_base(first: *mut u8) -> Option<Cell> {
        (!first.is_null()).then_some(Cell { first })
    }

    /// The header of its region and its number there. Regions are not aligned to their size, so
    /// the list is searched.
    fn locate(self) -> (&'static Region, usize) {
        // Acquire: partner is the Release in `grow`.
        let mut region = NEWEST.load(Ordering::Acquire).cast_const();
        // SAFETY: as in `allocate`.
        while let Some(header) = unsafe { region.as_ref() } {
            let offset = (self.first as usize).wrapping_sub(header.slots() as usize);
            if offset < SLOT_LEN {
                return (header, offset / size_of::<Words>());
            }
            region = header.next;
        }
        unreachable!("a cell lies in a region, and regions stay");
    }
}

impl Region {
    fn slots(&self) -> *mut u8 {
        (&raw const *self).cast::<u8>().cast_mut().wrapping_add(HEADER_LEN)
    }

    fn take(&self) -> Option<Cell> {
        for (group, bits) in self.taken.iter().enumerate() {
            let mut seen = bits.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones();
                // Acquire: partner is the Release in `free`.
                match bits.compare_exchange_weak(
                    seen,
                    seen | 1 << bit,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        let number = group * 64 + bit as usize;
                        let at = self.slots().wrapping_add(number * size_of::<Words>());
                        return Some(Cell { first: at });
                    }
                    Err(now) => seen = now,
                }
            }
        }
        None
    }
}

/// Puts a new region in front of `newest`, unless somebody else was faster; `None` without memory.
fn grow(newest: *mut Region) -> Option<()> {
    let len = HEADER_LEN + ((cid::capacity() as usize) << SLOT_SHIFT);
    let at = pages::map(len)?;
    let region = at.cast::<Region>();
    // SAFETY: fresh zeroed pages with room for the header; zero is a valid bitmap.
    unsafe { (*region).next = newest };
    // Release: partner is the Acquire in `allocate`. Failure needs no order: the caller looks anew.
    if NEWEST.compare_exchange(newest, region, Ordering::Release, Ordering::Relaxed).is_err() {
        // SAFETY: nobody else saw it.
        unsafe { pages::unmap(at, len) };
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::vec::Vec;

    #[test]
    fn cells_are_distinct_and_come_back_zeroed() {
        let cells: Vec<Cell> = (0..2 * CELLS + 7).map(|_| Cell::allocate().unwrap()).collect();
        let distinct: HashSet<usize> = cells.iter().map(|cell| cell.base() as usize).collect();
        assert_eq!(distinct.len(), cells.len());
        for cell in &cells {
            cell.words(0).local.store(7, Ordering::Relaxed);
            cell.words(0).shared.store(9, Ordering::Relaxed);
        }
        for cell in cells {
            // SAFETY: allocated above, used by this thread alone.
            unsafe { cell.free(1) };
        }
        for _ in 0..64 {
            let cell = Cell::allocate().unwrap();
            let words = cell.words(0);
            assert_eq!(words.local.load(Ordering::Relaxed), 0);
            assert_eq!(words.shared.load(Ordering::Relaxed), 0);
            // SAFETY: allocated above, used by this thread alone.
            unsafe { cell.free(1) };
        }
    }

    #[test]
    fn slots_do_not_share_lines() {
        let cell = Cell::allocate().unwrap();
        if cid::capacity() > 1 {
            let distance = cell.words(1) as *const Words as usize - cell.base() as usize;
            assert_eq!(distance, SLOT_LEN);
        }
        assert_eq!(cell.base() as usize % align_of::<Words>(), 0);
        // SAFETY: allocated above, used by this thread alone.
        unsafe { cell.free(1) };
    }
}
