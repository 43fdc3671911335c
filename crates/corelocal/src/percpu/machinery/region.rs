//! Memory with a slot for each possible id: mappings that are divided into blocks of one length and kind.
//!
//! A region is one mapping: a header, then slots of 1 MiB. Slots of critical sections lie below its base, shared ones
//! above. A block consists of the same bytes of every slot. So the blocks of one core lie next to each other in that
//! core's own pages, whichever code declared them, and no two cores share a cache line.
//!
//! ```text
//!   header │ … │ slot 1: b0 b1 b2 … │ slot 0: b0 b1 b2 … ┃ shared 0: b0 b1 b2 … │ shared 1 …
//!                        └──────────────────────┴── one block ──┘   ┃ the region's base
//! ```
//!
//! The state of a block takes two bits (`machinery/block_state.rs`).
//!
//! Invariants:
//! 1. A region has a slot for each id below `cid::capacity()`, or one for each id of every node if slots go by node
//!    (`Class`), and `cid::shared_capacity()` shared ones. A page becomes resident when a thread first writes to it,
//!    on that thread's node if slots go by node.
//! 2. All bytes of a FREE block are 0, or what its list's owner left there (`Wipe`).
//! 3. Regions of the process are never unmapped, so a stale base never points to foreign memory. A list that an
//!    object owns is unmapped with the object, when none of its bases is in use (`area.rs`).
//! 4. No function blocks or uses a heap: blocks are allocated inside signal handlers and malloc.
//! 5. The base of a region is a multiple of `SLOT_LEN`, so the base of a block yields its region.

mod list;

pub(in crate::percpu) use list::List;

use core::sync::atomic::Ordering;

use super::block_state::{self, IN_A_WORD, State};
use super::slot::{Class, Kind};
use crate::cid::{self, Cid, NodeCid};
use crate::primitive::global::{AtomicU32, AtomicU64};
use crate::rseq::{SLOT_SHIFT, offset};
use crate::sys::memory::page_size::page_size;
use crate::sys::memory::pages;

pub(in crate::percpu) const SLOT_LEN: usize = 1 << SLOT_SHIFT;
/// The base-2 logarithm of the shortest block: one word.
pub(in crate::percpu) const SHORTEST: u32 = 3;
const LENGTHS: usize = (SLOT_SHIFT - SHORTEST + 1) as usize;

/// The header of a region. The states of its blocks follow it.
pub(in crate::percpu) struct Region {
    /// The region of the same length and class that was made before this one.
    next: *const Region,
    /// The number of regions of the list that were made before this one.
    serial: u32,
    /// The base-2 logarithm of its blocks' length.
    shift: u32,
    class: Class,
    /// The kernel refuses to place its pages on the node of their first use.
    is_displaced: bool,
    /// The word of states where the search for a free block begins. A hint: a release that races with a search may
    /// leave a free block before it.
    first: AtomicU32,
}

/// Puts a block's bytes in a slot into the state that its next owner expects.
///
/// # Safety
/// - The bytes are those of one block in one slot, and no other thread uses them.
pub(in crate::percpu) type Wipe = unsafe fn(at: *mut u8, len: usize, kind: Kind);

/// The process's lists, one for each class and length. They never shrink (invariant 3).
static LISTS: [[List; LENGTHS]; Class::COUNT] =
    [const { [const { List::new() }; LENGTHS] }; Class::COUNT];

fn list(class: Class, shift: u32) -> &'static List {
    &LISTS[class.number()][(shift - SHORTEST) as usize]
}

/// Returns the list of a class and length.
fn regions(class: Class, shift: u32) -> impl Iterator<Item = &'static Region> {
    list(class, shift).regions()
}

/// Returns all regions of the process.
pub(in crate::percpu) fn all() -> impl Iterator<Item = &'static Region> {
    let lengths = || SHORTEST..=SLOT_SHIFT;
    Class::all().flat_map(move |class| lengths().flat_map(move |shift| regions(class, shift)))
}

/// Allocates a block of the process. See [`List::allocate`].
pub(in crate::percpu) fn allocate(class: Class, shift: u32) -> Option<*mut u8> {
    list(class, shift).allocate(class, shift)
}

