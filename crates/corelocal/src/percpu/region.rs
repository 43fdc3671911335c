//! Memory with a slot for each possible id, in mappings of blocks of one length and kind.
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
//! Blocks come and go by two bits each:
//!
//! ```text
//!   FREE ── allocate ──► TAKEN ── release ──► FREEING ── zeroed ──► FREE
//!                         │ ▲                    ▲
//!                     pin │ │ unpin              │ release of a pinned block: whoever unpins it
//!                         ▼ │                    │ does the rest
//!                        PINNED ─────────────────┘
//! ```
//!
//! Invariants:
//! 1. A region has a slot for each id below `cid::capacity()` and `cid::shared_capacity()` shared ones;
//!    pages become resident when somebody first writes to them.
//! 2. All bytes of a FREE block are 0.
//! 3. Regions are never unmapped, so a stale base never points to foreign memory.
//! 4. Nothing here blocks or takes a heap: blocks are made inside signal handlers and malloc.

use core::sync::atomic::Ordering;

use super::slot::Kind;
use crate::cid;
use crate::primitive::global::{AtomicPtr, AtomicU64};
use crate::rseq::{SLOT_SHIFT, offset};
use crate::sys::pages;

pub(super) const SLOT_LEN: usize = 1 << SLOT_SHIFT;
pub(super) const PAGE: usize = 4096;
/// The shortest block, as a power of two: one word.
pub(super) const SHORTEST: u32 = 3;
const LENGTHS: usize = (SLOT_SHIFT - SHORTEST + 1) as usize;

const FREE: u64 = 0;
const TAKEN: u64 = 1;
const FREEING: u64 = 2;
const PINNED: u64 = 3;
/// Blocks whose state is in one word.
const IN_A_WORD: usize = 32;

/// The header of a region. The states of its blocks follow it.
pub(super) struct Region {
    /// The region of the same length and kind that was made before this one.
    next: *const Region,
    /// The length of its blocks, as a power of two.
    shift: u32,
    kind: Kind,
}

/// Newest first, for each kind and length. They never shrink (invariant 3).
static NEWEST: [[AtomicPtr<Region>; LENGTHS]; Kind::ALL.len()] =
    [const { [const { AtomicPtr::new(core::ptr::null_mut()) }; LENGTHS] }; Kind::ALL.len()];

fn list(kind: Kind, shift: u32) -> &'static AtomicPtr<Region> {
    &NEWEST[kind as usize][(shift - SHORTEST) as usize]
}

/// The regions of a kind and length.
fn regions(kind: Kind, shift: u32) -> impl Iterator<Item = &'static Region> {
    // Acquire: partner is the Release in `grow`; the header is initialised.
    let newest = list(kind, shift).load(Ordering::Acquire).cast_const();
    // SAFETY: regions on the list are initialised and never unmapped (invariant 3).
    let next = |region: &&'static Region| unsafe { region.next.as_ref() };
    // SAFETY: likewise.
    core::iter::successors(unsafe { newest.as_ref() }, next)
}

/// All regions.
pub(super) fn all() -> impl Iterator<Item = &'static Region> {
    let lengths = || SHORTEST..=SLOT_SHIFT;
    Kind::ALL
        .into_iter()
        .flat_map(move |kind| lengths().flat_map(move |shift| regions(kind, shift)))
}

/// Takes a free block, making a region if there is none; `None` when the kernel gives no memory. The
/// result is the block's base: what lies between its slots and its shared ones.
///
/// Lock-free; linear in the number of blocks of this length.
pub(super) fn allocate(kind: Kind, shift: u32) -> Option<*mut u8> {
    loop {
        // Acquire: partner is the Release in `grow`.
        let newest = list(kind, shift).load(Ordering::Acquire);
        if let Some(base) = regions(kind, shift).find_map(Region::take) {
            return Some(base);
        }
        grow(kind, shift, newest)?;
    }
}

/// Gives a block back.
///
/// # Safety
/// `base` was allocated with this kind and length; its owner and everybody who used it are done and
/// ordered before this call; the shared slots from `shared` on were never used.
pub(super) unsafe fn release(base: *mut u8, kind: Kind, shift: u32, shared: u32) {
    let of_base = |region: &&Region| region.number_of(base).is_some();
    // Regions are not aligned to their size, so the list is searched.
    let Some(region) = regions(kind, shift).find(of_base) else {
        debug_assert!(false, "a block lies in a region, and regions stay");
        return;
    };
    let Some(number) = region.number_of(base) else { return };
    if region.change(number, PINNED, FREEING) {
        return;
    }
    if region.change(number, TAKEN, FREEING) || !region.change(number, PINNED, FREEING) {
        // SAFETY: the caller's promise; FREEING, nobody pins it.
        unsafe { region.clear(number, shared) };
    }
}

