//! The return of dirty chunks to the kernel, highest addresses first.
//!
//! Invariant: chunks are given back by the thread that has claimed them, and their marks are cleared before the call.

use core::sync::atomic::Ordering;

use super::release::{MOST_CLOSED, close_taken};
use super::runs::{free_bits, take_dirt};
use super::{give_back, huge};
use crate::alloc::layout::bits::{IN_A_WORD, mask};
use crate::alloc::layout::chunk::CHUNK;
use crate::alloc::layout::range::Range;

const R: Ordering = Ordering::Relaxed;

/// Gives dirty memory back to the kernel, highest addresses first, until at most `keep` bytes are dirty. Returns how
/// many bytes. With `only_aged`, only chunks that have been dirty since the last [`age`].
pub(in crate::alloc) fn purge(range: Range, keep: usize, only_aged: bool) -> usize {
    let dirty = &range.header().dirty;
    let mut bytes = 0;
    for word in range.known_words().rev() {
        if dirty.load(R) * CHUNK <= keep {
            break;
        }
        let words = range.words(word);
        let aged = if only_aged { words.aged.load(R) } else { u64::MAX };
        let mut wanted = words.dirty.load(R) & aged;
        if let Some(closed) = close_from(range, word, keep, only_aged) {
            bytes += closed;
            continue;
        }
        while wanted != 0 && dirty.load(R) * CHUNK > keep {
            let bit = wanted.trailing_zeros() as usize;
            let chunks = (wanted >> bit).trailing_ones() as usize;
            let mask = mask(bit, chunks);
            wanted &= !mask;
            bytes += purge_run(range, word, mask, bit, chunks);
        }
    }
    range.header().released.fetch_add(bytes, R);
    bytes
}

/// Returns `true` if all chunks of a word are free, and all dirty ones may be given back.
fn is_closable(range: Range, word: usize, only_aged: bool) -> bool {
    let words = range.words(word);
    let dirty = words.dirty.load(R);
    let aged = if only_aged { words.aged.load(R) } else { u64::MAX };
    dirty != 0 && dirty & !aged == 0 && words.used.load(R) == 0
}

/// Unmaps all chunks of a word if they are free, together with free words before it, until at most `keep` bytes are
/// dirty. Returns how many of the bytes may not have been zero.
fn close_from(range: Range, word: usize, keep: usize, only_aged: bool) -> Option<usize> {
    let dirty = range.header().dirty.load(R);
    let (end, mut left) = (word + 1, dirty.saturating_sub(keep / CHUNK));
    let mut first = end;
    while first > 0 && left > 0 && (end - first) * IN_A_WORD < MOST_CLOSED {
        let words = range.words(first - 1);
        if !is_closable(range, first - 1, only_aged) || !words.take(u64::MAX) {
            break;
        }
        first -= 1;
        left = left.saturating_sub(words.dirty.load(R).count_ones() as usize);
    }
    if first == end {
        return None;
    }
    close_taken(range, first * IN_A_WORD..end * IN_A_WORD)
}

fn purge_run(range: Range, word: usize, mask: u64, bit: usize, chunks: usize) -> usize {
    if !range.words(word).take(mask) {
        // Another thread has claimed a chunk: purge it next time.
        return 0;
    }
    let first = word * IN_A_WORD + bit;
    // SAFETY: chunks that only this thread owns, and whose content is not needed.
    let is_given = unsafe { give_back_taken(range, first, chunks) };
    free_bits(range, first, chunks);
    if is_given { chunks * CHUNK } else { 0 }
}

/// Gives the memory of chunks of one word back to the kernel. If it refuses, the chunks are marked as kept.
///
/// # Safety
/// - The chunks belong to the caller alone.
/// - Their content is not needed.
pub(super) unsafe fn give_back_taken(range: Range, first: usize, chunks: usize) -> bool {
    let (word, bit) = (first / IN_A_WORD, first % IN_A_WORD);
    let (words, mask) = (range.words(word), mask(bit, chunks));
    let at = range.address(first);
    // Clear the marks before the call: a fork may come during it, and the child, which has lost these chunks, must
    // not count them. Chunks that the kernel refused to take earlier count as dirty.
    let dirty = (words.dirty.load(R) | words.kept.load(R)) & mask;
    take_dirt(range, first, chunks);
    // SAFETY: whole chunks that the caller alone owns, whose content is not needed.
    let is_given = unsafe { discard(range, at as *mut u8, chunks * CHUNK) };
    if !is_given {
        words.keep(dirty);
    }
    is_given
}

/// Gives memory inside an object back to the kernel. It still belongs to the caller, and is 0 then. False if the
/// kernel refuses.
///
/// # Safety
/// - Whole pages of an object of the caller's.
/// - Their content is not needed.
pub(in crate::alloc) unsafe fn discard(range: Range, at: *mut u8, len: usize) -> bool {
    // SAFETY: whole pages of the caller's, whose content is not needed.
    unsafe {
        huge::break_up(range, at as usize, len);
        give_back::give_back(at, len)
    }
}

/// Makes kept chunks dirty again, so that they are tried once more.
pub(in crate::alloc) fn retry_kept(range: Range) {
    for word in range.known_words() {
        let words = range.words(word);
        let kept = words.kept.load(R);
        if kept != 0 && words.take(kept) {
            let kept_still = words.take_kept(kept);
            words.soil(kept_still);
            range.header().dirty.fetch_add(kept_still.count_ones() as usize, R);
            words.free(kept);
        }
    }
    give_back::forget();
}

/// Marks all dirty chunks as aged, until they are used again.
pub(in crate::alloc) fn age(range: Range) {
    range.known_words().for_each(|word| range.words(word).age());
}
