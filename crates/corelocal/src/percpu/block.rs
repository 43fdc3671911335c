//! Memory with a slot for each possible id, handed out in blocks.
//!
//! A region is one mapping: a header, then slots of 1 MiB, downward from its base those of sections,
//! upward the shared ones. A block is the same bytes of every slot, so the blocks of one core lie side
//! by side in that core's own pages, whoever declared them, and no two cores ever share a line.
//!
//! ```text
//!   header │ … │ slot 1: b0 b1 b2 … │ slot 0: b0 b1 b2 … ┃ shared 0: b0 b1 b2 … │ shared 1 …
//!                        └──────────────────────┴── one block ──┘   ┃ the region's base
//! ```
//!
//! The blocks of a region are of one length, a power of two.
//!
//! Invariants:
//! 1. A region has a slot for each id below `cid::capacity()` and `cid::shared_capacity()` shared ones;
//!    pages become resident when somebody first writes to them.
//! 2. A block belongs to one owner from `allocate` to `free`; outside of that all its bytes are 0.
//! 3. Regions are never unmapped, so a stale base never points to foreign memory.
//! 4. Nothing here blocks or takes a heap: blocks are made inside signal handlers and malloc.

use core::marker::PhantomData;

use super::slot::Zeroed;
use crate::cid;
use crate::primitive::global::{AtomicPtr, AtomicU64, Ordering};
use crate::rseq::{SLOT_SHIFT, offset};
use crate::sys::pages;

const SLOT_LEN: usize = 1 << SLOT_SHIFT;
const PAGE: usize = 4096;
/// The shortest block, as a power of two: one word.
const SHORTEST: u32 = 3;
const LENGTHS: usize = (SLOT_SHIFT - SHORTEST + 1) as usize;

/// The header of a region. A bitmap follows it: a bit for each block that has an owner.
struct Region {
    /// The region of blocks of this length that was made before this one.
    next: *const Region,
    /// The length of its blocks, as a power of two.
    block_shift: u32,
}

/// A region for each length, newest first. They never shrink (invariant 3).
static NEWEST: [AtomicPtr<Region>; LENGTHS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; LENGTHS];

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
        assert!(align_of::<T>() <= PAGE);
        let len = size_of::<T>().next_power_of_two();
        let shift = len.trailing_zeros();
        if shift < SHORTEST { SHORTEST } else { shift }
    };

    /// Takes a free block, making a region if there is none; `None` when the kernel gives no memory.
    ///
    /// Lock-free; linear in the number of blocks of this length.
    #[cold]
    pub(crate) fn allocate() -> Option<Block<T>> {
        let base = allocate(Self::SHIFT)?;
        Some(Block { base, content: PhantomData })
    }

    /// Gives the block back, of which the slots below `opened` and the shared ones below
    /// `opened_shared` were used.
    ///
    /// # Safety
    /// The caller owns the block, and everybody who used it is done and ordered before this call.
    pub(crate) unsafe fn free(self, opened: u32, opened_shared: u32) {
        let slots = (0..opened).map(|slot| self.at(slot));
        let shared = (0..opened_shared).map(|slot| self.at_shared(slot));
        for at in slots.chain(shared) {
            // SAFETY: the block's bytes in a slot, used by nobody else.
            unsafe { zero(at, 1 << Self::SHIFT) };
        }
        // SAFETY: taken by `allocate` with the same length.
        unsafe { release(self.base, Self::SHIFT) };
    }

    fn at(self, slot: u32) -> *mut u8 {
        debug_assert!(slot < cid::capacity());
        self.base.wrapping_add(offset(slot) as usize)
    }

    fn at_shared(self, slot: u32) -> *mut u8 {
        debug_assert!(slot < cid::shared_capacity());
        self.base.wrapping_add((slot as usize) << SLOT_SHIFT)
    }

    /// What sections use under a slot below `cid::capacity()`.
    pub(crate) fn slot(self, slot: u32) -> &'static T {
        // SAFETY: inside the region (invariant 1), never unmapped (invariant 3), all zero or written
        // as a `T`, which is `Zeroed`.
        unsafe { &*self.at(slot).cast::<T>() }
    }

    /// What atomics and locks use under a shared slot below `cid::shared_capacity()`.
    pub(crate) fn shared(self, slot: u32) -> &'static T {
        // SAFETY: as in `slot`.
        unsafe { &*self.at_shared(slot).cast::<T>() }
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

