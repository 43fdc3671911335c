//! Thinning: pages of sparsely used spans that contain no allocated object go back to the kernel.
//!
//! A span has up to 64 parts, each of at least a page. Parts without allocated objects are given back without holding
//! the class's lock: first their free objects are held, as if they were allocated; then the kernel is called; then
//! the objects are released, under the lock or, if it cannot be had, later (`deferred_spans.rs`).
//!
//! # Invariants
//! 1. During the system call, all objects that overlap the parts are held by the calling thread.

use core::sync::atomic::Ordering;

use super::parts::{part, unused};
use super::place::Place;
use super::spans::Spans;
use crate::alloc::layout::class::FULLNESSES;
use crate::alloc::page_heap::{self, huge};

const R: Ordering = Ordering::Relaxed;

/// The result of examining spans.
#[derive(Clone, Copy, Default)]
pub(in crate::alloc) struct Look {
    /// Bytes given back.
    pub(in crate::alloc) bytes: usize,
    /// The chunks of spans with something to give back that were left alone: they were not idle, or their lock was
    /// contended.
    pub(in crate::alloc) left: usize,
}

/// Returns `true` if a span seems to have parts to give back; an estimate without the class's lock.
pub(in crate::alloc) fn seems_worth_it(place: Place, chunk: usize) -> bool {
    unused(place, place.range.record(chunk)) != 0
}

/// Returns the parts of a span to give back, whose objects are held from here on; 0 if it is not worth it. Under the
/// class's lock. `None` with `only_resting` if it may be worth it but the span has changed since the last call.
pub(in crate::alloc) fn begin(
    spans: &Spans,
    place: Place,
    chunk: usize,
    only_resting: bool,
) -> Option<u64> {
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
pub(in crate::alloc) unsafe fn give_back(place: Place, chunk: usize, parts: u64) -> usize {
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
            page_heap::give_back(at as *mut u8, len)
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
