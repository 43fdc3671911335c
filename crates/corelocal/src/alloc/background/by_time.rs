//! Return of idle memory by time from cold paths, for processes without a background thread.
//!
//! The cold paths of `malloc` and `free` read a clock and take a step when one is due: a bounded amount of work on
//! whichever thread comes first. The steps of a round together do what [`release_idle`](crate::alloc::release_idle)
//! does at once.
//!
//! ```text
//!   begin ──► purge ──► purge ──► … ──► thin ──► thin ──► … ──► end ──► begin
//!   idle      16 MiB of aged           spans of 64 MiB         age what
//!   caches    memory, 10 ms apart      each, 10 ms apart       is dirty, 500 ms
//! ```
//! # Programs that call rarely
//! A program that wakes twice a second and takes a few objects from its caches would never come to a cold path, nor
//! often enough for steps of 16 MiB. So, while much is idle:
//! - The process "ticks": a core's objects are counted, and after some of them the cold path is entered. How many they
//!   are follows the program: one where 10 ms passed since the last look, twice as many after each look that found
//!   nothing to do, up to [`MOST_TICK`](slots::MOST_TICK).
//! - Steps that were due while no thread called are made up for, [`SAVED`] ms of them at most, one in each call.
//!
//! # Invariants
//! 1. A step does not block and takes bounded time, however much is idle. It may run in a signal handler: it takes 4.5 KiB
//!    of its stack. Without optimisations it takes 12 KiB, and none is taken on an alternate stack, which is short.
//! 2. The thread that holds `STEPS` takes the step; others go on without one. All other state is a hint.
//! 3. Nothing happens in a child of vfork, which shares its parent's memory and ends soon.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::reclaim::empty_caches;
use super::target::{self, target};
use super::thin_out::thin_out_some;
use crate::alloc::central;
use crate::alloc::central::thinned::WORTH_A_LOOK;
use crate::alloc::core_cache::{all, slots};
use crate::alloc::layout::chunk::CHUNK;
use crate::alloc::layout::range::Range;
use crate::alloc::page_heap::{self, pressure};
use crate::sys::kernel_clock::coarse_milliseconds;
use crate::sys::try_lock::TryLock;
use crate::sys::{in_vfork_child, is_on_signal_stack};

/// Milliseconds from the end of a round to the next round.
const PERIOD: u64 = 500;
/// Milliseconds between steps.
const PAUSE: u64 = 10;
/// Milliseconds whose steps are made up for if no thread called meanwhile: with the one that is due, 8 steps.
const SAVED: u64 = 70;
/// Bytes that a step gives back, plus the rest of a run.
const MOST: usize = 16 << 20;
/// Chunks whose spans a step examines.
const MOST_CHUNKS: usize = 1024;
/// Bytes that may be idle, from which on the cold path is made to run regularly ("ticks"), and down to which it is.
const WORTH_TICKS: usize = 32 << 20;
const STILL_WORTH_TICKS: usize = 4 << 20;
/// Rounds for which ticking lasts at most, and milliseconds until it may begin again. Memory that is still idle after
/// that is in fact used now and then.
const MOST_TICKED: usize = 8;
const NOT_TICKED: u64 = 30_000;
/// After this many rounds without anything to give back, caches are left alone.
const PATIENCE: usize = 4;

/// Held by the thread that takes a step. (2)
static STEPS: TryLock = TryLock::new();
/// The time at which the next step is due, in milliseconds of the clock.
static DUE: AtomicU64 = AtomicU64::new(0);
/// The time of the last look at the clock.
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// The time at which ticking was last switched on or off; 0 if it never was.
static TICKED: AtomicU64 = AtomicU64::new(0);
/// Rounds since then.
static ROUNDS: AtomicUsize = AtomicUsize::new(0);
/// The number of the next step.
static NEXT: AtomicUsize = AtomicUsize::new(BEGIN);
/// Rounds that gave nothing back.
static QUIET: AtomicUsize = AtomicUsize::new(0);

const BEGIN: usize = 0;
const PURGE: usize = 1;
/// From this value on: thin, beginning with the chunk of this number minus `THIN`.
const THIN: usize = 2;

const R: Ordering = Ordering::Relaxed;

