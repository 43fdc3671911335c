//! Checking mode (`CORELOCAL_MALLOC=check`): canaries around every object, and a quarantine for freed ones.
//!
//! ```text
//!   │ the object, exactly as long as asked for │ SLACK SLACK … │ trailer │      an object of a class
//!     new: FRESH bytes                                  the last 8 bytes
//!     freed: FREED bytes, up to the trailer
//! ```
//! The trailer holds the object's exact size and whether it is freed, mixed with its address, its span's generation
//! and a secret of the process. When an object is freed, the bytes behind its end must still be SLACK. It then waits
//! in a quarantine (`quarantine.rs`). When it leaves the quarantine, and when it is allocated again, its bytes must
//! still be FREED: otherwise the program wrote to it after freeing it.
//!
//! A large object has its size in its record, and SLACK up to the end of its last page. Once freed, its pages go to
//! the kernel and are closed while it waits.
//!
//! # Invariants
//! 1. An allocated object of a class has a live trailer, except in chunks that are older than the mode.
//! 2. One caller performs the change of a trailer from live to freed.
//! 3. An object in quarantine does not change: it is FREED, and its trailer says so.

use core::sync::atomic::{AtomicU64, Ordering};

use super::fill::{fill, find_other};
use super::{UNKNOWN, quarantine};
use crate::alloc::central::place::Place;
use crate::alloc::central::spans;
use crate::alloc::config;
use crate::alloc::core_cache::refill::pop_or_refill;
use crate::alloc::core_cache::spill::push_or_spill;
use crate::alloc::fault::{self, Fault};
use crate::alloc::layout::chunk::CHUNK;
use crate::alloc::layout::class::{self, CLASSES, LARGE};
use crate::alloc::layout::range::{Range, kind_of};
use crate::alloc::page_heap;
use crate::alloc::page_heap::large::{self, deallocate_other as deallocate_unchecked};
use crate::alloc::random::{self, mix};
use crate::sys::memory::pages;

/// Bytes of the trailer.
const TRAILER: usize = 8;
const SLACK: u8 = 0xc5;
const FRESH: u8 = 0xa5;
const FREED: u8 = 0xdf;
/// The upper halves of trailers.
const IS_LIVE: u64 = 0x4c49_5645;
const IS_FREED: u64 = 0x4652_4545;
const PAGE: usize = 4096;
/// Bytes at both ends of a large object that are filled with FRESH. Filling all of it would use memory that the
/// program may never touch.
const FRESH_ENDS: usize = 1 << 16;

const R: Ordering = Ordering::Relaxed;

/// Returns `true` for an object in a chunk that may be older than checking mode. It is not checked, and not allocated
/// again once it is free.
fn is_early(range: Range, object: usize) -> bool {
    range.chunk_of(object) < config::early_chunks()
}

/// Returns the class for objects of this size with their trailers; `None` for large ones.
pub(in crate::alloc) fn place(range: Range, align: usize, size: usize) -> Option<Place> {
    class::of_aligned(align, size + TRAILER).map(|class| Place::new(range, class))
}

/// The content of a trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live(usize),
    Freed(usize),
    Broken,
}

/// An object of a class.
#[derive(Clone, Copy)]
struct Object {
    place: Place,
    at: usize,
}

impl Object {
    /// Returns the offset of the trailer.
    fn room(self) -> usize {
        self.place.shape().size - TRAILER
    }

    fn trailer(self) -> &'static AtomicU64 {
        let at = core::ptr::with_exposed_provenance::<AtomicU64>(self.at + self.room());
        // SAFETY: within an object of the class, and aligned, since sizes are multiples of 16. Any bits are a valid
        // word.
        unsafe { &*at }
    }

    /// Returns the trailer's word. It depends on the span's generation, so a trailer of an earlier span there is not
    /// valid.
    fn word(self, state: u64, size: usize) -> u64 {
        let generation = u64::from(spans::generation(self.place, self.at)) << 40;
        ((state << 32) | size as u64) ^ mix(self.at as u64 ^ generation ^ random::secret())
    }

    fn state(self) -> State {
        let word = self.word(0, 0) ^ self.trailer().load(R);
        let size = word as u32 as usize;
        match word >> 32 {
            IS_LIVE if size <= self.room() => State::Live(size),
            IS_FREED if size <= self.room() => State::Freed(size),
            _ => State::Broken,
        }
    }

    /// Returns the first of the bytes `from..to` that is not `byte`.
    fn find_other(self, from: usize, to: usize, byte: u8) -> Option<usize> {
        // SAFETY: within the object.
        unsafe { find_other(self.at + from, to - from, byte) }.map(|at| from + at)
    }

    /// Fills the bytes `from..to`.
    fn fill(self, from: usize, to: usize, byte: u8) {
        // SAFETY: within the object, which belongs to the caller.
        unsafe { fill(self.at + from, to - from, byte) };
    }
}

