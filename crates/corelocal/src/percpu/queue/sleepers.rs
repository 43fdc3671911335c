//! Consumers that sleep until an item is pushed, at no cost to producers while none sleeps.
//!
//! A producer reads one word after its push, and is done if that is 0. It needs no fence: a consumer that goes to
//! sleep executes a barrier in every thread (`membarrier`) between announcing itself and checking the queue once
//! more:
//!
//! ```text
//!   producer                                  consumer
//!   pushes the item                           finds no item
//!   (the compiler keeps the order)            waiting += 1
//!                                             a barrier, here and at some moment in the producer
//!   waiting == 0?                             is there an item?
//!     yes: done                                 yes: waiting -= 1, take it
//!     no:  waiting -= 1, wakes += 1, futex      no:  sleep until wakes > 0, wakes -= 1
//! ```
//!
//! If the barrier comes after the producer's read, it also comes after the push, and the consumer finds the item. If
//! it comes before the read, the producer finds the consumer. So a consumer never sleeps on beside an item.
//!
//! Where membarrier is refused, producers execute a fence before the read. Whether they must is a bit of the same
//! word, so checking it is free. The bit is set at first, and cleared by the first producer if the kernel registers
//! the process for membarrier.
//!
//! # Invariants
//! 1. `waiting` counts consumers that have announced themselves and were not chosen yet. A producer that finds one
//!    chooses any of them: `waiting` decreases by one, `wakes` increases by one. A consumer that has announced itself
//!    leaves by taking a wake-up, or by decrementing `waiting`. So there are never more wake-ups than consumers still
//!    to leave, and none is left over.
//! 2. Until a consumer is chosen, every push since its last check has chosen another one. A chosen consumer checks
//!    until it has an item, or has seen every slot empty. So no consumer sleeps on while there are items that no
//!    consumer checks for.
//! 3. Once cleared the bit stays cleared. It is cleared only if membarrier works. If membarrier is refused later (by
//!    a filter installed meanwhile), consumers sleep for `GLIMPSE` at a time.

#[cfg(loom)]
use ::loom::sync::atomic::fence;
#[cfg(not(loom))]
use core::sync::atomic::fence;
use core::time::Duration;

use crate::percpu::machinery::blocking::{heavy_barrier, light_barrier, nap, wait, wake_one};
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::futex::Deadline;

/// Producers must execute a fence.
const FENCE: u32 = 1 << 31;
/// Many times longer than a store can take to become visible.
const GLIMPSE: Duration = Duration::from_millis(10);
/// About the time a producer needs between choosing and waking.
const A_MOMENT: Duration = Duration::from_micros(10);

/// The consumers of a queue that sleep until an item is pushed.
pub(super) struct Sleepers {
    waiting: AtomicU32,
    /// The futex.
    wakes: AtomicU32,
}

impl Sleepers {
    const_fn! {
        pub(super) const fn new() -> Self {
            Sleepers { waiting: AtomicU32::new(FENCE), wakes: AtomicU32::new(0) }
        }
    }

    /// Called by a producer after a push.
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
        // Relaxed: the futex orders the wake-up, and a woken consumer checks for itself.
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

    /// Sleeps until an item is pushed, or until the deadline. May return spuriously. Afterwards the caller must check
    /// until it has an item or has seen every slot empty (invariant 2).
    ///
    /// `is_anything` checks the queue. It is false only if all slots are empty, each at some moment of the call.
    #[cold]
    pub(super) fn sleep(&self, deadline: Option<Deadline>, is_anything: impl FnOnce() -> bool) {
        // Relaxed: the barrier orders it.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let glimpse = match heavy_barrier() {
            Ok(()) => None,
            Err(_) => {
                // Partner: the fence in `notify_cold`.
                fence(Ordering::SeqCst);
                // Producers execute it if the refusal was known from the start. Otherwise waiting is the only way.
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

    /// Takes back the announcement, or takes the wake-up if a producer has chosen this consumer.
    fn leave(&self) {
        let mut waiting = self.waiting.load(Ordering::Relaxed);
        loop {
            if waiting & !FENCE == 0 {
                // Chosen: the wake-up exists, or is about to.
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

/// Whether membarrier is reliable. The kernel is asked once, and the first answer counts for all threads.
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
        // Relaxed: the value itself is all that is needed.
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
mod loom;
