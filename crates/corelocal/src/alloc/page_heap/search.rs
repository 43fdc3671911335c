//! The search for a free run, first fit from the lowest address on.
//!
//! Runs of fewer than 16 chunks lie within one word of the bitmap, runs of up to 64 in one or two words, and longer
//! ones begin at a word. Each length has a hint at which the search begins.
//!
//! Invariant: what is found here has been claimed, and may not be mapped yet.

use core::ops;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::runs::{free_bits, take_bits};
use crate::alloc::layout::address_range;
use crate::alloc::layout::bits::IN_A_WORD;
use crate::alloc::layout::chunk::{CHUNK, IN_A_GROUP};
use crate::alloc::layout::range::Range;
use crate::sys::memory::page_size::page_size;
use crate::sys::memory::pages::{self, Ground};

/// The number of gaps a search tries that other threads claim first.
const TRIES: usize = 3;
/// The number of words that are searched for a gap: 2 GiB.
const LOOKED_AT: usize = 512;

const R: Ordering = Ordering::Relaxed;

/// The part of the address range in which a run is searched.
#[derive(Clone)]
pub(super) struct Within {
    /// The words in which a run may begin.
    pub(super) words: ops::Range<usize>,
    /// The node whose hints are used; its part of the range begins with the first word.
    pub(super) node: usize,
}

impl Within {
    pub(super) fn stripe(range: Range, node: usize) -> Within {
        Within::chunks(range.bounds(node), node)
    }

    pub(super) fn chunks(chunks: ops::Range<usize>, node: usize) -> Within {
        Within { words: chunks.start / IN_A_WORD..chunks.end / IN_A_WORD, node }
    }

    pub(super) fn hint(&self, range: Range, nth: usize) -> &'static AtomicUsize {
        &range.stripe(self.node).first[nth]
    }
}

/// The reason why no run was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRun {
    /// The range has no such addresses left.
    NoRoom,
    /// The kernel refuses to map more.
    Refused,
}

/// Returns the words to search: from the hint to the highest known word, then the words before the hint, then unused
/// ones.
fn places(range: Range, within: &Within, hint: usize) -> impl Iterator<Item = usize> {
    let ops::Range { start, end } = within.words;
    let hint = hint.clamp(start, end);
    let edge = (range.known_part(within.node).end / IN_A_WORD).clamp(hint, end);
    (hint..edge).chain(start..hint).chain(edge..end)
}

pub(super) fn claim_in_word(
    range: Range,
    within: &Within,
    chunks: usize,
    align: usize,
) -> Result<usize, NoRun> {
    let hint = within.hint(range, chunks.next_power_of_two().ilog2() as usize);
    for word in places(range, within, hint.load(R)) {
        if !range.know(word * IN_A_WORD..(word + 1) * IN_A_WORD) {
            return Err(NoRun::Refused);
        }
        if let Some(bit) = range.words(word).claim(chunks, align) {
            hint.store(word, R);
            return Ok(word * IN_A_WORD + bit);
        }
    }
    Err(NoRun::NoRoom)
}

/// Claims a run of up to one word's chunks. Prefers words in use, and gaps across two words: objects slightly larger
/// than 2 MiB would otherwise leave almost half of each word unused.
pub(super) fn claim_in_gap(range: Range, within: &Within, chunks: usize) -> Result<usize, NoRun> {
    let hint = within.hint(range, chunks.next_power_of_two().ilog2() as usize);
    let end = (range.known_part(within.node).end / IN_A_WORD).min(within.words.end);
    // Another thread may claim the gap first.
    for _ in 0..TRIES {
        // From the beginning if that is near enough, otherwise from where a run of about this length was found last.
        let is_near = end.saturating_sub(within.words.start) <= LOOKED_AT;
        let start = if is_near { 0 } else { hint.load(R) };
        let start = start.clamp(within.words.start, end);
        let gaps = Gaps::new(range, start..end.min(start + LOOKED_AT));
        let mut tightest = None::<ops::Range<usize>>;
        for gap in gaps.filter(|gap| gap.len() >= chunks) {
            if tightest.as_ref().is_none_or(|it| gap.len() < it.len()) {
                tightest = Some(gap);
            }
            if tightest.as_ref().is_some_and(|it| it.len() == chunks) {
                break;
            }
        }
        let Some(gap) = tightest else { break };
        let taken = take_bits(range, gap.start, chunks);
        if taken == chunks {
            return Ok(gap.start);
        }
        free_bits(range, gap.start, taken);
    }
    claim_in_word(range, within, chunks, 1)
}