/// Frees a block of the process.
///
/// # Safety
/// - As [`List::release`].
/// - `base` was allocated with this class and length.
pub(in crate::percpu) unsafe fn release(base: *mut u8, class: Class, shift: u32, shared: u32) {
    // SAFETY: the caller keeps the conditions of `List::release`.
    unsafe { list(class, shift).release(base, (class, shift), shared, zero) };
}

/// Returns the length of a region with such blocks, in bytes of address space.
pub(in crate::percpu) fn mapping_len(class: Class, shift: u32) -> usize {
    let slots = slots(class) + cid::shared_capacity();
    Region::header_len(shift) + ((slots as usize) << SLOT_SHIFT)
}

/// Returns the number of a region's slots for critical sections.
fn slots(class: Class) -> u32 {
    match class.by_node {
        true => cid::capacity_of::<NodeCid>(),
        false => cid::capacity_of::<Cid>(),
    }
}

impl Region {
    /// Returns the number of blocks in a region, for blocks of this length.
    const fn blocks_of(shift: u32) -> usize {
        SLOT_LEN >> shift
    }

    /// Returns the number of bytes before the slots.
    fn header_len(shift: u32) -> usize {
        let states = Self::blocks_of(shift).div_ceil(IN_A_WORD) * 8;
        (size_of::<Region>() + states).next_multiple_of(page_size())
    }

    /// Returns the length of the mapping, in bytes of address space.
    pub(in crate::percpu) fn len(&self) -> usize {
        mapping_len(self.class, self.shift)
    }

    pub(in crate::percpu) fn start(&self) -> *mut u8 {
        // Of the whole mapping, whose address was exposed, not of `self` alone.
        core::ptr::with_exposed_provenance_mut((&raw const *self).addr())
    }

    pub(in crate::percpu) fn class(&self) -> Class {
        self.class
    }

    pub(in crate::percpu) fn is_displaced(&self) -> bool {
        self.is_displaced
    }

    /// Returns the length of its blocks in each slot, in bytes.
    pub(in crate::percpu) fn block_len(&self) -> usize {
        1 << self.shift
    }

    /// Returns the number of its blocks.
    pub(in crate::percpu) fn blocks(&self) -> usize {
        Region::blocks_of(self.shift)
    }

    /// Returns the number of blocks in use. Linear.
    pub(in crate::percpu) fn taken(&self) -> usize {
        self.words().iter().map(block_state::owned).sum()
    }

    fn base(&self) -> *mut u8 {
        let slots = (slots(self.class) as usize) << SLOT_SHIFT;
        self.start().wrapping_add(Region::header_len(self.shift) + slots)
    }

    /// Returns the address of a slot for critical sections.
    pub(in crate::percpu) fn slot(&self, slot: u32) -> *mut u8 {
        self.base().wrapping_add(offset(slot) as usize)
    }

    /// Returns the address of a shared slot.
    pub(in crate::percpu) fn shared(&self, slot: u32) -> *mut u8 {
        self.base().wrapping_add((slot as usize) << SLOT_SHIFT)
    }

    fn number_of(&self, base: *mut u8) -> Option<usize> {
        let distance = (base as usize).wrapping_sub(self.base() as usize);
        (distance < SLOT_LEN).then_some(distance >> self.shift)
    }

    fn words(&self) -> &[AtomicU64] {
        let words = self.blocks().div_ceil(IN_A_WORD);
        // SAFETY: the header's mapping continues after `self` with this many zeroed words.
        unsafe { core::slice::from_raw_parts(self.start().add(size_of::<Region>()).cast(), words) }
    }

