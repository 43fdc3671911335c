//! A number of permits with threads that wait for one: the basis of semaphores and self-resetting events.
//!
//! ```text
//!   31        30        29                0
//!   AWAITED   STARVED   permits
//! ```
//!
//! | bits | meaning |
//! |---|---|
//! | AWAITED | Threads may be sleeping. The thread that gives a permit clears it and wakes them; a thread that has slept sets it again, since others may still sleep. |
//! | STARVED | A sleeper has waited for long. Permits are for threads that have slept, until one that has waited for long takes one. |
//!
//! STARVED is needed because a thread that gives a permit and takes it again at once is faster than the thread it woke.
//! While it is set, a newcomer sleeps first, for 10 ms at most: the starving thread may have been killed, or may not
//! have survived a fork. So a newcomer that slept so long in vain clears it, too. A starving thread sets it again every
//! 10 ms; a thread that gives up leaves it alone unless it starved itself.
//!
//! ```text
//!   giver                                    taker
//!   permits += n, AWAITED cleared            no permit: AWAITED set
//!   it was set: wakes n                      sleeps while the word is AWAITED and nothing else
//!                                            woken: permits -= 1, AWAITED set; if there are more, wakes one
//! ```
//!
//! # Invariants
//! 1. The number of permits decreases by one for each permit taken, increases by what is given, and is never below 0.
//! 2. While a thread sleeps, the word is AWAITED, or a thread is awake that was woken and has not left yet. Such a
//!    thread leaves with AWAITED set, and wakes another one if it leaves permits behind. So free permits and sleeping
//!    waiters never coexist for long.
//! 3. What a giver did happens before what the taker of any later permit does: every change of the word is a
//!    read-modify-write, which continues the release sequence.
//! 4. A giver does not access the word after the exchange that gives: its memory may be gone.

use super::fairness::{self, Patience};
use super::futex::Futex;
use super::scope::Scope;
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sync::profile::{self, Wait};
use crate::sys::futex::{Deadline, Wake};

/// Bit: threads may be sleeping.
pub(in crate::sync) const AWAITED: u32 = 1 << 31;
/// Bit: permits are reserved for threads that have slept.
const STARVED: u32 = 1 << 30;
/// The bits that hold the number of permits.
const NUMBER: u32 = STARVED - 1;

/// A number of permits and its waiters in one word. All bytes 0 is no permits.
#[repr(transparent)]
pub(in crate::sync) struct Permits<S: Scope> {
    word: Futex<S>,
}

#[inline(always)]
fn number(word: u32) -> u32 {
    word & NUMBER
}

impl<S: Scope> Permits<S> {
    /// The maximum number of permits.
    pub(in crate::sync) const MAX: u32 = NUMBER;

    const_fn! {
        pub(in crate::sync) const fn new(permits: u32) -> Self {
            Permits { word: Futex::new(permits) }
        }
    }

    #[inline]
    pub(in crate::sync) fn available(&self) -> u32 {
        // Relaxed: the number may be out of date when it is used.
        number(self.word.load(Ordering::Relaxed))
    }

    /// Takes a permit if there is one, even if other threads wait for it.
    #[inline]
    pub(in crate::sync) fn try_take(&self) -> bool {
        self.take(0, 0)
    }

    /// Takes a permit if there is one that is not reserved for threads that have slept.
    #[inline]
    pub(in crate::sync) fn take_unreserved(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let fewer = word.wrapping_sub(1);
        // With AWAITED or STARVED set it exceeds any number.
        if fewer < NUMBER {
            // Acquire: partner is the Release in `give`.
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            if self.word.compare_exchange_weak(word, fewer, success, failure).is_ok() {
                return true;
            }
        }
        self.take_unreserved_slowly()
    }