/// Puts a new region in front of `newest`, unless somebody else was faster; `None` without memory.
fn grow(kind: Kind, shift: u32, newest: *mut Region) -> Option<()> {
    let len = Region::header_len(shift) + Region::slots_len();
    let at = pages::map(len)?;
    let region = at.cast::<Region>();
    // SAFETY: fresh zeroed pages with room for the header and the states.
    unsafe { region.write(Region { next: newest, shift, kind }) };
    let list = list(kind, shift);
    // Release: partner is the Acquire in `regions`. Failure needs no order: the caller looks anew.
    if list.compare_exchange(newest, region, Ordering::Release, Ordering::Relaxed).is_err() {
        // SAFETY: nobody else saw it.
        unsafe { pages::unmap(at, len) };
    }
    Some(())
}

impl Region {
    /// Blocks of a region whose blocks have this length.
    const fn blocks_of(shift: u32) -> usize {
        SLOT_LEN >> shift
    }

    /// Bytes before the slots.
    const fn header_len(shift: u32) -> usize {
        let states = Self::blocks_of(shift).div_ceil(IN_A_WORD) * 8;
        (size_of::<Region>() + states).next_multiple_of(PAGE)
    }

    fn slots_len() -> usize {
        ((cid::capacity() + cid::shared_capacity()) as usize) << SLOT_SHIFT
    }

    /// Bytes of the mapping: address space, not memory.
    pub(super) fn len(&self) -> usize {
        Region::header_len(self.shift) + Region::slots_len()
    }

