//! Large objects: runs of chunks of their own, more than 1 MiB each.
//!
//! Untouched pages of a run use no memory, so lengths are rounded up generously. An object that grows often finds the
//! room it needs in place.
//!
//! # Invariants
//! 1. The map says [`LARGE`] for the first chunk of an object and [`INSIDE`] for the others. The first chunk's record
//!    has the number of chunks and the length that the program may use. Both belong to the object's owner.

use core::sync::atomic::{AtomicU32, Ordering};

use super::claim::{claim, claim_to_grow, extend};
use super::large_state;
use super::purge::discard;
use super::release::release;
use crate::alloc::fault::{self, Fault};
use crate::alloc::hook;
use crate::alloc::layout::chunk::CHUNK;
use crate::alloc::layout::class::{INSIDE, LARGE, NOTHING};
use crate::alloc::layout::range::{Range, kind_of};
use crate::sys::memory::page_size::page_size;

const PAGE: usize = 4096;
const R: Ordering = Ordering::Relaxed;

/// Allocates at least `size` bytes, aligned to `align`, a power of two. Also returns whether all bytes are 0. `None`
/// when out of memory.
#[cold]
pub(in crate::alloc) fn allocate(
    range: Range,
    align: usize,
    size: usize,
) -> Option<(*mut u8, bool)> {
    let chunks = chunks_for(size);
    let run = claim(range, chunks, align.div_ceil(CHUNK))?;
    Some((make(range, run.first, chunks, size), run.is_zero))
}

/// Allocates for an object that outgrew its place, with room to grow by another half as long as that room is
/// untouched. With `again`, the object was large before and probably grows step by step: then a place is preferred
/// that has this much free room behind it, touched or not.
pub(in crate::alloc) fn allocate_to_grow(
    range: Range,
    size: usize,
    again: bool,
) -> Option<*mut u8> {
    let chunks = chunks_for(size);
    let room = chunks + chunks / 2;
    if let Some(run) = again.then(|| claim(range, room, 1)).flatten() {
        if run.is_zero {
            return Some(make(range, run.first, room, size));
        }
        release(range, run.first + chunks, room - chunks);
        return Some(make(range, run.first, chunks, size));
    }
    let (run, with_room) = claim_to_grow(range, chunks, room)?;
    Some(make(range, run.first, with_room, size))
}

/// Makes an object from chunks of the caller's.
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

/// Records an object's number of chunks and usable bytes, and counts its reserve.
fn write_down(range: Range, first: usize, chunks: usize, len: usize) {
    range.record(first).len.store(len as u64, R);
    range.record(first).chunks.store(chunks as u32, R);
    range.header().reserve_chunks.fetch_add(reserve_of(range, first), R);
}

/// Returns the chunks of an object beyond its usable bytes.
fn reserve_of(range: Range, first: usize) -> usize {
    let record = range.record(first);
    let (chunks, len) = (record.chunks.load(R) as usize, record.len.load(R) as usize);
    chunks.saturating_sub(len.div_ceil(CHUNK))
}

/// To be called before an object's record changes.
fn uncount_reserve(range: Range, first: usize) {
    range.header().reserve_chunks.fetch_sub(reserve_of(range, first), R);
}

/// Zeroes an object.
///
/// A long object is given back to the kernel instead, except for a partial last page. A sparsely used table then uses
/// memory only where it is touched, and leftovers of an earlier object need not be written to. (Beyond this length
/// glibc maps each object anew.) If the kernel refuses, for locked memory say, the object is written to.
///
/// # Safety
/// - The object belongs to the caller alone.
/// - It has at least `size` bytes.
#[cold]
pub(in crate::alloc) unsafe fn zero(range: Range, object: *mut u8, size: usize) {
    /// From this length on the kernel is asked.
    const LONG: usize = 32 << 20;
    let whole = size - size % page_size();
    // SAFETY: whole pages of the caller's object, whose content is not needed.
    let given = match size >= LONG && unsafe { discard(range, object, whole) } {
        true => whole,
        false => 0,
    };
    // SAFETY: the caller's object has `size` bytes.
    unsafe { object.add(given).write_bytes(0, size - given) };
}

fn name(range: Range, first: usize, chunks: usize, kind: u8) {
    (first..first + chunks).for_each(|chunk| range.kind(chunk).store(kind, R));
}