/// Allocates an object of a class; `None` when out of memory.
pub(in crate::alloc) fn allocate(place: Place, size: usize) -> Option<u64> {
    let pop = || {
        let objects = core::iter::from_fn(|| pop_or_refill(place));
        objects.map(|object| object as usize).find(|object| !is_early(place.range, *object))
    };
    let at = pop().or_else(|| relieve(place.range).then(pop)?)?;
    let object = Object { place, at };
    look_again(object);
    object.fill(0, size, FRESH);
    object.fill(size, object.room(), SLACK);
    object.trailer().store(object.word(IS_LIVE, size), R);
    Some(at as u64)
}

/// Checks an object that is about to be allocated, if it was freed before and only the program can have changed it
/// since. The malloc itself writes to the first word (`central.rs`) and releases whole pages
/// (`central/thinning.rs`), so objects that cross a page boundary are not checked.
fn look_again(object: Object) {
    let size = object.place.shape().size;
    if object.at / PAGE == (object.at + size - 1) / PAGE {
        if let State::Freed(size) = object.state() {
            if let Some(at) = object.find_other(8, object.room(), FREED) {
                fault::report(Fault::Stale { at, size }, object.at);
            }
        }
    }
}

/// Frees an object of a class.
pub(in crate::alloc) fn deallocate(place: Place, at: usize, given: usize) {
    if is_early(place.range, at) {
        return push_or_spill(place, at as u64);
    }
    let object = Object { place, at };
    let size = size_of_live(object);
    look_at_size(at, given, size);
    if let Some(wrong) = object.find_other(size, object.room(), SLACK) {
        fault::report(Fault::Behind { at: wrong, size }, at);
    }
    let (live, freed) = (object.word(IS_LIVE, size), object.word(IS_FREED, size));
    // Two threads that free the same object: one of them gets the report (2).
    if object.trailer().compare_exchange(live, freed, R, R).is_err() {
        fault::report(Fault::Twice, at);
    }
    object.fill(0, object.room(), FREED);
    let queue = quarantine::of_this_thread();
    if !queue.push((at as u64, place.shape().size)) {
        return leave(place, at);
    }
    while let Some(at) = queue.overdue() {
        leave_small(place.range, at);
    }
}

/// Does what [`leave`] does, for an item of a queue.
fn leave_small(range: Range, at: u64) {
    if let Some(class) = class_of(at as usize) {
        leave(Place::new(range, class), at as usize);
    }
}

/// Returns the class of an object; `None` if it has none.
fn class_of(object: usize) -> Option<usize> {
    kind_of(object as *mut u8).filter(|kind| (1..=CLASSES).contains(kind))
}

/// Returns the size of an allocated object. Reports a fault if it is not allocated.
fn size_of_live(object: Object) -> usize {
    if !spans::is_out(object.place, object.at) {
        fault::report(Fault::Twice, object.at);
    }
    match object.state() {
        State::Live(size) => size,
        State::Freed(_) => fault::report(Fault::Twice, object.at),
        State::Broken => fault::report(Fault::FarBehind { most: object.room() }, object.at),
    }
}

fn look_at_size(at: usize, given: usize, size: usize) {
    if given != UNKNOWN && given != size {
        fault::report(Fault::Sizes { given, size }, at);
    }
}

/// Checks that an object in quarantine is unchanged (3).
fn look_at_freed(object: Object) {
    let (size, wrong) = match object.state() {
        State::Freed(size) => (size, object.find_other(0, object.room(), FREED)),
        _ => (object.room(), Some(object.room())),
    };
    if let Some(at) = wrong {
        fault::report(Fault::Stale { at, size }, object.at);
    }
}

/// Ends an object's quarantine.
fn leave(place: Place, at: usize) {
    look_at_freed(Object { place, at });
    push_or_spill(place, at as u64);
}

