//! The states of a region's blocks: two bits each, 32 to a word.
//!
//! ```text
//!   FREE ── take ──► TAKEN ── release ──► FREEING ── finish ──► FREE
//!                     │ ▲                    ▲
//!                 pin │ │ unpin              │ release of a pinned block: the thread that unpins it
//!                     ▼ │                    │ does the rest
//!                    PINNED ─────────────────┘
//! ```
//!
//! # Invariants
//! 1. Exactly one thread clears and finishes a block that is FREEING: the one that released it, or the one that had
//!    it pinned at that moment.
//! 2. Every change is one compare-exchange. So other threads see either the old or the new state, and the other
//!    blocks in the word keep theirs.

use crate::primitive::atomic::{AtomicU64, Ordering};

pub(in crate::percpu) const FREE: u64 = 0;
const TAKEN: u64 = 1;
pub(in crate::percpu) const FREEING: u64 = 2;
const PINNED: u64 = 3;

/// The number of blocks whose states share a word.
#[cfg(not(loom))]
pub(in crate::percpu) const IN_A_WORD: usize = 32;
/// The lower bit of each state.
#[cfg(not(loom))]
const EACH: u64 = u64::MAX / 3;

/// The state of one block: its word, and the position in it.
#[derive(Clone, Copy)]
pub(in crate::percpu) struct State<'a> {
    word: &'a AtomicU64,
    shift: usize,
}

impl<'a> State<'a> {
    /// Returns the state at `index`, below `IN_A_WORD`.
    pub(in crate::percpu) fn new(word: &'a AtomicU64, index: usize) -> Self {
        State { word, shift: index * 2 }
    }

    /// FREE to TAKEN.
    pub(in crate::percpu) fn take(self) -> bool {
        self.change(|state| (state == FREE).then_some(TAKEN)).is_ok()
    }

    /// TAKEN to PINNED; false if the block has no owner, or is pinned already.
    pub(in crate::percpu) fn pin(self) -> bool {
        self.change(|state| (state == TAKEN).then_some(PINNED)).is_ok()
    }

    /// PINNED to TAKEN. False if the block was released meanwhile: then the caller clears and finishes it.
    #[must_use]
    pub(in crate::percpu) fn unpin(self) -> bool {
        self.change(|state| (state == PINNED).then_some(TAKEN)).is_ok()
    }

    /// TAKEN or PINNED to FREEING. True if the caller clears and finishes the block. False if the thread that has it
    /// pinned does. This must be one step: between two reads a pin could begin and end.
    #[must_use]
    pub(in crate::percpu) fn release(self) -> bool {
        let freeing = |state| matches!(state, TAKEN | PINNED).then_some(FREEING);
        self.change(freeing) == Ok(TAKEN)
    }

    /// FREEING to FREE, once the block is cleared.
    pub(in crate::percpu) fn finish(self) {
        let finished = self.change(|state| (state == FREEING).then_some(FREE));
        debug_assert!(finished.is_ok());
    }

    /// Reads the state.
    #[cfg(all(test, not(loom)))]
    pub(in crate::percpu) fn now(self) -> u64 {
        self.word.load(Ordering::Relaxed) >> self.shift & 3
    }

    /// Replaces the state by `next` of it, and returns the old one. `Err` with the state for which `next` is `None`.
    /// Lock-free.
    fn change(self, next: impl Fn(u64) -> Option<u64>) -> Result<u64, u64> {
        let State { word, shift } = self;
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            let state = seen >> shift & 3;
            let Some(next) = next(state) else { return Err(state) };
            // Release and Acquire are each other's partners: accesses to a block in one state happen before those by
            // the thread that moves it to the next.
            match word.compare_exchange_weak(
                seen,
                seen & !(3 << shift) | next << shift,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(state),
                Err(now) => seen = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
std::thread_local! {
    /// The number of times this thread has called `first_free`.
    pub(in crate::percpu) static LOOKS: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

/// Returns the first of the first `blocks` of a word that seems free.
#[cfg(not(loom))]
pub(in crate::percpu) fn first_free(word: &AtomicU64, blocks: usize) -> Option<usize> {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + 1);
    // A region of a few long blocks uses only part of its word.
    let each = EACH >> (64 - 2 * blocks.min(IN_A_WORD));
    let seen = word.load(Ordering::Relaxed);
    let free = !(seen | seen >> 1) & each;
    (free != 0).then(|| free.trailing_zeros() as usize / 2)
}

/// Returns the number of blocks of a word that are not free.
#[cfg(not(loom))]
pub(in crate::percpu) fn owned(word: &AtomicU64) -> usize {
    let states = word.load(Ordering::Relaxed);
    ((states | states >> 1) & EACH).count_ones() as usize
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Has an owner release a block while another thread pins and unpins it, as a trim does. One of them clears
    /// it, and it becomes free.
    fn explore(release: fn(State<'_>) -> bool) {
        loom::model(move || {
            let word = Arc::new(AtomicU64::new(0));
            assert!(State::new(&word, 3).take());
            let other = word.clone();
            let trim = thread::spawn(move || {
                let state = State::new(&other, 3);
                let clears = state.pin() && !state.unpin();
                if clears {
                    state.finish();
                }
                clears
            });
            let state = State::new(&word, 3);
            let clears = release(state);
            if clears {
                state.finish();
            }
            assert!(trim.join().unwrap() != clears, "cleared twice, or by no thread");
            assert_eq!(word.load(Ordering::Relaxed), 0, "the block stays taken");
        });
    }

    #[test]
    fn loom_a_block_released_while_pinned_comes_free() {
        explore(|state| state.release());
    }

    /// The pin comes between the two reads and is gone at the second: nothing has changed.
    #[test]
    #[should_panic]
    fn loom_catches_a_release_in_two_steps() {
        explore(|state| {
            let from = |wanted| state.change(|now| (now == wanted).then_some(FREEING)).is_ok();
            if from(PINNED) {
                return false;
            }
            from(TAKEN) || !from(PINNED)
        });
    }
}
