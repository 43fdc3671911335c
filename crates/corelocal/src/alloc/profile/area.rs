//! Where samples are: entries of four pages in a reserved range, of which those are memory that were written to.
//!
//! ```text
//!   free ── take ──► WRITTEN ──► LIVE ── give back ──► free
//!                                 │ peak               ▲
//!                                 ▼                    │ a later peak
//!                            LIVE, PEAK ── give back ──► PEAK
//! ```
//!
//! The peak is what was sampled when the samples stood for most bytes so far, about: it is marked anew when they
//! stand for a 64th more than when it was marked last.
//!
//! # Invariants
//! 1. An entry belongs to whoever took it off the free list (or the untouched rest) until its state says `LIVE`,
//!    then to the object whose record names it. Who removes the last of `LIVE` and `PEAK` from its state gives it
//!    back.
//! 2. The sequence of an entry is odd while it is written. Who reads it believes what lies between two looks at
//!    the same even number.
//! 3. Nothing here blocks or allocates. A fork leaves at worst entries that nobody has.

use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use super::sample::{self, Sample};
use crate::sys::pages;
use crate::sys::stack::{self, NAME_BYTES, REGISTERS};
use crate::sys::try_lock::TryLock;

/// The most samples at a time.
const MOST: usize = 1 << 16;
/// Fewer are not worth it.
const LEAST: usize = 1 << 8;
const ENTRY: usize = 16 << 10;
/// Entries that are opened at once.
const STEP: usize = 64;
/// The most bytes of a stack that are kept.
pub(super) const STACK_BYTES: usize = ENTRY - 128;
pub(super) const STACK_WORDS: usize = STACK_BYTES / 8;

const FREE: u8 = 0;
const LIVE: u8 = 1;
const PEAK: u8 = 2;
const WRITTEN: u8 = 4;

const R: Ordering = Ordering::Relaxed;

/// A sample.
#[repr(C)]
struct Entry {
    sequence: AtomicU64,
    size: AtomicU64,
    /// Nanoseconds of the monotonic clock.
    taken: AtomicU64,
    thread: AtomicU32,
    class: AtomicU32,
    name: [AtomicU64; NAME_BYTES / 8],
    len: AtomicU64,
    registers: [AtomicU64; REGISTERS],
    unused: u64,
    stack: [AtomicU64; STACK_WORDS],
}

const _: () = assert!(size_of::<Entry>() == ENTRY);

/// The beginning of the range; the entries follow.
#[repr(C)]
pub(super) struct Area {
    capacity: AtomicU64,
    /// The first free entry, one more than its number; above that, how often it changed.
    free: AtomicU64,
    /// Entries from this one on were never taken; those below `opened` are memory.
    fresh: AtomicU64,
    opened: AtomicU64,
    /// Samples that were taken, and the bytes that they stand for.
    pub(super) count: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Samples that there was no room for.
    pub(super) missed: AtomicU64,
    /// Bytes that the samples of objects in use stand for.
    pub(super) live_bytes: AtomicI64,
    /// Likewise at the peak, and when that was.
    pub(super) peak_bytes: AtomicU64,
    pub(super) peak_time: AtomicU64,
    peak_lock: TryLock,
    /// For each free entry the one that follows, one more than its number.
    next: [AtomicU32; MOST],
    states: [AtomicU8; MOST],
}

const HEAD: usize = size_of::<Area>().next_multiple_of(4096);

static AREA: AtomicPtr<Area> = AtomicPtr::new(core::ptr::null_mut());

/// The area, if there is one.
pub(super) fn get() -> Option<&'static Area> {
    // Acquire: partner is the Release in `get_or_make`.
    // SAFETY: null, or a range that is never unmapped, of which the head is open.
    unsafe { AREA.load(Ordering::Acquire).as_ref() }
}

/// The area, made now if there was none; `None` without memory.
pub(super) fn get_or_make() -> Option<&'static Area> {
    if let Some(area) = get() {
        return Some(area);
    }
    let (fresh, at, len) = make(MOST)?;
    let null = core::ptr::null_mut();
    let fresh = core::ptr::from_ref(fresh).cast_mut();
    // Release: partner is the Acquire in `get`.
    if AREA.compare_exchange(null, fresh, Ordering::Release, R).is_err() {
        // SAFETY: nobody else saw it.
        unsafe { pages::unmap(at, len) };
    }
    get()
}

