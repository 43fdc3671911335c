//! Regions of one class and length: blocks taken from them and given back, and the next region made when
//! all are taken.
//!
//! Invariants: those of `region.rs`; the third one says how long a list's regions stay.

use core::sync::atomic::Ordering;

use super::{Region, Wipe, mapping_len, slots};
use crate::percpu::slot::Class;
use crate::primitive::global::{AtomicPtr, AtomicU32};
use crate::rseq::SLOT_SHIFT;
use crate::sys::{pages, sparse};

/// Regions of one class and length, newest first.
pub(in crate::percpu) struct List {
    newest: AtomicPtr<Region>,
}

impl List {
    pub(in crate::percpu) const fn new() -> List {
        List { newest: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// The regions.
    pub(in crate::percpu) fn regions(&self) -> impl Iterator<Item = &Region> {
        // Acquire: partner is the Release in `grow`; the header is initialised.
        let newest = self.newest.load(Ordering::Acquire).cast_const();
        // SAFETY: regions on a list are initialised, and mapped as long as the list is there (invariant 3).
        let next = |region: &&Region| unsafe { region.next.as_ref() };
        // SAFETY: likewise.
        core::iter::successors(unsafe { newest.as_ref() }, next)
    }

    /// Takes a free block, making a region if there is none; `None` when the kernel gives no memory. The
    /// result is the block's base: what lies between its slots and its shared ones. A list has blocks of
    /// one class and length: these.
    ///
    /// Lock-free; linear in the number of blocks where few are free.
    pub(in crate::percpu) fn allocate(&self, class: Class, shift: u32) -> Option<*mut u8> {
        loop {
            // Acquire: partner is the Release in `grow`.
            let newest = self.newest.load(Ordering::Acquire);
            if let Some(base) = self.regions().find_map(Region::take) {
                return Some(base);
            }
            self.grow(class, shift, newest)?;
        }
    }

    /// Gives a block back, left as `wipe` does it.
    ///
    /// # Safety
    /// `base` was allocated here; its owner and everybody who used it are done and ordered before this
    /// call; the shared slots from `shared` on were never used.
    pub(in crate::percpu) unsafe fn release(&self, base: *mut u8, shared: u32, wipe: Wipe) {
        let of_base = |region: &&Region| region.number_of(base).is_some();
        // Regions are not aligned to their size, so the list is searched.
        let Some(region) = self.regions().find(of_base) else {
            debug_assert!(false, "a block lies in a region, and regions stay");
            return;
        };
        let Some(number) = region.number_of(base) else { return };
        if region.state(number).release() {
            // SAFETY: the caller's promise; FREEING, and no thread has it pinned.
            unsafe { region.clear(number, shared, wipe) };
        }
    }

    /// Puts a new region in front of `newest`, unless somebody else was faster; `None` without memory.
    fn grow(&self, class: Class, shift: u32, newest: *mut Region) -> Option<()> {
        let len = mapping_len(class, shift);
        let at = sparse::map(len)?;
        let (first, header_len) = (AtomicU32::new(0), Region::header_len(shift));
        // SAFETY: the slots of the mapping just made. The shared ones are any node's.
        let place = || unsafe {
            pages::place_locally(at.add(header_len), (slots(class) as usize) << SLOT_SHIFT)
        };
        let is_displaced = class.by_node && place().is_err();
        let region = at.cast::<Region>();
        // SAFETY: fresh zeroed pages with room for the header and the states.
        unsafe { region.write(Region { next: newest, shift, class, is_displaced, first }) };
        let list = &self.newest;
        // Release: partner is the Acquire in `regions`. Failure needs no order: the caller looks anew.
        if list.compare_exchange(newest, region, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: nobody else saw it.
            unsafe { pages::unmap(at, len) };
        }
        Some(())
    }

    /// Gives all regions back to the kernel.
    ///
    /// # Safety
    /// Nobody uses a block or has a reference to a region.
    pub(in crate::percpu) unsafe fn unmap(&mut self) {
        let mut at = core::mem::take(&mut self.newest).into_inner();
        // SAFETY: on the list, so initialised and mapped.
        while let Some(region) = unsafe { at.as_ref() } {
            let (next, len) = (region.next.cast_mut(), region.len());
            // SAFETY: made by `grow` with this length; the caller's promise.
            unsafe { pages::unmap(at.cast(), len) };
            at = next;
        }
    }
}
