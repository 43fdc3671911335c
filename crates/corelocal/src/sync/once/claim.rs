//! The end of a run.
//!
//! Invariants: those of the [module above](super).

use super::*;

impl Claim<'_> {
    /// Prevents the run from being taken over. Returns false if it was taken over already.
    ///
    /// Between this and the end of the claim the caller runs no code of its users.
    pub(in crate::sync) fn seal(&self) -> bool {
        let mut word = self.once.word.load(Ordering::Relaxed);
        while self.is_mine(word) {
            // Relaxed: other threads read no data because of it.
            match self.once.word.compare_exchange_weak(
                word,
                word | SEALED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Ends the run as completed.
    pub(in crate::sync) fn finish(self) {
        self.end(DONE);
        core::mem::forget(self);
    }

    /// Ends the run as if it had not begun.
    pub(in crate::sync) fn give_back(self) {
        self.end(if self.state.was_cut_short { CUT_SHORT } else { NEW });
        core::mem::forget(self);
    }

    fn is_mine(&self, word: u32) -> bool {
        is_running(word) && word & !(AWAITED | SEALED) == RUNNING | self.tag
    }

    fn end(&self, state: u32) {
        let this: *const Futex<Private> = &self.once.word;
        let mut word = self.once.word.load(Ordering::Relaxed);
        // If the run was taken over, it ends without effect (invariant 3).
        while self.is_mine(word) {
            // Release: partner is the Acquire in `is_completed` and `look`.
            match self.once.word.compare_exchange_weak(
                word,
                state,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // By address: invariant 5.
                    if word & AWAITED != 0 {
                        let_go(Kind::Once, this);
                        Futex::wake(this, u32::MAX);
                    }
                    return;
                }
                Err(now) => word = now,
            }
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.end(CUT_SHORT);
    }
}
