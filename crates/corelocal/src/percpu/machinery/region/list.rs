//! A list of regions of one class and block length: blocks are allocated from them, and a region is added when all
//! blocks are taken.
//!
//! # The search for a free block
//! It begins at the region that `search` points to, and continues to older ones. Newer regions were full when they
//! were last searched, and a release moves `search` back to its region. `search` and the hint in each region may miss
//! a block that is released while another thread searches. So before the list grows, every word of every region is
//! checked: no region is added while a block is free. An allocation usually reads one word. Spread over the blocks of
//! a region, it also reads each of the region's words once.
//!
//! Invariants: those of `machinery/region.rs`. The third one says how long a list's regions stay mapped.

use core::sync::atomic::Ordering;

use super::{Region, SLOT_LEN, Wipe, mapping_len, slots};
use crate::percpu::machinery::slot::Class;
use crate::primitive::global::{AtomicPtr, AtomicU32};
use crate::rseq::SLOT_SHIFT;
use crate::sys::memory::{lazy_mapping, pages};

/// Regions of one class and length, newest first.
pub(in crate::percpu) struct List {
    newest: AtomicPtr<Region>,
    /// The region where a search begins. Null before the first region.
    search: AtomicPtr<Region>,
}

const NULL: *mut Region = core::ptr::null_mut();

impl List {
    pub(in crate::percpu) const fn new() -> List {
        List { newest: AtomicPtr::new(NULL), search: AtomicPtr::new(NULL) }
    }

    /// Returns the regions, newest first.
    pub(in crate::percpu) fn regions(&self) -> impl Iterator<Item = &Region> {
        // Acquire: partner is the Release in `grow`; the header is initialised.
        self.from(self.newest.load(Ordering::Acquire))
    }

    /// This region of the list, and the older ones.
    fn from(&self, region: *const Region) -> impl Iterator<Item = &Region> {
        // SAFETY: regions on a list are initialised, and mapped as long as the list is there (invariant 3).
        let next = |region: &&Region| unsafe { region.next.as_ref() };
        // SAFETY: null, or a region on the list, which is initialised and mapped (invariant 3).
        core::iter::successors(unsafe { region.as_ref() }, next)
    }

    /// Allocates a block, adding a region if all blocks are taken. `None` if the kernel provides no memory. Returns
    /// the block's base, which lies between its slots and its shared slots. All blocks of a list have one class and
    /// length.
    ///
    /// Lock-free. Constant time on average; see the module documentation.
    pub(in crate::percpu) fn allocate(&self, class: Class, shift: u32) -> Option<*mut u8> {
        loop {
            // Acquire: partner is the Release in `grow`.
            let newest = self.newest.load(Ordering::Acquire);
            if let Some(base) = self.take_hinted().or_else(|| self.take_any()) {
                return Some(base);
            }
            self.grow(class, shift, newest)?;
        }
    }

    /// Allocates a block that the hints lead to.
    fn take_hinted(&self) -> Option<*mut u8> {
        // Acquire: partners are the Release stores of `search_from`; the header is initialised.
        let search = self.search.load(Ordering::Acquire);
        self.take_with(self.from(search), Region::take)
    }

    /// Allocates any free block. Linear in the blocks of all regions.
    #[cold]
    fn take_any(&self) -> Option<*mut u8> {
        self.take_with(self.regions(), |region| region.take_from(0))
    }

