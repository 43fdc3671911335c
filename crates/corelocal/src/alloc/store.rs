//! The page store: runs of chunks, taken and given back, and memory that goes back to the kernel.
//!
//! A bit for each chunk says that somebody has it. Runs are taken by compare-exchange, the first one that
//! fits, lowest addresses first: so what is in use stays dense, low huge pages full and high ones empty,
//! and no lock can be left held by a fork or waited for by a signal handler. (To fill the fullest huge page first
//! is no better: `store_order.rs`.) Where the range has several stripes (`stripes.rs`) that is so in each.
//!
//! ```text
//!   used:  0 ── claim ──► 1 ── release ──► 0
//!   dirty: 0              0                1 ── claim: whoever gets it knows ──► 0
//!                                          └─── purge: claimed, given to the kernel, released ──► 0
//! ```
//!
//! # Invariants
//! 1. A chunk whose bit in `used` is set belongs to whoever set it. What was done to it before its release
//!    happens before what the next one does (`bits.rs`).
//! 2. A chunk that is neither used nor dirty is all zero.
//! 3. Runs of up to 64 chunks lie within one word of the bitmap, longer ones begin with a word; but for what was cut
//!    out of a longer one to be aligned to more than a word. A run lies in one stripe, unless it is longer, or has grown.
//! 4. Nothing here blocks. A fork leaves at worst chunks that nobody has.

use core::ops;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::bits::{IN_A_WORD, mask};
use super::huge;
use super::nodes;
use super::range::{CHUNK, Range};
use crate::sys::pages;

/// Chunks that belong to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: usize,
    /// All its bytes are 0.
    pub(super) is_zero: bool,
}

/// Chunks of the longest alignment that runs have by themselves; that of the range's beginning.
const ALIGNED: usize = 32;

/// Where runs are looked for.
#[derive(Clone)]
struct Within {
    /// The first words that they may lie in.
    words: ops::Range<usize>,
    /// The node whose hints they are found by; its stripe begins with the first word.
    node: usize,
}

impl Within {
    fn stripe(range: Range, node: usize) -> Within {
        Within::chunks(range.bounds(node), node)
    }

    fn chunks(chunks: ops::Range<usize>, node: usize) -> Within {
        Within { words: chunks.start / IN_A_WORD..chunks.end / IN_A_WORD, node }
    }

    fn hint(&self, range: Range, nth: usize) -> &'static AtomicUsize {
        &range.stripe(self.node).first[nth]
    }
}

/// Takes `chunks` chunks, aligned to `align` of them, a power of two, of the calling thread's node if there are any;
/// `None` without memory.
pub(super) fn claim(range: Range, chunks: usize, align: usize) -> Option<Run> {
    nodes::look(range, chunks);
    let is_of_several = range.nodes() > 1;
    nodes::from_here(range)
        .find_map(|node| claim_within(range, &Within::stripe(range, node), chunks, align))
        .or_else(|| {
            // Longer than any of them has room for.
            let all = Within::chunks(0..range.chunks(), 0);
            if is_of_several { claim_within(range, &all, chunks, align) } else { None }
        })
}

/// [`claim`], of this node alone.
pub(super) fn claim_on(range: Range, node: usize, chunks: usize, align: usize) -> Option<Run> {
    nodes::look(range, chunks);
    claim_within(range, &Within::stripe(range, node), chunks, align)
}

fn claim_within(range: Range, within: &Within, chunks: usize, align: usize) -> Option<Run> {
    if align > ALIGNED {
        return claim_aligned(range, within, chunks, align);
    }
    let first = match chunks {
        0 => return None,
        1..=IN_A_WORD => claim_in_word(range, within, chunks, align)?,
        _ => claim_words(range, within, chunks)?,
    };
    if !range.commit(first..first + chunks) {
        free_bits(range, first, chunks);
        return None;
    }
    raise_high_water(range, first, chunks);
    Some(Run { first, is_zero: take_dirt(range, first, chunks) })
}

fn raise_high_water(range: Range, first: usize, chunks: usize) {
    if range.raise_high_water(first..first + chunks) && huge::is_wanted() {
        range.header().sleeper.wake();
    }
}

/// By way of a longer run, of which the ends go back.
fn claim_aligned(range: Range, within: &Within, chunks: usize, align: usize) -> Option<Run> {
    let longer = claim_within(range, within, chunks.checked_add(align)?, 1)?;
    let address = range.address(longer.first);
    let first = longer.first + (address.next_multiple_of(align * CHUNK) - address) / CHUNK;
    let (before, after) = (first - longer.first, longer.first + align - first);
    // Nobody wrote to them.
    if longer.is_zero {
        free_bits(range, longer.first, before);
        free_bits(range, first + chunks, after);
    } else {
        release(range, longer.first, before);
        release(range, first + chunks, after);
    }
    Some(Run { first, ..longer })
}

