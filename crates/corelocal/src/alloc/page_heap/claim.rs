//! Claims of runs: found, mapped, and known to be zero or not.
//!
//! Invariant: a run that a function of this file returns belongs to the caller and is mapped; its first chunk has a
//! record.

use super::mapped_chunks::Opened;
use super::release::{close_free, note_refusal, release};
use super::runs::{free_bits, is_clean, open, take_bits, take_dirt};
use super::search::{NoRun, Within, claim_in_gap, claim_in_word, claim_words, know};
use super::{huge, nodes, pressure};
use crate::alloc::layout::bits::IN_A_WORD;
use crate::alloc::layout::chunk::CHUNK;
use crate::alloc::layout::range::Range;

/// Chunks that belong to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::alloc) struct Run {
    pub(in crate::alloc) first: usize,
    /// Whether all bytes are 0.
    pub(in crate::alloc) is_zero: bool,
}

/// The alignment, in chunks, that runs can have without being cut out of a longer run; that of the range's start.
const ALIGNED: usize = 32;
/// The shortest run for which gaps are searched: 1 MiB.
const SHORT: usize = 16;

/// Claims `chunks` chunks, aligned to `align` chunks, a power of two, on the calling thread's node if possible.
/// `None` when out of memory.
pub(in crate::alloc) fn claim(range: Range, chunks: usize, align: usize) -> Option<Run> {
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

/// Does what [`claim`] does, on this node only.
pub(in crate::alloc) fn claim_on(
    range: Range,
    node: usize,
    chunks: usize,
    align: usize,
) -> Option<Run> {
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
pub(in crate::alloc) fn claim_to_grow(
    range: Range,
    chunks: usize,
    room: usize,
) -> Option<(Run, usize)> {
    let run = claim(range, chunks, 1)?;
    let (behind, end) = (run.first + chunks, range.chunks());
    let clean = (behind..end.min(run.first + room))
        .find(|chunk| !is_clean(range, *chunk))
        .unwrap_or(end.min(run.first + room));
    let more = clean - behind;
    let has_more = more > 0 && extend(range, behind, more);
    Some((run, if has_more { chunks + more } else { chunks }))
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
pub(in crate::alloc) fn extend(range: Range, end: usize, more: usize) -> bool {
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
