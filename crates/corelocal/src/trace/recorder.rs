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
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

use super::context::{self, CPU_BITS};
use super::encode::{Encoder, FIXED, Fields, Packed};
use super::format::{BUFFER_LEN, CONTEXT, MOST_WORDS};
use super::memory::{Buffer, By, Recording, SLOTS, STAMPED, lanes};
use super::options::{Options, StartError};
use super::site::{self, Site, Wanted};
use super::{Lost, losses, rules, time};
use crate::cid::private::Sealed as _;
use crate::cid::{self, Cid};
use crate::clock;
use crate::rseq::{self, Exit};
use crate::sys::thread_id;

const LIMIT: u64 = BUFFER_LEN as u64;
const _: () = assert!(BUFFER_LEN == rseq::TRACE_BUFFER);
/// How often a buffer is made ready for one event.
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

/// The first words.
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

/// The recording. A forked child makes its own, if its parent's options say so; else all its sites are switched off.
pub(super) fn here() -> Option<Recording> {
    let recording = Recording::here().or_else(Recording::make_in_child);
    if recording.is_none() && !super::options::are_for_children() {
        site::all().for_each(|site| site.switch(0));
    }
    recording
}

fn lose(site: &Site) {
    // It may have been the record that says in which span the thread goes on.
    context::forget();
    if let Some(recording) = here() {
        site.lose(&recording, Lost::NoBuffer);
    }
}

/// Makes this core's buffer ready for a record of so many words of the calling thread. False: there is no buffer.
fn make_ready(recording: &Recording, words: usize) -> bool {
    let Some(offset) = cid::offset_of_this_thread::<Cid>() else { return true };
    let slot = SLOTS.base().wrapping_add(offset as usize);
    // SAFETY: the first word of a slot, all of which are mapped. It is a hint: the thread may run elsewhere by now.
    let old = unsafe { &*slot.cast::<AtomicU64>() }.load(Ordering::Relaxed);
    // SAFETY: 0, or a buffer, which stays.
    let buffer = unsafe { core::ptr::with_exposed_provenance::<Buffer>(old as usize).as_ref() };
    let (mut context, cpu) = context();
    let needed = 8 * (words + context.len()) as u64;
    if buffer.is_some_and(|buffer| buffer.used.load(Ordering::Relaxed) + needed <= LIMIT) {
        let Some(number) = context::draw() else { return true };
        let owner = number + u64::from(cpu);
        context[0] = MaybeUninit::new(time::of_context());
        let (from, n) = (context.as_ptr(), context.len() as u64);
        let pushed = rseq::retry(Exit::COLD, cid::prepare::<Cid>, || {
            // SAFETY: the slots lead to buffers that sections write only (4).
            unsafe { rseq::trace_context(Cid::index(), &SLOTS, owner, from, n) }
        });
        if pushed.is_none_or(Exit::is_committed) {
            return true;
        }
    }
    // The sections above end without a commit in a child whose fork has interrupted them: its slots are empty. (3)
    if !recording.is_current() {
        return true;
    }
    let Some(new) = begin(recording) else { return false };
    let address = core::ptr::from_ref(new).expose_provenance() as u64;
    let stored = rseq::retry(Exit::COLD, cid::prepare::<Cid>, || {
        // SAFETY: the slot's first word is written by sections only (4).
        unsafe { rseq::store_if_equal(Cid::index(), &SLOTS, old, address) }
    });
    match (stored.is_some_and(Exit::is_committed), buffer) {
        (true, Some(full)) => recording.release(full),
        (true, None) => {}
        // A forked child has not begun the buffer: its parent has. (3)
        (false, _) if !recording.is_current() => {}
        (false, _) => recording.release(new),
    }
    true
}

/// Begins a buffer, with what was lost before. `None`: all are in use.
fn begin(recording: &Recording) -> Option<&'static Buffer> {
    recording.begin().inspect(|buffer| losses::tell(recording, buffer))
}

/// Appends an event of the calling thread, whose fields are words, to a buffer that was just begun.
pub(super) fn append_event(buffer: &Buffer, site: u16, fields: &[u64; 2]) {
    let words = Packed::words(site, &(&fields[0], (&fields[1], ())));
    append(buffer, time::of_context(), &context().0[1..]);
    append(buffer, time::of_event(), &first::<3>(words).map(MaybeUninit::new));
}