/// Takes the chunks that follow a run of the caller's, all or none.
pub(super) fn extend(range: Range, end: usize, more: usize) -> bool {
    if end.checked_add(more).is_none_or(|end| end > range.chunks()) {
        return false;
    }
    nodes::look(range, more);
    let taken = take_bits(range, end, more);
    if taken < more || !range.commit(end..end + more) {
        free_bits(range, end, taken);
        return false;
    }
    raise_high_water(range, end, more);
    take_dirt(range, end, more);
    true
}

/// Gives chunks of the caller's back, which may hold anything.
pub(super) fn release(range: Range, first: usize, chunks: usize) {
    for_each_word(first, chunks, |word, mask| range.words(word).soil(mask));
    range.header().dirty.fetch_add(chunks, Ordering::Relaxed);
    free_bits(range, first, chunks);
    range.header().sleeper.wake();
}

/// Gives free memory back to the kernel, that which lies highest first, until no more than `keep` bytes are
/// dirty; how many bytes that was. `only_aged`: nothing that was used since the last [`age`].
pub(super) fn purge(range: Range, keep: usize, only_aged: bool) -> usize {
    let dirty = &range.header().dirty;
    let mut bytes = 0;
    for word in range.open_words().rev() {
        if dirty.load(Ordering::Relaxed) * CHUNK <= keep {
            break;
        }
        let words = range.words(word);
        let aged = if only_aged { words.aged.load(Ordering::Relaxed) } else { u64::MAX };
        let mut wanted = words.dirty.load(Ordering::Relaxed) & aged;
        while wanted != 0 && dirty.load(Ordering::Relaxed) * CHUNK > keep {
            let bit = wanted.trailing_zeros() as usize;
            let chunks = (wanted >> bit).trailing_ones() as usize;
            let mask = mask(bit, chunks);
            wanted &= !mask;
            bytes += purge_run(range, word, mask, bit, chunks);
        }
    }
    range.header().released.fetch_add(bytes, Ordering::Relaxed);
    bytes
}

fn purge_run(range: Range, word: usize, mask: u64, bit: usize, chunks: usize) -> usize {
    if !range.words(word).take(mask) {
        // Somebody uses it: next time.
        return 0;
    }
    let first = word * IN_A_WORD + bit;
    let at = range.address(first);
    // Before the call, during which a fork may come: its child has lost the chunks, and shall not count on them.
    let dirty = range.words(word).dirty.load(Ordering::Relaxed) & mask;
    take_dirt(range, first, chunks);
    // SAFETY: chunks that belong to us alone now, and hold nothing.
    let is_given = unsafe {
        huge::break_up(range, at, chunks * CHUNK);
        pages::advise(at as *mut u8, chunks * CHUNK, libc::MADV_DONTNEED).is_ok()
    };
    if !is_given {
        range.words(word).soil(dirty);
        range.header().dirty.fetch_add(dirty.count_ones() as usize, Ordering::Relaxed);
    }
    free_bits(range, first, chunks);
    if is_given {
        return chunks * CHUNK;
    }
    // Who looked meanwhile saw less than there is. If it is this thread that sleeps at times, this is but a fence.
    range.header().sleeper.wake();
    0
}

/// What is dirty now is aged from here on, unless it is used meanwhile.
pub(super) fn age(range: Range) {
    range.open_words().for_each(|word| range.words(word).age());
}

/// Chunks of a node that somebody has.
pub(super) fn used(range: Range, node: usize) -> usize {
    let words = Within::chunks(range.open_part(node), node).words;
    words.map(|word| range.words(word).used.load(Ordering::Relaxed).count_ones() as usize).sum()
}

fn for_each_word(first: usize, chunks: usize, mut f: impl FnMut(usize, u64)) {
    let (mut at, end) = (first, first + chunks);
    while at < end {
        let bit = at % IN_A_WORD;
        let count = (IN_A_WORD - bit).min(end - at);
        f(at / IN_A_WORD, mask(bit, count));
        at += count;
    }
}

