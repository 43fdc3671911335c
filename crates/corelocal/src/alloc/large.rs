//! Large objects: runs of chunks of their own, more than a mebibyte each.
//!
//! A page of them that nobody has written to is no memory, so chunks are rounded up to generously: what an
//! object grows into when it is reallocated is often there already.
//!
//! # Invariants
//! 1. The map says [`LARGE`] of the first chunk and [`INSIDE`] of the others; the first one's record has
//!    their number, and the length that the program may use. Both belong to whoever has the object.

use core::sync::atomic::{AtomicU32, Ordering};

use super::fault::{self, Fault};
use super::range::{CHUNK, INSIDE, LARGE, NOTHING, Range};
use super::store;
use super::{large_state, release};
use crate::sys::page_size::page_size;

const PAGE: usize = 4096;
const R: Ordering = Ordering::Relaxed;

/// An object of at least `size` bytes, aligned to `align`, a power of two; whether it is all zero. `None`
/// without memory.
#[cold]
pub(super) fn allocate(range: Range, align: usize, size: usize) -> Option<(*mut u8, bool)> {
    let chunks = chunks_for(size);
    let run = store::claim(range, chunks, align.div_ceil(CHUNK))?;
    Some((make(range, run.first, chunks, size), run.is_zero))
}

/// An object for one that has grown beyond its place, with room to grow half as much again where that is no memory yet.
/// `again`: it was large before, and may grow step by step: then it goes where there is as much free room behind it,
/// whatever has been there, into which it can be extended.
pub(super) fn allocate_to_grow(range: Range, size: usize, again: bool) -> Option<*mut u8> {
    let chunks = chunks_for(size);
    let room = chunks + chunks / 2;
    if let Some(run) = again.then(|| store::claim(range, room, 1)).flatten() {
        if run.is_zero {
            return Some(make(range, run.first, room, size));
        }
        store::release(range, run.first + chunks, room - chunks);
        return Some(make(range, run.first, chunks, size));
    }
    let (run, with_room) = store::claim_to_grow(range, chunks, room)?;
    Some(make(range, run.first, with_room, size))
}

/// An object in chunks of the caller's.
fn make(range: Range, first: usize, chunks: usize, size: usize) -> *mut u8 {
    let len = size.max(1).next_multiple_of(PAGE);
    range.record(first).sample.store(0, R);
    name(range, first + 1, chunks - 1, INSIDE);
    let header = range.header();
    header.large_chunks.fetch_add(chunks, R);
    header.large_objects.fetch_add(1, R);
    write_down(range, first, chunks, len);
    large_state::give(range.kind(first), LARGE);
    range.address(first) as *mut u8
}

/// Writes down how many chunks an object has, and how many bytes the program may use; counts what is in reserve.
fn write_down(range: Range, first: usize, chunks: usize, len: usize) {
    range.record(first).len.store(len as u64, R);
    range.record(first).chunks.store(chunks as u32, R);
    range.header().reserve_chunks.fetch_add(reserve_of(range, first), R);
}

/// Chunks that an object has beyond those that the program may use.
fn reserve_of(range: Range, first: usize) -> usize {
    let record = range.record(first);
    let (chunks, len) = (record.chunks.load(R) as usize, record.len.load(R) as usize);
    chunks.saturating_sub(len.div_ceil(CHUNK))
}

/// Before what is written down of an object changes.
fn uncount_reserve(range: Range, first: usize) {
    range.header().reserve_chunks.fetch_sub(reserve_of(range, first), R);
}

