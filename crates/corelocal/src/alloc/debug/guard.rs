//! Guarded sampling (`CORELOCAL_MALLOC=guard`): a random selection of objects on pages of their own, between
//! inaccessible pages. Cheap enough for production; across many runs it finds the bugs that appear in few of them.
//!
//! ```text
//!   a chunk:  │ closed │ … closed … │ open: SLACK, the object │ closed │     the object ends at a page's end
//!             │ closed │ open: the object, SLACK │ … closed … │ closed │     or begins at a page's beginning
//! ```
//! One allocation in so many (`config.rs`) is selected at random (`sampling.rs`). At most [`MOST_LIVE`] objects live in
//! the pool at a time. The chunk of a freed object is closed and remembered; the one freed first is reused first. An
//! access to a closed page raises a signal, and `guard_report.rs` explains it.
//!
//! # Invariants
//! 1. A slot changes from free to busy to live to busy to free, each time by compare-exchange from a state other than
//!    busy: the thread that makes it busy owns it. So no lock is needed, and a fork leaves at worst a busy slot.
//! 2. The pages of a free slot are closed. Those of a live slot are open where the object lies.
//! 3. Bytes on the open pages of a live slot that are not the object are SLACK, unless the program is faulty.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::UNKNOWN;
use super::call_stack::CallStack;
use super::fill::find_other;
use super::guard_report::{self, Touch, Work};
use crate::alloc::fault::Fault;
use crate::alloc::layout::chunk::CHUNK;
use crate::alloc::layout::class::{GUARDED, NOTHING};
use crate::alloc::layout::range::Range;
use crate::alloc::{page_heap, random};
use crate::sys::memory::page_size::{page_size, page_start};
use crate::sys::memory::pages;

const SLOTS: usize = 256;
/// The most objects in the pool at a time, so that three times as many freed ones are remembered.
const MOST_LIVE: usize = SLOTS / 4;
const SLACK: u8 = 0xc5;

const R: Ordering = Ordering::Relaxed;

/// States of a slot: free and never used; busy; live; free again.
const NEW: u32 = 0;
const BUSY: u32 = 1;
const LIVE: u32 = 2;
const FREED: u32 = 3;

/// Returns the longest objects: a chunk less one closed page at each end. None if a page is as long as a chunk.
fn most_bytes() -> usize {
    CHUNK.saturating_sub(2 * page_size())
}

/// A chunk of the pool and its state.
pub(in crate::alloc) struct Slot {
    state: AtomicU32,
    /// The number of slots freed before this one.
    freed_at: AtomicU64,
    object: AtomicUsize,
    size: AtomicUsize,
    pub(super) allocated: CallStack,
    pub(super) freed: CallStack,
}

/// All slots. All bytes 0 is a pool without chunks.
struct Pool {
    /// The address of the first chunk.
    base: AtomicUsize,
    live: AtomicUsize,
    frees: AtomicU64,
    allocations: AtomicU64,
    slots: [Slot; SLOTS],
    work: Work,
}

static POOL: AtomicPtr<Pool> = AtomicPtr::new(core::ptr::null_mut());

/// Allocates an object on pages of its own; `None` if that is not possible.
#[cold]
pub(in crate::alloc) fn allocate(range: Range, align: usize, size: usize) -> Option<usize> {
    let len = size.max(1);
    if len > most_bytes() || align > page_size() {
        return None;
    }
    let pool = Pool::make(range)?;
    if pool.live.fetch_add(1, R) >= MOST_LIVE {
        pool.live.fetch_sub(1, R);
        return None;
    }
    let taken = pool.take();
    let object = taken.and_then(|(nth, was)| pool.place(nth, was, align.max(16), len));
    let (Some((nth, _)), Some(object)) = (taken, object) else {
        pool.live.fetch_sub(1, R);
        return None;
    };
    let slot = &pool.slots[nth];
    slot.object.store(object, R);
    slot.size.store(size, R);
    // SAFETY: the slot is busy, so this thread owns it (1); its pages were just opened.
    unsafe {
        slot.allocated.take();
        slot.for_each_slack(|from, len| {
            core::ptr::with_exposed_provenance_mut::<u8>(from).write_bytes(SLACK, len);
        });
    }
    pool.allocations.fetch_add(1, R);
    // Release: partner is the Acquire of the thread that frees the object, or reports.
    slot.state.store(LIVE, Ordering::Release);
    Some(object)
}