/// An area with room for so many samples, or fewer; the mapping that it is.
fn make(most: usize) -> Option<(&'static Area, *mut u8, usize)> {
    let mut capacity = most;
    let at = loop {
        match pages::reserve(HEAD + capacity * ENTRY) {
            Some(at) => break at,
            None if capacity > LEAST => capacity /= 2,
            None => return None,
        }
    };
    let len = HEAD + capacity * ENTRY;
    // SAFETY: the head of the range just reserved.
    let is_open = unsafe {
        let _ = pages::advise(at, len, libc::MADV_NOHUGEPAGE);
        pages::open_reserved(at, HEAD)
    };
    if !is_open {
        // SAFETY: nobody else saw it.
        unsafe { pages::unmap(at, len) };
        return None;
    }
    // SAFETY: zeros, of which an area is made, and nobody else sees it yet.
    let area = unsafe { &*at.cast::<Area>() };
    area.capacity.store(capacity as u64, R);
    Some((area, at, len))
}

impl Area {
    fn entry(&self, index: usize) -> &Entry {
        let at = core::ptr::from_ref(self).expose_provenance() + HEAD + index * ENTRY;
        // SAFETY: in the range, open as all entries that were ever taken are.
        unsafe { &*core::ptr::with_exposed_provenance::<Entry>(at) }
    }

    /// Writes a sample of the calling thread down; one more than its number. `None` if there is no room.
    #[inline(never)]
    pub(super) fn take(&self, size: u64, class: u32, rate: u64) -> Option<u32> {
        let Some(index) = self.claim() else {
            self.missed.fetch_add(1, R);
            return None;
        };
        self.states[index].store(WRITTEN, R);
        self.entry(index).write(size, class);
        let stands_for = sample::bytes_of(size, rate);
        self.count.fetch_add(1, R);
        self.bytes.fetch_add(stands_for, R);
        let live = self.live_bytes.fetch_add(stands_for as i64, R) + stands_for as i64;
        // Release: partner is the Acquire in `mark_peak`.
        self.states[index].store(LIVE, Ordering::Release);
        self.look_for_peak(live.max(0) as u64);
        Some(index as u32 + 1)
    }

    /// The object of a sample is gone; its size and class.
    pub(super) fn give_back(&self, number: u32, rate: u64) -> Option<(u64, u32)> {
        let index = (number as usize).checked_sub(1).filter(|index| *index < self.known())?;
        let entry = self.entry(index);
        let (size, class) = (entry.size.load(R), entry.class.load(R));
        // AcqRel: partner is the one in `mark_peak`; the entry is used again after both have let go.
        let before = self.states[index].fetch_and(!LIVE, Ordering::AcqRel);
        if before & LIVE == 0 {
            return None;
        }
        self.live_bytes.fetch_sub(sample::bytes_of(size, rate) as i64, R);
        if before == LIVE {
            self.release(index);
        }
        Some((size, class))
    }

    /// Reads all samples of objects in use, and of those that were at the peak.
    pub(super) fn for_each(&self, into: &mut Sample, f: &mut dyn FnMut(&Sample)) {
        for index in 0..self.known() {
            // Acquire: partner is the Release in `take`.
            let state = self.states[index].load(Ordering::Acquire);
            if state & (LIVE | PEAK) != 0 && self.entry(index).read(into) {
                into.is_in_use = state & LIVE != 0;
                into.was_at_peak = state & PEAK != 0;
                f(into);
            }
        }
    }

    /// How many entries were ever taken.
    fn known(&self) -> usize {
        self.fresh.load(R).min(self.capacity.load(R)) as usize
    }

    fn claim(&self) -> Option<usize> {
        // Acquire: partner is the Release in `release`, for the next one.
        let mut free = self.free.load(Ordering::Acquire);
        while free as u32 != 0 {
            let index = free as u32 as usize - 1;
            let next = u64::from(self.next[index].load(R));
            let changed = ((free >> 32) + 1) << 32 | next;
            match self.free.compare_exchange(free, changed, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => free = now,
            }
        }
        let capacity = self.capacity.load(R);
        loop {
            let index = self.fresh.load(R);
            if index >= capacity || !self.open(index as usize, capacity as usize) {
                return None;
            }
            if self.fresh.compare_exchange(index, index + 1, R, R).is_ok() {
                return Some(index as usize);
            }
        }
    }

