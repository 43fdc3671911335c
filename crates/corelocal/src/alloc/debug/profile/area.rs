//! Storage of samples: entries of four pages in a reserved range, committed as they are used.
//!
//! ```text
//!   free ── take ──► WRITTEN ──► LIVE ── give back ──► free
//!                                 │ peak               ▲
//!                                 ▼                    │ a later peak
//!                            LIVE, PEAK ── give back ──► PEAK
//! ```
//!
//! The peak is the set of samples that stood for the most bytes so far, approximately: it is marked anew when the
//! live samples stand for 1/64 more than at the last mark.
//!
//! # Invariants
//! 1. An entry belongs to the thread that took it from the free list (or the unused rest) until its state is `LIVE`,
//!    then to the object whose record names it. The thread that removes the last of `LIVE` and `PEAK` from its state
//!    frees it.
//! 2. An entry's sequence (`sys/sequence.rs`) is odd while its owner writes the entry, and readers then fail.
//! 3. Nothing here blocks or allocates. A fork leaves at worst unused entries.

pub(in crate::alloc) mod remote;

use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::sample::{self, Sample};
use crate::sys::memory::pages;
use crate::sys::sequence::Sequence;
use crate::sys::thread::stack::{self, NAME_BYTES, REGISTERS};
use crate::sys::try_lock::TryLock;

/// The maximum number of samples at a time.
const MOST: usize = 1 << 16;
/// With fewer the profile is not started.
const LEAST: usize = 1 << 8;
const ENTRY: usize = 16 << 10;
/// Entries that are committed at once.
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
    sequence: Sequence,
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

/// The head of the range, which the entries follow.
#[repr(C)]
pub(in crate::alloc) struct Area {
    capacity: AtomicU64,
    /// The first free entry's number plus one; in the upper bits, a count of changes.
    free: AtomicU64,
    /// Entries from this one on were never used; those below `opened` are committed.
    fresh: AtomicU64,
    opened: AtomicU64,
    /// Samples taken so far, and the bytes that they stand for.
    pub(super) count: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Samples that were lost for want of room.
    pub(super) missed: AtomicU64,
    /// Bytes that the samples of live objects stand for.
    pub(super) live_bytes: AtomicI64,
    /// The same at the peak, and the time of the peak.
    pub(super) peak_bytes: AtomicU64,
    pub(super) peak_time: AtomicU64,
    peak_lock: TryLock,
    /// For each free entry, the number of the next one plus one.
    next: [AtomicU32; MOST],
    states: [AtomicU8; MOST],
}

const HEAD: usize = size_of::<Area>().next_multiple_of(4096);

pub(in crate::alloc) static AREA: AtomicPtr<Area> = AtomicPtr::new(core::ptr::null_mut());

/// Returns the area, if there is one.
pub(super) fn get() -> Option<&'static Area> {
    // Acquire: partner is the Release in `get_or_make`. SAFETY: null, or a range that is never unmapped and whose
    // head is committed.
    unsafe { AREA.load(Ordering::Acquire).as_ref() }
}

/// Returns the area, made now if necessary; `None` when out of memory.
pub(super) fn get_or_make() -> Option<&'static Area> {
    if let Some(area) = get() {
        return Some(area);
    }
    let (fresh, at, len) = make(MOST)?;
    let null = core::ptr::null_mut();
    let fresh = core::ptr::from_ref(fresh).cast_mut();
    // Release: partner is the Acquire in `get`.
    if AREA.compare_exchange(null, fresh, Ordering::Release, R).is_err() {
        // SAFETY: this mapping lost the race and was never published.
        unsafe { pages::unmap(at, len) };
    }
    get()
}

/// Makes an area for `most` samples or fewer; also returns its mapping.
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
        // SAFETY: this mapping was never published.
        unsafe { pages::unmap(at, len) };
        return None;
    }
    // SAFETY: zeroed memory, which is a valid area, and not published yet.
    let area = unsafe { &*at.cast::<Area>() };
    area.capacity.store(capacity as u64, R);
    Some((area, at, len))
}

impl Area {
    fn entry(&self, index: usize) -> &Entry {
        let at = core::ptr::from_ref(self).expose_provenance() + HEAD + index * ENTRY;
        // SAFETY: within the range; all entries that were ever used are committed.
        unsafe { &*core::ptr::with_exposed_provenance::<Entry>(at) }
    }

    /// Records a sample of the calling thread. Returns its number plus one; `None` if there is no room.
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

    /// Removes the sample of an object that is freed; returns its size and class.
    pub(super) fn give_back(&self, number: u32, rate: u64) -> Option<(u64, u32)> {
        let index = (number as usize).checked_sub(1).filter(|index| *index < self.known())?;
        let entry = self.entry(index);
        let (size, class) = (entry.size.load(R), entry.class.load(R));
        // AcqRel: partner is the one in `mark_peak`; the entry is reused after both threads are done with it.
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

    /// Visits all samples of live objects and of the peak.
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

    /// Returns the number of entries that were ever used.
    fn known(&self) -> usize {
        self.fresh.load(R).min(self.capacity.load(R)) as usize
    }

    fn claim(&self) -> Option<usize> {
        // Acquire: partner is the Release in `release`, so that the link of the entry is visible.
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

    /// Commits an entry and some after it; false when out of memory.
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
        // If the lock is held, another thread is marking a peak.
        if let Some(_locked) = self.peak_lock.try_lock() {
            self.peak_bytes.store(live, R);
            self.peak_time.store(super::now(), R);
            self.mark_peak();
        }
    }

    /// Makes the current live samples the peak.
    fn mark_peak(&self) {
        for index in 0..self.known() {
            let state = &self.states[index];
            match state.load(R) {
                // Acquire: partner is the Release in `take`. It fails if the sample was removed meanwhile.
                LIVE => _ = state.compare_exchange(LIVE, LIVE | PEAK, Ordering::Acquire, R),
                // AcqRel: partner is the one in `give_back`.
                PEAK if state.fetch_and(!PEAK, Ordering::AcqRel) == PEAK => self.release(index),
                _ => {}
            }
        }
    }
}

impl Entry {
    /// Writes the entry. Only its owner may do so (1).
    fn write(&self, size: u64, class: u32) {
        let _writing = self.sequence.write_locked();
        self.size.store(size, R);
        self.class.store(class, R);
        self.taken.store(super::now(), R);
        let (thread, name) = stack::this_thread();
        self.thread.store(thread, R);
        for (word, bytes) in self.name.iter().zip(name.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()), R);
        }
        // SAFETY: room for this many bytes, to which no other thread writes (1).
        let copied = unsafe { stack::copy(self.stack.as_ptr() as *mut u8, STACK_BYTES) };
        let (registers, len) = copied.unwrap_or_default();
        for (word, register) in self.registers.iter().zip(registers) {
            word.store(register, R);
        }
        self.len.store(len as u64, R);
    }

    /// Reads the entry; false if it was written meanwhile.
    fn read(&self, into: &mut Sample) -> bool {
        let read = self.sequence.read(|| {
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
        });
        read.is_some()
    }
}

#[cfg(test)]
mod tests;
