//! Recording an event: one critical section, and what makes its buffer ready.
//!
//! # Data flow
//! ```text
//!   record    trace_push: the core's buffer has room, and this thread's context is the last one there ─▶ done
//!   otherwise, in `record_cold`:
//!     another context, or another cpu     trace_context: a record of thread and cpu, then again
//!     no buffer, or a full one            begin another; store_if_equal in the core's word; then again
//!     no critical sections, or too many   a lane: a buffer that the thread takes for itself while it appends
//!       aborts
//!     no buffer to begin                  lost, and counted
//! ```
//! # Invariants
//! 1. No thread waits for another one: each step takes effect at once, or another way is taken.
//! 2. A lane's buffer is in the table, or in the hands of one thread. A signal handler that interrupts that thread finds
//!    another lane.
//! 3. A forked child writes nothing into its parent's memory: it looks for the recording after each section that failed,
//!    and before each step that changes shared memory. Between such a look and its step a signal handler must not fork.
//! 4. The slots of `STAMPED` and `SLOTS` lead to buffers of `LIMIT` bytes, which stay, and of which sections alone write the
//!    records.

use core::mem::MaybeUninit;

use super::current::here;
use super::encode::{Encoder, FIXED, Fields, Packed};
use super::memory::{SLOTS, STAMPED};
use super::ready::{make_ready, push_by_lane};
use super::site::{Site, Wanted};
use super::{Lost, context, time};
use crate::cid::private::Sealed as _;
use crate::cid::{self, Cid};
use crate::clock;
use crate::rseq::{self, Exit};

/// The number of attempts to record one event.
const ATTEMPTS: u32 = 16;

/// Records an event of a registered site that is on.
#[doc(hidden)]
#[inline(always)]
pub fn record<F: Fields>(site: &'static Site, wanted: Wanted, fields: F) {
    // It is off if it was registered now, and there is no recording.
    if let Some(number) = wanted.number() {
        record_as(site, number, fields);
    }
}

/// Records what happened at a registered site: `what` has its number.
#[inline(always)]
pub(super) fn record_as<F: Fields>(site: &'static Site, what: u16, fields: F) {
    let words = Packed::<F>::words;
    match Packed::<F>::WORDS {
        1 => push_fixed(site, first::<1>(words(what, &fields))),
        2 => push_fixed(site, first::<2>(words(what, &fields))),
        3 => push_fixed(site, first::<3>(words(what, &fields))),
        4 => push_fixed(site, words(what, &fields)),
        _ => encode(site, what, fields),
    }
}

/// Returns the first words.
#[inline(always)]
fn first<const N: usize>(words: [u64; FIXED]) -> [u64; N] {
    core::array::from_fn(|nth| words[nth])
}

#[inline(always)]
fn push_fixed<const N: usize>(site: &'static Site, words: [u64; N]) {
    let exit = match context::number() {
        Some(number) if context::is_coarse(number) => {
            let word = |nth| if nth < N { words[nth] } else { 0 };
            return push_coarse::<N>(site, number, word(0), word(1), word(2), word(3));
        }
        // SAFETY: the slots lead to buffers that sections write only (4).
        Some(number) => unsafe { rseq::trace_push_fixed(Cid::index(), &STAMPED, number, words) },
        None => Exit::COLD,
    };
    if !exit.is_straight() {
        record_cold(site, &words.map(MaybeUninit::new));
    }
}

/// The same with a coarse time. The words are parameters, so that they stay in registers.
#[inline(never)]
fn push_coarse<const N: usize>(site: &'static Site, number: u64, a: u64, b: u64, c: u64, d: u64) {
    let words = first::<N>([a, b, c, d]);
    match clock::coarse_fast() {
        Some(time) => push_at(site, number, time, words),
        None => push_late(site, number, words),
    }
}

/// The same where the clock is a function of the kernel's. In a frame of its own: a call needs one.
#[inline(never)]
fn push_late<const N: usize>(site: &'static Site, number: u64, words: [u64; N]) {
    push_at(site, number, clock::coarse(), words);
}

/// Appends a record with this time, or takes the cold path.
#[inline(always)]
fn push_at<const N: usize>(site: &'static Site, number: u64, time: u64, words: [u64; N]) {
    // SAFETY: the slots lead to buffers that sections write only (4).
    let exit = unsafe { rseq::trace_push_timed_fixed(Cid::index(), &SLOTS, number, time, words) };
    if !exit.is_straight() {
        record_cold(site, &words.map(MaybeUninit::new));
    }
}