    /// Opens an entry, and some after it; false without memory.
    fn open(&self, index: usize, capacity: usize) -> bool {
        let opened = self.opened.load(R) as usize;
        if index < opened {
            return true;
        }
        let to = (index + STEP).min(capacity);
        let at = core::ptr::from_ref(self).expose_provenance() + HEAD + opened * ENTRY;
        let len = (to - opened) * ENTRY;
        // SAFETY: whole entries of the range.
        let is_open =
            unsafe { pages::open_reserved(core::ptr::with_exposed_provenance_mut(at), len) };
        if is_open {
            self.opened.fetch_max(to as u64, R);
        }
        is_open
    }

    fn release(&self, index: usize) {
        self.states[index].store(FREE, R);
        let mut free = self.free.load(R);
        loop {
            self.next[index].store(free as u32, R);
            let changed = ((free >> 32) + 1) << 32 | (index as u64 + 1);
            // Release: partner is the Acquire in `claim`.
            match self.free.compare_exchange(free, changed, Ordering::Release, R) {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }

    fn look_for_peak(&self, live: u64) {
        let peak = self.peak_bytes.load(R);
        if live <= peak + peak / 64 {
            return;
        }
        // Who has it marks a peak just now.
        if let Some(_locked) = self.peak_lock.try_lock() {
            self.peak_bytes.store(live, R);
            self.peak_time.store(super::now(), R);
            self.mark_peak();
        }
    }

    /// What is in use now is the peak.
    fn mark_peak(&self) {
        for index in 0..self.known() {
            let state = &self.states[index];
            match state.load(R) {
                // Acquire: partner is the Release in `take`. Given back meanwhile, it is none.
                LIVE => _ = state.compare_exchange(LIVE, LIVE | PEAK, Ordering::Acquire, R),
                // AcqRel: partner is the one in `give_back`.
                PEAK if state.fetch_and(!PEAK, Ordering::AcqRel) == PEAK => self.release(index),
                _ => {}
            }
        }
    }
}

impl Entry {
    /// Only who has taken the entry (1).
    fn write(&self, size: u64, class: u32) {
        let sequence = self.sequence.load(R) | 1;
        self.sequence.store(sequence, R);
        // Partner: the fence in `read`; who sees anything of what follows sees the odd number.
        fence(Ordering::Release);
        self.size.store(size, R);
        self.class.store(class, R);
        self.taken.store(super::now(), R);
        let (thread, name) = stack::this_thread();
        self.thread.store(thread, R);
        for (word, bytes) in self.name.iter().zip(name.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()), R);
        }
        // SAFETY: the words are whole bytes of this, and nobody else writes to them (1).
        let copied = unsafe { stack::copy(self.stack.as_ptr() as *mut u8, STACK_BYTES) };
        let (registers, len) = copied.unwrap_or_default();
        for (word, register) in self.registers.iter().zip(registers) {
            word.store(register, R);
        }
        self.len.store(len as u64, R);
        // Release: partner is the Acquire in `read`.
        self.sequence.store(sequence + 1, Ordering::Release);
    }

    /// Reads it; false if it was written meanwhile.
    fn read(&self, into: &mut Sample) -> bool {
        // Acquire: partner is the Release in `write`.
        let before = self.sequence.load(Ordering::Acquire);
        into.size = self.size.load(R);
        into.taken = self.taken.load(R);
        into.thread = self.thread.load(R);
        for (bytes, word) in into.name.chunks_exact_mut(8).zip(&self.name) {
            bytes.copy_from_slice(&word.load(R).to_ne_bytes());
        }
        for (register, word) in into.registers.iter_mut().zip(&self.registers) {
            *register = word.load(R);
        }
        into.len = (self.len.load(R) as usize).min(STACK_BYTES);
        for (copy, word) in into.words.iter_mut().zip(&self.stack).take(into.len / 8) {
            *copy = word.load(R);
        }
        // Partner: the fence in `write`.
        fence(Ordering::Acquire);
        before % 2 == 0 && before != 0 && self.sequence.load(R) == before
    }
}

#[cfg(test)]
#[path = "area_tests.rs"]
mod tests;
