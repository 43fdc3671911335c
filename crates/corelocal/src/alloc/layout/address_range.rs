//! Placement of the range: a window of addresses in which memory is mapped piece by piece.
//!
//! The window is chosen at random, far from where the kernel places mappings by itself, and is not reserved. So the
//! process has only the address space that it uses, a limit such as `RLIMIT_AS` applies to this malloc as to
//! everything else, and core dumps stay small. Each piece is mapped only if nothing lies there
//! (`MAP_FIXED_NOREPLACE`); chunks that another mapping overlaps stay unused (`page_heap/mapped_chunks.rs`).
//!
//! Where these addresses do not exist (39-bit address spaces, valgrind), the kernel chooses the place for a shorter
//! range, which is reserved.
//!
//! ```text
//!   │ header │ map: of 256 MiB, then of 16 GiB, then of all │ chunks …
//!                                                           ┃ base
//! ```
//!
//! # Invariants
//! 1. The map's bytes for chunks below `LIMIT` are readable; those of published groups are writable.
//! 2. A step of the map is mapped completely before `LIMIT` is raised. The thread that maps it holds `EXTENDS`. A
//!    child that was forked in between, or a signal handler, finds the mapping and completes the step.

use core::ops;
use core::sync::atomic::Ordering;
use core::time::Duration;

use super::chunk::{CHUNK, HUGE_PAGE, IN_A_GROUP, MOST_CHUNKS};
use super::division::Division;
use super::header::{FIRST, HEADER, PAGE};
use super::range::{LIMIT, Range};
use crate::alloc::random;
use crate::sys::memory::pages::{self, Ground, Refusal};
use crate::sys::sleep;
use crate::sys::try_lock::TryLock;

/// The lowest window, above the shadow memory of the address sanitizer.
const LOWEST: usize = 0x1100 << 32;
/// The length of the region in which windows begin. They end below the lowest mapping of the legacy layout, a third
/// of 47 bits.
const SPREAD: usize = 0x1600 << 32;
const _: () = assert!(LOWEST + SPREAD + (MOST_CHUNKS * CHUNK) < (1 << 47) / 3);
/// Windows that are tried.
const TRIES: u64 = 16;
/// The longest and the shortest reserved range: 64 GiB, 16 MiB.
const MOST_RESERVED: usize = 1 << 20;
const LEAST_RESERVED: usize = 256;

/// Numbers of chunks that the map covers, step by step.
const STEPS: [usize; 3] = [FIRST, 1 << 18, MOST_CHUNKS];
/// The header and the first step of the map.
const AT_FIRST: usize = PAGE + FIRST;
/// The number of times a thread checks whether another thread has completed a step.
const PATIENCE: u32 = 200;
/// Held by the thread that makes a step. If the holder cannot continue, another thread completes the step.
static EXTENDS: TryLock = TryLock::new();

impl Range {
    /// Returns the range, made now if necessary; `None` if the kernel refuses even a short one.
    #[cold]
    pub(in crate::alloc) fn make() -> Option<Range> {
        if let Some(range) = Range::get() {
            return Some(range);
        }
        let fresh = fresh()?;
        let published = fresh.publish();
        if published != fresh {
            discard(fresh);
        }
        Some(published)
    }
}

/// Makes a range that no other thread knows, with an initialised header; `None` when out of memory.
fn fresh() -> Option<Range> {
    in_window().or_else(reserved)
}

fn in_window() -> Option<Range> {
    for nth in 0..TRIES {
        let base = window(random::of_the_layout().wrapping_add(nth));
        // SAFETY: whole pages; the call fails if anything is mapped there.
        match unsafe { pages::map_at(base - HEADER, AT_FIRST, true, Ground::Unmapped) } {
            Ok(()) => return Some(fill_in(base, MOST_CHUNKS, Ground::Unmapped)),
            Err(Refusal::Taken) => {}
            Err(Refusal::NoMemory) => break,
        }
    }
    None
}

/// Returns the base of the window with this number.
fn window(number: u64) -> usize {
    LOWEST + (random::mix(number) as usize) % (SPREAD / HUGE_PAGE) * HUGE_PAGE
}

