//! Return of memory to the kernel, on request or by time from a background thread, which the hook of cold paths may
//! start. Without a thread the hook may release by time itself (`timed_release.rs`).
//!
//! ```text
//!   the program                                 the background thread
//!   uses its first megabytes ─── cold hook ───► is started
//!   frees spans: their chunks are dirty ──────► wakes up, waits a period, ages dirty chunks,
//!   frees objects of many spans ──────────────► waits a period, gives back chunks that are still aged,
//!                                               and pages between objects
//!   is dense for a period ───────────────────► makes huge pages, a few at a time (`huge.rs`)
//!                                               nothing left: sleeps until memory is freed, or grows
//! ```
//! With a target, nothing is aged: idle memory stays as long as the heap is smaller than the target, and goes at the
//! next check if it is larger.
//!
//! # Invariants
//! 1. The hook runs on a thread that allocates or frees, while that thread holds nothing of the malloc's; its
//!    argument says which of both. libc calls `free` while it holds locks of its own, so a hook for frees must not
//!    call libc functions that take locks.
//! 2. The background thread does not sleep while there are chunks to give back, or many spans to subrelease
//!    (`idle.rs`): spans that lost objects since the last scan, and spans that the scan left alone because they were
//!    not idle.

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
/// The target in bytes; [`NO_TARGET`] if none is set.
static TARGET: AtomicUsize = AtomicUsize::new(NO_TARGET);
const NO_TARGET: usize = usize::MAX;
/// So many changed spans justify a scan of all spans.
pub(super) const WORTH_A_LOOK: usize = 64;

/// Gives all unused memory except `pad` bytes back to the kernel. Returns whether there was any.
///
/// Empties the caches of all cores, with one `membarrier(2)` for each core that has something. Linear in the memory
/// in use. Not for signal handlers.
pub fn trim(pad: usize) -> bool {
    let Some(range) = Range::get() else { return false };
    release_all(range, pad) > 0
}

