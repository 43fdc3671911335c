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
//! Blocks come and go by two bits each (`block_state.rs`).
//!
//! Invariants:
//! 1. A region has a slot for each id below `cid::capacity()`, or of every node one, where slots go by node
//!    (`Class`), and `cid::shared_capacity()` shared ones; pages become resident when somebody first writes
//!    to them, on the node of that thread where slots go by node.
//! 2. All bytes of a FREE block are 0, or what its list's owner left there (`Wipe`).
//! 3. Regions of the process are never unmapped, so a stale base never points to foreign memory. A list
//!    that an object owns goes with it, when nobody has one of its bases any more (`area/mod.rs`).
//! 4. Nothing here blocks or takes a heap: blocks are made inside signal handlers and malloc.
//! 5. The base of a region is a multiple of `SLOT_LEN`, so the base of a block yields its region.

mod list;

pub(super) use list::List;

use core::sync::atomic::Ordering;

use super::block_state::{self, IN_A_WORD, State};
use super::slot::{Class, Kind};
use crate::cid::{self, Cid, NodeCid};
use crate::primitive::global::{AtomicU32, AtomicU64};
use crate::rseq::{SLOT_SHIFT, offset};
use crate::sys::page_size::page_size;
use crate::sys::pages;

pub(super) const SLOT_LEN: usize = 1 << SLOT_SHIFT;
/// The shortest block, as a power of two: one word.
pub(super) const SHORTEST: u32 = 3;
const LENGTHS: usize = (SLOT_SHIFT - SHORTEST + 1) as usize;

/// The header of a region. The states of its blocks follow it.
pub(super) struct Region {
    /// The region of the same length and class that was made before this one.
    next: *const Region,
    /// How many regions of the list were made before this one.
    serial: u32,
    /// The length of its blocks, as a power of two.
    shift: u32,
    class: Class,
    /// The kernel does not let us choose where its pages come into being.
    is_displaced: bool,
    /// The word of states where the search for a free block begins. A hint: a release that races with a search may
    /// leave a free block before it.
    first: AtomicU32,
}

/// Leaves a block's bytes in a slot as its next owner is to find them.
///
/// # Safety
/// The bytes are those of one block in one slot, and used by nobody else.
pub(super) type Wipe = unsafe fn(at: *mut u8, len: usize, kind: Kind);

/// The process's, for each class and length. They never shrink (invariant 3).
static LISTS: [[List; LENGTHS]; Class::COUNT] =
    [const { [const { List::new() }; LENGTHS] }; Class::COUNT];

fn list(class: Class, shift: u32) -> &'static List {
    &LISTS[class.number()][(shift - SHORTEST) as usize]
}

/// The regions of a class and length.
fn regions(class: Class, shift: u32) -> impl Iterator<Item = &'static Region> {
    list(class, shift).regions()
}

/// All regions of the process.
pub(super) fn all() -> impl Iterator<Item = &'static Region> {
    let lengths = || SHORTEST..=SLOT_SHIFT;
    Class::all().flat_map(move |class| lengths().flat_map(move |shift| regions(class, shift)))
}

/// Takes a free block of the process's, as [`List::allocate`] does.
pub(super) fn allocate(class: Class, shift: u32) -> Option<*mut u8> {
    list(class, shift).allocate(class, shift)
}

/// Gives a block of the process's back.
///
/// # Safety
/// As [`List::release`]; `base` was allocated with this class and length.
pub(super) unsafe fn release(base: *mut u8, class: Class, shift: u32, shared: u32) {
    // SAFETY: the caller's promise.
    unsafe { list(class, shift).release(base, (class, shift), shared, zero) };
}

/// Bytes of a region whose blocks are like this: address space, not memory.
pub(super) fn mapping_len(class: Class, shift: u32) -> usize {
    let slots = slots(class) + cid::shared_capacity();
    Region::header_len(shift) + ((slots as usize) << SLOT_SHIFT)
}

/// Slots of sections of a region.
fn slots(class: Class) -> u32 {
    match class.by_node {
        true => cid::capacity_of::<NodeCid>(),
        false => cid::capacity_of::<Cid>(),
    }
}

impl Region {
    /// Blocks of a region whose blocks have this length.
    const fn blocks_of(shift: u32) -> usize {
        SLOT_LEN >> shift
    }

    /// Bytes before the slots.
    fn header_len(shift: u32) -> usize {
        let states = Self::blocks_of(shift).div_ceil(IN_A_WORD) * 8;
        (size_of::<Region>() + states).next_multiple_of(page_size())
    }

    /// Bytes of the mapping: address space, not memory.
    pub(super) fn len(&self) -> usize {
        mapping_len(self.class, self.shift)
    }

