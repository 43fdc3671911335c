//! A number of permits, and threads that wait for one: what semaphores and events that reset themselves are.
//!
//! ```text
//!   31        30                          0
//!   AWAITED   permits
//! ```
//!
//! AWAITED says that somebody may sleep. Whoever gives a permit clears it and wakes; whoever slept sets it
//! again, since others may sleep still.
//!
//! ```text
//!   giver                                    taker
//!   permits += n, AWAITED cleared            no permit: AWAITED set
//!   it was set: wake n                       sleep while the word is AWAITED and nothing else
//!                                            woken: permits -= 1, AWAITED set; are there more: wake one
//! ```
//!
//! # Invariants
//! 1. The number goes down by one for each permit that is taken, up by what is given, and never below 0.
//! 2. While somebody sleeps, the word is AWAITED, or somebody is awake who was woken and has not left yet.
//!    Such a one leaves with AWAITED set, and if it leaves permits behind, wakes another. So no permit is
//!    there and everybody who waits for it sleeps, both at once, never.
//! 3. What a giver did before happens before what the taker of any later permit does: every change of the
//!    word is a read-modify-write, so a Release lasts.
//! 4. A giver does not touch the word after the exchange that gives: its memory may be gone.

use super::futex::Futex;
use super::profile::{self, Wait};
use super::scope::Scope;
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::futex::{Deadline, Wake};

/// Somebody may sleep.
pub(super) const AWAITED: u32 = 1 << 31;

/// See the module's text. All bytes 0 is: no permits.
#[repr(transparent)]
pub(super) struct Permits<S: Scope> {
    word: Futex<S>,
}

#[inline(always)]
fn number(word: u32) -> u32 {
    word & !AWAITED
}

impl<S: Scope> Permits<S> {
    /// The most permits there can be.
    pub(super) const MAX: u32 = AWAITED - 1;

    #[cfg(not(loom))]
    pub(super) const fn new(permits: u32) -> Self {
        Permits { word: Futex::new(permits) }
    }

    #[cfg(loom)]
    pub(super) fn new(permits: u32) -> Self {
        Permits { word: Futex::new(permits) }
    }

    #[inline]
    pub(super) fn available(&self) -> u32 {
        // Relaxed: a number that is old when it is read.
        number(self.word.load(Ordering::Relaxed))
    }

    /// Takes a permit, if there is one.
    #[inline]
    pub(super) fn try_take(&self) -> bool {
        self.take(0)
    }

    /// Takes a permit, if there is one, with AWAITED set if that is `mark`: so does one that has slept.
    #[inline]
    pub(super) fn take(&self, mark: u32) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while number(word) > 0 {
            // Acquire: partner is the Release in `give`.
            match self.word.compare_exchange_weak(
                word,
                (word - 1) | mark,
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

    /// Takes a permit, once there is one; false at the deadline.
    #[inline]
    pub(super) fn take_until(&self, deadline: Option<Deadline>, kind: profile::Kind) -> bool {
        self.try_take() || self.take_cold(deadline, kind)
    }

    #[cold]
    fn take_cold(&self, deadline: Option<Deadline>, kind: profile::Kind) -> bool {
        let mut wait = Wait::begin(kind, self);
        loop {
            wait.sleeps();
            let is_over = match self.wait(deadline) {
                Wake::TimedOut => true,
                // A permit was there, and may be another's by now.
                Wake::Differed => deadline.is_some_and(Deadline::has_come),
                _ => false,
            };
            if is_over {
                return wait.end(self.leave_or_take());
            }
            if self.take(AWAITED) {
                return wait.end(true);
            }
        }
    }

    /// Sleeps while there is no permit, until woken or until the deadline. After it, whoever slept owes
    /// invariant 2: `take` with AWAITED, or `leave`.
    fn wait(&self, deadline: Option<Deadline>) -> Wake {
        match self.announce() {
            Some(expected) => self.word.wait(expected, deadline),
            None => Wake::Differed,
        }
    }

    /// Says that somebody is about to sleep: while the word is as returned. Nothing if there is a permit.
    pub(super) fn announce(&self) -> Option<u32> {
        // Relaxed: whoever takes acquires then.
        let mut word = self.word.load(Ordering::Relaxed);
        while number(word) == 0 {
            if word == AWAITED {
                return Some(AWAITED);
            }
            match self.word.compare_exchange_weak(
                word,
                AWAITED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(AWAITED),
                Err(now) => word = now,
            }
        }
        None
    }

    /// The wake-up that a leaving sleeper may have had is somebody else's again.
    pub(super) fn leave(&self) {
        // Relaxed: nothing is told but that somebody may sleep.
        if number(self.word.fetch_or(AWAITED, Ordering::Relaxed)) > 0 {
            Futex::wake(&self.word, 1);
        }
    }

    /// The end of a wait that took too long. A permit that is there all the same is taken.
    fn leave_or_take(&self) -> bool {
        if self.take(AWAITED) {
            return true;
        }
        self.leave();
        false
    }

    /// Gives `more` permits, up to `most` in all, and wakes as many; what there were before.
    ///
    /// `None` changes nothing: there would be more than `most`, and `saturate` is false.
    #[inline]
    pub(super) fn give(&self, more: u32, most: u32, saturate: bool) -> Option<u32> {
        if more == 0 {
            // It would clear AWAITED and wake nobody.
            return Some(self.available());
        }
        let word = ptr_of(&self.word);
        let mut before = self.word.load(Ordering::Relaxed);
        loop {
            let now = match number(before).checked_add(more) {
                Some(sum) if sum <= most => sum,
                _ if saturate => most,
                _ => return None,
            };
            // Release: partner is the Acquire in `take`; also when the number stays as it is.
            match self.word.compare_exchange_weak(before, now, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => {
                    // Invariant 4: by address.
                    if before & AWAITED != 0 {
                        wake_cold::<S>(word, more);
                    }
                    return Some(number(before));
                }
                Err(actual) => before = actual,
            }
        }
    }

    /// The word, for those who wait for several.
    pub(super) fn word(&self) -> &AtomicU32 {
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
#[path = "permits_loom.rs"]
mod loom_tests;