/// Makes the bytes 0 without making pages resident that are not.
///
/// # Safety
/// The bytes are those of one block in one slot, and used by nobody else.
unsafe fn zero(at: *mut u8, len: usize) {
    if len >= PAGE {
        // A block this long fills pages of its own. Where the kernel refuses, the loop does it.
        // SAFETY: the caller's promise.
        if unsafe { pages::advise(at, len, libc::MADV_DONTNEED) }.is_ok() {
            return;
        }
    }
    for word in 0..len / 8 {
        // SAFETY: inside the block; blocks are aligned to their length, at least a word.
        unsafe {
            let word = at.cast::<u64>().add(word);
            // A page that was never written to reads as zeros and stays unpopulated.
            if word.read() != 0 {
                word.write(0);
            }
        }
    }
}

fn allocate(shift: u32) -> Option<*mut u8> {
    let list = &NEWEST[(shift - SHORTEST) as usize];
    loop {
        // Acquire: partner is the Release in `grow`; the header is initialised.
        let newest = list.load(Ordering::Acquire);
        let mut region = newest.cast_const();
        // SAFETY: regions on the list are initialised and never unmapped.
        while let Some(header) = unsafe { region.as_ref() } {
            if let Some(base) = header.take() {
                return Some(base);
            }
            region = header.next;
        }
        grow(list, newest, shift)?;
    }
}

/// Makes a block that was allocated free again.
///
/// # Safety
/// `base` was allocated with this length, and nobody refers to it.
unsafe fn release(base: *mut u8, shift: u32) {
    // Acquire: partner is the Release in `grow`.
    let mut region = NEWEST[(shift - SHORTEST) as usize].load(Ordering::Acquire).cast_const();
    // SAFETY: as in `allocate`. Regions are not aligned to their size, so the list is searched.
    while let Some(header) = unsafe { region.as_ref() } {
        let offset = (base as usize).wrapping_sub(header.base() as usize);
        if offset < SLOT_LEN {
            let number = offset >> shift;
            // Release: partner is the Acquire in `take`; the next owner sees the zeros.
            header.bitmap()[number / 64].fetch_and(!(1 << (number % 64)), Ordering::Release);
            return;
        }
        region = header.next;
    }
    debug_assert!(false, "a block lies in a region, and regions stay");
}

impl Region {
    /// Blocks of a region whose blocks have this length.
    const fn blocks(shift: u32) -> usize {
        SLOT_LEN >> shift
    }

    /// Bytes before the slots.
    const fn header_len(shift: u32) -> usize {
        (size_of::<Region>() + Self::blocks(shift).div_ceil(64) * 8).next_multiple_of(PAGE)
    }

    fn base(&self) -> *mut u8 {
        let slots = (cid::capacity() as usize) << SLOT_SHIFT;
        let at = (&raw const *self).cast::<u8>().cast_mut();
        at.wrapping_add(Self::header_len(self.block_shift) + slots)
    }

    fn bitmap(&self) -> &[AtomicU64] {
        let words = Self::blocks(self.block_shift).div_ceil(64);
        // SAFETY: the header's mapping goes on behind `self` for so many zeroed words and more.
        unsafe { core::slice::from_raw_parts((&raw const *self).add(1).cast(), words) }
    }

