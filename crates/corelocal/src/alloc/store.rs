//! The page store: runs of chunks, taken and given back, and memory that goes back to the kernel.
//!
//! A bit for each chunk says that somebody has it. Runs are taken by compare-exchange, the first one that
//! fits, lowest addresses first: so what is in use stays dense, low huge pages full and high ones empty,
//! and no lock can be left held by a fork or waited for by a signal handler. (To fill the fullest huge page first
//! is no better: DESIGN.md has the experiment.) Where the range has several stripes (`node_ranges.rs`) that is so in each.
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
//! 3. Runs of less than 16 chunks lie within one word of the bitmap, those of up to 64 within one or two, longer ones begin
//!    with a word; but for what was cut out of a longer one to be aligned to more than a word. A run lies in one stripe,
//!    unless it is longer, or has grown.
//! 4. Nothing here blocks. A fork leaves at worst chunks that nobody has.

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
    /// All its bytes are 0.
    pub(super) is_zero: bool,
}

/// Why there is no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoRun {
    /// The range has no such addresses left.
    NoRoom,
    /// The kernel maps no more.
    Refused,
}

/// Chunks of the longest alignment that runs have by themselves; that of the range's beginning.
const ALIGNED: usize = 32;
/// The shortest run for which gaps are looked for: 1 MiB.
const SHORT: usize = 16;
/// How often a gap is looked for that another thread takes meanwhile.
const TRIES: usize = 3;
/// Words in which one is looked for: 2 GiB.
const LOOKED_AT: usize = 512;
/// Chunks that are taken at most to be closed in one call: 64 MiB.
const MOST_CLOSED: usize = 1 << 10;

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
        // Longer than any of them has room for.
        claim_within(range, &Within::chunks(0..range.chunks(), 0), chunks, align)
    })
}

/// [`claim`], of this node alone.
pub(super) fn claim_on(range: Range, node: usize, chunks: usize, align: usize) -> Option<Run> {
    or_closing(range, chunks, || {
        nodes::look(range, chunks);
        claim_within(range, &Within::stripe(range, node), chunks, align)
    })
}

