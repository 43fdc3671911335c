//! Consumers that sleep until something is pushed, at no cost to producers while nobody does.
//!
//! A producer looks at one word after its push, and goes on if that is 0. It needs no fence, for a
//! consumer that goes to sleep makes one in every thread (`membarrier`) between saying so and looking
//! at the queue once more:
//!
//! ```text
//!   producer                                  consumer
//!   the item is pushed                        finds nothing
//!   (the compiler keeps the order)            waiting += 1
//!                                             a barrier, here and at some point over there
//!   waiting == 0?                             is anything there?
//!     yes: done                                 yes: waiting -= 1, take it
//!     no:  waiting -= 1, wakes += 1, futex      no:  sleep until wakes > 0, wakes -= 1
//! ```
//!
//! The barrier falls either after the producer's look, so after its push: then the consumer finds the
//! item. Or before the look: then the producer finds the consumer. An item is pushed and its consumer
//! sleeps on, both at once, never.
//!
//! Where membarrier is refused, producers make a fence of their own before they look. Whether they must
//! is a bit of the same word, so asking costs nothing: it is set at first, and cleared by the first
//! producer, if the kernel registers the process for membarrier.
//!
//! # Invariants
//! 1. `waiting` counts consumers that asked to be woken and were not chosen yet. A producer that finds
//!    one chooses it, whichever it is: one less waits, one more wake-up is there. A consumer that asked
//!    leaves by taking a wake-up, or by taking back its question. So there are never more wake-ups than
//!    consumers still to leave, and a wake-up is never left over.
//! 2. Every push since a consumer's last look chose somebody, as long as that consumer was not chosen.
//!    And whoever was chosen looks until it has an item, or has seen every slot empty. So no consumer
//!    sleeps on while items are there and nobody looks.
//! 3. The bit, once cleared, stays cleared; it is cleared only if membarrier works. Should it be refused
//!    later all the same (a filter installed meanwhile), consumers sleep `GLIMPSE` at a time.

#[cfg(not(loom))]
use core::sync::atomic::fence;
use core::time::Duration;
#[cfg(loom)]
use loom::sync::atomic::fence;

use crate::percpu::blocking::{heavy_barrier, light_barrier, nap, wait, wake_one};
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::futex::Deadline;

/// Producers must make a fence.
const FENCE: u32 = 1 << 31;
/// How long a store can possibly take to be seen by others, many times over.
const GLIMPSE: Duration = Duration::from_millis(10);
/// What a producer needs between choosing and waking.
const A_MOMENT: Duration = Duration::from_micros(10);

/// See the module's text.
pub(super) struct Sleepers {
    waiting: AtomicU32,
    /// The futex.
    wakes: AtomicU32,
}

impl Sleepers {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Sleepers { waiting: AtomicU32::new(FENCE), wakes: AtomicU32::new(0) }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Sleepers { waiting: AtomicU32::new(FENCE), wakes: AtomicU32::new(0) }
    }

    /// What a producer does after a push.
    #[inline(always)]
    pub(super) fn notify(&self) {
        // Partner: the heavy barrier in `sleep`. The push comes before the load.
        light_barrier();
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.notify_cold();
        }
    }

    #[cold]
    #[inline(never)]
    fn notify_cold(&self) {
        if self.waiting.load(Ordering::Relaxed) & FENCE != 0 {
            if asymmetric::works() {
                self.waiting.fetch_and(!FENCE, Ordering::Relaxed);
            }
            // Partner: the fence in `sleep`.
            fence(Ordering::SeqCst);
        }
        // Relaxed: the futex orders what a wake-up tells, and whoever wakes looks for itself.
        let mut waiting = self.waiting.load(Ordering::Relaxed);
        while waiting & !FENCE != 0 {
            match self.waiting.compare_exchange_weak(
                waiting,
                waiting - 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // Release: partner is the Acquire in `take_wake`: the push comes before.
                    self.wakes.fetch_add(1, Ordering::Release);
                    wake_one(&self.wakes);
                    return;
                }
                Err(now) => waiting = now,
            }
        }
    }

    /// Sleeps until something is pushed, or until the deadline. May return for nothing; after it the
    /// caller must look until it has an item or has seen every slot empty (invariant 2).
    ///
    /// `is_anything` is a look at the queue: false only if all slots are empty, each at some moment of
    /// the call.
    #[cold]
    pub(super) fn sleep(&self, deadline: Option<Deadline>, is_anything: impl FnOnce() -> bool) {
        // Relaxed: the barrier orders it.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let glimpse = match heavy_barrier() {
            Ok(()) => None,
            Err(_) => {
                // Partner: the fence in `notify_cold`.
                fence(Ordering::SeqCst);
                // Producers make it if the refusal was known from the start; else only time helps.
                asymmetric::works().then_some(GLIMPSE)
            }
        };
        if is_anything() {
            return self.leave();
        }
        let mut looked = false;
        while !self.take_wake() {
            let remaining = deadline.map(Deadline::remaining);
            if looked || remaining.is_some_and(|span| span.is_zero()) {
                return self.leave();
            }
            wait(&self.wakes, 0, [remaining, glimpse].into_iter().flatten().min());
            looked = glimpse.is_some();
        }
    }

    /// Takes back the question to be woken, or the answer to it.
    fn leave(&self) {
        let mut waiting = self.waiting.load(Ordering::Relaxed);
        loop {
            if waiting & !FENCE == 0 {
                // Chosen: the wake-up is there, or about to be.
                if self.take_wake() {
                    return;
                }
                nap(A_MOMENT);
                waiting = self.waiting.load(Ordering::Relaxed);
                continue;
            }
            match self.waiting.compare_exchange_weak(
                waiting,
                waiting - 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => waiting = now,
            }
        }
    }

    /// Takes a wake-up, if there is one.
    fn take_wake(&self) -> bool {
        let mut wakes = self.wakes.load(Ordering::Relaxed);
        while wakes > 0 {
            // Acquire: partner is the Release in `notify_cold`.
            match self.wakes.compare_exchange_weak(
                wakes,
                wakes - 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => wakes = now,
            }
        }
        false
    }
}

/// Whether membarrier can be relied upon: asked once, the first answer is everybody's.
mod asymmetric {
    #[cfg(loom)]
    pub(super) fn works() -> bool {
        true
    }

    #[cfg(not(loom))]
    pub(super) fn works() -> bool {
        use crate::primitive::global::{AtomicU32, Ordering};
        use crate::sys::membarrier;
        const UNKNOWN: u32 = 0;
        const WORKS: u32 = 1;
        const REFUSED: u32 = 2;
        static ANSWER: AtomicU32 = AtomicU32::new(UNKNOWN);
        // Relaxed: the value is all there is.
        let mut answer = ANSWER.load(Ordering::Relaxed);
        if answer == UNKNOWN {
            let works = membarrier::register_private_expedited().is_ok();
            let found = if works { WORKS } else { REFUSED };
            answer = ANSWER
                .compare_exchange(UNKNOWN, found, Ordering::Relaxed, Ordering::Relaxed)
                .map_or_else(|first| first, |_| found);
        }
        answer == WORKS
    }
}

#[cfg(all(test, loom))]
#[path = "sleepers_loom.rs"]
mod loom_tests;