fn reserved() -> Option<Range> {
    // Near a limit, leave some address space for stacks and files.
    let most = pages::address_space_left() / 2 / CHUNK;
    let mut chunks = MOST_RESERVED.min(most & !(LEAST_RESERVED - 1));
    while chunks >= LEAST_RESERVED {
        let len = HEADER + HUGE_PAGE + chunks * CHUNK;
        if let Some(start) = pages::reserve(len) {
            let base = (start as usize + HEADER).next_multiple_of(HUGE_PAGE);
            // SAFETY: whole pages within the mapping just made.
            if unsafe { pages::open_reserved((base - HEADER) as *mut u8, AT_FIRST) } {
                return Some(fill_in(base, chunks, Ground::Reserved));
            }
            // SAFETY: this mapping was never published.
            unsafe { pages::unmap(start, len) };
            return None;
        }
        chunks = (chunks / 2) & !(LEAST_RESERVED - 1);
    }
    None
}

fn fill_in(base: usize, chunks: usize, ground: Ground) -> Range {
    let range = Range::at(base);
    let header = range.header();
    header.chunks.store(chunks, Ordering::Relaxed);
    header.is_reserved.store(usize::from(ground == Ground::Reserved), Ordering::Relaxed);
    if Division::is_whole(chunks) {
        header.division.store(Division::WHOLE.word(), Ordering::Relaxed);
    }
    range
}

/// Unmaps a range that no other thread knows, because another thread published one first.
fn discard(range: Range) {
    let chunks = range.chunks() * CHUNK;
    let len = if range.ground() == Ground::Reserved { HEADER + chunks } else { AT_FIRST };
    // SAFETY: what `make` mapped, except for less than a huge page around it; never published.
    unsafe { pages::unmap((range.address(0) - HEADER) as *mut u8, len) };
}

/// Makes the map's bytes writable for all chunks below `chunks`, of which the last group is new; false when out of
/// memory.
#[cold]
pub(in crate::alloc) fn extend_map(range: Range, chunks: usize) -> bool {
    // Acquire: partner is the Release below; the bytes are mapped.
    let readable = LIMIT.load(Ordering::Acquire);
    if chunks > readable && !(extend_to_next(range, readable) && extend_map(range, chunks)) {
        return false;
    }
    let last = range.map_byte(chunks - IN_A_GROUP);
    // SAFETY: a page of the map, mapped above.
    is_writable_at_once(chunks) || unsafe { pages::open_reserved(last as *mut u8, IN_A_GROUP) }
}

/// Additional bytes of the map for all chunks below `chunks`.
pub(in crate::alloc) fn missing_map(chunks: usize) -> usize {
    let step = STEPS.into_iter().find(|step| *step >= chunks).unwrap_or(MOST_CHUNKS);
    // Relaxed: an estimate.
    step.saturating_sub(LIMIT.load(Ordering::Relaxed))
}

/// Returns `true` if the map's bytes for the chunk before this one are writable from the start. Those of the last step
/// are not: it is 16 MiB long, and most of it is only ever read.
fn is_writable_at_once(chunk: usize) -> bool {
    chunk <= STEPS[1]
}

/// Makes the next step of the map.
fn extend_to_next(range: Range, readable: usize) -> bool {
    let Some(next) = STEPS.into_iter().find(|step| *step > readable) else { return false };
    for nth in 0..PATIENCE {
        let held = EXTENDS.try_lock();
        // Acquire: partner is the Release in `map_step`.
        if LIMIT.load(Ordering::Acquire) > readable {
            return true;
        }
        // Another thread holds the lock and is about to raise the limit.
        let is_others = held.is_none() && !EXTENDS.is_mine();
        if is_others && nth + 1 < PATIENCE {
            if nth > PATIENCE / 2 {
                sleep::nap(Duration::from_micros(20));
            }
            core::hint::spin_loop();
            continue;
        }
        // The step was begun by a thread that is gone after a fork, by this thread, which a signal handler
        // interrupted, or by a thread that does not run. A mapping in this place is the step.
        let is_begun = held.as_ref().is_none_or(|held| held.recovered);
        return map_step(range, readable..next, is_begun);
    }
    false
}

