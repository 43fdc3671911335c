//! Who has a chunk, and what is in it: a bit for each in four words.
//!
//! ```text
//!   used:  0 ── claim ──► 1 ── free ──► 0
//!   dirty: 0              0             1, set by `soil` before `free`; cleared by the next owner
//!   aged:                               0, set by `age` some time later
//!   kept: 0              0             1 instead of dirty, where the kernel did not take the memory back
//! ```
//!
//! # Invariants
//! 1. A chunk whose bit in `used` is set belongs to whoever set it, and to nobody else: bits are set together
//!    by one exchange, from a word in which none of them was set.
//! 2. What an owner did to a chunk before `free` happens before what the next one does after its claim.
//! 3. The dirty and kept bits of a chunk are changed by its owner alone, and never both set.

use crate::primitive::atomic::{AtomicU64, Ordering};

/// Chunks of a word of a bitmap.
pub(super) const IN_A_WORD: usize = 64;

const R: Ordering = Ordering::Relaxed;

/// The words of 64 chunks.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    /// Chunks that somebody has.
    pub(super) used: &'a AtomicU64,
    /// Those that nobody has, and that may not be all zero.
    pub(super) dirty: &'a AtomicU64,
    /// Those that were dirty some time ago already.
    pub(super) aged: &'a AtomicU64,
    /// Those that nobody has, that may not be all zero, and that the kernel would not take.
    pub(super) kept: &'a AtomicU64,
}

impl Words<'_> {
    /// Takes the first `count` chunks in a row that are free, aligned to `align` of them; the first one's
    /// bit.
    pub(super) fn claim(self, count: usize, align: usize) -> Option<usize> {
        self.claim_among(u64::MAX, count, align)
    }

    /// [`Words::claim`], of these chunks alone.
    pub(super) fn claim_among(self, among: u64, count: usize, align: usize) -> Option<usize> {
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

    /// Takes these chunks, all or none.
    pub(super) fn take(self, mask: u64) -> bool {
        let mut seen = self.used.load(R);
        while seen & mask == 0 {
            match self.exchange(seen, mask) {
                Ok(()) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Sets bits in a word that still is as it was seen, without these bits; what it is otherwise.
    fn exchange(self, seen: u64, mask: u64) -> Result<(), u64> {
        // Acquire: partner is the Release in `free` (invariant 2).
        self.used.compare_exchange_weak(seen, seen | mask, Ordering::Acquire, R).map(drop)
    }

    /// What the owner does before `free` where the chunks may not be all zero.
    pub(super) fn soil(self, mask: u64) {
        self.aged.fetch_and(!mask, R);
        self.dirty.fetch_or(mask, R);
    }

    /// Gives chunks of the caller's back.
    pub(super) fn free(self, mask: u64) {
        // Release: partner is the Acquire in `exchange`.
        self.used.fetch_and(!mask, Ordering::Release);
    }

    /// How many chunks of the caller's may not be all zero; from here on they are as their owner leaves them.
    pub(super) fn take_dirt(self, mask: u64) -> usize {
        // The look keeps words that are clean from being written to.
        if self.dirty.load(R) & mask == 0 {
            return 0;
        }
        let dirt = self.dirty.fetch_and(!mask, R) & mask;
        self.aged.fetch_and(!mask, R);
        dirt.count_ones() as usize
    }

    /// What the owner does before `free` instead of `soil` where the kernel would not take chunks.
    pub(super) fn keep(self, mask: u64) {
        self.kept.fetch_or(mask, R);
    }

    /// [`Words::take_dirt`] of what was kept.
    pub(super) fn take_kept(self, mask: u64) -> u64 {
        if self.kept.load(R) & mask == 0 {
            return 0;
        }
        self.kept.fetch_and(!mask, R) & mask
    }

    /// What is dirty now is aged from here on, unless it is used meanwhile.
    pub(super) fn age(self) {
        let dirty = self.dirty.load(R);
        if dirty != 0 {
            self.aged.fetch_or(dirty, R);
        }
    }
}

/// Bits `bit..bit + count` of a word.
pub(super) const fn mask(bit: usize, count: usize) -> u64 {
    (u64::MAX >> (IN_A_WORD - count)) << bit
}

/// Bits at which `count` set ones begin.
pub(super) const fn starts(bits: u64, count: usize) -> u64 {
    let (mut starts, mut have) = (bits, 1);
    while have < count {
        let step = if have < count - have { have } else { count - have };
        starts &= starts >> step;
        have += step;
    }
    starts
}

/// One of every `align` bits.
pub(super) const fn every(align: usize) -> u64 {
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
#[path = "bits_loom.rs"]
mod loom_tests;
