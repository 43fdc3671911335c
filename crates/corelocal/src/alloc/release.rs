//! Memory that goes back to the kernel: when the program says so, or by time from a thread that the hook of cold
//! paths may start. Without a thread the hook may release by time itself (`timed_release.rs`).
//!
//! ```text
//!   the program                                 the thread
//!   uses its first megabytes ─── cold hook ───► is started
//!   frees spans: their chunks are dirty ──────► wakes up, waits a period, ages what is dirty,
//!   frees objects of many spans ──────────────► waits a period, gives back what is still aged, and pages
//!                                               between objects
//!   is dense for a period ───────────────────► makes huge pages, some at a time (`huge.rs`)
//!                                               nothing left: sleeps until something is freed, or grows
//! ```
//! With a target nothing is aged: what is idle stays as long as all that the malloc has is less, and goes at the
//! next look where it is more.
//!
//! # Invariants
//! 1. The hook runs on a thread that allocates or frees, while it holds nothing of the malloc's; the moment says
//!    which of both. libc calls `free` under locks of its own: a hook for that calls nothing of libc that takes locks.
//! 2. Nobody sleeps while there are chunks to give back, or many spans that could be thinner (`idle.rs`): those that
//!    came to have fewer objects since the last look at all of them, and those that it left since they did not rest.

use core::ops;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;

use super::class::CLASSES;
use super::range::Range;
use super::spans::Place;
use super::subrelease::Look;
use super::{central, core_caches, debug, huge, pressure, stats, store, timed_release};
use crate::sys::arch::{self, own_words};
use crate::sys::futex::{Deadline, Scope, Wake};
use crate::sys::sleep;
use crate::sys::try_lock::TryLock;

static HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static HOOK_AT: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Bytes that there may be; [`NO_TARGET`] if nobody has said so.
static TARGET: AtomicUsize = AtomicUsize::new(NO_TARGET);
const NO_TARGET: usize = usize::MAX;
/// Spans that were thinned out are worth a look at all of them.
pub(super) const WORTH_A_LOOK: usize = 64;

/// Gives memory that no object uses back to the kernel, but for `pad` bytes; whether there was any.
///
/// Empties the caches of all cores, with a `membarrier(2)` for each that has something. Linear in the memory
/// in use. Not for signal handlers.
pub fn trim(pad: usize) -> bool {
    let Some(range) = Range::get() else { return false };
    release_all(range, pad) > 0
}

/// Gives memory back to the kernel that no object has used since the last call, or what [the target](set_target) says;
/// how many bytes. Empties the caches of cores that did nothing since.
///
/// For a thread that calls it now and then: what is free stays for one such period, and goes in the next one.
/// Costs as [`trim`] does. [Under pressure](super::watch_pressure) everything that is idle goes at once, below the target
/// too.
pub fn release_idle() -> usize {
    let Some(range) = Range::get() else { return 0 };
    timed_release::stop();
    if pressure::is_high() {
        return release_all(range, 0);
    }
    let target = target();
    if is_kept(range) {
        // Caches and pages between objects may stay, too.
        return 0;
    }
    core_caches::drain(range, true);
    central::places(range).for_each(|place| _ = central::flush(place, true));
    if let Some(target) = target {
        let bytes = store::purge(range, target.saturating_sub(stats::used_bytes(range)), false);
        let is_still = is_beyond(range, target);
        return bytes + if is_still { thin_out(range, true) } else { 0 };
    }
    let bytes = store::purge(range, 0, true) + thin_out(range, true);
    store::age(range);
    bytes
}

/// Does what it can before the result is null: takes the objects out of all caches, so that spans may become empty, and
/// gives all that is idle back to the kernel.
///
/// The calling thread holds nothing of the malloc's: who finds no memory under a class's lock lets it go first. While
/// another thread does the same it waits, 100 ms at most: caches are empty then, and their objects are under way.
#[cold]
pub(super) fn reclaim(range: Range) {
    const WAITS: usize = 100;
    static RECLAIMS: TryLock = TryLock::new();
    let (mut locked, mut waits) = (RECLAIMS.try_lock(), 0);
    // A signal handler that interrupted it goes on without.
    while locked.is_none() && !RECLAIMS.is_mine() && waits < WAITS {
        let (word, moment) = (AtomicU32::new(0), Duration::from_millis(1));
        let _: Wake = sleep::wait(&word, 0, Some(Deadline::after(moment)), Scope::Private);
        locked = RECLAIMS.try_lock();
        waits += 1;
    }
    let in_depots = || central::places(range).map(central::waiting).sum::<usize>();
    if core_caches::cached().sum::<usize>() + in_depots() + stats::idle_bytes(range) > 0 {
        empty_caches(range);
        store::purge(range, 0, false);
    }
}