/// If it is time, gives memory back to the kernel that no object has used for half a second to a second. Returns how
/// many bytes.
///
/// For the hook of [`set_cold_hook`](crate::alloc::set_cold_hook), in a process without a thread that calls
/// [`release_idle`](crate::alloc::release_idle). A call reads a clock. Twice a second, and every 10 ms while there is
/// more to give back, it takes a step of 16 MiB, and at most 4 MiB more; if no thread called for longer, up to 8 calls in
/// a row take one. May be called anywhere, including signal handlers. [The target](crate::alloc::set_target) is
/// respected, except [under pressure](crate::alloc::watch_pressure).
///
/// The objects of each class are counted from the moment when 32 MiB are idle, or in spans that objects were freed of,
/// until these are less than 4 MiB; for at most 8 such rounds every 30 s. The hook is then called even if no cache becomes
/// empty or full: at least once in 256 allocations of a class, and more often in a program that allocates rarely. This
/// costs these calls of `malloc` as much as `stats` in `CORELOCAL_MALLOC`. Memory that is idle while the program neither
/// allocates nor frees stays.
///
/// ```
/// use corelocal::alloc;
///
/// // As without a hook, from half as much memory on.
/// alloc::set_cold_hook(16 << 20, |_| _ = alloc::release_by_time());
/// # alloc::set_cold_hook(usize::MAX, |_| ());
/// ```
pub fn release_by_time() -> usize {
    let (now, due) = (coarse_milliseconds(), DUE.load(R));
    // Far ahead: this process moved to a time namespace whose clock is behind.
    let is_due = now >= due || due > now + 2 * PERIOD;
    // Relaxed: the memory that steps work on has its own orderings.
    let Some(range) = Range::get() else { return 0 };
    look_at_ticks(range, now, is_due);
    if !is_due || in_vfork_child() || cfg!(debug_assertions) && is_on_signal_stack() {
        return 0;
    }
    let Some(_mine) = STEPS.try_lock() else { return 0 };
    DUE.store(due.clamp(now.saturating_sub(SAVED), now) + PAUSE, R);
    let (bytes, next) = step(range, NEXT.load(R));
    NEXT.store(next, R);
    if next == BEGIN {
        DUE.store(now + PERIOD, R);
    }
    bytes
}

/// Makes the cold path run regularly while much memory is idle, within limits.
fn look_at_ticks(range: Range, now: u64, is_due: bool) {
    let (is_ticked, since) = (slots::is_ticked(), TICKED.load(R));
    let looked = LOOKED.load(R);
    if looked != now {
        LOOKED.store(now, R);
    }
    if is_ticked {
        slots::set_tick_distance(now.abs_diff(looked) >= PAUSE, is_due);
    }
    let thinned = range.header().thinned.load(R) * CHUNK;
    let least = if is_ticked { STILL_WORTH_TICKS } else { WORTH_TICKS };
    let is_much = page_heap::idle_bytes(range) + thinned >= least;
    // Whether a target keeps the memory can be seen only in all words of the bitmaps, which is too much work for each
    // call. If one does, the process ticks until a step is due, and then not for a while.
    let is_wanted = is_much && !(is_due && is_kept(range));
    let is_time = match is_ticked {
        true => !is_wanted && NEXT.load(R) == BEGIN || ROUNDS.load(R) > MOST_TICKED,
        false => is_wanted && may_tick(now, since),
    };
    if is_time && !in_vfork_child() && TICKED.compare_exchange(since, now, R, R).is_ok() {
        ROUNDS.store(0, R);
        slots::set_ticked(!is_ticked);
        // Ticking was useful: switch it on again as soon as it is wanted.
        if is_ticked && !is_much {
            TICKED.store(0, R);
        }
    }
}

/// Returns `true` if ticking may begin again that ended at `since`, or has never begun (0).
fn may_tick(now: u64, since: u64) -> bool {
    // Ahead: this process moved to a time namespace whose clock is behind.
    since == 0 || since > now + PERIOD || now.saturating_sub(since) > NOT_TICKED
}

/// Leaves the work to a background thread from here on.
pub(in crate::alloc) fn stop() {
    if slots::is_ticked() {
        slots::set_ticked(false);
    }
}

/// Takes a step; returns the bytes given back and the next stage.
fn step(range: Range, stage: usize) -> (usize, usize) {
    match stage {
        BEGIN => begin(range),
        PURGE => purge(range),
        stage => thin(range, stage - THIN),
    }
}

