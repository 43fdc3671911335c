//! The moments in which a value is on its way from one slot to another, and in neither.
//!
//! A seqlock's counter: odd while something moves, different afterwards. One for all containers, since
//! trims are rare and their moves take nanoseconds.

use crate::primitive::global::{AtomicU32, Ordering};

static MOVES: AtomicU32 = AtomicU32::new(0);

/// What a reader of several slots remembers: if it is the same before and after, and `is_still`,
/// nothing was moved in between.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment(u32);

impl Moment {
    pub(super) fn now() -> Moment {
        // Acquire: partner is the Release in `moving`: who sees a number from after a move sees what was
        // moved. What the reader loaded before stays before: those loads acquire, or are followed by
        // this one in the same order on x86-64.
        Moment(MOVES.load(Ordering::Acquire))
    }

    pub(super) fn is_still(self) -> bool {
        self.0 % 2 == 0
    }
}

/// Runs `f`, which moves a value. One at a time (`trim.rs`, invariant 3).
pub(super) fn moving(f: impl FnOnce()) {
    // AcqRel: the stores of `f` stay behind it.
    MOVES.fetch_add(1, Ordering::AcqRel);
    f();
    // Release: partner is the Acquire in `now`.
    MOVES.fetch_add(1, Ordering::Release);
}
