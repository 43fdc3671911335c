//! The page heap: runs of chunks, claimed and released, and the return of free memory to the kernel.
//!
//! One bit for each chunk says whether it has an owner. Runs are claimed by compare-exchange, first fit from the
//! lowest address on. So memory in use stays dense: low huge pages are full and high ones empty. No lock exists that
//! a fork could leave held or that a signal handler could wait for. Filling the fullest huge page first is no better
//! (docs/design/malloc.md has the experiment). With several NUMA nodes, each has its own part of the range (`node_ranges.rs`).
//!
//! ```text
//!   used:  0 ── claim ──► 1 ── release ──► 0
//!   dirty: 0              0                1 ── claim: the new owner clears it and knows ──► 0
//!                                          └─── purge: claimed, given to the kernel, freed ──► 0
//! ```
//!
//! A process that has reached a limit (`RLIMIT_AS`, locked memory) needs address space for stacks and files, too, and
//! nothing asks this malloc for it. So once the kernel has refused memory, long runs are unmapped as they are released, until
//! a quarter of what was mapped then is not.
//!
//! # Invariants
//! 1. A chunk whose `used` bit is set belongs to the thread that set it. All that was done to it before its release
//!    happens before all that its next owner does (`bits.rs`).
//! 2. A chunk that is neither used nor dirty is all zero.
//! 3. Runs of fewer than 16 chunks lie within one word of the bitmap, runs of up to 64 in one or two words, and
//!    longer ones begin at a word. The exception is a run cut out of a longer one for an alignment of more than a
//!    word. A run lies in one node's part unless it is longer than that, or has grown.
//! 4. Nothing here blocks. A fork leaves at worst chunks that no thread owns.

use core::ops;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::bits::{IN_A_WORD, mask};
use super::chunk_metadata::IN_A_GROUP;
use super::mapped_chunks::Opened;
use super::range::{CHUNK, Range};
use super::{address_range, huge, nodes, page_release, pressure};
use crate::sys::page_size::page_size;
use crate::sys::pages::{self, Ground};

/// Chunks that belong to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: usize,
    /// Whether all bytes are 0.
    pub(super) is_zero: bool,
}

/// Why no run was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoRun {
    /// The range has no such addresses left.
    NoRoom,
    /// The kernel refuses to map more.
    Refused,
}

/// The alignment, in chunks, that runs can have without being cut out of a longer run; that of the range's start.
const ALIGNED: usize = 32;
/// The shortest run for which gaps are searched, and that is unmapped when a limit is near: 1 MiB.
const SHORT: usize = 16;
/// How many gaps are tried that another thread claims first.
const TRIES: usize = 3;
/// How many words are searched for a gap: 2 GiB.
const LOOKED_AT: usize = 512;
/// The most chunks that are unmapped in one call: 64 MiB.
const MOST_CLOSED: usize = 1 << 10;