fn begin(range: Range) -> (usize, usize) {
    ROUNDS.fetch_add(1, R);
    if is_kept(range) {
        return (0, BEGIN);
    }
    if pressure::is_high() {
        page_heap::retry_kept(range);
        empty_caches(range);
        return purge(range);
    }
    let is_anything = page_heap::idle_bytes(range) != 0 || is_thinned(range);
    if !is_anything && QUIET.load(R) >= PATIENCE {
        return (0, BEGIN);
    }
    QUIET.fetch_add(1, R);
    all::drain(range, true);
    central::places(range).for_each(|place| _ = central::flush(place, true));
    purge(range)
}

fn purge(range: Range) -> (usize, usize) {
    let idle = page_heap::idle_bytes(range);
    let (keep, only_aged) = match target() {
        _ if pressure::is_high() => (0, false),
        Some(target) => (target.saturating_sub(page_heap::used_bytes(range)), false),
        None => (0, true),
    };
    let bytes = page_heap::purge(range, keep.max(idle.saturating_sub(MOST)), only_aged);
    if bytes > 0 {
        QUIET.store(0, R);
    }
    if bytes >= MOST {
        return (bytes, PURGE);
    }
    let is_wanted = pressure::is_high() || is_thinned(range) && !is_kept(range);
    let next = if is_wanted { THIN } else { end(range) };
    (bytes, next)
}

/// Returns `true` if idle memory stays because of a target.
fn is_kept(range: Range) -> bool {
    !pressure::is_high() && target::is_kept(range)
}

fn is_thinned(range: Range) -> bool {
    range.header().thinned.load(R) >= WORTH_A_LOOK
}

fn thin(range: Range, from: usize) -> (usize, usize) {
    if from == 0 {
        range.header().thinned.store(0, R);
    }
    // Under pressure also spans that are not idle, and parts that the kernel refused before.
    let (bytes, next) = thin_out_some(range, from, MOST_CHUNKS, !pressure::is_high());
    if bytes > 0 {
        QUIET.store(0, R);
    }
    (bytes, next.map_or_else(|| end(range), |next| THIN + next))
}

fn end(range: Range) -> usize {
    page_heap::age(range);
    BEGIN
}

const _: () = assert!(MOST_CHUNKS * CHUNK == 64 << 20, "as the module's text says");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::central::place::Place;
    use crate::alloc::central::spans::tests::RELEASE;
    use std::sync::PoisonError;

    #[test]
    fn a_clock_that_is_behind_ticks() {
        let stopped = 1_000_000;
        assert!(may_tick(5, 0) && may_tick(stopped + NOT_TICKED + 1, stopped));
        // Another thread may have read the clock slightly later.
        for now in [stopped - PERIOD, stopped, stopped + NOT_TICKED] {
            assert!(!may_tick(now, stopped), "{now}");
        }
        // In another time namespace.
        assert!(may_tick(stopped - PERIOD - 1, stopped) && may_tick(0, stopped));
    }

    /// Parts that the kernel refused because they were locked are tried again while memory is short.
    #[test]
    fn refused_parts_are_tried_again_under_pressure() {
        let _alone = RELEASE.write().unwrap_or_else(PoisonError::into_inner);
        let range = Range::make().unwrap();
        // A class that no other test of this process uses.
        let place = Place::new(range, 28);
        let mut objects = std::vec![0; place.shape().capacity];
        let taken = objects.chunks_mut(64).map(|some| central::take(place, some)).sum::<usize>();
        assert_eq!(taken, objects.len());
        let (kept, freed) = objects.split_last().expect("one at least");
        freed.chunks(64).for_each(|some| central::give(place, some));
        central::flush(place, false);
        let chunk = range.chunk_of(*kept as usize) & !(place.shape().chunks - 1);
        let refused = range.record(chunk).refused();
        refused.store(u64::MAX, R);
        let round = || {
            let mut next = THIN;
            while next >= THIN {
                next = step(range, next).1;
            }
        };
        round();
        assert_ne!(refused.load(R), 0);
        pressure::tests::while_high(round);
        assert_eq!(refused.load(R), 0);
        central::give(place, &[*kept]);
    }
}
