//! The number of an epoch and the unit of its ticks, in one word, so that a tick, which depends on both, never mixes
//! them.
//!
//! # Invariant
//! 1. The lowest three bits are the kind: 0 before the first check; otherwise whether ticks are the cpu's counter,
//!    and which fence its reading needs, or nanoseconds. The other bits are the number.

use crate::clock::counter::Fence;

/// An epoch's number, combined with the unit of its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::clock) struct Word(pub(in crate::clock) u64);

impl Word {
    /// The ticks are counts of the cpu's counter.
    const COUNTER: u64 = 1;
    /// The ticks are nanoseconds of the monotonic clock.
    const NANOS: u64 = 2;
    /// With `COUNTER`: by which fence it is read.
    const FENCE_SHIFT: u32 = 2;
    pub(in crate::clock) const NUMBER_SHIFT: u32 = 3;
    pub(in crate::clock) const KIND: u64 = (1 << Self::NUMBER_SHIFT) - 1;

    /// Returns how the counter is read in order; `None` if ticks are nanoseconds.
    #[inline(always)]
    pub(in crate::clock) fn counter(self) -> Option<Fence> {
        let fence = || Fence::of_bit((self.0 >> Self::FENCE_SHIFT) as usize);
        (self.0 & Self::COUNTER != 0).then(fence)
    }

    /// Returns the lowest bits of a word: the unit of ticks, and the fence.
    pub(in crate::clock) fn kind(counter: Option<Fence>) -> u64 {
        counter
            .map_or(Self::NANOS, |fence| Self::COUNTER | (fence.bit() as u64) << Self::FENCE_SHIFT)
    }
}

/// Returns the number of an epoch: it grows if either does.
#[inline(always)]
pub(in crate::clock) fn number(word: u64, others: u64) -> u64 {
    (word >> Word::NUMBER_SHIFT).wrapping_add(others)
}
