//! Runs of chunks in the bitmaps: their bits, word by word.
//!
//! Invariant: every change is one atomic operation on a word (`layout/bits.rs`); a run of several words changes word by
//! word, and the words before one that is refused stay changed.

use core::ops;
use core::sync::atomic::Ordering;

use crate::alloc::layout::bits::{IN_A_WORD, mask};
use crate::alloc::layout::range::Range;

const R: Ordering = Ordering::Relaxed;

/// Calls `f` with each word of the bitmaps that a run lies in, and the bits of the run there.
pub(super) fn for_each_word(first: usize, chunks: usize, mut f: impl FnMut(usize, u64)) {
    let (mut at, end) = (first, first + chunks);
    while at < end {
        let bit = at % IN_A_WORD;
        let count = (IN_A_WORD - bit).min(end - at);
        f(at / IN_A_WORD, mask(bit, count));
        at += count;
    }
}

/// Claims chunks from the first one on, word by word, until one is not free. Returns how many.
pub(super) fn take_bits(range: Range, first: usize, chunks: usize) -> usize {
    let mut taken = 0;
    while taken < chunks {
        let bit = (first + taken) % IN_A_WORD;
        let count = (IN_A_WORD - bit).min(chunks - taken);
        if !range.words((first + taken) / IN_A_WORD).take(mask(bit, count)) {
            return taken;
        }
        taken += count;
    }
    taken
}

/// Frees chunks of the caller's that are zero or marked, and lowers the search hints.
pub(super) fn free_bits(range: Range, first: usize, chunks: usize) {
    for_each_word(first, chunks, |word, mask| range.words(word).free(mask));
    lower_hints(range, first..first + chunks);
}

/// Lowers the search hints to freed chunks.
fn lower_hints(range: Range, run: ops::Range<usize>) {
    for (node, part) in range.parts_of(run) {
        // Relaxed: hints.
        for hint in &range.stripe(node).first {
            hint.fetch_min(part.start / IN_A_WORD, R);
        }
    }
}

/// Returns `true` if the chunks were all zero; clears their marks. From here on the owner may write to them.
pub(super) fn take_dirt(range: Range, first: usize, chunks: usize) -> bool {
    let (mut dirt, mut kept) = (0, 0);
    for_each_word(first, chunks, |word, mask| {
        dirt += range.words(word).take_dirt(mask);
        kept |= range.words(word).take_kept(mask);
    });
    if dirt > 0 {
        range.header().dirty.fetch_sub(dirt, R);
    }
    dirt == 0 && kept == 0
}

/// Returns which chunks of a word are mapped.
pub(super) fn open(range: Range, word: usize) -> u64 {
    range.opened(word).load(R)
}

/// Returns `true` if a chunk seems free and all zero.
pub(super) fn is_clean(range: Range, chunk: usize) -> bool {
    let words = range.words(chunk / IN_A_WORD);
    let soiled = words.used.load(R) | words.dirty.load(R);
    soiled & mask(chunk % IN_A_WORD, 1) == 0
}
