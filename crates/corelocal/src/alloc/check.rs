//! Every object with canaries about it, for programs that are looked at: `check` in `CORELOCAL_MALLOC`.
//!
//! ```text
//!   │ the object, as long as was asked for │ SLACK SLACK … │ trailer │      the place of a class
//!     at first: FRESH bytes                                  the last 8 bytes
//!     once it is freed: FREED bytes, up to the trailer
//! ```
//! The trailer has the object's exact size, and whether it is free, mixed with its address, its span's generation and
//! a secret of the process. What is freed is looked at: bytes behind its end that are not as they were were written to. It
//! waits in a queue (`quarantine.rs`) and is looked at again when it leaves that, and when it is given out: bytes
//! that are not FREED then were written to by somebody who did not have it any more.
//!
//! A large object has its size in its record, and SLACK up to the end of its last page. Once it is freed its
//! pages are the kernel's, and nobody may touch them as long as it waits.
//!
//! # Invariants
//! 1. An object of a class that a program has has a live trailer, but for those of [`EARLY`] chunks.
//! 2. The step of a trailer from live to freed belongs to one caller.
//! 3. Nothing of an object in quarantine changes, so it is FREED and has a trailer that says so.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::class::{self, CLASSES};
use super::fault::{self, Fault};
use super::random::{self, mix};
use super::range::{CHUNK, LARGE, Range, kind_of};
use super::spans::{self, Place};
use super::{UNKNOWN, debug, front, large, quarantine, store};
use crate::sys::pages;

/// Bytes of the trailer.
const TRAILER: usize = 8;
const SLACK: u8 = 0xc5;
const FRESH: u8 = 0xa5;
const FREED: u8 = 0xdf;
/// The upper halves of trailers.
const IS_LIVE: u64 = 0x4c49_5645;
const IS_FREED: u64 = 0x4652_4545;
const PAGE: usize = 4096;
/// Bytes at both ends of a large object that are FRESH: of more than these a program that leaves them alone would
/// need the memory.
const FRESH_ENDS: usize = 1 << 16;

const R: Ordering = Ordering::Relaxed;

/// Objects in chunks below this one may be from before it was known that the process checks: nothing is known of
/// them. What is free there is given to nobody.
static EARLY: AtomicUsize = AtomicUsize::new(UNSET);
const UNSET: usize = usize::MAX;

/// The process checks from here on.
#[cold]
pub(super) fn begin() {
    let used = Range::get().map_or(0, |range| range.high_water() / CHUNK);
    // Relaxed: `debug.rs` orders it. The first one tells, since others may be late.
    let _ = EARLY.compare_exchange(UNSET, used, R, R);
}

fn is_early(range: Range, object: usize) -> bool {
    let early = EARLY.load(R);
    early != UNSET && range.chunk_of(object) < early
}

/// The places for objects of a size, with their trailers; `None` if that is large.
pub(super) fn place(range: Range, align: usize, size: usize) -> Option<Place> {
    class::of_aligned(align, size + TRAILER).map(|class| Place::new(range, class))
}

/// What a trailer says.
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
    /// Where the trailer begins.
    fn room(self) -> usize {
        self.place.shape().size - TRAILER
    }

    fn trailer(self) -> &'static AtomicU64 {
        let at = core::ptr::with_exposed_provenance::<AtomicU64>(self.at + self.room());
        // SAFETY: within an object of the class, aligned, as its size is a multiple of 16. A word of any value.
        unsafe { &*at }
    }

    /// Mixed with the generation of the span, too: so what an earlier one has left there is no trailer.
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

    /// The first one of bytes `from..to` that is not `byte`.
    fn find_other(self, from: usize, to: usize, byte: u8) -> Option<usize> {
        // SAFETY: within the object.
        unsafe { find_other(self.at + from, to - from, byte) }.map(|at| from + at)
    }

    /// Fills bytes `from..to`.
    fn fill(self, from: usize, to: usize, byte: u8) {
        // SAFETY: within the object, which is the caller's.
        unsafe { fill(self.at + from, to - from, byte) };
    }
}

/// # Safety
/// So many bytes may be written to there.
unsafe fn fill(at: usize, len: usize, byte: u8) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::with_exposed_provenance_mut::<u8>(at).write_bytes(byte, len) };
}

/// # Safety
/// So many bytes can be read there.
pub(super) unsafe fn find_other(at: usize, len: usize, byte: u8) -> Option<usize> {
    // SAFETY: the caller's promise. A program that is wrong may write to them meanwhile: then either is right.
    let bytes =
        unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<u8>(at), len) };
    let (first, others) = bytes.split_first()?;
    // Each is as the one before it: libc compares faster than a loop that looks for the one that is not.
    if *first == byte && others == &bytes[..len - 1] {
        return None;
    }
    bytes.iter().position(|one| *one != byte)
}