/// Makes all bytes of an object 0.
///
/// A long one is given back to the kernel for that, but for a last part of a page: of a table that is hardly used only
/// what is used is memory then, and what an earlier object left is not written to only to be zero. (Beyond this length
/// glibc maps each object anew.) Where the kernel keeps it, locked memory for one, it is written to.
///
/// # Safety
/// The caller's, which has so many bytes.
#[cold]
pub(super) unsafe fn zero(range: Range, object: *mut u8, size: usize) {
    /// From here on.
    const LONG: usize = 32 << 20;
    let whole = size - size % page_size();
    // SAFETY: whole pages of the caller's object, whose content is not needed.
    let given = match size >= LONG && unsafe { store::discard(range, object, whole) } {
        true => whole,
        false => 0,
    };
    // SAFETY: the caller's promise.
    unsafe { object.add(given).write_bytes(0, size - given) };
}

fn name(range: Range, first: usize, chunks: usize, kind: u8) {
    (first..first + chunks).for_each(|chunk| range.kind(chunk).store(kind, R));
}

/// The chunks of an object that begins here; the end, if none does.
fn chunks_of(range: Range, object: *mut u8) -> (usize, usize) {
    let first = range.chunk_of(object as usize);
    if range.address(first) != object as usize {
        fault::report(Fault::Misaligned, object as usize);
    }
    (first, range.record(first).chunks.load(R) as usize)
}

/// Gives an object back.
pub(super) fn deallocate(range: Range, object: *mut u8) {
    let (first, chunks) = withdraw(range, object);
    store::release(range, first, chunks);
}

/// Makes an object none: its chunks are the caller's now.
pub(super) fn withdraw(range: Range, object: *mut u8) -> (usize, usize) {
    let (first, _) = chunks_of(range, object);
    // Two threads that free the same object at once: one of them is told.
    if !large_state::take_back(range.kind(first), LARGE, NOTHING) {
        fault::report(Fault::Twice, object as usize);
    }
    // Read by the one who has it alone: to the other one, who is wrong, it may tell of the next object here.
    let chunks = range.record(first).chunks.load(R) as usize;
    uncount_reserve(range, first);
    name(range, first + 1, chunks - 1, NOTHING);
    let header = range.header();
    header.large_chunks.fetch_sub(chunks, R);
    header.large_objects.fetch_sub(1, R);
    (first, chunks)
}

/// Says how many bytes the program may use, at most as many as it was asked for with.
pub(super) fn set_usable(range: Range, object: *mut u8, size: usize) {
    let (first, chunks) = chunks_of(range, object);
    uncount_reserve(range, first);
    write_down(range, first, chunks, size);
}

/// Bytes of an object that the program may use.
pub(super) fn usable(range: Range, object: *mut u8) -> usize {
    let (first, _) = chunks_of(range, object);
    range.record(first).len.load(R) as usize
}

/// The chunks that an object of that size begins with.
pub(super) fn chunks_for(size: usize) -> usize {
    size.max(1).div_ceil(CHUNK)
}

/// Which sample an object is.
pub(super) fn sample_of(range: Range, object: *mut u8) -> &'static AtomicU32 {
    let (first, _) = chunks_of(range, object);
    &range.record(first).sample
}

/// Makes an object longer or shorter where it is; false if there is no room.
pub(super) fn resize(range: Range, object: *mut u8, size: usize) -> bool {
    let (first, chunks) = chunks_of(range, object);
    let Some(len) = size.checked_next_multiple_of(PAGE) else { return false };
    let wanted = len.div_ceil(CHUNK);
    if wanted > chunks && !store::extend(range, first + chunks, wanted - chunks) {
        return false;
    }
    uncount_reserve(range, first);
    let large_chunks = &range.header().large_chunks;
    if wanted > chunks {
        name(range, first + chunks, wanted - chunks, INSIDE);
        large_chunks.fetch_add(wanted - chunks, R);
        write_down(range, first, wanted, len);
        release::after_growth(range);
    } else if wanted < chunks / 2 {
        // Else it may grow again.
        name(range, first + wanted, chunks - wanted, NOTHING);
        large_chunks.fetch_sub(chunks - wanted, R);
        write_down(range, first, wanted, len);
        store::release(range, first + wanted, chunks - wanted);
    } else {
        write_down(range, first, chunks, len);
    }
    true
}
