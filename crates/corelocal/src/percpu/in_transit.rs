//! The moments in which a value is on its way from one slot to another, and in neither.
//!
//! A seqlock's counter: odd while something moves, different afterwards. One for all containers, since
//! trims are rare and their moves take nanoseconds.
//!
//! ```text
//!   63      16 15            0
//!   count      generation          of the one that moved last
//! ```
//!
//! A child that was forked in the middle of a move finds an odd count that nobody will make even: by the
//! generation (`sys/forks.rs`) it knows that nothing moves. What was on its way is lost to it.

use crate::primitive::global::{AtomicU64, Ordering};
use crate::sys::forks::{self, Identity};

static MOVES: AtomicU64 = AtomicU64::new(0);
/// Who moved last, or does.
static MOVER: AtomicU64 = AtomicU64::new(0);
const GENERATION_BITS: u32 = 16;

/// What a reader of several slots remembers: if it is the same before and after, and `is_still`,
/// nothing was moved in between.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment(u64);

impl Moment {
    pub(super) fn now() -> Moment {
        // Acquire: partner is the Release in `while_in_transit`: who sees a number from after a move sees what was
        // moved. What the reader loaded before stays before: those loads acquire, or are followed by
        // this one in the same order on x86-64.
        Moment(MOVES.load(Ordering::Acquire))
    }

    pub(super) fn is_still(self) -> bool {
        let (count, generation) = (self.0 >> GENERATION_BITS, self.0 % (1 << GENERATION_BITS));
        count % 2 == 0 || generation != u64::from(forks::generation())
    }
}

/// Whether the calling thread moved something last: if something moves, then below this signal handler.
pub(super) fn is_here() -> bool {
    // Relaxed: a thread sees its own store, and nobody else's is its own.
    MOVER.load(Ordering::Relaxed) == Identity::of_this_thread().number()
}

/// Runs `f`, which moves a value. One at a time (`trim.rs`, invariant 3).
pub(super) fn while_in_transit(f: impl FnOnce()) {
    let generation = u64::from(forks::generation());
    let number = |count: u64| count << GENERATION_BITS | generation;
    // Relaxed: written by one at a time. Odd, whether it is now or not: a fork may have left it so.
    let odd = ((MOVES.load(Ordering::Relaxed) >> GENERATION_BITS) + 1) | 1;
    MOVER.store(Identity::of_this_thread().number(), Ordering::Relaxed);
    // AcqRel: the stores of `f` stay behind it.
    MOVES.swap(number(odd), Ordering::AcqRel);
    f();
    // Release: partner is the Acquire in `now`.
    MOVES.store(number(odd + 1), Ordering::Release);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What a child finds that was forked in the middle of a move.
    #[test]
    fn a_move_of_another_process_is_over() {
        let generation = u64::from(forks::generation());
        let moment = |count: u64, generation| Moment(count << GENERATION_BITS | generation);
        assert!(moment(8, generation).is_still() && !moment(9, generation).is_still());
        assert!(moment(9, generation + 1).is_still());
    }
}