/// Returns the exact size of an object of a class; `None` for other objects, and if it is not known.
pub(in crate::alloc) fn size_of(object: *mut u8) -> Option<usize> {
    let (range, at) = (Range::get()?, object as usize);
    let place = Place::new(range, class_of(at)?);
    (!is_early(range, at)).then(|| size_of_live(Object { place, at }))
}

/// In checking mode (`CORELOCAL_MALLOC=check`), checks all objects in quarantine: one that was written to after it
/// was freed ends the process with a line on stderr. Objects that other threads free at the same time may be skipped.
/// In other modes, does nothing.
pub fn verify() {
    if let Some(range) = Range::get().filter(|_| config::is_checked()) {
        verify_all(range);
    }
}

fn verify_all(range: Range) {
    for queue in quarantine::small() {
        queue.for_each(|(at, _)| {
            if let Some(class) = class_of(at as usize) {
                look_at_freed(Object { place: Place::new(range, class), at: at as usize });
            }
        });
    }
}

/// Allocates a large object; also returns whether all bytes are 0. `None` when out of memory.
#[cold]
pub(in crate::alloc) fn allocate_large(
    range: Range,
    align: usize,
    size: usize,
    is_zeroed: bool,
) -> Option<(*mut u8, bool)> {
    // At least one byte of SLACK.
    let len = size.checked_add(1)?;
    let make = || large::allocate(range, align, len);
    let (object, is_zero) = make().or_else(|| relieve(range).then(make)?)?;
    large::set_usable(range, object, size);
    let at = object as usize;
    let end = size.min(FRESH_ENDS);
    // SAFETY: a new object of `size` bytes and the rest of its last page, which only this function knows.
    unsafe {
        fill(at + size, slack(size), SLACK);
        if !is_zeroed {
            fill(at, end, FRESH);
            fill(at + size - end, end, FRESH);
        }
    }
    Some((object, is_zero && is_zeroed))
}

/// Returns the bytes of SLACK behind a large object.
fn slack(size: usize) -> usize {
    (size + 1).next_multiple_of(PAGE) - size
}

/// Frees an object that has no class.
#[cold]
pub(in crate::alloc) fn deallocate_other(range: Range, object: *mut u8, given: usize) {
    let at = object as usize;
    if kind_of(object) != Some(usize::from(LARGE)) || is_early(range, at) {
        return deallocate_unchecked(object);
    }
    let size = large::usable(range, object);
    look_at_size(at, given, size);
    // SAFETY: the slack of an object that the caller owns.
    if let Some(wrong) = unsafe { find_other(at + size, slack(size), SLACK) } {
        fault::report(Fault::Behind { at: size + wrong, size }, at);
    }
    let (first, chunks) = large::withdraw(range, object);
    // SAFETY: whole chunks of an object that this thread has taken back.
    let is_closed = unsafe { pages::close(object, chunks * CHUNK) };
    if !is_closed {
        return page_heap::release(range, first, chunks);
    }
    // SAFETY: whole chunks of an object that this thread has taken back. After a refusal the memory stays in use
    // while the object waits.
    let _ = unsafe { pages::advise(object, chunks * CHUNK, libc::MADV_DONTNEED) };
    let item = (first | chunks << 32) as u64;
    if !quarantine::LARGE.push((item, chunks * CHUNK)) {
        return leave_large(range, item);
    }
    while let Some(item) = quarantine::LARGE.overdue() {
        leave_large(range, item);
    }
}

/// Ends the quarantine of all objects, to get memory. Returns whether there were any.
#[cold]
fn relieve(range: Range) -> bool {
    let mut count = 0;
    let large = core::iter::from_fn(|| quarantine::LARGE.oldest());
    count += large.map(|item| leave_large(range, item)).count();
    for queue in quarantine::small() {
        let objects = core::iter::from_fn(|| queue.oldest());
        count += objects.map(|at| leave_small(range, at)).count();
    }
    count > 0
}

/// Releases the chunks of a large object. If the kernel refuses to open them, they are lost.
fn leave_large(range: Range, item: u64) {
    let (first, chunks) = (item as u32 as usize, (item >> 32) as usize);
    // SAFETY: whole chunks that only this thread owns.
    if unsafe { pages::open(range.address(first) as *mut u8, chunks * CHUNK) } {
        page_heap::release(range, first, chunks);
    }
}

#[cfg(test)]
mod tests;
