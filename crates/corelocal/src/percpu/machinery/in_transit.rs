//! Moments in which a value is moved from one slot to another, and is in neither.
//!
//! The counter is that of a sequence lock: odd during a move, and larger afterwards. There is one for all containers,
//! since trims are rare and their moves take nanoseconds.
//!
//! ```text
//!   63      16 15            0
//!   count      generation          of the last move
//! ```
//!
//! A child that was forked in the middle of a move finds an odd count that stays odd. It recognises by the generation
//! (`sys/forks.rs`) that no move is running. The value that was being moved is lost to the child.

use crate::primitive::global::{AtomicU64, Ordering};
use crate::sys::forks::{self, Identity};

static MOVES: AtomicU64 = AtomicU64::new(0);
/// The thread that made the last move, or makes one now.
static MOVER: AtomicU64 = AtomicU64::new(0);
const GENERATION_BITS: u32 = 16;

/// A moment that a reader of several slots remembers: if it is the same before and after, and `is_still`, there was no
/// move in between.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::percpu) struct Moment(u64);

impl Moment {
    pub(in crate::percpu) fn now() -> Moment {
        // Acquire: partner is the Release in `while_in_transit`. A thread that sees the count after a move sees the
        // moved value. Loads of the words, which come before the second look, acquire, so they stay before it. The stores
        // of a move release, so they stay behind its odd count.
        Moment(MOVES.load(Ordering::Acquire))
    }

    pub(in crate::percpu) fn is_still(self) -> bool {
        let (count, generation) = (self.0 >> GENERATION_BITS, self.0 % (1 << GENERATION_BITS));
        count % 2 == 0 || generation != u64::from(forks::generation())
    }
}

/// Returns whether the calling thread made the last move. If a move is running, it then runs below this signal
/// handler.
pub(in crate::percpu) fn is_here() -> bool {
    // Relaxed: a thread sees its own store, and compares it with its own number only.
    MOVER.load(Ordering::Relaxed) == Identity::of_this_thread().number()
}

/// Runs `f`, which moves a value. One thread at a time (`trim.rs`, invariant 3).
pub(in crate::percpu) fn while_in_transit(f: impl FnOnce()) {
    let generation = u64::from(forks::generation());
    let number = |count: u64| count << GENERATION_BITS | generation;
    // Relaxed: one thread at a time writes it. The result is odd in any case: a fork may have left the count odd.
    let odd = ((MOVES.load(Ordering::Relaxed) >> GENERATION_BITS) + 1) | 1;
    MOVER.store(Identity::of_this_thread().number(), Ordering::Relaxed);
    // AcqRel: the stores of `f` come after it.
    MOVES.swap(number(odd), Ordering::AcqRel);
    f();
    // Release: partner is the Acquire in `now`.
    MOVES.store(number(odd + 1), Ordering::Release);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The state of a child that was forked in the middle of a move.
    #[test]
    fn a_move_of_another_process_is_over() {
        let generation = u64::from(forks::generation());
        let moment = |count: u64, generation| Moment(count << GENERATION_BITS | generation);
        assert!(moment(8, generation).is_still() && !moment(9, generation).is_still());
        assert!(moment(9, generation + 1).is_still());
    }
}
