//! A counter with threads that wait for zero: the basis of latches and wait groups.
//!
//! ```text
//!   31        30        24   23      0
//!   AWAITED   times at zero   count
//! ```
//!
//! # Invariants
//! 1. The change that brings the count to 0 increments `times`, clears AWAITED and wakes all. A waiter that sees
//!    another `times` than at its start leaves, even if the count has grown again. (It misses that only if it does
//!    not run while this happens a multiple of 128 times; then it waits for the next zero.)
//! 2. A thread that counts down does not access the word after the exchange: its memory may be gone.

use super::machinery::futex::Futex;
use super::machinery::scope::Scope;
use super::profile::{Kind, Wait};
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::futex::{Deadline, Wake};

const AWAITED: u32 = 1 << 31;
const LEFT_BITS: u32 = 24;
/// The maximum count.
pub(super) const MOST: u32 = (1 << LEFT_BITS) - 1;
const ONE_TIME: u32 = 1 << LEFT_BITS;

#[inline(always)]
fn left(word: u32) -> u32 {
    word & MOST
}

#[inline(always)]
fn times(word: u32) -> u32 {
    (word & !AWAITED) >> LEFT_BITS
}

/// The word after the count has reached zero.
#[inline(always)]
fn at_zero(word: u32) -> u32 {
    (word & !(AWAITED | MOST)).wrapping_add(ONE_TIME) & !AWAITED
}

/// A count and its waiters in one word. All bytes 0 is a count of zero.
#[repr(transparent)]
pub(super) struct Countdown<S: Scope> {
    word: Futex<S>,
}

impl<S: Scope> Countdown<S> {
    const_fn! {
        pub(super) const fn new(count: u32) -> Self {
            assert!(count <= MOST, "a count is at most 2^24 - 1");
            Countdown { word: Futex::new(count) }
        }
    }

    /// Adds to the count; false, without a change, if it would be too large.
    pub(super) fn add(&self, more: u32) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while more <= MOST - left(word) {
            // Relaxed: waiters learn nothing from it. A read-modify-write, so it continues a release sequence.
            match self.word.compare_exchange_weak(
                word,
                word + more,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Subtracts up to `less` from the count; returns the count before that.
    #[inline]
    pub(super) fn subtract(&self, less: u32) -> u32 {
        let this: *const Futex<S> = &self.word;
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if left(word) == 0 || less == 0 {
                return left(word);
            }
            let zero = left(word) <= less;
            let after = if zero { at_zero(word) } else { word - less };
            // Release: partner is the Acquire in `is_done` and `announce`.
            match self.word.compare_exchange_weak(word, after, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => {
                    // Invariant 2: by address only.
                    if zero && word & AWAITED != 0 {
                        Futex::wake(this, u32::MAX);
                    }
                    return left(word);
                }
                Err(now) => word = now,
            }
        }
    }

    pub(super) fn count(&self) -> u32 {
        left(self.word.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn is_done(&self) -> bool {
        // Acquire: partner is the Release in `subtract`.
        left(self.word.load(Ordering::Acquire)) == 0
    }

    #[inline]
    pub(super) fn wait(&self, deadline: Option<Deadline>) -> bool {
        self.is_done() || self.wait_cold(deadline)
    }

    #[cold]
    fn wait_cold(&self, deadline: Option<Deadline>) -> bool {
        let start = self.start();
        let mut wait = Wait::begin(Kind::Latch, self);
        loop {
            let Some(expected) = self.announce(start) else { return wait.end(true) };
            wait.sleeps();
            if self.word.wait(expected, deadline) == Wake::TimedOut {
                return wait.end(self.announce(start).is_none());
            }
        }
    }

    /// Returns how often the count has been zero, as far as is known.
    pub(super) fn start(&self) -> u32 {
        times(self.word.load(Ordering::Relaxed))
    }

    /// Sets AWAITED and returns the word to sleep on. `None` if the count is zero, or has been since it was `start`
    /// times.
    pub(super) fn announce(&self, start: u32) -> Option<u32> {
        // Acquire, here and below: partner is the Release in `subtract`.
        let mut word = self.word.load(Ordering::Acquire);
        while left(word) > 0 && times(word) == start {
            if word & AWAITED != 0 {
                return Some(word);
            }
            let after = word | AWAITED;
            match self.word.compare_exchange_weak(word, after, Ordering::Relaxed, Ordering::Acquire)
            {
                Ok(_) => return Some(after),
                Err(now) => word = now,
            }
        }
        None
    }

    /// Returns `true` if `announce` would return `None`.
    pub(super) fn is_there(&self, start: u32) -> bool {
        // Acquire: partner is the Release in `subtract`.
        let word = self.word.load(Ordering::Acquire);
        left(word) == 0 || times(word) != start
    }

    /// Returns the word, for waits on several objects.
    pub(super) fn word(&self) -> &AtomicU32 {
        &self.word
    }
}

#[cfg(all(test, loom))]
mod loom;
