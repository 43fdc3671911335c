//! The samples of another process, read from its memory while it takes and removes some.
//!
//! Invariants:
//! - A sample is read whole or not at all: its sequence is the same before and after.
//! - Whatever the memory contains, at most `MOST` entries are read.

use core::mem::offset_of;

use super::super::{Sample, Summary};
use super::{Area, ENTRY, Entry, HEAD, LIVE, MOST, PEAK, STACK_BYTES};
use crate::alloc::layout::remote::{Plain, Remote, Unreadable};

/// The bytes of a stack that are kept: of one that has them all there may be more.
pub const MOST_STACK: usize = STACK_BYTES;

/// States that are read at once.
const STATES: usize = 64;

// SAFETY: atomic integers, and arrays of them.
unsafe impl Plain for Entry {}

/// A number that differs where the layout does.
pub(in crate::alloc) const LAYOUT: usize = size_of::<Area>() ^ offset_of!(Area, states) << 1;

/// Calls `f` with each sample of the area whose address is at `place`; returns the sums, zeros if there is no area.
pub(in crate::alloc) fn for_each(
    process: &mut Remote<'_>,
    place: usize,
    rate: u64,
    into: &mut Sample,
    f: &mut dyn FnMut(&Sample),
) -> Result<Summary, Unreadable> {
    let area: usize = process.get(place)?;
    if area == 0 {
        return Ok(Summary { rate, ..Summary::default() });
    }
    let number = |process: &mut Remote<'_>, at| process.get::<u64>(area.wrapping_add(at));
    let known = number(process, offset_of!(Area, fresh))?
        .min(number(process, offset_of!(Area, capacity))?)
        .min(MOST as u64) as usize;
    into.rate = rate;
    for first in (0..known).step_by(STATES) {
        let at = area.wrapping_add(offset_of!(Area, states) + first);
        let states: [u8; STATES] = process.get(at)?;
        for (nth, state) in states.iter().enumerate().take(known - first) {
            let at = area.wrapping_add(HEAD + (first + nth) * ENTRY);
            if state & (LIVE | PEAK) != 0 && read(process, at, into)? {
                into.is_in_use = state & LIVE != 0;
                into.was_at_peak = state & PEAK != 0;
                f(into);
            }
        }
    }
    Ok(Summary {
        rate,
        samples: number(process, offset_of!(Area, count))?,
        bytes: number(process, offset_of!(Area, bytes))?,
        in_use: (number(process, offset_of!(Area, live_bytes))? as i64).max(0) as u64,
        peak: number(process, offset_of!(Area, peak_bytes))?,
        peak_time: number(process, offset_of!(Area, peak_time))?,
        missed: number(process, offset_of!(Area, missed))?,
    })
}

/// Reads an entry; false if it was written meanwhile.
fn read(process: &mut Remote<'_>, at: usize, into: &mut Sample) -> Result<bool, Unreadable> {
    let copy: Entry = process.get(at)?;
    let is_read = copy.read(into);
    let after: u64 = process.get(at.wrapping_add(offset_of!(Entry, sequence)))?;
    Ok(is_read && copy.sequence.number() == Some(after))
}

const _: () = assert!(MOST % STATES == 0, "no state is read beyond the last");