/// Moves what all cores and depots have into spans.
pub(super) fn empty_caches(range: Range) {
    core_caches::drain(range, false);
    central::places(range).for_each(|place| _ = central::flush(place, false));
}

/// Gives all that is idle back to the kernel, but for `pad` bytes, what it has refused before, too; how many bytes.
fn release_all(range: Range, pad: usize) -> usize {
    store::retry_kept(range);
    empty_caches(range);
    store::purge(range, pad, false) + thin_out(range, false)
}

/// Says how many bytes spans, large objects and what is idle should take together: as long as it is less,
/// [`release_idle`] gives nothing back, however long nobody uses it; of what is more it gives back all that is idle, at
/// once. `None` as in the beginning: what is idle goes with time.
///
/// Spans and large objects count whole, whether each of their pages was written to or not. `resident:SIZE` in
/// `CORELOCAL_MALLOC` says the same when the program begins.
///
/// ```
/// use corelocal::alloc;
///
/// alloc::set_target(Some(64 << 20));
/// # alloc::set_target(None);
/// ```
pub fn set_target(bytes: Option<usize>) {
    TARGET.store(bytes.unwrap_or(NO_TARGET), Ordering::Relaxed);
}

pub(super) fn target() -> Option<usize> {
    Some(TARGET.load(Ordering::Relaxed)).filter(|target| *target != NO_TARGET)
}

/// A word of the environment.
pub(super) fn configure(word: &[u8]) {
    if word == b"pressure:no" {
        pressure::ignore();
    }
    let target = word.strip_prefix(b"resident:").and_then(debug::bytes);
    if let Some(target) = target.and_then(|target| usize::try_from(target).ok()) {
        set_target(Some(target));
    }
}

/// Whether what is idle stays, since there is no more than there should be.
pub(super) fn is_kept(range: Range) -> bool {
    target().is_some_and(|target| !is_beyond(range, target))
}

/// Whether there is more than there should be.
fn is_beyond(range: Range, target: usize) -> bool {
    stats::used_bytes(range) + stats::idle_bytes(range) > target
}

/// Pages between objects that are in use, in all spans.
fn thin_out(range: Range, only_resting: bool) -> usize {
    let header = range.header();
    // Before the look. Who thins one meanwhile counts from 0.
    header.thinned.store(0, Ordering::Relaxed);
    let mut all = Look::default();
    range.known_parts().for_each(|part| thin_out_part(range, part, only_resting, &mut all));
    // What rests until the next look is given back there, or is not worth one more.
    count_thinned(range, all.left);
    header.released.fetch_add(all.bytes, Ordering::Relaxed);
    all.bytes
}

/// Likewise, of so many chunks from this one on; how many bytes, and the chunk to go on with if there are more.
pub(super) fn thin_out_some(
    range: Range,
    from: usize,
    most: usize,
    only_resting: bool,
) -> (usize, Option<usize>) {
    let mut all = Look::default();
    let (mut left, mut next) = (most, None);
    for part in range.known_parts() {
        let start = part.start.max(from);
        let end = part.end.min(start.saturating_add(left));
        if start >= part.end {
            continue;
        }
        if left == 0 {
            next = Some(start);
            break;
        }
        thin_out_part(range, start..end, only_resting, &mut all);
        left -= end - start;
        if end < part.end {
            next = Some(end);
            break;
        }
    }
    count_thinned(range, all.left);
    range.header().released.fetch_add(all.bytes, Ordering::Relaxed);
    (all.bytes, next)
}

/// The chunks are those that spans begin with, or others of these.
fn thin_out_part(range: Range, part: ops::Range<usize>, only_resting: bool, all: &mut Look) {
    let mut chunk = part.start;
    while chunk < part.end {
        // Acquire: partner is the Release in `spans.rs`; the record is filled in.
        let class = usize::from(range.kind(chunk).load(Ordering::Acquire));
        if !(1..=CLASSES).contains(&class) {
            chunk += 1;
            continue;
        }
        let place = Place::of_chunk(range, class, chunk);
        let start = chunk & !(place.shape().chunks - 1);
        let one = central::thin_out(place, start, only_resting);
        *all = Look { bytes: all.bytes + one.bytes, left: all.left + one.left };
        chunk = start + place.shape().chunks;
    }
}