    fn state(&self, number: usize) -> State<'_> {
        State::new(&self.words()[number / IN_A_WORD], number % IN_A_WORD)
    }

    /// Allocates a block, searching from the word `first` on. Linear in the words that have no free block.
    fn take(&self) -> Option<*mut u8> {
        // Relaxed: a hint.
        let first = self.first.load(Ordering::Relaxed);
        let taken = self.take_from(first as usize);
        if taken.is_none() {
            // The next search skips this region, unless a release has moved the hint meanwhile. Relaxed: a hint.
            let end = self.words().len() as u32;
            let _ = self.first.compare_exchange(first, end, Ordering::Relaxed, Ordering::Relaxed);
        }
        taken
    }

    /// Allocates a block, searching from this word of states on.
    fn take_from(&self, first: usize) -> Option<*mut u8> {
        let words = self.words();
        for (nth, word) in words.iter().enumerate().skip(first) {
            while let Some(index) = block_state::first_free(word, self.blocks()) {
                if State::new(word, index).take() {
                    self.first.store(nth as u32, Ordering::Relaxed);
                    let number = nth * IN_A_WORD + index;
                    return Some(self.base().wrapping_add(number << self.shift));
                }
            }
        }
        None
    }

    /// Returns the region that contains a block of this class and length (invariant 5).
    ///
    /// # Safety
    /// - The block was allocated from such a region, which is still mapped.
    unsafe fn of<'a>(base: *mut u8, class: Class, shift: u32) -> &'a Region {
        let above = Region::header_len(shift) + ((slots(class) as usize) << SLOT_SHIFT);
        let start = (base.addr() & !(SLOT_LEN - 1)) - above;
        // SAFETY: the header of the region (invariant 5), which was initialised before it gave a block.
        unsafe { &*core::ptr::with_exposed_provenance(start) }
    }

    /// Keeps a block from being reused until `unpin`. False if it is free, or pinned already.
    pub(in crate::percpu) fn pin(&self, number: usize) -> bool {
        self.state(number).pin()
    }

    /// Ends `pin`, and completes the release of the block if it was released meanwhile.
    pub(in crate::percpu) fn unpin(&self, number: usize) {
        if !self.state(number).unpin() {
            // SAFETY: the block was released, and only this thread, which had it pinned, refers to it.
            unsafe { self.clear(number, cid::shared_capacity(), zero) };
        }
    }

    /// `unpin` for a thread that a fork left behind, if it had pinned the block. A block that was released since
    /// stays as it is, since it is unknown which thread clears it.
    pub(in crate::percpu) fn unpin_left(&self, number: usize) {
        let _ = self.state(number).unpin();
    }

    /// FREEING to FREE. `wipe` clears the bytes.
    ///
    /// # Safety
    /// - The block is FREEING and unused.
    /// - Its shared slots from `shared` on were never used.
    unsafe fn clear(&self, number: usize, shared: u32, wipe: Wipe) {
        let at = number << self.shift;
        // A block may have been used under any slot that was ever assigned.
        let by_node = self.class.by_node;
        // A page that was only read is the shared page of zeros. A write would make it a page of its own on this
        // thread's node.
        let len = 1 << self.shift;
        let is_used =
            |slot: &*mut u8| !by_node || pages::may_be_written(slot.wrapping_add(at), len);
        let slots = 0..cid::highest_water(by_node);
        let slots = slots.map(|slot| self.slot(slot)).filter(is_used);
        // Trims use the first shared slot, too.
        let shared = (0..shared.max(1)).map(|slot| self.shared(slot));
        for slot in slots.chain(shared) {
            // SAFETY: the block's bytes in a slot, which no other thread uses.
            unsafe { wipe(slot.wrapping_add(at), len, self.class.kind) };
        }
        self.state(number).finish();
        self.first.fetch_min((number / IN_A_WORD) as u32, Ordering::Relaxed);
    }
}

/// Sets the bytes to 0 without making further pages resident.
///
/// # Safety
/// - The bytes are those of one block in one slot, and no other thread uses them.
pub(in crate::percpu) unsafe fn zero(at: *mut u8, len: usize, kind: Kind) {
    if len >= page_size() {
        // A block this long fills whole pages. If the kernel refuses, the loop clears them. SAFETY: the caller
        // guarantees that the bytes are unused.
        if unsafe { pages::advise(at, len, libc::MADV_DONTNEED) }.is_ok() {
            return;
        }
    }
    let are_numbers = matches!(kind, Kind::Sums | Kind::Maxima);
    if !are_numbers && len <= page_size() && pages::is_resident(at) {
        // Without reading first: items have padding, and a branch on that is an error under valgrind. SAFETY: the
        // caller guarantees that the bytes are unused; a block shorter than a page lies within one.
        unsafe { at.write_bytes(0, len) };
        return;
    }
    for word in 0..len / 8 {
        // SAFETY: inside the block; blocks are aligned to their length, which is at least a word.
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
mod tests;