/// Tries once more after the kernel has refused memory, with what can be closed elsewhere.
fn or_closing(range: Range, chunks: usize, claim: impl Fn() -> Result<Run, NoRun>) -> Option<Run> {
    match claim() {
        Err(NoRun::Refused) if close_free(range, chunks) => claim().ok(),
        run => run.ok(),
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
            // Chunks where it lies are not found again.
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

/// A run to grow in: `chunks` chunks, and as many up to `room` of those behind them as nothing has been in since the kernel gave
/// them: what is kept in reserve is no memory then. Also how many it has.
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

/// Whether a chunk is free and all zero, as far as can be seen.
fn is_clean(range: Range, chunk: usize) -> bool {
    let words = range.words(chunk / IN_A_WORD);
    let soiled = words.used.load(Ordering::Relaxed) | words.dirty.load(Ordering::Relaxed);
    soiled & mask(chunk % IN_A_WORD, 1) == 0
}

/// Takes chunks of one word that are open already, where the kernel opens no more.
#[cold]
fn claim_open(range: Range, within: &Within, chunks: usize, align: usize) -> Option<usize> {
    let known = range.known_part(within.node);
    for nth in known.start / IN_A_WORD..known.end / IN_A_WORD {
        let Some(bit) = range.words(nth).claim_among(open(range, nth), chunks, align) else {
            continue;
        };
        let first = nth * IN_A_WORD + bit;
        // They may have been closed before they were taken.
        let is_open = range.next_stretch(first..first + chunks, false).is_none();
        if is_open && range.make_record(first) {
            return Some(first);
        }
        free_bits(range, first, chunks);
    }
    None
}

/// Gives all free memory back with its addresses, for a run of so many chunks: there may be none else. Whether there was
/// any, and enough that it may help.
#[cold]
pub(super) fn close_free(range: Range, chunks: usize) -> bool {
    let free = |word| open(range, word) & !range.words(word).used.load(Ordering::Relaxed);
    let all: usize = range.known_words().map(|word| free(word).count_ones() as usize).sum();
    // Most runs that are refused are a little longer than what is left, or far too long.
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

/// Runs that are taken to be closed, neighbours together.
struct Closed {
    range: Range,
    /// Taken, and not closed yet.
    taken: ops::Range<usize>,
    /// Closed, and how many bytes of these may not have been zero.
    runs: usize,
    bytes: usize,
}

impl Closed {
    /// Chunks of the caller's, which lie behind all before.
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

/// By way of a longer run, of which the ends go back.
fn claim_aligned(range: Range, within: &Within, chunks: usize, align: usize) -> Result<Run, NoRun> {
    let length = chunks.checked_add(align).ok_or(NoRun::NoRoom)?;
    let longer = claim_within(range, within, length, 1)?;
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
    if !range.make_record(first) {
        release(range, first, chunks);
        return Err(NoRun::Refused);
    }
    Ok(Run { first, ..longer })
}

/// Takes the chunks that follow a run of the caller's, all or none.
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

/// Whether all chunks of a word are free, and those that are dirty may go back.
fn is_closable(range: Range, word: usize, only_aged: bool) -> bool {
    let words = range.words(word);
    let dirty = words.dirty.load(Ordering::Relaxed);
    let aged = if only_aged { words.aged.load(Ordering::Relaxed) } else { u64::MAX };
    dirty != 0 && dirty & !aged == 0 && words.used.load(Ordering::Relaxed) == 0
}

/// Gives all chunks of a word back with their addresses, if they are free, and those of words before it, in one call,
/// until no more than `keep` bytes are dirty; how many bytes of these may not have been zero.
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

/// Gives chunks of the caller's back with their addresses; how many bytes of these may not have been zero.
fn close_taken(range: Range, run: ops::Range<usize>) -> Option<usize> {
    let mut dirt = 0;
    for_each_word(run.start, run.len(), |word, mask| {
        dirt += range.words(word).take_dirt(mask);
        range.words(word).take_kept(mask);
    });
    range.header().dirty.fetch_sub(dirt, Ordering::Relaxed);
    // SAFETY: chunks that belong to us alone now, and hold nothing.
    let is_closed = unsafe { range.close(run.clone()) };
    if !is_closed {
        // What was kept is forgotten: all that is open may be anything.
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
        // Somebody uses it: next time.
        return 0;
    }
    let first = word * IN_A_WORD + bit;
    // SAFETY: chunks that belong to us alone now, and hold nothing.
    let is_given = unsafe { give_back_taken(range, first, chunks) };
    free_bits(range, first, chunks);
    if is_given { chunks * CHUNK } else { 0 }
}

/// Gives the memory of chunks of one word back; if the kernel refuses, they are kept.
///
/// # Safety
/// They belong to the caller alone, and hold nothing.
unsafe fn give_back_taken(range: Range, first: usize, chunks: usize) -> bool {
    let (word, bit) = (first / IN_A_WORD, first % IN_A_WORD);
    let (words, mask) = (range.words(word), mask(bit, chunks));
    let at = range.address(first);
    // Before the call, during which a fork may come: its child has lost the chunks, and shall not count on them.
    // What another thread was refused meanwhile is as dirty.
    let dirty = (words.dirty.load(Ordering::Relaxed) | words.kept.load(Ordering::Relaxed)) & mask;
    take_dirt(range, first, chunks);
    // SAFETY: the caller's promise.
    let is_given = unsafe { discard(range, at as *mut u8, chunks * CHUNK) };
    if !is_given {
        words.keep(dirty);
    }
    is_given
}

/// Gives the memory of an object back, which stays the caller's and is 0 then; false if the kernel refuses.
///
/// # Safety
/// Whole pages of the caller's object, whose content is not needed.
pub(super) unsafe fn discard(range: Range, at: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        huge::break_up(range, at as usize, len);
        page_release::give_back(at, len)
    }
}

/// What the kernel would not take is idle again, and is tried once more.
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

/// What is dirty now is aged from here on, unless it is used meanwhile.
pub(super) fn age(range: Range) {
    range.known_words().for_each(|word| range.words(word).age());
}

/// Chunks of a node that somebody has.
pub(super) fn used(range: Range, node: usize) -> usize {
    let words = Within::chunks(range.known_part(node), node).words;
    // What is used and not open is where another mapping lies.
    let used = |word| range.words(word).used.load(Ordering::Relaxed) & open(range, word);
    words.map(|word| used(word).count_ones() as usize).sum()
}

/// Chunks of a node that are open.
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

/// [`free_bits`] of chunks that were taken just now: what hints say of them is as before.
fn free_bits_quietly(range: Range, first: usize, chunks: usize) {
    for_each_word(first, chunks, |word, mask| range.words(word).free(mask));
}

pub(super) fn free_bits(range: Range, first: usize, chunks: usize) {
    free_bits_quietly(range, first, chunks);
    lower_hints(range, first..first + chunks);
}

/// Chunks are free: runs are looked for there first.
fn lower_hints(range: Range, run: ops::Range<usize>) {
    for (node, part) in range.parts_of(run) {
        // Relaxed: hints.
        for hint in &range.stripe(node).first {
            hint.fetch_min(part.start / IN_A_WORD, Ordering::Relaxed);
        }
    }
}

/// Whether the chunks are all zero; whoever has them may make them dirty now.
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

/// The words in which to look: where there was room the last time, then, lest it be missed, before that,
/// then where nobody was yet.
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

/// A run of up to a word's chunks, for which words that are used in part are preferred, and the end of one with the beginning
/// of the next: two objects of 2 MiB and a little more do not fit into one word, and would leave half of each unused.
fn claim_in_gap(range: Range, within: &Within, chunks: usize) -> Result<usize, NoRun> {
    let hint = within.hint(range, chunks.next_power_of_two().ilog2() as usize);
    let end = (range.known_part(within.node).end / IN_A_WORD).min(within.words.end);
    // Another thread may be faster.
    for _ in 0..TRIES {
        // From the beginning where all is near enough, else from where a run of about this length was found.
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

/// Runs of free chunks between used ones, in ascending order.
struct Gaps {
    range: Range,
    words: ops::Range<usize>,
    /// Of the first word of `words`: what is used, and where the next gap is looked for.
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
            // Relaxed: a hint. `take_bits` takes each chunk by an atomic operation, which may fail.
            self.used = self.range.words(self.words.start).used.load(Ordering::Relaxed);
        }
    }

    /// Passes chunks by that are used, or that are not, and returns the first one that differs.
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
    // Relaxed: a hint. A release meanwhile that it does not tell of is found by the second look.
    let _ = hint.compare_exchange(seen, from, Ordering::Relaxed, Ordering::Relaxed);
    let found = claim_words_from(range, from..end, chunks);
    if found.is_err() && from > start { claim_words_from(range, start..end, chunks) } else { found }
}

/// [`Range::know`], of a run that may be long: what is written down of chunks is never given back, and 20 GiB take 16 MiB
/// of it. So the kernel is asked first whether there is memory for the run as well, beyond one more group.
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
        // The last one of those in the way: no run begins before it.
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