    fn take(&self) -> Option<*mut u8> {
        let bitmap = self.bitmap();
        // A region of a single block has a bitmap of one word in which the other bits mean nothing.
        let last = Self::blocks(self.block_shift).min(64) as u32;
        for (group, bits) in bitmap.iter().enumerate() {
            let mut seen = bits.load(Ordering::Relaxed);
            while seen.trailing_ones() < last {
                let bit = seen.trailing_ones();
                // Acquire: partner is the Release in `release`.
                match bits.compare_exchange_weak(
                    seen,
                    seen | 1 << bit,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        let number = group * 64 + bit as usize;
                        return Some(self.base().wrapping_add(number << self.block_shift));
                    }
                    Err(now) => seen = now,
                }
            }
        }
        None
    }
}

/// Puts a new region in front of `newest`, unless somebody else was faster; `None` without memory.
fn grow(list: &AtomicPtr<Region>, newest: *mut Region, shift: u32) -> Option<()> {
    let slots = (cid::capacity() + cid::shared_capacity()) as usize;
    let len = Region::header_len(shift) + (slots << SLOT_SHIFT);
    let at = pages::map(len)?;
    let region = at.cast::<Region>();
    // SAFETY: fresh zeroed pages with room for the header and its bitmap.
    unsafe { region.write(Region { next: newest, block_shift: shift }) };
    // Release: partner is the Acquire in `allocate`. Failure needs no order: the caller looks anew.
    if list.compare_exchange(newest, region, Ordering::Release, Ordering::Relaxed).is_err() {
        // SAFETY: nobody else saw it.
        unsafe { pages::unmap(at, len) };
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitive::atomic::AtomicI64;
    use std::collections::HashSet;
    use std::vec::Vec;

    type Line = [AtomicI64; 8];

    #[test]
    fn blocks_are_distinct_and_come_back_zeroed() {
        let in_a_region = Region::blocks(Block::<Line>::SHIFT);
        let blocks: Vec<Block<Line>> =
            (0..2 * in_a_region + 7).map(|_| Block::allocate().unwrap()).collect();
        let distinct: HashSet<usize> = blocks.iter().map(|block| block.base() as usize).collect();
        assert_eq!(distinct.len(), blocks.len());
        for block in &blocks {
            block.slot(0)[3].store(7, Ordering::Relaxed);
            block.shared(0)[7].store(9, Ordering::Relaxed);
        }
        for block in blocks {
            // SAFETY: allocated above, used by this thread alone.
            unsafe { block.free(1, 1) };
        }
        for _ in 0..64 {
            let block = Block::<Line>::allocate().unwrap();
            let words = block.slot(0).iter().chain(block.shared(0));
            assert!(words.into_iter().all(|word| word.load(Ordering::Relaxed) == 0));
            // SAFETY: allocated above, used by this thread alone.
            unsafe { block.free(1, 1) };
        }
    }

    #[test]
    fn long_blocks() {
        type Long = [[AtomicI64; 1 << 10]; 100];
        for _ in 0..5 {
            let block = Block::<Long>::allocate().unwrap();
            assert_eq!(block.base() as usize % PAGE, 0);
            for slots in [block.slot(0), block.shared(0)] {
                assert_eq!(slots[99][1000].load(Ordering::Relaxed), 0);
                slots[99][1000].store(1, Ordering::Relaxed);
            }
            // SAFETY: allocated above, used by this thread alone.
            unsafe { block.free(1, 1) };
        }
    }

    #[test]
    fn slots_do_not_share_lines() {
        let block = Block::<Line>::allocate().unwrap();
        let (first, shared) = (block.slot(0).as_ptr() as usize, block.shared(0).as_ptr() as usize);
        assert_eq!(shared - first, SLOT_LEN);
        if cid::capacity() > 1 {
            assert_eq!(first - block.slot(1).as_ptr() as usize, SLOT_LEN);
        }
        assert_eq!(block.base() as usize % size_of::<Line>(), 0);
        // SAFETY: allocated above, used by this thread alone.
        unsafe { block.free(1, 0) };
    }
}