/// Iterates over runs of free chunks between used ones, in ascending order.
struct Gaps {
    range: Range,
    words: ops::Range<usize>,
    /// The used bits of the first word of `words`, and the position in it of the next gap.
    used: u64,
    at: usize,
}

impl Gaps {
    fn new(range: Range, words: ops::Range<usize>) -> Gaps {
        let mut gaps = Gaps { range, words, used: 0, at: 0 };
        gaps.look();
        gaps
    }

    fn look(&mut self) {
        if !self.words.is_empty() {
            // Relaxed: a hint. `take_bits` claims each word by an atomic operation, which may fail.
            self.used = self.range.words(self.words.start).used.load(R);
        }
    }

    /// Skips chunks that are used, or that are free, and returns the first one that differs.
    fn pass(&mut self, is_used: bool) -> usize {
        while !self.words.is_empty() {
            let differ = if is_used { !self.used } else { self.used } >> self.at;
            if differ != 0 {
                self.at += differ.trailing_zeros() as usize;
                break;
            }
            (self.words.start, self.at) = (self.words.start + 1, 0);
            self.look();
        }
        self.words.start * IN_A_WORD + self.at
    }
}

impl Iterator for Gaps {
    type Item = ops::Range<usize>;

    fn next(&mut self) -> Option<ops::Range<usize>> {
        let start = self.pass(true);
        let end = self.pass(false);
        (start < end).then_some(start..end)
    }
}

pub(super) fn claim_words(range: Range, within: &Within, chunks: usize) -> Result<usize, NoRun> {
    let hint = within.hint(range, 7);
    let ops::Range { start, end } = within.words;
    let seen = hint.load(R);
    let from = (seen.max(start)..end).find(|word| is_free(range, *word)).unwrap_or(end);
    // Relaxed: a hint. If another thread frees lower chunks meanwhile, the second search finds them.
    let _ = hint.compare_exchange(seen, from, R, R);
    let found = claim_words_from(range, from..end, chunks);
    if found.is_err() && from > start { claim_words_from(range, start..end, chunks) } else { found }
}

fn claim_words_from(
    range: Range,
    within: ops::Range<usize>,
    chunks: usize,
) -> Result<usize, NoRun> {
    let words = chunks.div_ceil(IN_A_WORD);
    let mut at = within.start;
    while at + words <= within.end {
        let mut whole = at..at + chunks / IN_A_WORD;
        // Continue behind the last used word: no run begins before it.
        if let Some(in_the_way) = whole.rfind(|word| !is_free(range, *word)) {
            at = in_the_way + 1;
            continue;
        }
        let first = at * IN_A_WORD;
        if !know(range, first..first + chunks) {
            return Err(NoRun::Refused);
        }
        let taken = take_bits(range, first, chunks);
        if taken == chunks {
            return Ok(first);
        }
        free_bits(range, first, taken);
        at += 1;
    }
    Err(NoRun::NoRoom)
}

/// Does what [`Range::know`] does, for a run that may be long. Metadata of chunks is never freed, and 20 GiB of address
/// space need 16 MiB of it. So for more than one new group, the kernel is first asked whether it has memory for the run
/// as well.
pub(super) fn know(range: Range, run: ops::Range<usize>) -> bool {
    let unknown = range.unknown(run.clone());
    if unknown > IN_A_GROUP && range.ground() == Ground::Unmapped {
        let groups = unknown.div_ceil(IN_A_GROUP) * page_size();
        if !pages::has_room_for(unknown * CHUNK + groups + address_range::missing_map(run.end)) {
            return false;
        }
    }
    range.know(run)
}

fn is_free(range: Range, word: usize) -> bool {
    range.words(word).used.load(R) == 0
}
