//! Subrelease: pages of sparsely used spans that contain no allocated object go back to the kernel.
//!
//! A span has up to 64 parts, each of at least a page. Parts without allocated objects are given back without holding
//! the class's lock: first their free objects are held, as if they were allocated; then the kernel is called; then
//! the objects are released, under the lock or, if it cannot be had, later (`deferred_spans.rs`).
//!
//! # Invariants
//! 1. During the system call, all objects that overlap the parts are held by the calling thread.
//! 2. A bit in `clean` means that no object of that part has been allocated since it was given back. A bit in
//!    `refused` means the same since the kernel refused the part; that is tried again when all idle memory should go
//!    (`trim`, pressure).

use core::sync::atomic::Ordering;

use super::bits::IN_A_WORD;
use super::class::{FULLNESSES, Shape};
use super::range::{CHUNK, Record};
use super::spans::{Place, Spans};
use super::{huge, page_release};
use crate::sys::page_size::page_size;

const R: Ordering = Ordering::Relaxed;

/// The result of examining spans.
#[derive(Clone, Copy, Default)]
pub(super) struct Look {
    /// Bytes given back.
    pub(super) bytes: usize,
    /// Spans with something to give back that were left alone: they were not idle, or their lock was contended.
    pub(super) left: usize,
}

/// Bytes in a part.
fn part(shape: &Shape) -> usize {
    (shape.chunks * CHUNK / 64).max(page_size())
}

/// The parts that a range of a span overlaps, as a bit set.
pub(super) fn parts_of(shape: &Shape, from: usize, len: usize) -> u64 {
    let (first, last) = (from / part(shape), (from + len - 1) / part(shape));
    (u64::MAX >> (63 - (last - first))) << first
}

/// Objects in this range of a span have been allocated.
#[inline]
pub(super) fn touched(place: Place, record: &Record, from: usize, len: usize) {
    let clean = record.clean.load(R);
    if clean != 0 {
        record.clean.store(clean & !parts_of(place.shape(), from, len), R);
    }
    if record.refused().load(R) != 0 {
        record.refused().fetch_and(!parts_of(place.shape(), from, len), R);
    }
}

/// Parts of a span without allocated objects that are neither clean nor refused. Exact under the class's lock,
/// otherwise an estimate.
fn unused(place: Place, record: &Record) -> u64 {
    let shape = place.shape();
    // Bytes behind the last object are never written to.
    let done = record.clean.load(R) | record.refused().load(R);
    let mut unused = parts_of(shape, 0, shape.capacity * shape.size) & !done;
    for (nth, word) in record.bits.iter().enumerate().take(shape.capacity.div_ceil(IN_A_WORD)) {
        let in_word = (shape.capacity - nth * IN_A_WORD).min(IN_A_WORD);
        // Without the lock, the span may by now be of another class, with more objects.
        let mut out = word.load(R) & (u64::MAX >> (IN_A_WORD - in_word));
        while out != 0 && unused != 0 {
            let index = nth * IN_A_WORD + out.trailing_zeros() as usize;
            unused &= !parts_of(shape, index * shape.size, shape.size);
            out &= out - 1;
        }
    }
    unused
}

/// Whether a span seems to have parts to give back; an estimate without the class's lock.
pub(super) fn seems_worth_it(place: Place, chunk: usize) -> bool {
    unused(place, place.range.record(chunk)) != 0
}

/// The parts of a span to give back, whose objects are held from here on; 0 if it is not worth it. Under the class's
/// lock. `None` with `only_resting` if it may be worth it but the span has changed since the last call.
pub(super) fn begin(spans: &Spans, place: Place, chunk: usize, only_resting: bool) -> Option<u64> {
    // Check again under the class lock: the span may have changed class.
    if usize::from(place.range.kind(chunk).load(R)) != place.class {
        return Some(0);
    }
    let record = place.range.record(chunk);
    let out = record.out.load(R);
    let rests = record.out_seen.load(R) == out;
    record.out_seen.store(out, R);
    // A nearly full span has little to give. A span that is on no list is full, or not published yet.
    let is_thin =
        record.list.load(R) != 0 && place.shape().fullness_of(out as usize) < FULLNESSES - 1;
    if !is_thin {
        return Some(0);
    }
    if only_resting && !rests {
        return None;
    }
    if !only_resting {
        record.refused().store(0, R);
    }
    let parts = unused(place, record);
    if parts != 0 {
        spans.hold(place, chunk, parts);
    }
    Some(parts)
}

/// Gives the parts to the kernel, and returns how many bytes.
///
/// # Safety
/// - The objects in the parts are held by the caller.
pub(super) unsafe fn give_back(place: Place, chunk: usize, parts: u64) -> usize {
    let (start, part) = (place.range.address(chunk), part(place.shape()));
    let (mut left, mut bytes) = (parts, 0);
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let count = (left >> first).trailing_ones() as usize;
        let run = (u64::MAX >> (64 - count)) << first;
        left &= !run;
        let (at, len) = (start + first * part, count * part);
        // SAFETY: whole pages in which all objects are held (1). A refusal leaves them as they are.
        let is_given = unsafe {
            huge::break_up(place.range, at, len);
            page_release::give_back(at as *mut u8, len)
        };
        if is_given {
            bytes += len;
        } else {
            // Atomic: another thread may do the same for other parts. Before the objects are released.
            place.range.record(chunk).refused().fetch_or(run, R);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::class::{CLASSES, shape};

    #[test]
    fn parts() {
        for class in 1..=CLASSES {
            let shape = shape(class);
            let whole = parts_of(shape, 0, shape.chunks * CHUNK);
            assert_eq!(whole.count_ones() as usize * part(shape), shape.chunks * CHUNK);
            let all = (0..shape.capacity).map(|nth| parts_of(shape, nth * shape.size, shape.size));
            assert_eq!(all.fold(0, |all, one| all | one) & !whole, 0);
            assert_eq!((parts_of(shape, 0, 1), parts_of(shape, part(shape) - 1, 2)), (1, 3));
        }
    }
}