/// Takes the bits of chunks from the first one on, word by word, until one is not free; how many.
fn take_bits(range: Range, first: usize, chunks: usize) -> usize {
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

fn free_bits(range: Range, first: usize, chunks: usize) {
    for_each_word(first, chunks, |word, mask| range.words(word).free(mask));
    for (node, part) in range.parts_of(first..first + chunks) {
        // Relaxed: hints.
        for hint in &range.stripe(node).first {
            hint.fetch_min(part.start / IN_A_WORD, Ordering::Relaxed);
        }
    }
}

/// Whether the chunks are all zero; whoever has them may make them dirty now.
fn take_dirt(range: Range, first: usize, chunks: usize) -> bool {
    let mut dirt = 0;
    for_each_word(first, chunks, |word, mask| dirt += range.words(word).take_dirt(mask));
    if dirt > 0 {
        range.header().dirty.fetch_sub(dirt, Ordering::Relaxed);
    }
    dirt == 0
}

/// The words in which to look: where there was room the last time, then, lest it be missed, before that,
/// then where nobody was yet.
fn places(range: Range, within: &Within, hint: usize) -> impl Iterator<Item = usize> {
    let ops::Range { start, end } = within.words;
    let hint = hint.clamp(start, end);
    let edge = (range.open_part(within.node).end / IN_A_WORD).clamp(hint, end);
    (hint..edge).chain(start..hint).chain(edge..end)
}

fn claim_in_word(range: Range, within: &Within, chunks: usize, align: usize) -> Option<usize> {
    let hint = within.hint(range, chunks.next_power_of_two().ilog2() as usize);
    let found = places(range, within, hint.load(Ordering::Relaxed))
        .find_map(|nth| range.words(nth).claim(chunks, align).map(|bit| (nth, bit)));
    let (word, bit) = found?;
    hint.store(word, Ordering::Relaxed);
    Some(word * IN_A_WORD + bit)
}

fn claim_words(range: Range, within: &Within, chunks: usize) -> Option<usize> {
    let hint = within.hint(range, 7);
    let ops::Range { start, end } = within.words;
    let seen = hint.load(Ordering::Relaxed);
    let from = (seen.max(start)..end).find(|word| is_free(range, *word)).unwrap_or(end);
    // Relaxed: a hint. A release meanwhile that it does not tell of is found by the second look.
    let _ = hint.compare_exchange(seen, from, Ordering::Relaxed, Ordering::Relaxed);
    claim_words_from(range, from..end, chunks)
        .or_else(|| if from > start { claim_words_from(range, start..end, chunks) } else { None })
}

fn is_free(range: Range, word: usize) -> bool {
    range.words(word).used.load(Ordering::Relaxed) == 0
}

fn claim_words_from(range: Range, within: ops::Range<usize>, chunks: usize) -> Option<usize> {
    let words = chunks.div_ceil(IN_A_WORD);
    let mut at = within.start;
    while at + words <= within.end {
        let mut whole = at..at + chunks / IN_A_WORD;
        // The last one of those in the way: no run begins before it.
        if let Some(in_the_way) = whole.rfind(|word| !is_free(range, *word)) {
            at = in_the_way + 1;
            continue;
        }
        let first = at * IN_A_WORD;
        let taken = take_bits(range, first, chunks);
        if taken == chunks {
            return Some(first);
        }
        free_bits(range, first, taken);
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaled::scaled;
    use std::vec::Vec;

    /// Two releases and a search at once may leave a hint above free words.
    #[test]
    fn room_below_the_hint_is_found() {
        let range = Range::make().unwrap();
        let within = Within::stripe(range, 0);
        within.hint(range, 7).store(within.words.end, Ordering::Relaxed);
        // Wherever: other tests take and release words meanwhile.
        let first = claim_words(range, &within, 2 * IN_A_WORD).expect("room");
        free_bits(range, first, 2 * IN_A_WORD);
    }

    /// Runs are apart from each other and aligned, whoever takes them; and what is not dirty is zero.
    #[test]
    fn runs_belong_to_one() {
        let range = Range::make().unwrap();
        std::thread::scope(|scope| {
            for seed in 1..=4u64 {
                scope.spawn(move || {
                    let mut random = seed;
                    let mut runs: Vec<(usize, usize)> = Vec::new();
                    for _ in 0..scaled(2000).max(200) {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let kind = (random >> 20) as usize;
                        let align = [1, 4, 32, 1, 128][kind % 5];
                        let chunks = if kind % 11 == 0 { 65 + kind % 150 } else { 1 + kind % 64 };
                        let Some(run) = claim(range, chunks, align) else { continue };
                        assert_eq!(range.address(run.first) % (align * CHUNK), 0);
                        for chunk in run.first..run.first + chunks {
                            let word = range.address(chunk) as *mut u64;
                            // SAFETY: the run is ours.
                            unsafe {
                                assert!(!run.is_zero || word.read() == 0);
                                word.write(seed);
                            }
                        }
                        runs.push((run.first, chunks));
                        if runs.len() > 20 {
                            let (first, chunks) = runs.swap_remove(kind % 20);
                            for chunk in first..first + chunks {
                                // SAFETY: likewise.
                                unsafe {
                                    assert_eq!((range.address(chunk) as *mut u64).read(), seed)
                                };
                            }
                            release(range, first, chunks);
                        }
                        if random % 64 == 0 {
                            age(range);
                            purge(range, 0, random % 128 == 0);
                        }
                    }
                    for (first, chunks) in runs {
                        release(range, first, chunks);
                    }
                });
            }
        });
    }

    #[test]
    fn runs_grow_where_there_is_room() {
        let range = Range::make().unwrap();
        let run = claim(range, 200, 1).unwrap();
        // The word that the run ends in has room, unless another test was faster.
        if extend(range, run.first + 200, 10) {
            assert!(range.high_water() >= (run.first + 210) * CHUNK);
            assert!(!extend(range, run.first + 205, 5));
            release(range, run.first + 200, 10);
        }
        assert!(!extend(range, range.chunks() - 1, 2));
        assert!(!extend(range, 5, usize::MAX));
        release(range, run.first, 200);
        assert!(claim(range, range.chunks() + 1, 1).is_none());
        assert!(claim(range, usize::MAX / 2, 1).is_none());
    }
}