/// Where runs are searched.
#[derive(Clone)]
struct Within {
    /// The words in which a run may begin.
    words: ops::Range<usize>,
    /// The node whose hints are used; its part of the range begins with the first word.
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

/// Claims `chunks` chunks, aligned to `align` chunks, a power of two, on the calling thread's node if possible.
/// `None` when out of memory.
pub(super) fn claim(range: Range, chunks: usize, align: usize) -> Option<Run> {
    or_closing(range, chunks, || {
        nodes::look(range, chunks);
        let mut why = NoRun::NoRoom;
        for node in nodes::from_here(range) {
            match claim_within(range, &Within::stripe(range, node), chunks, align) {
                Err(NoRun::Refused) => why = NoRun::Refused,
                Err(NoRun::NoRoom) => {}
                run => return run,
            }
        }
        if range.nodes() == 1 || why == NoRun::Refused {
            return Err(why);
        }
        // The run is longer than any node's part, or all parts are too fragmented.
        claim_within(range, &Within::chunks(0..range.chunks(), 0), chunks, align)
    })
}

/// As [`claim`], on this node only.
pub(super) fn claim_on(range: Range, node: usize, chunks: usize, align: usize) -> Option<Run> {
    or_closing(range, chunks, || {
        nodes::look(range, chunks);
        claim_within(range, &Within::stripe(range, node), chunks, align)
    })
}

/// If the kernel refuses memory, unmaps free chunks elsewhere and tries once more.
fn or_closing(range: Range, chunks: usize, claim: impl Fn() -> Result<Run, NoRun>) -> Option<Run> {
    match claim() {
        Err(NoRun::Refused) => {
            note_refusal(range, chunks);
            if close_free(range, chunks) { claim().ok() } else { None }
        }
        run => run.ok(),
    }
}

/// Notes that the kernel refuses memory. A request for far more than the process has says nothing of what is left.
fn note_refusal(range: Range, chunks: usize) {
    let header = range.header();
    let opened = header.opened.load(Ordering::Relaxed);
    if chunks <= opened / 4 {
        // Relaxed: a hint.
        header.refused_at.store(opened, Ordering::Relaxed);
    }
}

/// Returns `true` if a limit is near: the kernel has refused memory, and most of what was mapped then is mapped still. Not
/// if more is mapped by now, so the limit was raised.
fn is_short(range: Range) -> bool {
    let refused_at = range.header().refused_at.load(Ordering::Relaxed);
    refused_at != 0 && {
        let opened = range.header().opened.load(Ordering::Relaxed);
        opened > refused_at / 4 * 3 && opened <= refused_at / 4 * 5
    }
}

fn claim_within(range: Range, within: &Within, chunks: usize, align: usize) -> Result<Run, NoRun> {
    if align > ALIGNED {
        return claim_aligned(range, within, chunks, align);
    }
    let first = loop {
        let first = match chunks {
            0 => Err(NoRun::NoRoom),
            SHORT..=IN_A_WORD if align == 1 => claim_in_gap(range, within, chunks),
            1..=IN_A_WORD => claim_in_word(range, within, chunks, align),
            _ => claim_words(range, within, chunks),
        };
        let first = first?;
        match range.open_run(first..first + chunks) {
            Opened::All if range.make_record(first) => break first,
            // Chunks that a foreign mapping occupies stay claimed, so they are not found again.
            Opened::Foreign => {}
            Opened::Refused if chunks <= IN_A_WORD => {
                free_bits(range, first, chunks);
                break claim_open(range, within, chunks, align).ok_or(NoRun::Refused)?;
            }
            Opened::All | Opened::Refused => {
                free_bits(range, first, chunks);
                return Err(NoRun::Refused);
            }
        }
    };
    raise_high_water(range, first, chunks);
    Ok(Run { first, is_zero: take_dirt(range, first, chunks) })
}

/// Claims a run to grow in: `chunks` chunks, and up to `room` in all as long as the chunks behind are free and
/// untouched, since untouched reserve uses no memory. Returns the run and its length.
pub(super) fn claim_to_grow(range: Range, chunks: usize, room: usize) -> Option<(Run, usize)> {
    let run = claim(range, chunks, 1)?;
    let (behind, end) = (run.first + chunks, range.chunks());
    let clean = (behind..end.min(run.first + room))
        .find(|chunk| !is_clean(range, *chunk))
        .unwrap_or(end.min(run.first + room));
    let more = clean - behind;
    let has_more = more > 0 && extend(range, behind, more);
    Some((run, if has_more { chunks + more } else { chunks }))
}

/// Whether a chunk seems free and all zero.
fn is_clean(range: Range, chunk: usize) -> bool {
    let words = range.words(chunk / IN_A_WORD);
    let soiled = words.used.load(Ordering::Relaxed) | words.dirty.load(Ordering::Relaxed);
    soiled & mask(chunk % IN_A_WORD, 1) == 0
}

/// Claims chunks of one word that are mapped already: used when the kernel refuses to map more.
#[cold]
fn claim_open(range: Range, within: &Within, chunks: usize, align: usize) -> Option<usize> {
    let known = range.known_part(within.node);
    for nth in known.start / IN_A_WORD..known.end / IN_A_WORD {
        let Some(bit) = range.words(nth).claim_among(open(range, nth), chunks, align) else {
            continue;
        };
        let first = nth * IN_A_WORD + bit;
        // They may have been unmapped before they were claimed.
        let is_open = range.next_stretch(first..first + chunks, false).is_none();
        if is_open && range.make_record(first) {
            return Some(first);
        }
        free_bits(range, first, chunks);
    }
    None
}

/// Unmaps all free chunks, so that a run of `chunks` chunks can be mapped elsewhere. Returns whether there were
/// enough to be of help.
#[cold]
pub(super) fn close_free(range: Range, chunks: usize) -> bool {
    let free = |word| open(range, word) & !range.words(word).used.load(Ordering::Relaxed);
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
    range.header().released.fetch_add(closed.bytes, Ordering::Relaxed);
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

fn raise_high_water(range: Range, first: usize, chunks: usize) {
    if range.raise_high_water(first..first + chunks) && (huge::is_wanted() || pressure::has_limit())
    {
        range.header().sleeper.wake();
    }
}

/// Claims an aligned run by claiming a longer one and freeing its ends.
fn claim_aligned(range: Range, within: &Within, chunks: usize, align: usize) -> Result<Run, NoRun> {
    let length = chunks.checked_add(align).ok_or(NoRun::NoRoom)?;
    let longer = claim_within(range, within, length, 1)?;
    let address = range.address(longer.first);
    let first = longer.first + (address.next_multiple_of(align * CHUNK) - address) / CHUNK;
    let (before, after) = (first - longer.first, longer.first + align - first);
    // The ends are untouched.
    if longer.is_zero {
        free_bits(range, longer.first, before);
        free_bits(range, first + chunks, after);
    } else {
        release(range, longer.first, before);
        release(range, first + chunks, after);
    }
    if !range.make_record(first) {
        release(range, first, chunks);
        return Err(NoRun::Refused);
    }
    Ok(Run { first, ..longer })
}

/// Claims the chunks that follow a run of the caller's: all or none.
pub(super) fn extend(range: Range, end: usize, more: usize) -> bool {
    if end.checked_add(more).is_none_or(|end| end > range.chunks()) {
        return false;
    }
    nodes::look(range, more);
    if !know(range, end..end + more) {
        return false;
    }
    let taken = take_bits(range, end, more);
    let opened = if taken == more { range.open_run(end..end + more) } else { Opened::Refused };
    match opened {
        Opened::All => {}
        Opened::Foreign => return false,
        Opened::Refused => {
            free_bits(range, end, taken);
            return false;
        }
    }
    raise_high_water(range, end, more);
    take_dirt(range, end, more);
    true
}

/// Releases chunks of the caller's, whose content may be anything.
pub(super) fn release(range: Range, first: usize, chunks: usize) {
    if chunks >= SHORT && is_short(range) && close_taken(range, first..first + chunks).is_some() {
        range.header().released.fetch_add(chunks * CHUNK, Ordering::Relaxed);
        return;
    }
    for_each_word(first, chunks, |word, mask| range.words(word).soil(mask));
    range.header().dirty.fetch_add(chunks, Ordering::Relaxed);
    free_bits(range, first, chunks);
    range.header().sleeper.wake();
}

/// Gives dirty memory back to the kernel, highest addresses first, until at most `keep` bytes are dirty. Returns how
/// many bytes. With `only_aged`, only chunks that have been dirty since the last [`age`].
pub(super) fn purge(range: Range, keep: usize, only_aged: bool) -> usize {
    let dirty = &range.header().dirty;
    let mut bytes = 0;
    for word in range.known_words().rev() {
        if dirty.load(Ordering::Relaxed) * CHUNK <= keep {
            break;
        }
        let words = range.words(word);
        let aged = if only_aged { words.aged.load(Ordering::Relaxed) } else { u64::MAX };
        let mut wanted = words.dirty.load(Ordering::Relaxed) & aged;
        if let Some(closed) = close_from(range, word, keep, only_aged) {
            bytes += closed;
            continue;
        }
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

/// Whether all chunks of a word are free, and all dirty ones may be given back.
fn is_closable(range: Range, word: usize, only_aged: bool) -> bool {
    let words = range.words(word);
    let dirty = words.dirty.load(Ordering::Relaxed);
    let aged = if only_aged { words.aged.load(Ordering::Relaxed) } else { u64::MAX };
    dirty != 0 && dirty & !aged == 0 && words.used.load(Ordering::Relaxed) == 0
}

/// Unmaps all chunks of a word if they are free, together with free words before it, until at most `keep` bytes are
/// dirty. Returns how many of the bytes may not have been zero.
fn close_from(range: Range, word: usize, keep: usize, only_aged: bool) -> Option<usize> {
    let dirty = range.header().dirty.load(Ordering::Relaxed);
    let (end, mut left) = (word + 1, dirty.saturating_sub(keep / CHUNK));
    let mut first = end;
    while first > 0 && left > 0 && (end - first) * IN_A_WORD < MOST_CLOSED {
        let words = range.words(first - 1);
        if !is_closable(range, first - 1, only_aged) || !words.take(u64::MAX) {
            break;
        }
        first -= 1;
        left = left.saturating_sub(words.dirty.load(Ordering::Relaxed).count_ones() as usize);
    }
    if first == end {
        return None;
    }
    close_taken(range, first * IN_A_WORD..end * IN_A_WORD)
}

/// Unmaps chunks of the caller's. Returns how many of their bytes may not have been zero.
fn close_taken(range: Range, run: ops::Range<usize>) -> Option<usize> {
    let mut dirt = 0;
    for_each_word(run.start, run.len(), |word, mask| {
        dirt += range.words(word).take_dirt(mask);
        range.words(word).take_kept(mask);
    });
    range.header().dirty.fetch_sub(dirt, Ordering::Relaxed);
    // SAFETY: chunks that only this thread owns, and whose content is not needed.
    let is_closed = unsafe { range.close(run.clone()) };
    if !is_closed {
        // What was kept is not known any more: treat all mapped chunks as dirty.
        for_each_word(run.start, run.len(), |word, mask| {
            let dirty = mask & open(range, word);
            range.words(word).soil(dirty);
            range.header().dirty.fetch_add(dirty.count_ones() as usize, Ordering::Relaxed);
        });
    }
    free_bits(range, run.start, run.len());
    is_closed.then_some(dirt * CHUNK)
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
unsafe fn give_back_taken(range: Range, first: usize, chunks: usize) -> bool {
    let (word, bit) = (first / IN_A_WORD, first % IN_A_WORD);
    let (words, mask) = (range.words(word), mask(bit, chunks));
    let at = range.address(first);
    // Clear the marks before the call: a fork may come during it, and the child, which has lost these chunks, must
    // not count them. Chunks that the kernel refused to take earlier count as dirty.
    let dirty = (words.dirty.load(Ordering::Relaxed) | words.kept.load(Ordering::Relaxed)) & mask;
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
pub(super) unsafe fn discard(range: Range, at: *mut u8, len: usize) -> bool {
    // SAFETY: whole pages of the caller's, whose content is not needed.
    unsafe {
        huge::break_up(range, at as usize, len);
        page_release::give_back(at, len)
    }
}

/// Makes kept chunks dirty again, so that they are tried once more.
pub(super) fn retry_kept(range: Range) {
    for word in range.known_words() {
        let words = range.words(word);
        let kept = words.kept.load(Ordering::Relaxed);
        if kept != 0 && words.take(kept) {
            let kept_still = words.take_kept(kept);
            words.soil(kept_still);
            range.header().dirty.fetch_add(kept_still.count_ones() as usize, Ordering::Relaxed);
            words.free(kept);
        }
    }
    page_release::forget();
}

/// Marks all dirty chunks as aged, until they are used again.
pub(super) fn age(range: Range) {
    range.known_words().for_each(|word| range.words(word).age());
}

/// Chunks of a node that are in use.
pub(super) fn used(range: Range, node: usize) -> usize {
    let words = Within::chunks(range.known_part(node), node).words;
    // Chunks that are used but not mapped belong to a foreign mapping.
    let used = |word| range.words(word).used.load(Ordering::Relaxed) & open(range, word);
    words.map(|word| used(word).count_ones() as usize).sum()
}

/// Chunks of a node that are mapped.
pub(super) fn opened(range: Range, node: usize) -> usize {
    let words = Within::chunks(range.known_part(node), node).words;
    words.map(|word| open(range, word).count_ones() as usize).sum()
}

fn open(range: Range, word: usize) -> u64 {
    range.opened(word).load(Ordering::Relaxed)
}

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

/// As [`free_bits`], without lowering hints: for chunks that were claimed a moment ago.
fn free_bits_quietly(range: Range, first: usize, chunks: usize) {
    for_each_word(first, chunks, |word, mask| range.words(word).free(mask));
}

pub(super) fn free_bits(range: Range, first: usize, chunks: usize) {
    free_bits_quietly(range, first, chunks);
    lower_hints(range, first..first + chunks);
}

/// Lowers the search hints to freed chunks.
fn lower_hints(range: Range, run: ops::Range<usize>) {
    for (node, part) in range.parts_of(run) {
        // Relaxed: hints.
        for hint in &range.stripe(node).first {
            hint.fetch_min(part.start / IN_A_WORD, Ordering::Relaxed);
        }
    }
}

/// Whether the chunks were all zero; clears their marks. From here on the owner may write to them.
fn take_dirt(range: Range, first: usize, chunks: usize) -> bool {
    let (mut dirt, mut kept) = (0, 0);
    for_each_word(first, chunks, |word, mask| {
        dirt += range.words(word).take_dirt(mask);
        kept |= range.words(word).take_kept(mask);
    });
    if dirt > 0 {
        range.header().dirty.fetch_sub(dirt, Ordering::Relaxed);
    }
    dirt == 0 && kept == 0
}

/// The words to search: from the hint to the highest known word, then the words before the hint, then unused ones.
fn places(range: Range, within: &Within, hint: usize) -> impl Iterator<Item = usize> {
    let ops::Range { start, end } = within.words;
    let hint = hint.clamp(start, end);
    let edge = (range.known_part(within.node).end / IN_A_WORD).clamp(hint, end);
    (hint..edge).chain(start..hint).chain(edge..end)
}

fn claim_in_word(
    range: Range,
    within: &Within,
    chunks: usize,
    align: usize,
) -> Result<usize, NoRun> {
    let hint = within.hint(range, chunks.next_power_of_two().ilog2() as usize);
    for word in places(range, within, hint.load(Ordering::Relaxed)) {
        if !range.know(word * IN_A_WORD..(word + 1) * IN_A_WORD) {
            return Err(NoRun::Refused);
        }
        if let Some(bit) = range.words(word).claim(chunks, align) {
            hint.store(word, Ordering::Relaxed);
            return Ok(word * IN_A_WORD + bit);
        }
    }
    Err(NoRun::NoRoom)
}

/// Claims a run of up to one word's chunks. Prefers words in use, and gaps across two words: objects slightly larger
/// than 2 MiB would otherwise leave almost half of each word unused.
fn claim_in_gap(range: Range, within: &Within, chunks: usize) -> Result<usize, NoRun> {
    let hint = within.hint(range, chunks.next_power_of_two().ilog2() as usize);
    let end = (range.known_part(within.node).end / IN_A_WORD).min(within.words.end);
    // Another thread may claim the gap first.
    for _ in 0..TRIES {
        // From the beginning if that is near enough, otherwise from where a run of about this length was found last.
        let is_near = end.saturating_sub(within.words.start) <= LOOKED_AT;
        let start = if is_near { 0 } else { hint.load(Ordering::Relaxed) };
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
            self.used = self.range.words(self.words.start).used.load(Ordering::Relaxed);
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

fn claim_words(range: Range, within: &Within, chunks: usize) -> Result<usize, NoRun> {
    let hint = within.hint(range, 7);
    let ops::Range { start, end } = within.words;
    let seen = hint.load(Ordering::Relaxed);
    let from = (seen.max(start)..end).find(|word| is_free(range, *word)).unwrap_or(end);
    // Relaxed: a hint. If another thread frees lower chunks meanwhile, the second search finds them.
    let _ = hint.compare_exchange(seen, from, Ordering::Relaxed, Ordering::Relaxed);
    let found = claim_words_from(range, from..end, chunks);
    if found.is_err() && from > start { claim_words_from(range, start..end, chunks) } else { found }
}

/// As [`Range::know`], for a run that may be long. Metadata of chunks is never freed, and 20 GiB of address space
/// need 16 MiB of it. So for more than one new group, the kernel is first asked whether it has memory for the run as
/// well.
fn know(range: Range, run: ops::Range<usize>) -> bool {
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
    range.words(word).used.load(Ordering::Relaxed) == 0
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

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
