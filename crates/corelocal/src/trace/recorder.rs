//! Recording an event: one critical section, and what makes its buffer ready.
//!
//! # Data flow
//! ```text
//!   record    trace_push: the core's buffer has room, and this thread was the last one there ─▶ done
//!   otherwise, in `record_cold`:
//!     another thread, or another cpu      trace_context: a record of thread and cpu, then again
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

use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

use super::encode::Encoder;
use super::format::{BUFFER_LEN, CONTEXT, MOST_WORDS};
use super::memory::{Buffer, Recording, SLOTS, STAMPED};
use super::site::{self, Site};
use super::{Lost, Options, StartError};
use crate::cid::private::Sealed as _;
use crate::cid::{self, Cid};
use crate::clock::Ticks;
use crate::rseq::{self, Exit};
use crate::sys::{thread_id, thread_serial};

/// Bits for the cpu in what names a thread on a cpu.
const CPU_BITS: u32 = 13;
const LIMIT: u64 = BUFFER_LEN as u64;
const _: () = assert!(BUFFER_LEN == rseq::TRACE_BUFFER);
/// How often a buffer is made ready for one event.
const ATTEMPTS: u32 = 16;

/// Threads without critical sections leave their buffers here for the next one.
static LANES: [AtomicPtr<Buffer>; 16] = [const { AtomicPtr::new(null_mut()) }; 16];

/// The number of the calling thread, with room for the cpu's. `None` where threads have no words of their own.
#[inline(always)]
fn thread() -> Option<u64> {
    thread_serial::current().map(|serial| serial << CPU_BITS)
}

/// [`record`] by the section `trace_context`, for the tests that disturb it: an event of two words.
#[doc(hidden)]
#[inline(always)]
pub fn record_as_owner(site: &'static Site, encoder: &mut Encoder) {
    let Some(number) = site.number() else { return };
    let words = encoder.finish(number);
    let exit = match (thread(), words) {
        (Some(thread), &[first, second]) => {
            let owner = thread + u64::from(rseq::cpu_id());
            let words = [MaybeUninit::new(Ticks::now().as_raw()), first, second];
            // SAFETY: as in `record`.
            unsafe { rseq::trace_context(Cid::index(), &STAMPED, owner, words.as_ptr(), 3) }
        }
        _ => Exit::COLD,
    };
    if !exit.is_straight() {
        record_cold(site, words);
    }
}

/// Records an event of a registered site that is on.
#[doc(hidden)]
#[inline(always)]
pub fn record(site: &'static Site, encoder: &mut Encoder) {
    let Some(number) = site.number() else { return };
    let words = encoder.finish(number);
    let exit = match thread() {
        // SAFETY: the slots of `STAMPED` lead to buffers of `LIMIT` bytes that sections under their ids write only.
        Some(thread) => unsafe {
            rseq::trace_push(Cid::index(), &STAMPED, thread, words.as_ptr(), words.len() as u64)
        },
        None => Exit::COLD,
    };
    if !exit.is_straight() {
        record_cold(site, words);
    }
}

#[cold]
#[inline(never)]
fn record_cold(site: &'static Site, words: &[MaybeUninit<u64>]) {
    let mut all = [MaybeUninit::uninit(); MOST_WORDS + 1];
    let len = words.len().min(MOST_WORDS) + 1;
    all[1..len].copy_from_slice(&words[..len - 1]);
    let all = &mut all[..len];
    for _ in 0..ATTEMPTS {
        // Where ticks are not the counter's, no section can read the time.
        let Some(thread) = thread().filter(|_| !STAMPED.base().is_null()) else { break };
        let pushed = rseq::retry(Exit::COLD, cid::prepare::<Cid>, || {
            // SAFETY: as in `record`.
            unsafe {
                rseq::trace_push(Cid::index(), &STAMPED, thread, words.as_ptr(), len as u64 - 1)
            }
        });
        match pushed {
            None => break,
            Some(exit) if exit.is_committed() => return,
            Some(_) => {
                let Some(recording) = here() else { return };
                if !make_ready(&recording, thread, len) {
                    return lose(site);
                }
            }
        }
    }
    let Some(recording) = here() else { return };
    if !push_by_lane(&recording, all) {
        lose(site);
    }
}

/// The recording. In a forked child, which has none, all sites are switched off.
fn here() -> Option<Recording> {
    let recording = Recording::here();
    if recording.is_none() {
        site::all().for_each(|site| site.switch(false));
    }
    recording
}

fn lose(site: &Site) {
    if let Some(recording) = here() {
        recording.count_lost(Lost::NoBuffer);
        site.count_lost();
    }
}

