//! The return of everything that no object uses, at once: when memory has run out, under pressure, and on request.
//!
//! Invariant: the calling thread holds nothing of the malloc's.

use core::sync::atomic::AtomicU32;
use core::time::Duration;

use super::thin_out::thin_out;
use crate::alloc::core_cache::all;
use crate::alloc::layout::chunk::CHUNK;
use crate::alloc::layout::range::Range;
use crate::alloc::{central, limit, page_heap};
use crate::sys::futex::{Deadline, Scope, Wake};
use crate::sys::sleep;
use crate::sys::try_lock::TryLock;

/// The last resort before an allocation fails: moves the objects of all caches into spans, so that spans may become
/// empty, and gives all idle memory back to the kernel.
///
/// The calling thread must hold nothing of the malloc's; code that runs out of memory under a class's lock releases
/// it first. While another thread does the same, waits up to 100 ms: caches are empty then, and their objects are on
/// the way.
#[cold]
fn reclaim(range: Range) {
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
    if all::cached().sum::<usize>() + in_depots() + page_heap::idle_bytes(range) > 0 {
        empty_caches(range);
        page_heap::purge(range, 0, false);
    }
}

/// Moves the objects of all cores and depots into spans.
pub(super) fn empty_caches(range: Range) {
    all::drain(range, false);
    central::places(range).for_each(|place| _ = central::flush(place, false));
}

/// Gives all idle memory except `pad` bytes back to the kernel, including parts that it refused before. Returns how
/// many bytes.
pub(super) fn release_all(range: Range, pad: usize) -> usize {
    page_heap::retry_kept(range);
    empty_caches(range);
    page_heap::purge(range, pad, false) + thin_out(range, false)
}

/// Runs `attempt`. If it fails, empties all caches, gives idle memory back to the kernel, and runs it once more, and
/// again while the program's hook says so. `None` when out of memory. Nothing is reclaimed for a size that exceeds the whole range.
pub(in crate::alloc) fn or_reclaimed<T>(
    range: Range,
    size: usize,
    attempt: impl Fn() -> Option<T>,
) -> Option<T> {
    attempt().or_else(|| {
        let is_possible = size / CHUNK < range.chunks();
        if !is_possible {
            return None;
        }
        // Try again even if nothing was reclaimed: another thread may have been giving this memory back.
        let again = || {
            reclaim(range);
            attempt()
        };
        let mut result = again();
        while result.is_none() && limit::may_try_again(size) {
            result = again();
        }
        result
    })
}