/// Returns the first chunk of an object and their number. Reports a fault if no object begins at the address.
fn chunks_of(range: Range, object: *mut u8) -> (usize, usize) {
    let first = range.chunk_of(object as usize);
    if range.address(first) != object as usize {
        fault::report(Fault::Misaligned, object as usize);
    }
    (first, range.record(first).chunks.load(R) as usize)
}

/// Frees an object.
pub(in crate::alloc) fn deallocate(range: Range, object: *mut u8) {
    let (first, chunks) = withdraw(range, object);
    release(range, first, chunks);
}

/// Takes an object back, without freeing its chunks: they belong to the caller now.
pub(in crate::alloc) fn withdraw(range: Range, object: *mut u8) -> (usize, usize) {
    let (first, _) = chunks_of(range, object);
    // Two threads that free the same object: one of them gets the report.
    if !large_state::take_back(range.kind(first), LARGE, NOTHING) {
        fault::report(Fault::Twice, object as usize);
    }
    // Read by the thread that succeeded. The other thread, which is at fault, might read the record of the next
    // object here.
    let chunks = range.record(first).chunks.load(R) as usize;
    uncount_reserve(range, first);
    name(range, first + 1, chunks - 1, NOTHING);
    let header = range.header();
    header.large_chunks.fetch_sub(chunks, R);
    header.large_objects.fetch_sub(1, R);
    (first, chunks)
}

/// Sets the usable bytes, to at most the size that the object was allocated with.
pub(in crate::alloc) fn set_usable(range: Range, object: *mut u8, size: usize) {
    let (first, chunks) = chunks_of(range, object);
    uncount_reserve(range, first);
    write_down(range, first, chunks, size);
}

/// Returns the bytes of an object that the program may use.
pub(in crate::alloc) fn usable(range: Range, object: *mut u8) -> usize {
    let (first, _) = chunks_of(range, object);
    range.record(first).len.load(R) as usize
}

/// Returns the number of chunks that an object of this size needs.
pub(in crate::alloc) fn chunks_for(size: usize) -> usize {
    size.max(1).div_ceil(CHUNK)
}

/// Returns the number of an object's sample.
pub(in crate::alloc) fn sample_of(range: Range, object: *mut u8) -> &'static AtomicU32 {
    let (first, _) = chunks_of(range, object);
    &range.record(first).sample
}

/// Grows or shrinks an object in place; false if there is no room.
pub(in crate::alloc) fn resize(range: Range, object: *mut u8, size: usize) -> bool {
    let (first, chunks) = chunks_of(range, object);
    let Some(len) = size.checked_next_multiple_of(PAGE) else { return false };
    let wanted = len.div_ceil(CHUNK);
    if wanted > chunks && !extend(range, first + chunks, wanted - chunks) {
        return false;
    }
    uncount_reserve(range, first);
    let large_chunks = &range.header().large_chunks;
    if wanted > chunks {
        name(range, first + chunks, wanted - chunks, INSIDE);
        large_chunks.fetch_add(wanted - chunks, R);
        write_down(range, first, wanted, len);
        hook::after_growth(range);
    } else if wanted < chunks / 2 {
        // Otherwise the object keeps the chunks, since it may grow again.
        name(range, first + wanted, chunks - wanted, NOTHING);
        large_chunks.fetch_sub(chunks - wanted, R);
        write_down(range, first, wanted, len);
        release(range, first + wanted, chunks - wanted);
    } else {
        write_down(range, first, chunks, len);
    }
    true
}

/// Frees a pointer that is not an object of a size class.
#[cold]
pub(in crate::alloc) fn deallocate_other(ptr: *mut u8) {
    match (Range::get(), kind_of(ptr).map(|kind| kind as u8)) {
        (Some(range), Some(LARGE)) => {
            deallocate(range, ptr);
            hook::after_giving(range);
        }
        (_, Some(INSIDE)) => fault::report(Fault::Misaligned, ptr as usize),
        (_, None) => deallocate_foreign(ptr),
        _ => fault::report(Fault::Twice, ptr as usize),
    }
}

/// Reports a pointer that is not from this malloc. Does nothing if it is null.
#[cold]
#[inline(never)]
pub(in crate::alloc) extern "C" fn deallocate_foreign(ptr: *mut u8) {
    if !ptr.is_null() {
        fault::report(Fault::Foreign, ptr as usize);
    }
}
