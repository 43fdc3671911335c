//! Buffers for threads that find none, or no room: for a core, or for the thread itself.
//!
//! Invariants: those of `recorder.rs`.

use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::append::{append, thread_context};
use super::buffer::Buffer;
use super::context::{self, CPU_BITS};
use super::format::BUFFER_LEN;
use super::memory::{Recording, SLOTS, lanes};
use super::{losses, time};
use crate::cid::private::Sealed as _;
use crate::cid::{self, Cid};
use crate::rseq::{self, Exit};
use crate::sys::thread::id;

pub(super) const LIMIT: u64 = BUFFER_LEN as u64;
const _: () = assert!(BUFFER_LEN == rseq::TRACE_BUFFER);

/// Makes this core's buffer ready for a record of so many words of the calling thread. False: there is no buffer.
pub(super) fn make_ready(recording: &Recording, words: usize) -> bool {
    let Some(offset) = cid::offset_of_this_thread::<Cid>() else { return true };
    let slot = SLOTS.base().wrapping_add(offset as usize);
    // SAFETY: the first word of a slot, all of which are mapped. It is a hint: the thread may run elsewhere by now.
    let old = unsafe { &*slot.cast::<AtomicU64>() }.load(Ordering::Relaxed);
    // SAFETY: 0, or a buffer, which stays.
    let buffer = unsafe { core::ptr::with_exposed_provenance::<Buffer>(old as usize).as_ref() };
    let (mut context, cpu) = thread_context();
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

/// Appends a record to a buffer that no other thread has meanwhile.
pub(super) fn push_by_lane(recording: &Recording, words: &[MaybeUninit<u64>]) -> bool {
    let Some(lanes) = lanes() else { return false };
    let tid = u64::from(id::current());
    let first = tid as usize % lanes.len();
    let lanes = || lanes[first..].iter().chain(&lanes[..first]);
    // Acquire: partner is the Release below. (2)
    let taken = lanes().find_map(|lane| {
        // SAFETY: null, or a buffer, which stays.
        unsafe { lane.swap(null_mut(), Ordering::Acquire).as_ref() }
    });
    let Some(mut buffer) = taken.or_else(|| begin(recording)) else { return false };
    let (context, cpu) = thread_context();
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
    // Where threads have no numbers, a context does not tell that the thread was in another lane meanwhile: exact times
    // do.
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