/// An object of a place's class; `None` without memory.
pub(super) fn allocate(place: Place, size: usize) -> Option<u64> {
    let pop = || {
        let objects = core::iter::from_fn(|| front::pop_or_refill(place));
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

/// Looks at an object that is about to be given out, if it is one that was freed and that nothing here has changed
/// since: but for its first word (`central.rs`), or for whole pages (`subrelease.rs`), and so for those of several pages.
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

/// Gives an object of a class back.
pub(super) fn deallocate(place: Place, at: usize, given: usize) {
    if is_early(place.range, at) {
        return front::push_or_spill(place, at as u64);
    }
    let object = Object { place, at };
    let size = size_of_live(object);
    look_at_size(at, given, size);
    if let Some(wrong) = object.find_other(size, object.room(), SLACK) {
        fault::report(Fault::Behind { at: wrong, size }, at);
    }
    let (live, freed) = (object.word(IS_LIVE, size), object.word(IS_FREED, size));
    // Two threads that free the same object at once: one of them is told (2).
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

/// [`leave`] of an item of a queue.
fn leave_small(range: Range, at: u64) {
    if let Some(class) = class_of(at as usize) {
        leave(Place::new(range, class), at as usize);
    }
}

/// The class of an object, if it has one.
fn class_of(object: usize) -> Option<usize> {
    kind_of(object as *mut u8).filter(|kind| (1..=CLASSES).contains(kind))
}

/// The size of an object that a program has; the end, if it has it not.
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

/// An object in quarantine, or on its way out, is as it was left (3).
fn look_at_freed(object: Object) {
    let (size, wrong) = match object.state() {
        State::Freed(size) => (size, object.find_other(0, object.room(), FREED)),
        _ => (object.room(), Some(object.room())),
    };
    if let Some(at) = wrong {
        fault::report(Fault::Stale { at, size }, object.at);
    }
}

/// An object goes back to where all are.
fn leave(place: Place, at: usize) {
    look_at_freed(Object { place, at });
    front::push_or_spill(place, at as u64);
}

/// The size that was asked for, of an object of a class; `None` of others, and if it is not known.
pub(super) fn size_of(object: *mut u8) -> Option<usize> {
    let (range, at) = (Range::get()?, object as usize);
    let place = Place::new(range, class_of(at)?);
    (!is_early(range, at)).then(|| size_of_live(Object { place, at }))
}

/// Puts a batch from the store in any order.
pub(super) fn shuffle(batch: &mut [u64]) {
    random::shuffle(batch);
}

/// Looks at all objects that wait in quarantine, in a process that checks, as `check` in `CORELOCAL_MALLOC` makes
/// it: one that was written to after it was freed ends the process with a line on stderr. What other threads free
/// meanwhile may not be looked at. Else nothing happens.
pub fn verify() {
    if let Some(range) = Range::get().filter(|_| debug::is_checked()) {
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

/// A large object; whether it is all zero. `None` without memory.
#[cold]
pub(super) fn allocate_large(
    range: Range,
    align: usize,
    size: usize,
    is_zeroed: bool,
) -> Option<(*mut u8, bool)> {
    // A byte of SLACK at least.
    let len = size.checked_add(1)?;
    let make = || large::allocate(range, align, len);
    let (object, is_zero) = make().or_else(|| relieve(range).then(make)?)?;
    large::set_usable(range, object, size);
    let at = object as usize;
    let end = size.min(FRESH_ENDS);
    // SAFETY: an object of so many bytes, and the rest of their last page, nobody else's.
    unsafe {
        fill(at + size, slack(size), SLACK);
        if !is_zeroed {
            fill(at, end, FRESH);
            fill(at + size - end, end, FRESH);
        }
    }
    Some((object, is_zero && is_zeroed))
}

/// Bytes of SLACK behind a large object.
fn slack(size: usize) -> usize {
    (size + 1).next_multiple_of(PAGE) - size
}

/// Gives what is no object of a class back.
#[cold]
pub(super) fn deallocate_other(range: Range, object: *mut u8, given: usize) {
    let at = object as usize;
    if kind_of(object) != Some(usize::from(LARGE)) || is_early(range, at) {
        return super::deallocate_other(object);
    }
    let size = large::usable(range, object);
    look_at_size(at, given, size);
    // SAFETY: as long as the object has it, which is the caller's.
    if let Some(wrong) = unsafe { find_other(at + size, slack(size), SLACK) } {
        fault::report(Fault::Behind { at: size + wrong, size }, at);
    }
    let (first, chunks) = large::withdraw(range, object);
    // SAFETY: chunks of nobody else's.
    let is_closed = unsafe { pages::close(object, chunks * CHUNK) };
    if !is_closed {
        return store::release(range, first, chunks);
    }
    // SAFETY: likewise. Refused, the memory stays ours as long as it waits.
    let _ = unsafe { pages::advise(object, chunks * CHUNK, libc::MADV_DONTNEED) };
    let item = (first | chunks << 32) as u64;
    if !quarantine::LARGE.push((item, chunks * CHUNK)) {
        return leave_large(range, item);
    }
    while let Some(item) = quarantine::LARGE.overdue() {
        leave_large(range, item);
    }
}

/// Ends the quarantine of all objects, where there is no memory else; whether there were any.
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

/// The chunks of a large object go back. If the kernel refuses, nobody gets them.
fn leave_large(range: Range, item: u64) {
    let (first, chunks) = (item as u32 as usize, (item >> 32) as usize);
    // SAFETY: whole chunks.
    if unsafe { pages::open(range.address(first) as *mut u8, chunks * CHUNK) } {
        store::release(range, first, chunks);
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