    fn take_with<'a>(
        &self,
        mut regions: impl Iterator<Item = &'a Region>,
        take: impl Fn(&Region) -> Option<*mut u8>,
    ) -> Option<*mut u8> {
        let (region, base) = regions.find_map(|region| take(region).map(|base| (region, base)))?;
        // Relaxed: compared, not dereferenced.
        if !core::ptr::eq(self.search.load(Ordering::Relaxed), region) {
            self.search_from(region);
        }
        Some(base)
    }

    pub(super) fn search_from(&self, region: &Region) {
        // Release: partner is the Acquire in `take_hinted`.
        self.search.store(region.start().cast(), Ordering::Release);
    }

    /// Frees a block. `wipe` clears its bytes. Constant time.
    ///
    /// # Safety
    /// - `base` was allocated here, with this class and length.
    /// - Every use of it happens before this call.
    /// - The shared slots from `shared` on were never used.
    pub(in crate::percpu) unsafe fn release(
        &self,
        base: *mut u8,
        (class, shift): (Class, u32),
        shared: u32,
        wipe: Wipe,
    ) {
        // SAFETY: the block is from this list, whose regions are mapped (invariant 3).
        let region = unsafe { Region::of(base, class, shift) };
        let Some(number) = region.number_of(base).filter(|_| region.shift == shift) else {
            debug_assert!(false, "a block lies in a region, and regions stay");
            return;
        };
        if region.state(number).release() {
            // SAFETY: the block is FREEING and not pinned; the caller guarantees that its uses have ended.
            unsafe { region.clear(number, shared, wipe) };
            // Acquire: partner is the Release in `search_from`; the header is initialised.
            let search = self.search.load(Ordering::Acquire);
            // SAFETY: a region of this list, or null.
            if unsafe { search.as_ref() }.is_some_and(|search| search.serial < region.serial) {
                self.search_from(region);
            }
        }
    }

    /// Adds a region in front of `newest`, unless another thread was faster. `None` if there is no memory.
    fn grow(&self, class: Class, shift: u32, newest: *mut Region) -> Option<()> {
        let len = mapping_len(class, shift);
        let (first, header_len) = (AtomicU32::new(0), Region::header_len(shift));
        let at = map(len, header_len)?;
        // SAFETY: the slots of the mapping just made. Shared slots may be placed on any node.
        let place = || unsafe {
            pages::place_locally(at.add(header_len), (slots(class) as usize) << SLOT_SHIFT)
        };
        let is_displaced = class.by_node && place().is_err();
        // SAFETY: null, or a region of this list.
        let serial = unsafe { newest.as_ref() }.map_or(0, |newest| newest.serial.wrapping_add(1));
        let region = at.cast::<Region>();
        let header = Region { next: newest, serial, shift, class, is_displaced, first };
        // SAFETY: fresh zeroed pages with room for the header and the states.
        unsafe { region.write(header) };
        let list = &self.newest;
        // Release: partner is the Acquire in `regions`. Failure needs no order: the caller tries again.
        if list.compare_exchange(newest, region, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: no other thread has seen the mapping.
            unsafe { pages::unmap(at, len) };
        } else {
            // Release: partner is the Acquire in `take_hinted`.
            self.search.store(region, Ordering::Release);
        }
        Some(())
    }

    /// Unmaps all regions.
    ///
    /// # Safety
    /// - No block is in use, and no reference to a region exists.
    pub(in crate::percpu) unsafe fn unmap(&mut self) {
        self.search = AtomicPtr::new(NULL);
        let mut at = core::mem::take(&mut self.newest).into_inner();
        // SAFETY: on the list, so initialised and mapped.
        while let Some(region) = unsafe { at.as_ref() } {
            let (next, len) = (region.next.cast_mut(), region.len());
            // SAFETY: mapped by `grow` with this length; the caller guarantees that it is unused.
            unsafe { pages::unmap(at.cast(), len) };
            at = next;
        }
    }
}

/// Maps `len` bytes such that the first one after the header is aligned to a slot's length (invariant 5).
fn map(len: usize, header_len: usize) -> Option<*mut u8> {
    let at = lazy_mapping::map(len + SLOT_LEN)?;
    let before = (at.addr() + header_len).next_multiple_of(SLOT_LEN) - (at.addr() + header_len);
    // SAFETY: within the mapping just made.
    let (start, behind) = unsafe { (at.add(before), at.add(before + len)) };
    for (shard, len) in [(at, before), (behind, SLOT_LEN - before)] {
        // Miri cannot unmap part of a mapping.
        if len > 0 && !cfg!(miri) {
            // SAFETY: part of the mapping just made, of which no other thread has an address; both lengths are whole
            // pages.
            unsafe { pages::unmap(shard, len) };
        }
    }
    Some(start)
}
