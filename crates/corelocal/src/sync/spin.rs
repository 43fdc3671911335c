//! Looking again for a moment before one sleeps: a holder on another cpu is often done sooner than the
//! kernel could put a thread to sleep and wake it.
//!
//! Invariants:
//! 1. A spin ends after [`ROUNDS`] rounds: under three microseconds.
//! 2. A thread that may run on one cpu only does not spin, since the holder cannot run meanwhile: it lets the
//!    others go first, once. That helps whoever was woken by the holder itself, in whose way it is. What it
//!    may run on is a system call to know, so it is asked rarely, and of whichever thread spins then: a hint.

use core::hint::spin_loop;

use crate::primitive::global::{AtomicU32, Ordering};
use crate::sys;

/// Each pauses twice as long as the one before it.
const ROUNDS: u32 = 6;
/// The answer to "may this thread run on several cpus?" holds for so many spins.
const SPINS_PER_QUESTION: u32 = 1024;

const MANY_CPUS: u32 = 1 << 31;
/// How many spins the answer holds for yet, and [`MANY_CPUS`].
static ANSWER: AtomicU32 = AtomicU32::new(0);

/// One wait's worth of spinning.
pub(super) struct Spin {
    round: u32,
}

impl Spin {
    #[inline]
    pub(super) fn new() -> Spin {
        Spin { round: 0 }
    }

    /// Pauses; false, at once, when it is time to sleep.
    #[inline]
    pub(super) fn pause(&mut self) -> bool {
        // A model explores all orders anyway.
        if cfg!(loom) || self.round == ROUNDS {
            return false;
        }
        if self.round == 0 && !is_worthwhile() {
            self.round = ROUNDS;
            // SAFETY: no preconditions.
            unsafe { libc::sched_yield() };
            return true;
        }
        (0..1 << self.round).for_each(|_| spin_loop());
        self.round += 1;
        true
    }
}

/// Whether the holder of a lock may be running on another cpu.
fn is_worthwhile() -> bool {
    // Relaxed, and no read-modify-write: a hint. Who comes at the same time asks twice.
    let answer = ANSWER.load(Ordering::Relaxed);
    if answer & !MANY_CPUS == 0 {
        return ask();
    }
    ANSWER.store(answer - 1, Ordering::Relaxed);
    answer & MANY_CPUS != 0
}

#[cold]
fn ask() -> bool {
    let many = sys::allowed_cpus() > 1;
    ANSWER.store(SPINS_PER_QUESTION | if many { MANY_CPUS } else { 0 }, Ordering::Relaxed);
    many
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_spin_ends() {
        let mut spin = Spin::new();
        let pauses = (0..1000).take_while(|_| spin.pause()).count() as u32;
        assert!(pauses == ROUNDS || pauses == 1, "{pauses}");
        assert!(!spin.pause());
    }
}