/// Maps the map's bytes for these chunks and raises `LIMIT`; false when out of memory, or if a foreign mapping is in
/// the way. With `is_begun`, the step may be mapped already.
fn map_step(range: Range, step: ops::Range<usize>, is_begun: bool) -> bool {
    let (at, len) = (range.map_byte(step.start), step.len());
    // SAFETY: whole pages of the map that nothing refers to while the limit is below them. In a reserved range two
    // threads may open the same pages, which is harmless.
    let mapped = unsafe {
        match range.ground() {
            Ground::Reserved => {
                let is_open = pages::open_reserved(at as *mut u8, len);
                if is_open { Ok(()) } else { Err(Refusal::NoMemory) }
            }
            ground => pages::map_at(at, len, is_writable_at_once(step.end), ground),
        }
    };
    let is_there = match mapped {
        Ok(()) => true,
        // Acquire: partner is the Release below. Otherwise the mapping found is the whole step, or a foreign one.
        Err(Refusal::Taken) => {
            LIMIT.load(Ordering::Acquire) > step.start
                || is_begun && pages::is_mapped(at as *mut u8, len)
        }
        Err(Refusal::NoMemory) => false,
    };
    if !is_there {
        return false;
    }
    if !is_writable_at_once(step.end) {
        // SAFETY: pages of the map. `extend_map` makes written pages appear in core dumps again; if that is refused,
        // they are missing there.
        let _ = unsafe { pages::advise(at as *mut u8, len, libc::MADV_DONTDUMP) };
    }
    // Release: partners are the Acquires here. It fails if another thread raised the limit first.
    let _ = LIMIT.compare_exchange(step.start, step.end, Ordering::Release, Ordering::Relaxed);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_lie_where_the_kernel_puts_nothing() {
        let mut bases: std::vec::Vec<usize> = (0..1000).map(window).collect();
        for base in &bases {
            assert!(*base % HUGE_PAGE == 0 && *base - HEADER > 16 << 40, "{base:x}");
            assert!(base + MOST_CHUNKS * CHUNK < 0x2aaa_aaaa_a000, "{base:x}");
        }
        bases.sort_unstable();
        bases.dedup();
        assert!(bases.len() > 990, "{}", bases.len());
    }

    #[test]
    fn a_reserved_range_is_one() {
        let Some(range) = reserved() else { return };
        assert!(range.ground() == Ground::Reserved && range.chunks() >= LEAST_RESERVED);
        assert_eq!(range.address(0) % HUGE_PAGE, 0);
        assert_eq!(range.kind(5).load(Ordering::Relaxed), crate::alloc::layout::class::NOTHING);
        range.kind(5).store(1, Ordering::Relaxed);
        discard(range);
    }

    /// Each case in a child whose map has a last step that was mapped but not published.
    #[test]
    #[cfg_attr(miri, ignore = "forks")]
    fn a_step_that_was_left_behind_is_ended() {
        use crate::sys::forks::Identity;
        let range = Range::make().unwrap();
        if range.ground() == Ground::Reserved {
            std::eprintln!("skipped: a_step_that_was_left_behind_is_ended: the range is reserved");
            return;
        }
        let is_ended = |of_gone: bool, is_whole: bool| {
            let readable = LIMIT.load(Ordering::Acquire);
            let Some(next) = STEPS.into_iter().find(|step| *step > readable) else {
                return is_whole;
            };
            let (at, len) = (range.map_byte(readable), next - readable);
            let len = if is_whole { len } else { len / 2 };
            let holder = if of_gone { Identity::gone() } else { Identity::of_this_thread() };
            let _held = core::mem::ManuallyDrop::new(EXTENDS.lock_as(holder));
            // SAFETY: whole pages of the map beyond the limit. Another test may have left the same state.
            let _ = unsafe { pages::map_at(at, len, true, Ground::Unmapped) };
            extend_to_next(range, readable) && LIMIT.load(Ordering::Relaxed) == next
        };
        for (of_gone, is_whole) in [(true, true), (false, true), (true, false)] {
            // SAFETY: the child makes system calls and atomic accesses, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(is_ended(of_gone, is_whole) != is_whole)) };
            }
            let mut status = -1;
            // SAFETY: a child of this test.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "{of_gone} {is_whole}");
        }
    }
}