/// Frees an object in the pool.
#[cold]
pub(in crate::alloc) fn deallocate(object: *mut u8, given: usize) {
    let at = object as usize;
    let Some(pool) = Pool::get() else { return };
    let Some(slot) = pool.slot(at) else { return };
    let size = slot.size_of_live(at);
    // Acquire: partner is the Release in `allocate`. The second of two frees is reported.
    if slot.state.compare_exchange(LIVE, BUSY, Ordering::Acquire, R).is_err() {
        guard_report::report(Fault::Twice, slot, at);
    }
    if given != UNKNOWN && given != size {
        guard_report::report(Fault::Sizes { given, size }, slot, at);
    }
    if let Some(fault) = slot.find_fault() {
        guard_report::report(fault, slot, at);
    }
    // SAFETY: the slot is busy, so this thread owns it (1).
    unsafe { slot.freed.take() };
    pool.close(at);
    slot.freed_at.store(pool.frees.fetch_add(1, R) + 1, R);
    // Release: partner is the Acquire in `take`, and of a thread that reports.
    slot.state.store(FREED, Ordering::Release);
    pool.live.fetch_sub(1, R);
}

/// Returns the exact size of an object in the pool.
#[cold]
pub(in crate::alloc) fn usable_size(object: *mut u8) -> usize {
    let at = object as usize;
    Pool::get().and_then(|pool| pool.slot(at)).map_or(0, |slot| slot.size_of_live(at))
}

/// Returns the number of objects in the pool, and of all ever there.
pub(in crate::alloc) fn counts() -> (usize, u64) {
    Pool::get().map_or((0, 0), |pool| (pool.live.load(R), pool.allocations.load(R)))
}

/// Returns the slot that an address belongs to, for a report. A closed page behind a live object belongs to that
/// object, although the next chunk begins there.
pub(in crate::alloc) fn slot_of(address: usize) -> Option<&'static Slot> {
    let pool = Pool::get()?;
    let slot = pool.slot(address)?;
    let before = pool.slot(address.wrapping_sub(page_size())).filter(|before| before.is(LIVE));
    Some(if slot.is(LIVE) { slot } else { before.unwrap_or(slot) })
}

/// Returns the working memory of reports.
pub(super) fn work() -> Option<&'static Work> {
    Pool::get().map(|pool| &pool.work)
}