    #[inline(never)]
    fn take_unreserved_slowly(&self) -> bool {
        let unreserved = |word| (word & STARVED == 0 && number(word) > 0).then(|| word - 1);
        // Acquire: partner is the Release in `give`.
        self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, unreserved).is_ok()
    }

    /// Takes a permit if there is one. Sets AWAITED if `mark` is that, as a thread that has slept must. Clears `ends`:
    /// 0, or STARVED for a thread that has waited for long.
    #[inline]
    pub(in crate::sync) fn take(&self, mark: u32, ends: u32) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while number(word) > 0 {
            // Acquire: partner is the Release in `give`.
            match self.word.compare_exchange_weak(
                word,
                ((word - 1) | mark) & !ends,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    if mark != 0 && number(word) > 1 {
                        // Invariant 2.
                        Futex::wake(&self.word, 1);
                    }
                    return true;
                }
                Err(now) => word = now,
            }
        }
        false
    }

    /// Takes a permit once there is one; false at the deadline.
    #[inline]
    pub(in crate::sync) fn take_until(
        &self,
        deadline: Option<Deadline>,
        kind: profile::Kind,
    ) -> bool {
        self.take_unreserved() || self.take_cold(deadline, kind)
    }

    #[cold]
    fn take_cold(&self, deadline: Option<Deadline>, kind: profile::Kind) -> bool {
        let mut wait = Wait::begin(kind, self);
        wait.sleeps();
        let is_in_vain = self.let_others_go_first(deadline);
        let (patience, mut is_starved) = (Patience::begin(), false);
        loop {
            wait.sleeps();
            let claim = if is_starved { fairness::next_claim(deadline) } else { None };
            let is_over = match self.wait(claim.or(deadline), is_starved) {
                Wake::TimedOut if claim.is_none() => true,
                // The time of the next claim; or there was a permit, which another thread may have by now.
                Wake::TimedOut | Wake::Differed => deadline.is_some_and(Deadline::has_come),
                _ => false,
            };
            if is_over {
                return wait.end(self.leave_or_take(is_starved));
            }
            if self.take(AWAITED, if is_starved || is_in_vain { STARVED } else { 0 }) {
                return wait.end(true);
            }
            is_starved = is_starved || patience.has_ended();
        }
    }

    /// Sleeps for a moment if permits are reserved. Afterwards the thread counts as one that has slept. Returns `true`
    /// if nothing happened meanwhile.
    fn let_others_go_first(&self, deadline: Option<Deadline>) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        if number(word) == 0 || word & STARVED == 0 {
            return false;
        }
        let end = fairness::end_of_step_back(deadline);
        self.word.wait_briefly(word, Some(end)) == Wake::TimedOut
    }

    /// Sleeps while there is no permit, until woken or until the deadline. A thread that has slept must then restore
    /// invariant 2, by `take` with AWAITED or by `leave`.
    fn wait(&self, deadline: Option<Deadline>, is_starved: bool) -> Wake {
        match self.announce_with(AWAITED | if is_starved { STARVED } else { 0 }) {
            Some(expected) => self.word.wait(expected, deadline),
            None => Wake::Differed,
        }
    }

    /// Sets AWAITED and returns the word to sleep on. `None` if there is a permit.
    pub(in crate::sync) fn announce(&self) -> Option<u32> {
        self.announce_with(AWAITED)
    }

    fn announce_with(&self, marks: u32) -> Option<u32> {
        // Relaxed: the thread that takes a permit acquires then.
        let mut word = self.word.load(Ordering::Relaxed);
        while number(word) == 0 {
            let marked = word | marks;
            let relaxed = Ordering::Relaxed;
            if marked == word {
                return Some(marked);
            }
            match self.word.compare_exchange_weak(word, marked, relaxed, relaxed) {
                Ok(_) => return Some(marked),
                Err(now) => word = now,
            }
        }
        None
    }

    /// Passes a wake-up that this thread may have received to another sleeper.
    pub(in crate::sync) fn leave(&self) {
        self.leave_with(0);
    }

    /// The same, and clears these marks.
    fn leave_with(&self, marks: u32) {
        let marked = |word| Some((word | AWAITED) & !marks);
        // Relaxed: it only tells that threads may be sleeping. Another starving thread sets STARVED again.
        let before = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, marked);
        if before.is_ok_and(|word| number(word) > 0) {
            Futex::wake(&self.word, 1);
        }
    }

    /// Ends a wait whose deadline has passed. Takes a permit if there is one after all.
    fn leave_or_take(&self, is_starved: bool) -> bool {
        let ends = if is_starved { STARVED } else { 0 };
        if self.take(AWAITED, ends) {
            return true;
        }
        self.leave_with(ends);
        false
    }

    /// Gives `more` permits, up to `most` in all, and wakes as many threads. Returns the number before that.
    ///
    /// `None` without a change if there would be more than `most`, unless `saturate`.
    #[inline]
    pub(in crate::sync) fn give(&self, more: u32, most: u32, saturate: bool) -> Option<u32> {
        let before = self.word.load(Ordering::Relaxed);
        // With AWAITED or STARVED set it exceeds any number.
        if before <= most && more <= most - before {
            // Release: partner is the Acquire in `take`.
            let (sum, success, failure) = (before + more, Ordering::Release, Ordering::Relaxed);
            if self.word.compare_exchange_weak(before, sum, success, failure).is_ok() {
                return Some(before);
            }
        }
        self.give_slowly(more, most, saturate)
    }

    #[inline(never)]
    fn give_slowly(&self, more: u32, most: u32, saturate: bool) -> Option<u32> {
        if more == 0 {
            // It would clear AWAITED and wake no thread.
            return Some(self.available());
        }
        let word = ptr_of(&self.word);
        let given = |before| {
            let sum = number(before).checked_add(more).filter(|&sum| sum <= most);
            let now = if saturate { Some(sum.unwrap_or(most)) } else { sum }?;
            Some(now | before & STARVED)
        };
        // Release: partner is the Acquire in `take`; also if the number does not change.
        let before = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, given).ok()?;
        // Invariant 4: by address only.
        if before & AWAITED != 0 {
            wake_cold::<S>(word, more);
        }
        Some(number(before))
    }

    /// Returns the word, for waits on several objects.
    pub(in crate::sync) fn word(&self) -> &AtomicU32 {
        &self.word
    }
}

#[inline(always)]
fn ptr_of<S: Scope>(word: &Futex<S>) -> *const Futex<S> {
    word
}

#[cold]
fn wake_cold<S: Scope>(word: *const Futex<S>, waiters: u32) {
    profile::let_go(profile::Kind::Semaphore, word);
    Futex::wake(word, waiters);
}

#[cfg(all(test, loom))]
mod loom;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::machinery::scope::Private;

    fn is_reserved(permits: &Permits<Private>) -> bool {
        permits.word.load(Ordering::Relaxed) & STARVED != 0
    }

    /// Other threads that have slept take permits meanwhile.
    #[test]
    fn a_reservation_stays_until_a_starving_thread_has_a_permit() {
        let permits = Permits::<Private>::new(3 | STARVED);
        assert!(permits.take(AWAITED, 0));
        assert!(is_reserved(&permits) && !permits.take_unreserved());
        assert!(permits.take(AWAITED, STARVED));
        assert!(!is_reserved(&permits) && permits.available() == 1);
    }

    /// A newcomer steps back in vain.
    #[test]
    fn a_reservation_for_a_thread_that_is_gone_ends() {
        let permits = Permits::<Private>::new(2 | STARVED);
        assert!(permits.take_until(None, profile::Kind::Semaphore));
        assert!(!is_reserved(&permits) && permits.available() == 1);
    }
}
