//! Ownership and state of chunks: one bit for each chunk in each of four bitmaps.
//!
//! ```text
//!   used:  0 ── claim ──► 1 ── free ──► 0
//!   dirty: 0              0             1, set by `soil` before `free`; cleared by the next owner
//!   aged:                               0, set by `age` some time later
//!   kept:  0              0             1 instead of dirty, if the kernel refused to take the memory back
//! ```
//!
//! # Invariants
//! 1. A chunk whose `used` bit is set belongs to the thread that set it. Several bits are set by one exchange, from a
//!    word in which all of them were clear.
//! 2. All an owner did to a chunk before `free` happens before all that the next owner does after its claim.
//! 3. Only a chunk's owner changes its dirty and kept bits, and at most one of the two is set.

use crate::primitive::atomic::{AtomicU64, Ordering};

/// Chunks in one word of a bitmap.
pub(in crate::alloc) const IN_A_WORD: usize = 64;

const R: Ordering = Ordering::Relaxed;

/// One word of each bitmap: the state of 64 chunks.
#[derive(Clone, Copy)]
pub(in crate::alloc) struct Words<'a> {
    /// Chunks that have an owner.
    pub(in crate::alloc) used: &'a AtomicU64,
    /// Free chunks that may contain bytes other than 0.
    pub(in crate::alloc) dirty: &'a AtomicU64,
    /// Chunks that have been dirty for some time.
    pub(in crate::alloc) aged: &'a AtomicU64,
    /// Free chunks that may contain bytes other than 0, and that the kernel refused to take back.
    pub(in crate::alloc) kept: &'a AtomicU64,
}

impl Words<'_> {
    /// Claims the first `count` adjacent free chunks, aligned to `align` chunks, and returns the first one's bit.
    pub(in crate::alloc) fn claim(self, count: usize, align: usize) -> Option<usize> {
        self.claim_among(u64::MAX, count, align)
    }

    /// Does what [`Words::claim`] does, restricted to the chunks `among`.
    pub(in crate::alloc) fn claim_among(
        self,
        among: u64,
        count: usize,
        align: usize,
    ) -> Option<usize> {
        let mut seen = self.used.load(R);
        loop {
            let bit = match starts(!seen & among, count) & every(align) {
                0 => return None,
                room => room.trailing_zeros() as usize,
            };
            match self.exchange(seen, mask(bit, count)) {
                Ok(()) => return Some(bit),
                Err(now) => seen = now,
            }
        }
    }

    /// Claims all chunks of `mask`, or none.
    pub(in crate::alloc) fn take(self, mask: u64) -> bool {
        let mut seen = self.used.load(R);
        while seen & mask == 0 {
            match self.exchange(seen, mask) {
                Ok(()) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Sets the bits of `mask` if the word is still `seen`, which has none of them; otherwise returns the current
    /// word.
    fn exchange(self, seen: u64, mask: u64) -> Result<(), u64> {
        // Acquire: partner is the Release in `free` (invariant 2).
        self.used.compare_exchange_weak(seen, seen | mask, Ordering::Acquire, R).map(drop)
    }

    /// Marks chunks as dirty. Called by the owner before `free` if they may contain bytes other than 0.
    pub(in crate::alloc) fn soil(self, mask: u64) {
        self.aged.fetch_and(!mask, R);
        self.dirty.fetch_or(mask, R);
    }

    /// Frees chunks of the caller's.
    pub(in crate::alloc) fn free(self, mask: u64) {
        // Release: partner is the Acquire in `exchange`.
        self.used.fetch_and(!mask, Ordering::Release);
    }

    /// Clears the dirty bits of the caller's chunks, and returns how many there were.
    pub(in crate::alloc) fn take_dirt(self, mask: u64) -> usize {
        // The load avoids a write to the words of clean chunks.
        if self.dirty.load(R) & mask == 0 {
            return 0;
        }
        let dirt = self.dirty.fetch_and(!mask, R) & mask;
        self.aged.fetch_and(!mask, R);
        dirt.count_ones() as usize
    }

    /// Marks chunks as kept. Called by the owner before `free`, instead of `soil`, if the kernel refused to take them
    /// back.
    pub(in crate::alloc) fn keep(self, mask: u64) {
        self.kept.fetch_or(mask, R);
    }

    /// Does what [`Words::take_dirt`] does, for kept chunks. Returns their bits.
    pub(in crate::alloc) fn take_kept(self, mask: u64) -> u64 {
        if self.kept.load(R) & mask == 0 {
            return 0;
        }
        self.kept.fetch_and(!mask, R) & mask
    }

    /// Marks all dirty chunks as aged, until they are used again.
    pub(in crate::alloc) fn age(self) {
        let dirty = self.dirty.load(R);
        if dirty != 0 {
            self.aged.fetch_or(dirty, R);
        }
    }
}

/// Returns a word with the bits `bit..bit + count` set.
pub(in crate::alloc) const fn mask(bit: usize, count: usize) -> u64 {
    (u64::MAX >> (IN_A_WORD - count)) << bit
}

/// Returns the positions at which `count` adjacent bits are set.
pub(in crate::alloc) const fn starts(bits: u64, count: usize) -> u64 {
    let (mut starts, mut have) = (bits, 1);
    while have < count {
        let step = if have < count - have { have } else { count - have };
        starts &= starts >> step;
        have += step;
    }
    starts
}

/// Returns a word with every `align`-th bit set.
pub(in crate::alloc) const fn every(align: usize) -> u64 {
    if align == IN_A_WORD { 1 } else { u64::MAX / ((1 << align) - 1) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bits() {
        assert_eq!((mask(0, 64), mask(3, 2), mask(63, 1)), (u64::MAX, 0b11000, 1 << 63));
        assert_eq!(
            (every(1), every(4) & 0xff, every(32), every(64)),
            (u64::MAX, 0x11, 1 << 32 | 1, 1)
        );
        for count in 1..=64usize {
            for bits in [u64::MAX, 0xffff_0000_ffff, 0x7777, 1, 0, u64::MAX << 1] {
                let slow =
                    (0..=64 - count).filter(|at| bits & mask(*at, count) == mask(*at, count));
                let slow = slow.fold(0, |starts, at| starts | 1u64 << at);
                assert_eq!(starts(bits, count), slow, "{count} in {bits:x}");
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom;