impl Pool {
    fn get() -> Option<&'static Pool> {
        // Acquire: partner is the Release in `make`.
        let pool = POOL.load(Ordering::Acquire);
        // SAFETY: null, or zeroed memory that is never unmapped; zero is a valid pool.
        unsafe { pool.as_ref() }
    }

    /// Returns the pool, made now if necessary.
    fn make(range: Range) -> Option<&'static Pool> {
        if let Some(pool) = Pool::get() {
            return Some(pool);
        }
        let fresh = pages::map(size_of::<Pool>())?.cast::<Pool>();
        let Some(run) = page_heap::claim(range, SLOTS, 1) else {
            // SAFETY: this mapping was never published.
            unsafe { pages::unmap(fresh.cast(), size_of::<Pool>()) };
            return None;
        };
        let base = range.address(run.first);
        // SAFETY: whole chunks that this thread has just claimed, and a pool that was not published yet.
        unsafe {
            pages::close(base as *mut u8, SLOTS * CHUNK);
            (*fresh).base.store(base, R);
        }
        let name = |kind| {
            (run.first..run.first + SLOTS).for_each(|chunk| range.kind(chunk).store(kind, R));
        };
        name(GUARDED);
        // Before any fault can occur.
        guard_report::install();
        let none = core::ptr::null_mut();
        // Release: partner is the Acquire in `get`.
        match POOL.compare_exchange(none, fresh, Ordering::Release, R) {
            Ok(_) => {}
            Err(_) => {
                name(NOTHING);
                // SAFETY: this pool lost the race and was never published.
                unsafe {
                    pages::unmap(fresh.cast(), size_of::<Pool>());
                    if pages::open(base as *mut u8, SLOTS * CHUNK) {
                        page_heap::release(range, run.first, SLOTS);
                    }
                }
            }
        }
        Pool::get()
    }

    /// Returns the slot of an address.
    fn slot(&self, address: usize) -> Option<&Slot> {
        self.slots.get(address.wrapping_sub(self.base.load(R)) / CHUNK)
    }

    /// Makes the slot busy that has been free longest; returns it and its former state.
    fn take(&self) -> Option<(usize, u32)> {
        for _ in 0..8 {
            let is_free = |nth: &usize| matches!(self.slots[*nth].state.load(R), NEW | FREED);
            let oldest = |nth: &usize| self.slots[*nth].freed_at.load(R);
            let nth = (0..SLOTS).filter(is_free).min_by_key(oldest)?;
            let state = &self.slots[nth].state;
            let seen = state.load(R);
            // Acquire: partner is the Release in `deallocate`.
            if matches!(seen, NEW | FREED)
                && state.compare_exchange(seen, BUSY, Ordering::Acquire, R).is_ok()
            {
                return Some((nth, seen));
            }
        }
        None
    }

    /// Opens the pages of a busy slot for an object. If the kernel refuses, the slot becomes free again.
    fn place(&self, nth: usize, was: u32, align: usize, len: usize) -> Option<usize> {
        let chunk = self.base.load(R) + nth * CHUNK;
        let first = chunk + page_size();
        let end = first + most_bytes();
        let object = if random::next() % 2 == 0 { first } else { (end - len) & !(align - 1) };
        let (from, to) = pages_of(object, len);
        // SAFETY: the slot is busy, so only this thread uses its pages (1).
        let is_open = unsafe {
            // The whole range may have been opened when it was mapped, this chunk included. Freed slots are closed
            // already.
            if was == NEW {
                pages::close(chunk as *mut u8, CHUNK);
            }
            pages::open(from as *mut u8, to - from)
        };
        if !is_open {
            // Release: partner is the Acquire of the thread that takes the slot next.
            self.slots[nth].state.store(FREED, Ordering::Release);
        }
        is_open.then_some(object)
    }

    /// Closes the chunk of an address and gives its memory back.
    fn close(&self, address: usize) {
        let base = self.base.load(R);
        let chunk = (base + (address - base) / CHUNK * CHUNK) as *mut u8;
        // SAFETY: the chunk of a busy slot. If the kernel refuses, later accesses go unnoticed.
        unsafe {
            pages::close(chunk, CHUNK);
            let _ = pages::advise(chunk, CHUNK, libc::MADV_DONTNEED);
        }
    }
}

/// Returns the pages that an object lies on: start and end.
fn pages_of(object: usize, len: usize) -> (usize, usize) {
    (page_start(object), (object + len.max(1)).next_multiple_of(page_size()))
}

impl Slot {
    fn is(&self, state: u32) -> bool {
        // Acquire: partners are the Releases that make the slot live or free.
        self.state.load(Ordering::Acquire) == state
    }

    /// Returns the address and size of the slot's current or last object.
    pub(in crate::alloc) fn object(&self) -> (usize, usize) {
        (self.object.load(R), self.size.load(R))
    }

    /// Returns the size of an allocated object. Reports a fault if the object is not allocated.
    fn size_of_live(&self, at: usize) -> usize {
        let (object, size) = self.object();
        match self.is(LIVE) {
            true if object == at => size,
            true => guard_report::report(Fault::Misaligned, self, at),
            false => guard_report::report(Fault::Twice, self, at),
        }
    }

    /// Calls `f` with start and length of both parts of the open pages that are not the object.
    fn for_each_slack(&self, mut f: impl FnMut(usize, usize)) {
        let (object, size) = self.object();
        let (from, to) = pages_of(object, size);
        f(from, object - from);
        f(object + size, to - object - size);
    }

    /// Returns the fault next to a live object, if its slack has changed (3).
    fn find_fault(&self) -> Option<Fault> {
        let (object, size) = self.object();
        let mut fault = None;
        self.for_each_slack(|from, len| {
            // SAFETY: open pages of a live slot.
            if let Some(at) = unsafe { find_other(from, len, SLACK) } {
                fault = Some(match (from + at).checked_sub(object) {
                    Some(at) => Fault::Behind { at, size },
                    None => Fault::Before { by: object - from - at, size },
                });
            }
        });
        fault
    }

    /// Returns the meaning of an access to this closed address.
    pub(super) fn touch(&self, address: usize) -> Touch {
        let (object, _) = self.object();
        // Acquire: partner is the Release that set the state.
        match self.state.load(Ordering::Acquire) {
            NEW => Touch::Nothing,
            LIVE if address < object => Touch::Before,
            LIVE => Touch::Behind,
            _ => Touch::Freed,
        }
    }
}

#[cfg(test)]
mod tests;