    pub(super) fn start(&self) -> *mut u8 {
        // Of the mapping, which the kernel gave as an address, not of `self` alone.
        core::ptr::with_exposed_provenance_mut((&raw const *self).addr())
    }

    pub(super) fn class(&self) -> Class {
        self.class
    }

    pub(super) fn is_displaced(&self) -> bool {
        self.is_displaced
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
        self.words().iter().map(block_state::owned).sum()
    }

    fn base(&self) -> *mut u8 {
        let slots = (slots(self.class) as usize) << SLOT_SHIFT;
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
        unsafe { core::slice::from_raw_parts(self.start().add(size_of::<Region>()).cast(), words) }
    }

    fn state(&self, number: usize) -> State<'_> {
        State::new(&self.words()[number / IN_A_WORD], number % IN_A_WORD)
    }

    /// Takes a free block from the word `first` on. Linear in the words behind it that have no free block.
    fn take(&self) -> Option<*mut u8> {
        // Relaxed: a hint.
        let first = self.first.load(Ordering::Relaxed);
        let taken = self.take_from(first as usize);
        if taken.is_none() {
            // The next search passes this region by. Unless a release moved the hint meanwhile. Relaxed: a hint.
            let end = self.words().len() as u32;
            let _ = self.first.compare_exchange(first, end, Ordering::Relaxed, Ordering::Relaxed);
        }
        taken
    }

    /// Takes a free block from this word of states on, wherever `first` points.
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

    /// The region that a block of this class and length lies in (invariant 5).
    ///
    /// # Safety
    /// The block was taken from such a region, which is still mapped.
    unsafe fn of<'a>(base: *mut u8, class: Class, shift: u32) -> &'a Region {
        let above = Region::header_len(shift) + ((slots(class) as usize) << SLOT_SHIFT);
        let start = (base.addr() & !(SLOT_LEN - 1)) - above;
        // SAFETY: the header of the region (invariant 5), which was initialised before it gave a block.
        unsafe { &*core::ptr::with_exposed_provenance(start) }
    }

    /// Keeps a block from being reused until `unpin`; false if it has no owner, or is pinned already.
    pub(super) fn pin(&self, number: usize) -> bool {
        self.state(number).pin()
    }

    /// Ends `pin`, and the release of the block if there was one meanwhile.
    pub(super) fn unpin(&self, number: usize) {
        if !self.state(number).unpin() {
            // SAFETY: released, and nobody but the pin's holder refers to it.
            unsafe { self.clear(number, cid::shared_capacity(), zero) };
        }
    }

    /// `unpin` for a thread that a fork left behind, if it had pinned the block. Released since, the block
    /// stays as it is: who clears it cannot be told.
    pub(super) fn unpin_left(&self, number: usize) {
        let _ = self.state(number).unpin();
    }

    /// FREEING to FREE, left as `wipe` does it.
    ///
    /// # Safety
    /// The block is FREEING, nobody uses it, and its shared slots from `shared` on were never used.
    unsafe fn clear(&self, number: usize, shared: u32, wipe: Wipe) {
        let at = number << self.shift;
        // Any block may have been used under any slot that was ever given.
        let by_node = self.class.by_node;
        // The page of zeros, which was only read, would become one of its own on this thread's node.
        let len = 1 << self.shift;
        let is_used =
            |slot: &*mut u8| !by_node || pages::may_be_written(slot.wrapping_add(at), len);
        let slots = 0..cid::highest_water(by_node);
        let slots = slots.map(|slot| self.slot(slot)).filter(is_used);
        // The first shared slot is used by trims, too.
        let shared = (0..shared.max(1)).map(|slot| self.shared(slot));
        for slot in slots.chain(shared) {
            // SAFETY: the block's bytes in a slot, used by nobody else.
            unsafe { wipe(slot.wrapping_add(at), len, self.class.kind) };
        }
        self.state(number).finish();
        self.first.fetch_min((number / IN_A_WORD) as u32, Ordering::Relaxed);
    }
}

/// Makes the bytes 0 without making pages resident that are not.
///
/// # Safety
/// The bytes are those of one block in one slot, and used by nobody else.
pub(super) unsafe fn zero(at: *mut u8, len: usize, kind: Kind) {
    if len >= page_size() {
        // A block this long fills pages of its own. Where the kernel refuses, the loop does it.
        // SAFETY: the caller's promise.
        if unsafe { pages::advise(at, len, libc::MADV_DONTNEED) }.is_ok() {
            return;
        }
    }
    let are_numbers = matches!(kind, Kind::Sums | Kind::Maxima);
    if !are_numbers && len <= page_size() && pages::is_resident(at) {
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
#[path = "region_tests.rs"]
mod tests;