    pub(super) fn start(&self) -> *mut u8 {
        (&raw const *self).cast::<u8>().cast_mut()
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// The length of its blocks.
    pub(super) fn block_len(&self) -> usize {
        1 << self.shift
    }

    /// How many blocks it has.
    pub(super) fn blocks(&self) -> usize {
        Region::blocks_of(self.shift)
    }

    /// How many of them have an owner. Linear.
    pub(super) fn taken(&self) -> usize {
        (0..self.blocks()).filter(|block| self.state(*block) != FREE).count()
    }

    fn base(&self) -> *mut u8 {
        let slots = (cid::capacity() as usize) << SLOT_SHIFT;
        self.start().wrapping_add(Region::header_len(self.shift) + slots)
    }

    /// Where a slot of sections begins.
    pub(super) fn slot(&self, slot: u32) -> *mut u8 {
        self.base().wrapping_add(offset(slot) as usize)
    }

    /// Where a shared slot begins.
    pub(super) fn shared(&self, slot: u32) -> *mut u8 {
        self.base().wrapping_add((slot as usize) << SLOT_SHIFT)
    }

    fn number_of(&self, base: *mut u8) -> Option<usize> {
        let distance = (base as usize).wrapping_sub(self.base() as usize);
        (distance < SLOT_LEN).then_some(distance >> self.shift)
    }

    fn words(&self) -> &[AtomicU64] {
        let words = self.blocks().div_ceil(IN_A_WORD);
        // SAFETY: the header's mapping goes on behind `self` for so many zeroed words.
        unsafe { core::slice::from_raw_parts((&raw const *self).add(1).cast(), words) }
    }

    fn state(&self, number: usize) -> u64 {
        let word = self.words()[number / IN_A_WORD].load(Ordering::Relaxed);
        word >> (number % IN_A_WORD * 2) & 3
    }

    /// Moves a block from one state to another; false if it is not in the first.
    fn change(&self, number: usize, from: u64, to: u64) -> bool {
        let (word, bits) = (&self.words()[number / IN_A_WORD], number % IN_A_WORD * 2);
        let mut seen = word.load(Ordering::Relaxed);
        while seen >> bits & 3 == from {
            // Release and Acquire: each other's partners; what was done to a block in one state is
            // seen by whoever takes it to the next.
            match word.compare_exchange_weak(
                seen,
                seen & !(3 << bits) | to << bits,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    fn take(&self) -> Option<*mut u8> {
        // The lower bit of each block; a region of a few long blocks uses a part of its word only.
        let each = (u64::MAX / 3) >> (64 - 2 * self.blocks().min(IN_A_WORD));
        for (nth, word) in self.words().iter().enumerate() {
            loop {
                let seen = word.load(Ordering::Relaxed);
                let free = !(seen | seen >> 1) & each;
                if free == 0 {
                    break;
                }
                let number = nth * IN_A_WORD + free.trailing_zeros() as usize / 2;
                if self.change(number, FREE, TAKEN) {
                    return Some(self.base().wrapping_add(number << self.shift));
                }
            }
        }
        None
    }

    /// Keeps a block from being reused until `unpin`; false if it has no owner, or is pinned already.
    pub(super) fn pin(&self, number: usize) -> bool {
        self.change(number, TAKEN, PINNED)
    }

    /// Ends `pin`, and the release of the block if there was one meanwhile.
    pub(super) fn unpin(&self, number: usize) {
        if !self.change(number, PINNED, TAKEN) {
            // SAFETY: released, and nobody but the pin's holder refers to it.
            unsafe { self.clear(number, cid::shared_capacity()) };
        }
    }

    /// FREEING to FREE.
    ///
    /// # Safety
    /// The block is FREEING, nobody uses it, and its shared slots from `shared` on were never used.
    unsafe fn clear(&self, number: usize, shared: u32) {
        let at = number << self.shift;
        // Any block may have been used under any slot that was ever given.
        let slots = (0..cid::highest_water()).map(|slot| self.slot(slot));
        // The first shared slot is used by trims, too.
        let shared = (0..shared.max(1)).map(|slot| self.shared(slot));
        for slot in slots.chain(shared) {
            // SAFETY: the block's bytes in a slot, used by nobody else.
            unsafe { zero(slot.wrapping_add(at), 1 << self.shift, self.kind) };
        }
        self.change(number, FREEING, FREE);
    }
}

/// Makes the bytes 0 without making pages resident that are not.
///
/// # Safety
/// The bytes are those of one block in one slot, and used by nobody else.
pub(super) unsafe fn zero(at: *mut u8, len: usize, kind: Kind) {
    if len >= PAGE {
        // A block this long fills pages of its own. Where the kernel refuses, the loop does it.
        // SAFETY: the caller's promise.
        if unsafe { pages::advise(at, len, libc::MADV_DONTNEED) }.is_ok() {
            return;
        }
    }
    let are_numbers = matches!(kind, Kind::Sums | Kind::Maxima);
    if !are_numbers && len <= PAGE && pages::is_resident(at) {
        // Without a look: items have padding, and to judge by that is an error to valgrind.
        // SAFETY: the caller's promise; a block shorter than a page lies within one.
        unsafe { at.write_bytes(0, len) };
        return;
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_pinned_block_outlives_its_release() {
        let shift = 12;
        let base = allocate(Kind::Opaque, shift).unwrap();
        let region = regions(Kind::Opaque, shift).find(|r| r.number_of(base).is_some()).unwrap();
        let number = region.number_of(base).unwrap();
        assert!(region.pin(number) && !region.pin(number));
        // SAFETY: allocated above, used by this test alone.
        unsafe { base.cast::<u64>().write(7) };
        // SAFETY: likewise.
        unsafe { release(base, Kind::Opaque, shift, 1) };
        assert_eq!(region.state(number), FREEING);
        assert!(!region.pin(number));
        region.unpin(number);
        assert_eq!(region.state(number), FREE);
        // SAFETY: a region's memory, which stays; nobody else allocates blocks of this kind and
        // length in this test's process but tests that leave free blocks alone.
        assert_eq!(unsafe { base.cast::<u64>().read() }, 0);
    }

    #[test]
    fn threads_share_a_region() {
        std::thread::scope(|scope| {
            for thread in 1..=4u64 {
                scope.spawn(move || {
                    for _ in 0..200 {
                        let blocks: Vec<_> =
                            (0..40).map(|_| allocate(Kind::Opaque, 6).unwrap()).collect();
                        for base in &blocks {
                            let word = base.cast::<u64>();
                            // SAFETY: a block of this thread's own, in its first shared slot.
                            unsafe {
                                assert_eq!(word.read(), 0);
                                word.write(thread);
                            }
                        }
                        for base in blocks {
                            // SAFETY: allocated above.
                            unsafe {
                                assert_eq!(base.cast::<u64>().read(), thread);
                                release(base, Kind::Opaque, 6, 1);
                            }
                        }
                    }
                });
            }
        });
    }
}
