//! The release of runs, and their return to the address space near a limit.
//!
//! A process that has reached a limit (`RLIMIT_AS`, locked memory) needs address space for stacks and files, too, and
//! nothing asks this malloc for it. So once the kernel has refused memory, long runs are unmapped as they are released,
//! until a quarter of what was mapped then is not.
//!
//! Invariant: chunks are unmapped by the thread that owns them, before it frees them.

use core::ops;
use core::sync::atomic::Ordering;

use super::runs::{for_each_word, free_bits, open};
use crate::alloc::layout::bits::{IN_A_WORD, mask};
use crate::alloc::layout::chunk::CHUNK;
use crate::alloc::layout::range::Range;

/// The shortest run that is unmapped when a limit is near: 1 MiB.
const SHORT: usize = 16;
/// The most chunks that are unmapped in one call: 64 MiB.
pub(super) const MOST_CLOSED: usize = 1 << 10;

const R: Ordering = Ordering::Relaxed;

/// Releases chunks of the caller's, whose content may be anything.
pub(in crate::alloc) fn release(range: Range, first: usize, chunks: usize) {
    if chunks >= SHORT && is_short(range) && close_taken(range, first..first + chunks).is_some() {
        range.header().released.fetch_add(chunks * CHUNK, R);
        return;
    }
    for_each_word(first, chunks, |word, mask| range.words(word).soil(mask));
    range.header().dirty.fetch_add(chunks, R);
    free_bits(range, first, chunks);
    range.header().sleeper.wake();
}

/// Unmaps chunks of the caller's. Returns how many of their bytes may not have been zero.
pub(super) fn close_taken(range: Range, run: ops::Range<usize>) -> Option<usize> {
    let mut dirt = 0;
    for_each_word(run.start, run.len(), |word, mask| {
        dirt += range.words(word).take_dirt(mask);
        range.words(word).take_kept(mask);
    });
    range.header().dirty.fetch_sub(dirt, R);
    // SAFETY: chunks that only this thread owns, and whose content is not needed.
    let is_closed = unsafe { range.close(run.clone()) };
    if !is_closed {
        // What was kept is not known any more: treat all mapped chunks as dirty.
        for_each_word(run.start, run.len(), |word, mask| {
            let dirty = mask & open(range, word);
            range.words(word).soil(dirty);
            range.header().dirty.fetch_add(dirty.count_ones() as usize, R);
        });
    }
    free_bits(range, run.start, run.len());
    is_closed.then_some(dirt * CHUNK)
}

/// Notes that the kernel refuses memory. A request for far more than the process has says nothing of what is left.
pub(super) fn note_refusal(range: Range, chunks: usize) {
    let header = range.header();
    let opened = header.opened.load(R);
    if chunks <= opened / 4 {
        // Relaxed: a hint.
        header.refused_at.store(opened, R);
    }
}

/// Returns `true` if a limit is near: the kernel has refused memory, and most of what was mapped then is mapped still.
/// Not if more is mapped by now, so the limit was raised.
fn is_short(range: Range) -> bool {
    let refused_at = range.header().refused_at.load(R);
    refused_at != 0 && {
        let opened = range.header().opened.load(R);
        opened > refused_at / 4 * 3 && opened <= refused_at / 4 * 5
    }
}

/// Unmaps all free chunks, so that a run of `chunks` chunks can be mapped elsewhere. Returns whether there were
/// enough to be of help.
#[cold]
pub(super) fn close_free(range: Range, chunks: usize) -> bool {
    let free = |word| open(range, word) & !range.words(word).used.load(R);
    let all: usize = range.known_words().map(|word| free(word).count_ones() as usize).sum();
    // Most refused runs are either slightly longer than what is left, or far too long.
    if all < chunks / 16 {
        return false;
    }
    let mut closed = Closed { range, taken: 0..0, runs: 0, bytes: 0 };
    for word in range.known_words() {
        let mut free = free(word);
        while free != 0 {
            let bit = free.trailing_zeros() as usize;
            let count = (free >> bit).trailing_ones() as usize;
            free &= !mask(bit, count);
            if range.words(word).take(mask(bit, count)) {
                closed.add(word * IN_A_WORD + bit, count);
            }
        }
    }
    closed.close();
    range.header().released.fetch_add(closed.bytes, R);
    closed.runs > 0
}

/// Collects claimed runs to unmap, and joins neighbours.
struct Closed {
    range: Range,
    /// Claimed, and not yet unmapped.
    taken: ops::Range<usize>,
    /// Number of runs unmapped, and their bytes that may not have been zero.
    runs: usize,
    bytes: usize,
}

impl Closed {
    /// Adds a run of the caller's, which lies behind all runs added before.
    fn add(&mut self, first: usize, chunks: usize) {
        if self.taken.end != first || self.taken.len() >= MOST_CLOSED {
            self.close();
            self.taken = first..first;
        }
        self.taken.end += chunks;
    }

    fn close(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        if let Some(bytes) = close_taken(self.range, core::mem::take(&mut self.taken)) {
            self.runs += 1;
            self.bytes += bytes;
        }
    }
}
