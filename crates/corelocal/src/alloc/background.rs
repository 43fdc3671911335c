//! Return of memory to the kernel: on request, or by itself (`by_itself.rs`), from a background thread (`thread.rs`) or
//! from cold paths (`by_time.rs`).
//!
//! ```text
//!   the program                                 the background thread
//!   uses its first megabytes ─── cold hook ───► is started
//!   frees spans: their chunks are dirty ──────► wakes up, waits a period, ages dirty chunks,
//!   frees objects of many spans ──────────────► waits a period, gives back chunks that are still aged,
//!                                               and pages between objects
//!   is dense for a period ───────────────────► makes huge pages, a few at a time (`page_heap/huge.rs`)
//!                                               nothing left: sleeps until memory is freed, or grows
//! ```
//! With a target, nothing is aged: idle memory stays as long as the heap is smaller than the target, and goes at the
//! next check if it is larger.
//!
//! # Invariants
//! 1. The background thread does not sleep while there are chunks to give back, or spans of many chunks to thin
//!    out (`layout/sleeper.rs`): spans that lost objects since the last scan, and spans that the scan left alone
//!    because they were not idle.

pub(super) mod by_itself;
mod by_time;
mod reclaim;
pub(super) mod target;
mod thin_out;
mod thread;

pub use by_itself::allow_background;
pub(super) use by_itself::at_cold_path;
pub use by_time::release_by_time;
pub(super) use reclaim::or_reclaimed;
pub use target::set_target;

use core::sync::atomic::Ordering;

use super::central;
use super::central::thinned::WORTH_A_LOOK;
use super::core_cache::all;
use super::layout::range::Range;
use super::page_heap::{self, huge, pressure};
use crate::sys::futex::Deadline;
use reclaim::release_all;
use target::{is_beyond, is_kept, target};
use thin_out::thin_out;

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
/// [`trim`]. [Under pressure](crate::alloc::watch_pressure) all idle memory goes at once, even below the target.
pub fn release_idle() -> usize {
    let Some(range) = Range::get() else { return 0 };
    by_time::stop();
    if pressure::is_high() {
        return release_all(range, 0);
    }
    let target = target();
    if is_kept(range) {
        // Caches and pages between objects may stay as well.
        return 0;
    }
    all::drain(range, true);
    central::places(range).for_each(|place| _ = central::flush(place, true));
    if let Some(target) = target {
        let bytes =
            page_heap::purge(range, target.saturating_sub(page_heap::used_bytes(range)), false);
        let is_still = is_beyond(range, target);
        return bytes + if is_still { thin_out(range, true) } else { 0 };
    }
    let bytes = page_heap::purge(range, 0, true) + thin_out(range, true);
    page_heap::age(range);
    bytes
}

/// Returns the bytes of whole free chunks that have not been given back to the kernel. Without objects in caches, and
/// without pages between objects.
#[inline]
pub fn idle_bytes() -> usize {
    Range::get().map_or(0, page_heap::idle_bytes)
}

/// Sleeps until there is work for [`release_idle`], for the thread that then calls it: until [`idle_bytes`] is not 0,
/// objects of many spans were freed, or memory beyond [the target](set_target) is idle. One thread at a time. May
/// return early; in particular when the heap grows in a process that has called
/// [`use_huge_pages`](crate::alloc::use_huge_pages) and has some or [`watch_pressure`](crate::alloc::watch_pressure)
/// and has a limit, and when the next check for pressure is due while a target keeps idle memory.
pub fn wait_for_idle() {
    let Some(range) = Range::get() else { return };
    let is_idle = || {
        let is_thinned = range.header().thinned.load(Ordering::Relaxed) >= WORTH_A_LOOK;
        (page_heap::idle_bytes(range) != 0 || is_thinned) && !is_kept(range)
    };
    // Memory that the target keeps is given back under pressure, and pressure does not wake this thread.
    let is_looked_for = target().is_some() && page_heap::idle_bytes(range) > 0;
    let period = if is_looked_for { pressure::period() } else { None };
    let deadline = period.map(Deadline::after);
    let is_anything = || is_idle() || huge::has_grown(range) || pressure::has_grown(range);
    range.header().sleeper.sleep_unless(deadline, is_anything);
}
