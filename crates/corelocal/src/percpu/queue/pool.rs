//! The pool of free segments for all queues of the process, which returns memory to the kernel.
//!
//! A chunk is one mapping of 64 pages: a header, then 63 segments of a page each. One bit for each says whether it is
//! free. Chunks stay mapped for ever, and are searched beginning with the one that was used last. When a whole chunk
//! is free, and there are plenty of free segments besides, its pages go back to the kernel; the addresses stay
//! reserved.
//!
//! ```text
//!   NEWEST ──▶ chunk ──▶ chunk ──▶ chunk          NEAR: the chunk to search first
//!              header: next, free bits
//!              segment 0 … segment 62
//! ```
//!
//! # Invariants
//! 1. A segment belongs to the thread that cleared its bit, until it is set again.
//! 2. `FREE` is at least the number of set bits that no thread is about to clear. So it never goes below 0.
//! 3. No function waits, locks or uses a heap. A fork in the middle costs the child at most one chunk.

use crate::primitive::global::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::rseq::SEGMENT;
use crate::sys::memory::{lazy_mapping, pages};

/// Segments of a chunk.
const SEGMENTS: u32 = 63;
const ALL: u64 = (1 << SEGMENTS) - 1;
/// The number of free segments that stay resident: 4 MiB.
const KEPT: u32 = 1024;

/// A chunk of the pool, with its segments.
struct Chunk {
    next: *const Chunk,
    free: AtomicU64,
}

static NEWEST: AtomicPtr<Chunk> = AtomicPtr::new(core::ptr::null_mut());
static NEAR: AtomicPtr<Chunk> = AtomicPtr::new(core::ptr::null_mut());
static FREE: AtomicU32 = AtomicU32::new(0);

/// Takes a free segment. Returns it and its number in its chunk; `None` if the kernel provides no memory.
///
/// Lock-free. Its content is arbitrary.
pub(super) fn take() -> Option<(*mut u8, u32)> {
    // Acquire, here and in `search`: partners are the Release stores in `grow`. The header is then visible.
    let near = NEAR.load(Ordering::Acquire);
    // SAFETY: chunks are never unmapped.
    if let Some(found) = unsafe { near.as_ref() }.and_then(Chunk::take) {
        return Some(found);
    }
    // Fewer free segments than one chunk are not searched for. So at most that many are wasted.
    if FREE.load(Ordering::Relaxed) >= SEGMENTS {
        if let Some(found) = search() {
            return Some(found);
        }
    }
    grow().or_else(search)
}

/// Frees a segment.
///
/// # Safety
/// - `take` returned both together, and no reference to the segment is left.
pub(super) unsafe fn give(segment: *mut u8, number: u32) {
    let home = segment.wrapping_sub((1 + number as usize) * SEGMENT).cast::<Chunk>();
    // SAFETY: the chunk of a segment that `take` returned; chunks are never unmapped.
    let chunk = unsafe { &*home };
    // Relaxed: an estimate.
    let free = FREE.fetch_add(1, Ordering::Relaxed);
    // Release: partner is the Acquire in `Chunk::take`. The next owner's accesses come after this one's.
    let before = chunk.free.fetch_or(1 << number, Ordering::Release);
    if NEAR.load(Ordering::Relaxed) != home {
        // Release: partner is the Acquire in `take`. This thread has seen the chunk's header.
        NEAR.store(home, Ordering::Release);
    }
    if before | 1 << number == ALL && free > KEPT {
        chunk.give_back();
    }
}

fn search() -> Option<(*mut u8, u32)> {
    let mut at = NEWEST.load(Ordering::Acquire).cast_const();
    // SAFETY: chunks on the list are initialised and never unmapped.
    while let Some(chunk) = unsafe { at.as_ref() } {
        if let Some(found) = chunk.take() {
            // Release: as in `give`.
            NEAR.store(at.cast_mut(), Ordering::Release);
            return Some(found);
        }
        at = chunk.next;
    }
    None
}

/// Maps a new chunk and takes a segment of it.
#[cold]
fn grow() -> Option<(*mut u8, u32)> {
    let at = lazy_mapping::map((1 + SEGMENTS as usize) * SEGMENT)?;
    let chunk = at.cast::<Chunk>();
    FREE.fetch_add(SEGMENTS - 1, Ordering::Relaxed);
    let mut newest = NEWEST.load(Ordering::Relaxed);
    loop {
        // SAFETY: fresh pages that no other thread knows yet.
        unsafe { chunk.write(Chunk { next: newest, free: AtomicU64::new(ALL & !1) }) };
        // Release: partner is the Acquire in `search`.
        match NEWEST.compare_exchange(newest, chunk, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => newest = now,
        }
    }
    // Release: partner is the Acquire in `take`.
    NEAR.store(chunk, Ordering::Release);
    Some((at.wrapping_add(SEGMENT), 0))
}

impl Chunk {
    fn take(&self) -> Option<(*mut u8, u32)> {
        let mut free = self.free.load(Ordering::Relaxed);
        while free != 0 {
            let number = free.trailing_zeros();
            let rest = free & (free - 1);
            // Acquire: partner is the Release of the thread that set the bit.
            match self.free.compare_exchange_weak(free, rest, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => {
                    FREE.fetch_sub(1, Ordering::Relaxed);
                    let segment = self.segments().wrapping_add(number as usize * SEGMENT);
                    return Some((segment, number));
                }
                Err(now) => free = now,
            }
        }
        None
    }

    /// Gives a chunk's pages back to the kernel, if it is still completely free.
    #[cold]
    fn give_back(&self) {
        // Acquire: partner is the Release in `give`, for each segment: all bits were set by read-modify-writes.
        if self.free.compare_exchange(ALL, 0, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        // SAFETY: all of the chunk's segments belong to this thread now. If the kernel refuses, they stay resident.
        let _ = unsafe { pages::give_back(self.segments(), SEGMENTS as usize * SEGMENT) };
        // Release: partner is the Acquire in `take`.
        self.free.store(ALL, Ordering::Release);
    }

    fn segments(&self) -> *mut u8 {
        (&raw const *self).cast::<u8>().cast_mut().wrapping_add(SEGMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::vec::Vec;

    #[test]
    fn segments_are_distinct_and_come_again() {
        let taken: Vec<_> = (0..500).map(|_| take().expect("memory")).collect();
        let distinct: HashSet<usize> = taken.iter().map(|(segment, _)| *segment as usize).collect();
        assert_eq!(distinct.len(), taken.len());
        for (segment, number) in taken {
            assert_eq!(segment as usize % SEGMENT, 0);
            // SAFETY: this thread owns the segment.
            unsafe {
                segment.write_bytes(7, SEGMENT);
                give(segment, number);
            }
        }
    }

    /// A segment never has two owners, even while pages go back to the kernel.
    #[test]
    fn threads_agree() {
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                scope.spawn(move || {
                    for round in 0..40 {
                        let taken: Vec<_> = (0..300).map(|_| take().expect("memory")).collect();
                        for (segment, _) in &taken {
                            // SAFETY: this thread owns the segment.
                            unsafe { segment.write_bytes(thread, SEGMENT) };
                        }
                        for (segment, number) in taken {
                            // SAFETY: this thread owns the segment until it is given back.
                            unsafe {
                                let last = segment.add(SEGMENT - 1).read();
                                assert_eq!((segment.read(), last), (thread, thread), "{round}");
                                give(segment, number);
                            }
                        }
                    }
                });
            }
        });
        // SAFETY: chunks are never unmapped.
        unsafe { &*NEWEST.load(Ordering::Acquire) }.give_back();
    }
}
