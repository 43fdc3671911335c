//! Unlocking a mutex: by a section if its queue is empty, else by a compare-exchange; and where threads wait, with a
//! token for one of them. Invariant numbers here are those of `lock.rs`.

use super::owner;
use super::uncontended_unlock;
use super::word::{
    FAIR, FLAGS, GUEST, Lock, MASK, TOKEN, WAKING, guests, is_deserted, waiters, wants_token,
};
use crate::primitive::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::machinery::futex::Futex;
use crate::sync::machinery::scope::Scope;
use crate::sync::profile::{self, order};

impl<S: Scope> Lock<S> {
    /// Unlocks.
    ///
    /// # Safety
    /// - The caller owns the lock.
    #[inline]
    pub(in crate::sync) unsafe fn unlock(&self) {
        // SAFETY: the caller owns the lock.
        if !unsafe { uncontended_unlock::let_go(self) } {
            self.unlock_by_exchange();
        }
    }

    #[inline]
    fn unlock_by_exchange(&self) {
        let word = self.word.load(Relaxed);
        if owner::is_another_process::<S>(word) {
            return;
        }
        // Release: partner is the Acquire of the next owner (invariant 1).
        if word & FLAGS != 0 || self.word.compare_exchange(word, 0, Release, Relaxed).is_err() {
            self.unlock_flagged();
        }
    }

    /// Unlocks, for a caller that knows the owner's tag. Does nothing if that is another process's.
    ///
    /// # Safety
    /// - The caller owns the lock under this tag, or is a forked copy of the process that does.
    #[inline(always)]
    pub(super) unsafe fn unlock_as(&self, tag: u32) {
        if owner::is_another_process::<S>(tag) {
            return;
        }
        // Release: as in `unlock_by_exchange`.
        // SAFETY: the caller owns the lock under this tag, so no other thread changes its owner.
        if !unsafe { uncontended_unlock::let_go(self) }
            && self.word.compare_exchange(tag, 0, Release, Relaxed).is_err()
        {
            self.unlock_flagged();
        }
    }

    #[cold]
    #[inline(never)]
    fn unlock_flagged(&self) {
        let word = self.word.load(Relaxed);
        if owner::is_another_process::<S>(word) {
            return;
        }
        order::let_go(self);
        // Release: as in `unlock_by_exchange`.
        if wants_token(word)
            || self.word.compare_exchange(word, word & FLAGS, Release, Relaxed).is_err()
        {
            self.unlock_slowly(0);
        }
    }

    /// Unlocks, and leaves the lock to a waiter if there is one: threads that have not slept cannot take it.
    ///
    /// # Safety
    /// - The caller holds the lock.
    pub(in crate::sync) unsafe fn unlock_fairly(&self) {
        if !owner::is_another_process::<S>(self.word.load(Relaxed)) {
            order::let_go(self);
            self.unlock_slowly(FAIR);
        }
    }

    /// `left` is added to the flags in the word: 0, or [`FAIR`] if a thread waits.
    #[cold]
    #[inline(never)]
    pub(super) fn unlock_slowly(&self, left: u32) {
        let mut wakes = 0;
        let mut word = self.word.load(Relaxed);
        if owner::is_gone::<S>(word & MASK) {
            // This thread does not hold the guard's lock: see the module documentation.
            return;
        }
        loop {
            if wakes == 0 && wants_token(word) {
                // Acquire: partner is the AcqRel in `Waiter::sleep`; a thread that set WAITERS is counted.
                word = self.word.fetch_or(WAKING, Acquire) | WAKING;
                if is_deserted(self.queue.load(Relaxed)) {
                    word = self.tidy();
                    continue;
                }
                self.give_token();
                profile::let_go(profile::Kind::Mutex, self);
                wakes = 1;
            }
            // No waiter is on its way that could take the lock.
            let is_for_nobody = left == FAIR && wakes == 0 && word & WAKING == 0;
            let left = if is_for_nobody { 0 } else { left };
            // Release: as in `unlock`.
            match self.word.compare_exchange(word, word & FLAGS | left, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        if wakes > 0 {
            // The thread that took the token may sleep again already, and a guest may be queued behind it.
            let more = u32::from(word & WAKING == 0);
            Futex::wake(&self.queue, wakes + more);
        }
    }

    /// Puts the token into the queue. Called with the lock held.
    pub(super) fn give_token(&self) {
        let mut queue = self.queue.load(Relaxed);
        loop {
            // Guests stay counted as long as they may be asleep.
            let is_for_guest = waiters(queue) == 0 && guests(queue) > 0;
            let guest = if is_for_guest { GUEST } else { 0 };
            // Release: partner is the Acquire in `Waiter::take_token`: WAKING is set before.
            match self.queue.compare_exchange(queue, (queue - guest) | TOKEN, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => queue = now,
            }
        }
    }
}