/// A record of the calling thread: its id, its cpu, its name, its span; and the cpu. The first word is for the time.
fn context() -> ([MaybeUninit<u64>; 6], u32) {
    let mut name = [0_u64; 2];
    // SAFETY: room for 16 bytes, which the kernel ends by a zero.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let cpu = rseq::cpu_id();
    let first = u64::from(cpu) << 32 | 5 << 16 | u64::from(CONTEXT);
    let thread = thread_id::current().into();
    let words = [0, first, thread, name[0], name[1], context::span().as_raw()];
    (words.map(MaybeUninit::new), cpu)
}

/// Appends a record to a buffer that no other thread has meanwhile.
fn push_by_lane(recording: &Recording, words: &[MaybeUninit<u64>]) -> bool {
    let Some(lanes) = lanes() else { return false };
    let tid = u64::from(thread_id::current());
    let first = tid as usize % lanes.len();
    let lanes = || lanes[first..].iter().chain(&lanes[..first]);
    // Acquire: partner is the Release below. (2)
    let taken = lanes().find_map(|lane| {
        // SAFETY: null, or a buffer, which stays.
        unsafe { lane.swap(null_mut(), Ordering::Acquire).as_ref() }
    });
    let Some(mut buffer) = taken.or_else(|| begin(recording)) else { return false };
    let (context, cpu) = context();
    let needed = 8 * (words.len() + 1 + context.len()) as u64;
    if buffer.used.load(Ordering::Relaxed) + needed > LIMIT {
        recording.release(buffer);
        let Some(new) = begin(recording) else { return false };
        buffer = new;
    }
    // Where threads have no words of their own, they are in no span, and one number of a thread is as good as another.
    let number = context::number().unwrap_or(tid << CPU_BITS);
    if buffer.owner.load(Ordering::Relaxed) != number + u64::from(cpu) {
        let number = context::draw().unwrap_or(number);
        append(buffer, time::of_context(), &context[1..]);
        buffer.owner.store(number + u64::from(cpu), Ordering::Relaxed);
    }
    // Where threads have no numbers, a context does not tell that the thread was in another lane meanwhile: exact times do.
    let has_number = context::number().is_some();
    let time = if has_number { time::of_event() } else { time::of_context() };
    append(buffer, time, words);
    let this = core::ptr::from_ref(buffer).cast_mut();
    let is_kept = lanes().any(|lane: &AtomicPtr<Buffer>| {
        // Release: partner is the Acquire above.
        lane.compare_exchange(null_mut(), this, Ordering::Release, Ordering::Relaxed).is_ok()
    });
    if !is_kept {
        recording.release(buffer);
    }
    true
}

/// Appends this time and these words to a buffer of the calling thread that has room for them.
fn append(buffer: &Buffer, time: u64, words: &[MaybeUninit<u64>]) {
    let used = buffer.used.load(Ordering::Relaxed);
    let at = used as usize / 8;
    buffer.word(at).store(time, Ordering::Relaxed);
    for (nth, word) in words.iter().take(MOST_WORDS).enumerate() {
        // SAFETY: the words of a finished record are initialised, as are those of `context`.
        let word = unsafe { word.assume_init() };
        buffer.word(at + 1 + nth).store(word, Ordering::Relaxed);
    }
    // Release: partners are the Acquires in dump.rs.
    buffer.used.store(used + 8 * (1 + words.len()) as u64, Ordering::Release);
}

/// Starts a recording, with all sites on, unless the environment has started one.
pub(super) fn start(options: Options<'_>, by: By) -> Result<Option<Recording>, StartError> {
    losses::register();
    let made = Recording::make(options, by)?;
    // Partner: the fence in `Site::register`.
    fence(Ordering::SeqCst);
    if let Some(recording) = made {
        site::all().for_each(|site| {
            recording.describe(site);
            rules::apply(&recording, site);
        });
    }
    Ok(made)
}

/// [`record`] by the section `trace_context`, for the tests that disturb it: an event of two words.
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

/// [`record`] by the sections of times that are read before, for the tests that disturb them.
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