/// Gives memory back to the kernel that no object has used since the last call, or what exceeds [the
/// target](set_target). Returns how many bytes. Empties the caches of cores that were idle since then.
///
/// For a thread that calls it regularly: free memory stays for one such period and goes in the next. Costs as much as
/// [`trim`]. [Under pressure](super::watch_pressure) all idle memory goes at once, even below the target.
pub fn release_idle() -> usize {
    let Some(range) = Range::get() else { return 0 };
    timed_release::stop();
    if pressure::is_high() {
        return release_all(range, 0);
    }
    let target = target();
    if is_kept(range) {
        // Caches and pages between objects may stay as well.
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

/// The last resort before an allocation fails: moves the objects of all caches into spans, so that spans may become
/// empty, and gives all idle memory back to the kernel.
///
/// The calling thread must hold nothing of the malloc's; code that runs out of memory under a class's lock releases
/// it first. While another thread does the same, waits up to 100 ms: caches are empty then, and their objects are on
/// the way.
#[cold]
pub(super) fn reclaim(range: Range) {
    const WAITS: usize = 100;
    static RECLAIMS: TryLock = TryLock::new();
    let (mut locked, mut waits) = (RECLAIMS.try_lock(), 0);
    // A signal handler that interrupted the thread that reclaims goes on without waiting.
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

/// Moves the objects of all cores and depots into spans.
pub(super) fn empty_caches(range: Range) {
    core_caches::drain(range, false);
    central::places(range).for_each(|place| _ = central::flush(place, false));
}

/// Gives all idle memory except `pad` bytes back to the kernel, including parts that it refused before. Returns how
/// many bytes.
fn release_all(range: Range, pad: usize) -> usize {
    store::retry_kept(range);
    empty_caches(range);
    store::purge(range, pad, false) + thin_out(range, false)
}

/// Sets a target for the size of spans, large objects and idle memory together. Below it, [`release_idle`] gives
/// nothing back, however long memory is idle; above it, all idle memory goes at once. `None`, the default, releases
/// idle memory by time.
///
/// Spans and large objects count completely, whether their pages are resident or not. `resident:SIZE` in
/// `CORELOCAL_MALLOC` sets the target when the program starts.
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

/// Applies a word of `CORELOCAL_MALLOC`.
pub(super) fn configure(word: &[u8]) {
    if word == b"pressure:no" {
        pressure::ignore();
    }
    let target = word.strip_prefix(b"resident:").and_then(debug::bytes);
    if let Some(target) = target.and_then(|target| usize::try_from(target).ok()) {
        set_target(Some(target));
    }
}

/// Whether idle memory stays because the target is not exceeded.
pub(super) fn is_kept(range: Range) -> bool {
    target().is_some_and(|target| !is_beyond(range, target))
}

/// Whether the target is exceeded.
fn is_beyond(range: Range, target: usize) -> bool {
    stats::used_bytes(range) + stats::idle_bytes(range) > target
}

/// Subreleases all spans.
fn thin_out(range: Range, only_resting: bool) -> usize {
    let header = range.header();
    // Before the scan: spans that change during it are counted again.
    header.thinned.store(0, Ordering::Relaxed);
    let mut all = Look::default();
    range.known_parts().for_each(|part| thin_out_part(range, part, only_resting, &mut all));
    // Spans that are idle at the next scan are released then.
    count_thinned(range, all.left);
    header.released.fetch_add(all.bytes, Ordering::Relaxed);
    all.bytes
}

/// As [`thin_out`], for `most` chunks from `from` on. Returns the bytes given back, and the chunk to continue with if
/// there are more.
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
        // Acquire: partner is the Release in `spans.rs`; the record is initialised.
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

/// Bytes of whole free chunks that have not been given back to the kernel. Without objects in caches, and without
/// pages between objects.
#[inline]
pub fn idle_bytes() -> usize {
    Range::get().map_or(0, stats::idle_bytes)
}

/// Sleeps until there is work for [`release_idle`], for the thread that then calls it: until [`idle_bytes`] is not 0,
/// objects of many spans were freed, or memory beyond [the target](set_target) is idle. One thread at a time. May
/// return early; in particular when the heap grows in a process that has called
/// [`use_huge_pages`](super::use_huge_pages) and has some or [`watch_pressure`](super::watch_pressure) and has a
/// limit, and when the next check for pressure is due while a target keeps idle memory.
pub fn wait_for_idle() {
    let Some(range) = Range::get() else { return };
    let is_idle = || {
        let is_thinned = range.header().thinned.load(Ordering::Relaxed) >= WORTH_A_LOOK;
        (stats::idle_bytes(range) != 0 || is_thinned) && !is_kept(range)
    };
    // Memory that the target keeps is given back under pressure, and pressure does not wake this thread.
    let is_looked_for = target().is_some() && stats::idle_bytes(range) > 0;
    let period = if is_looked_for { pressure::period() } else { None };
    let deadline = period.map(Deadline::after);
    let is_anything = || is_idle() || huge::has_grown(range) || pressure::has_grown(range);
    range.header().sleeper.sleep_unless(deadline, is_anything);
}

/// To be called after a span lost objects.
pub(super) fn after_thinning(range: Range) {
    count_thinned(range, 1);
}

fn count_thinned(range: Range, spans: usize) {
    let header = range.header();
    // Relaxed: the background thread reads the count after the fence in `wake`.
    let before = header.thinned.fetch_add(spans, Ordering::Relaxed);
    // At each multiple: a heap that was below the target then may exceed it now.
    if before / WORTH_A_LOOK != (before + spans) / WORTH_A_LOOK {
        header.sleeper.wake();
    }
}

/// What the cold path did that calls the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Moment {
    /// Memory was taken: a batch of objects or a large object. The hook may allocate, and start threads.
    Taken,
    /// Memory was freed. libc may hold locks that starting a thread would need, so the hook must not start one.
    Given,
}

/// Sets a hook that is called whenever a core's cache is refilled or spilled, or a large object is made or freed,
/// once the malloc has used `bytes`. It runs on the thread that does this, possibly in a signal handler. Made for
/// [`release_by_time`](super::release_by_time), which has an example.
///
/// The hook is not re-entered: allocations and frees inside it do not call it.
pub fn set_cold_hook(bytes: usize, hook: fn(Moment)) {
    HOOK.store(hook as *mut (), Ordering::Relaxed);
    // Release: partner is the Acquire in `call_hook_at`.
    HOOK_AT.store(bytes, Ordering::Release);
}

/// Calls the hook after memory was taken from the middle or back end.
#[inline]
pub(super) fn after_growth(range: Range) {
    call_hook_at(range, Moment::Taken);
}

/// Calls the hook after memory was given to the middle or back end.
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

/// `extern "C"`: a panic of the hook ends the process here, since it must not unwind out of an allocator.
#[cold]
extern "C" fn call_hook(moment: Moment) {
    let hook = HOOK.load(Ordering::Relaxed);
    // SAFETY: `set_cold_hook` stored a function of this type before it set `HOOK_AT`.
    let hook = unsafe { core::mem::transmute::<*mut (), fn(Moment)>(hook) };
    let Some(is_running) = arch::own_word(own_words::HOOK) else {
        // The thread has no words of its own: run the hook on one thread at a time, and never re-entered.
        static RUNS: TryLock = TryLock::new();
        if let Some(_held) = RUNS.try_lock() {
            hook(moment);
        }
        return;
    };
    // Relaxed: used only by this thread and its signal handlers.
    if is_running.load(Ordering::Relaxed) == 0 {
        is_running.store(1, Ordering::Relaxed);
        hook(moment);
        is_running.store(0, Ordering::Relaxed);
    }
}