/// Makes this core's buffer ready for a record of so many words of the calling thread. False: there is no buffer.
fn make_ready(recording: &Recording, thread: u64, words: usize) -> bool {
    let Some(offset) = cid::offset_of_this_thread::<Cid>() else { return true };
    let slot = SLOTS.base().wrapping_add(offset as usize);
    // SAFETY: the first word of a slot, all of which are mapped. It is a hint: the thread may run elsewhere by now.
    let old = unsafe { &*slot.cast::<AtomicU64>() }.load(Ordering::Relaxed);
    // SAFETY: 0, or a buffer, which stays.
    let buffer = unsafe { core::ptr::with_exposed_provenance::<Buffer>(old as usize).as_ref() };
    let (mut context, cpu) = context();
    let needed = 8 * (words + context.len()) as u64;
    if buffer.is_some_and(|buffer| buffer.used.load(Ordering::Relaxed) + needed <= LIMIT) {
        let owner = thread + u64::from(cpu);
        context[0] = MaybeUninit::new(Ticks::now().as_raw());
        let (from, n) = (context.as_ptr(), context.len() as u64);
        let pushed = rseq::retry(Exit::COLD, cid::prepare::<Cid>, || {
            // SAFETY: as in `record`.
            unsafe { rseq::trace_context(Cid::index(), &STAMPED, owner, from, n) }
        });
        if pushed.is_none_or(Exit::is_committed) {
            return true;
        }
    }
    // The sections above end without a commit in a child whose fork has interrupted them: its slots are empty.
    let Some(new) = here().and_then(|_| recording.begin()) else { return false };
    let address = core::ptr::from_ref(new).expose_provenance() as u64;
    let stored = rseq::retry(Exit::COLD, cid::prepare::<Cid>, || {
        // SAFETY: the slot's first word is written by sections only.
        unsafe { rseq::store_if_equal(Cid::index(), &SLOTS, old, address) }
    });
    match (stored.is_some_and(Exit::is_committed), buffer) {
        (true, Some(full)) => full.release(),
        (true, None) => {}
        // A forked child has not begun the buffer: its parent has.
        (false, _) if here().is_none() => {}
        (false, _) => new.release(),
    }
    true
}

/// A record of the calling thread: its id, its cpu, its name; and the cpu. The first word is for the time.
fn context() -> ([MaybeUninit<u64>; 5], u32) {
    let mut name = [0_u64; 2];
    // SAFETY: room for 16 bytes, which the kernel ends by a zero.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let cpu = rseq::cpu_id();
    let first = u64::from(cpu) << 32 | 4 << 16 | u64::from(CONTEXT);
    let words = [0, first, thread_id::current().into(), name[0], name[1]];
    (words.map(MaybeUninit::new), cpu)
}

/// Appends a record to a buffer that no other thread has meanwhile.
fn push_by_lane(recording: &Recording, words: &mut [MaybeUninit<u64>]) -> bool {
    let tid = u64::from(thread_id::current());
    let first = tid as usize % LANES.len();
    let lanes = || LANES[first..].iter().chain(&LANES[..first]);
    // Acquire: partner is the Release below. (2)
    let taken = lanes().find_map(|lane| {
        // SAFETY: null, or a buffer, which stays.
        unsafe { lane.swap(null_mut(), Ordering::Acquire).as_ref() }
    });
    let Some(mut buffer) = taken.or_else(|| recording.begin()) else { return false };
    let (mut context, cpu) = context();
    if buffer.used.load(Ordering::Relaxed) + 8 * (words.len() + context.len()) as u64 > LIMIT {
        buffer.release();
        let Some(new) = recording.begin() else { return false };
        buffer = new;
    }
    let owner = (tid << CPU_BITS) + u64::from(cpu);
    if buffer.owner.load(Ordering::Relaxed) != owner {
        append(buffer, &mut context);
        buffer.owner.store(owner, Ordering::Relaxed);
    }
    append(buffer, words);
    let this = core::ptr::from_ref(buffer).cast_mut();
    let is_kept = lanes().any(|lane| {
        // Release: partner is the Acquire above.
        lane.compare_exchange(null_mut(), this, Ordering::Release, Ordering::Relaxed).is_ok()
    });
    if !is_kept {
        buffer.release();
    }
    true
}

/// Appends a record to a buffer of the calling thread that has room for it.
fn append(buffer: &Buffer, words: &mut [MaybeUninit<u64>]) {
    words[0] = MaybeUninit::new(Ticks::now().as_raw());
    let used = buffer.used.load(Ordering::Relaxed);
    for (nth, word) in words.iter().enumerate() {
        // SAFETY: the words of a finished record are initialised, as are those of `context`.
        let word = unsafe { word.assume_init() };
        buffer.word(used as usize / 8 + nth).store(word, Ordering::Relaxed);
    }
    // Release: partners are the Acquires in dump.rs.
    buffer.used.store(used + 8 * words.len() as u64, Ordering::Release);
}

/// Starts a recording, with all sites on.
pub(super) fn start(options: Options<'_>) -> Result<(), StartError> {
    let recording = Recording::make(options)?;
    // Partner: the fence in `Site::register`.
    fence(Ordering::SeqCst);
    site::all().for_each(|site| {
        recording.describe(site);
        site.switch(true);
    });
    Ok(())
}

/// Describes the site in the recording. False: there is none.
pub(super) fn describe(site: &Site) -> bool {
    let recording = Recording::here();
    recording.inspect(|recording| recording.describe(site)).is_some()
}
