//! A place where threads wait until so many are there.
//!
//! ```text
//!   state       round (32 bits) | arrived in it (32 bits)
//!   released    how many rounds are over: what sleepers wait for
//! ```
//!
//! ```text
//!   one that waits                           the last one (the leader)
//!   state: arrived += 1                      state: round += 1, arrived = 0
//!   sleep while released is its round        released += 1, wake all
//! ```
//!
//! Sleepers wait for a word that only leaders write: who wakes reads it once and goes, and nobody who arrives
//! disturbs one that is falling asleep.
//!
//! # Invariants
//! 1. `state` changes by compare-exchange of the whole: a thread arrives in the round that it then waits for,
//!    and of each round one thread is the leader, the one that makes it full.
//! 2. The leader of a round adds to `released` after its round is over; the leader of a later one may be
//!    quicker. So when `released` passes a round, that round is over, though perhaps it was a later leader who
//!    said so: that one saw the end of the earlier round in `state`, with all that came before.
//! 3. Who gives up takes itself out of its round, if that is not over; else it was let go.

use core::fmt;
use core::time::Duration;

use super::futex::Futex;
use super::scope::{Private, Scope};
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::sys::futex::{Deadline, Wake};

const ROUND: u64 = 1 << 32;

#[inline(always)]
fn round(state: u64) -> u32 {
    (state / ROUND) as u32
}

#[inline(always)]
fn arrived(state: u64) -> u32 {
    state as u32
}

/// The first state of the next round.
#[inline(always)]
fn next_round(state: u64) -> u64 {
    u64::from(round(state).wrapping_add(1)) * ROUND
}

/// Lets threads go when so many have come: 16 bytes.
///
/// ```
/// use corelocal::sync::Barrier;
///
/// let barrier = Barrier::new(3);
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| barrier.wait());
///     }
///     barrier.wait();
///     println!("all three are here");
/// });
/// ```
///
/// More threads than that may use it: each round takes those that come first. It can be used again at once.
/// What threads did before they came happens before what follows in all that were let go with them.
///
/// # After fork
/// Threads of the parent that wait at a private barrier have come in the child too, but none of them goes on
/// there. A barrier is of use in a child if nobody waited at it.
#[repr(C)]
pub struct Barrier<S: Scope = Private> {
    state: AtomicU64,
    released: Futex<S>,
    threads: u32,
}

/// Whether a thread made a round full: one in each round did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult {
    is_leader: bool,
}

impl BarrierWaitResult {
    /// Whether the thread was the last one to come.
    pub fn is_leader(&self) -> bool {
        self.is_leader
    }
}

impl Barrier {
    /// A barrier of the threads of this process; 0 is as good as 1: nobody waits.
    #[cfg(not(loom))]
    pub const fn new(threads: u32) -> Self {
        Self::with_scope(threads)
    }

    /// As above.
    #[cfg(loom)]
    pub fn new(threads: u32) -> Self {
        Self::with_scope(threads)
    }
}

impl<S: Scope> Barrier<S> {
    /// A barrier of whoever the scope says.
    #[cfg(not(loom))]
    pub const fn with_scope(threads: u32) -> Self {
        Barrier { state: AtomicU64::new(0), released: Futex::new(0), threads }
    }

    /// As above.
    #[cfg(loom)]
    pub fn with_scope(threads: u32) -> Self {
        Barrier { state: AtomicU64::new(0), released: Futex::new(0), threads }
    }

    /// Waits until so many threads are here.
    pub fn wait(&self) -> BarrierWaitResult {
        match self.arrive() {
            None => BarrierWaitResult { is_leader: true },
            Some(round) => self.until_over(round),
        }
    }

    fn until_over(&self, round: u32) -> BarrierWaitResult {
        while let Some(released) = self.before_end_of(round) {
            self.released.wait(released, None);
        }
        BarrierWaitResult { is_leader: false }
    }

    /// The same, at most so long; `None` if they did not come. Then the caller has not come either.
    pub fn wait_for(&self, span: Duration) -> Option<BarrierWaitResult> {
        self.wait_until(Deadline::after(span))
    }

    /// The same, until the deadline; `None` if they did not come. Then the caller has not come either.
    pub fn wait_until(&self, deadline: Deadline) -> Option<BarrierWaitResult> {
        let Some(round) = self.arrive() else { return Some(BarrierWaitResult { is_leader: true }) };
        while let Some(released) = self.before_end_of(round) {
            if self.released.wait(released, Some(deadline)) == Wake::TimedOut {
                // Invariant 3: the leader is about to say so.
                return if self.withdraw(round) { None } else { Some(self.until_over(round)) };
            }
        }
        Some(BarrierWaitResult { is_leader: false })
    }

    /// How many threads a round takes.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Comes; the round to wait for, or nothing if that was the last one to come.
    fn arrive(&self) -> Option<u32> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let is_last = arrived(state) + 1 >= self.threads;
            let after = if is_last { next_round(state) } else { state + 1 };
            // Release and Acquire: partners of each other. The leader sees what all did before they came.
            match self.state.compare_exchange_weak(
                state,
                after,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) if is_last => {
                    self.release();
                    return None;
                }
                Ok(_) => return Some(round(state)),
                Err(now) => state = now,
            }
        }
    }

    fn release(&self) {
        // Whoever is let go may free the barrier: from then on it is an address.
        let (released, is_waited_for) = (&raw const self.released, self.threads > 1);
        // Release: partner is the Acquire in `before_end_of`. Leaders add one after another, so it lasts.
        self.released.fetch_add(1, Ordering::Release);
        if is_waited_for {
            Futex::wake(released, u32::MAX);
        }
    }

    /// What to sleep on until this round is over; nothing if it is.
    fn before_end_of(&self, round: u32) -> Option<u32> {
        // Acquire: partner is the Release in `release`.
        let released = self.released.load(Ordering::Acquire);
        (released.wrapping_sub(round) as i32 <= 0).then_some(released)
    }

    /// Takes the caller out of its round; false if that is over.
    fn withdraw(&self, mine: u32) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while round(state) == mine {
            // Relaxed: it takes back what it said, and learns nothing. A read-modify-write, so the Release of
            // those that came before lasts.
            match self.state.compare_exchange_weak(
                state,
                state - 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }
}

impl<S: Scope> fmt::Debug for Barrier<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrived = arrived(self.state.load(Ordering::Relaxed));
        let mut debug = f.debug_struct("Barrier");
        debug.field("threads", &self.threads).field("arrived", &arrived).finish()
    }
}

#[cfg(all(test, loom))]
#[path = "barrier_loom.rs"]
mod loom_tests;