/// In a frame of its own, which ends before the event's code goes on.
#[inline(never)]
fn encode<F: Fields>(site: &'static Site, what: u16, fields: F) {
    let mut encoder = Encoder::new();
    fields.put_all(&mut encoder);
    push(site, what, &mut encoder);
}

/// Records an event of a registered site that is on, whose fields were encoded.
#[doc(hidden)]
pub fn record_encoded(site: &'static Site, wanted: Wanted, encoder: &mut Encoder) {
    if let Some(number) = wanted.number() {
        push(site, number, encoder);
    }
}

#[inline(always)]
pub(super) fn push(site: &'static Site, what: u16, encoder: &mut Encoder) {
    let words = encoder.finish(what);
    let exit = context::number().map_or(Exit::COLD, |number| push_words(number, words));
    if !exit.is_straight() {
        record_cold(site, words);
    }
}

/// Appends a record of the context with this number.
#[inline(always)]
fn push_words(number: u64, words: &[MaybeUninit<u64>]) -> Exit {
    let (index, from, n) = (Cid::index(), words.as_ptr(), words.len() as u64);
    if STAMPED.base().is_null() {
        // Read anew for each attempt: another thread may have come to the buffer.
        let time = time::of_event();
        // SAFETY: the slots lead to buffers that sections write only (4).
        unsafe { rseq::trace_push_timed(index, &SLOTS, number, time, from, n) }
    } else {
        // SAFETY: the slots lead to buffers that sections write only (4).
        unsafe { rseq::trace_push(index, &STAMPED, number, from, n) }
    }
}

#[cold]
#[inline(never)]
fn record_cold(site: &'static Site, words: &[MaybeUninit<u64>]) {
    for _ in 0..ATTEMPTS {
        let Some(number) = context::number() else { break };
        let pushed = rseq::retry(Exit::COLD, cid::prepare::<Cid>, || push_words(number, words));
        match pushed {
            None => break,
            Some(exit) if exit.is_committed() => return,
            Some(_) => {
                let Some(recording) = here() else { return };
                if !make_ready(&recording, words.len() + 1) {
                    return lose(site);
                }
            }
        }
    }
    let Some(recording) = here() else { return };
    if !push_by_lane(&recording, words) {
        lose(site);
    }
}

fn lose(site: &Site) {
    // It may have been the record that says in which span the thread goes on.
    context::forget();
    if let Some(recording) = here() {
        site.count_lost();
        recording.count_lost(site, Lost::NoBuffer);
    }
}

/// Does what [`record`] does by the section `trace_context`, for the tests that disturb it: an event of two words.
#[doc(hidden)]
#[inline(always)]
pub fn record_as_owner(site: &'static Site, encoder: &mut Encoder) {
    let Some(number) = site.number() else { return };
    let words = encoder.finish(number);
    let exit = match (context::number(), words) {
        (Some(number), &[first, second]) => {
            let owner = number + u64::from(rseq::cpu_id());
            let words = [MaybeUninit::new(time::of_event()), first, second];
            // SAFETY: the slots lead to buffers that sections write only (4).
            unsafe { rseq::trace_context(Cid::index(), &SLOTS, owner, words.as_ptr(), 3) }
        }
        _ => Exit::COLD,
    };
    if !exit.is_straight() {
        record_cold(site, words);
    }
}

/// Does what [`record`] does by the sections of times that are read before, for the tests that disturb them.
#[doc(hidden)]
#[inline(always)]
pub fn record_timed<F: Fields>(site: &'static Site, fields: F) {
    let (Some(what), Some(number)) = (site.number(), context::number()) else { return };
    let (time, words) = (time::of_event(), Packed::<F>::words);
    match Packed::<F>::WORDS {
        1 => push_at(site, number, time, first::<1>(words(what, &fields))),
        2 => push_at(site, number, time, first::<2>(words(what, &fields))),
        3 => push_at(site, number, time, first::<3>(words(what, &fields))),
        4 => push_at(site, number, time, words(what, &fields)),
        _ => {
            let mut encoder = Encoder::new();
            fields.put_all(&mut encoder);
            let words = encoder.finish(what);
            let (from, n) = (words.as_ptr(), words.len() as u64);
            // SAFETY: the slots lead to buffers that sections write only (4).
            let exit =
                unsafe { rseq::trace_push_timed(Cid::index(), &SLOTS, number, time, from, n) };
            if !exit.is_straight() {
                record_cold(site, words);
            }
        }
    }
}