/// Bytes of whole chunks that nobody uses, and that the kernel has not got back. What caches hold, and pages between
/// objects, is not in it.
#[inline]
pub fn idle_bytes() -> usize {
    Range::get().map_or(0, stats::idle_bytes)
}

/// Sleeps until there is something for [`release_idle`], for the thread that then calls it: until [`idle_bytes`] is not
/// 0, objects of many spans were freed, or something is freed beyond [the target](set_target). One thread at a time. May
/// return early, and does when memory is taken by a process that has called [`use_huge_pages`](super::use_huge_pages)
/// and has some, or [`watch_pressure`](super::watch_pressure) and has a limit; and when the next look for pressure is due
/// while a target keeps something.
pub fn wait_for_idle() {
    let Some(range) = Range::get() else { return };
    let is_idle = || {
        let is_thinned = range.header().thinned.load(Ordering::Relaxed) >= WORTH_A_LOOK;
        (stats::idle_bytes(range) != 0 || is_thinned) && !is_kept(range)
    };
    // What a target keeps is given back under pressure, which wakes nobody.
    let is_looked_for = target().is_some() && stats::idle_bytes(range) > 0;
    let period = if is_looked_for { pressure::period() } else { None };
    let deadline = period.map(Deadline::after);
    let is_anything = || is_idle() || huge::has_grown(range) || pressure::has_grown(range);
    range.header().sleeper.sleep_unless(deadline, is_anything);
}

/// After a span came to have fewer objects than one would take for it.
pub(super) fn after_thinning(range: Range) {
    count_thinned(range, 1);
}

fn count_thinned(range: Range, spans: usize) {
    let header = range.header();
    // Relaxed: who wakes up looks at it after the fence in `wake`.
    let before = header.thinned.fetch_add(spans, Ordering::Relaxed);
    // Again each time that there are so many more: who was below the target then may be beyond it now.
    if before / WORTH_A_LOOK != (before + spans) / WORTH_A_LOOK {
        header.sleeper.wake();
    }
}

/// What a cold path has done when it calls the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Moment {
    /// Taken memory: a batch of objects, or a large one. The hook may allocate, and start threads.
    Taken,
    /// Given memory back. libc may hold locks of its own, which starting a thread takes: the hook does not.
    Given,
}

/// Calls `hook` each time that a core's cache is filled or emptied or a large object made or freed, once the malloc has
/// used `bytes`: on the thread that does it, which may be anywhere, in a signal handler too. For
/// [`release_by_time`](super::release_by_time), which has an example.
///
/// The hook never runs inside itself: while a thread runs it, what that thread allocates and frees calls no hook.
pub fn set_cold_hook(bytes: usize, hook: fn(Moment)) {
    HOOK.store(hook as *mut (), Ordering::Relaxed);
    // Release: partner is the Acquire in `call_hook_at`.
    HOOK_AT.store(bytes, Ordering::Release);
}

/// After something was taken from the store.
#[inline]
pub(super) fn after_growth(range: Range) {
    call_hook_at(range, Moment::Taken);
}

/// After something was given to the store.
#[inline]
pub(super) fn after_giving(range: Range) {
    call_hook_at(range, Moment::Given);
}

#[inline]
fn call_hook_at(range: Range, moment: Moment) {
    // Acquire: partner is the Release in `set_cold_hook`.
    if range.high_water() >= HOOK_AT.load(Ordering::Acquire) {
        call_hook(moment);
    }
}

/// A panic of the hook ends the process here: it must not unwind out of an allocator.
#[cold]
extern "C" fn call_hook(moment: Moment) {
    let hook = HOOK.load(Ordering::Relaxed);
    // SAFETY: set before `HOOK_AT`, to such a function.
    let hook = unsafe { core::mem::transmute::<*mut (), fn(Moment)>(hook) };
    let Some(is_running) = arch::own_word(own_words::HOOK) else {
        // No words of the thread's own: one thread at a time, and never inside itself.
        static RUNS: TryLock = TryLock::new();
        if let Some(_held) = RUNS.try_lock() {
            hook(moment);
        }
        return;
    };
    // Relaxed: of this thread and its signal handlers alone.
    if is_running.load(Ordering::Relaxed) == 0 {
        is_running.store(1, Ordering::Relaxed);
        hook(moment);
        is_running.store(0, Ordering::Relaxed);
    }
}
