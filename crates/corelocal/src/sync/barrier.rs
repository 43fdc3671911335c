//! A place where threads wait until so many are there.
//!
//! ```text
//!   state       round (32 bits) | arrived in it (32 bits)
//!   released    how many rounds are over (31 bits) | ASLEEP: what sleepers wait for
//! ```
//!
//! ```text
//!   one that waits                           the last one (the leader)
//!   state: arrived += 1                      state: round += 1, arrived = 0
//!   looks at released for a moment
//!   ASLEEP into released
//!   sleep while released is its round        released += 1, no longer ASLEEP; wake all that sleep
//! ```
//!
//! Sleepers wait for a word that only leaders and the first sleeper of a round write: who wakes reads it once and
//! goes, and nobody who arrives disturbs one that is falling asleep.
//!
//! Before it sleeps a thread looks a few times, and lets others run in between (`spin.rs`): with more threads than
//! cpus they arrive meanwhile, so that nobody sleeps and nobody need be woken.
//!
//! # Invariants
//! 1. `state` changes by compare-exchange of the whole: a thread arrives in the round that it then waits for,
//!    and of each round one thread is the leader, the one that makes it full.
//! 2. The leader of a round adds to `released` after its round is over; the leader of a later one may be
//!    quicker. So when `released` passes a round, that round is over, though perhaps it was a later leader who
//!    said so: that one saw the end of the earlier round in `state`, with all that came before.
//! 3. Who gives up takes itself out of its round, if that is not over; else it was let go.
//! 4. Whoever sleeps has seen ASLEEP beside a number of rounds that does not let it go. Who changes that number
//!    clears ASLEEP and wakes all: those whose round is not over say again that they sleep.

use core::fmt;
use core::time::Duration;

use super::futex::Futex;
use super::profile::{self, Kind, Wait};
use super::scope::{Private, Scope};
use super::spin::{self, Spin};
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sys::futex::{Deadline, Wake};

const ROUND: u64 = 1 << 32;

/// Of `released`: somebody may sleep.
const ASLEEP: u32 = 1;
const RELEASED: u32 = 2;

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

/// Whether this round is over. None is as far behind as to seem ahead: its threads wait for that.
#[inline(always)]
fn is_over(released: u32, round: u32) -> bool {
    // The number has 31 bits.
    ((released / RELEASED).wrapping_sub(round) << 1) as i32 > 0
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
    /// Never changes here. Another user that shares the barrier may write to it (`TamperSafe`).
    threads: AtomicU32,
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
        Barrier {
            state: AtomicU64::new(0),
            released: Futex::new(0),
            threads: AtomicU32::new(threads),
        }
    }

    /// As above.
    #[cfg(loom)]
    pub fn with_scope(threads: u32) -> Self {
        Barrier {
            state: AtomicU64::new(0),
            released: Futex::new(0),
            threads: AtomicU32::new(threads),
        }
    }

    /// Waits until so many threads are here.
    pub fn wait(&self) -> BarrierWaitResult {
        match self.arrive() {
            None => BarrierWaitResult { is_leader: true },
            Some(round) => self.until_over(round),
        }
    }

    fn until_over(&self, round: u32) -> BarrierWaitResult {
        let mut wait = Wait::begin(Kind::Barrier, self);
        if !self.is_over_soon(round) {
            while let Some(released) = self.announce(round) {
                wait.sleeps();
                self.released.wait(released, None);
            }
        }
        wait.end(true);
        BarrierWaitResult { is_leader: false }
    }

    /// The same, at most so long; `None` if they did not come. Then the caller has not come either.
    pub fn wait_for(&self, span: Duration) -> Option<BarrierWaitResult> {
        self.wait_until(Deadline::after(span))
    }

    /// The same, until the deadline; `None` if they did not come. Then the caller has not come either.
    pub fn wait_until(&self, deadline: Deadline) -> Option<BarrierWaitResult> {
        let Some(round) = self.arrive() else { return Some(BarrierWaitResult { is_leader: true }) };
        let mut wait = Wait::begin(Kind::Barrier, self);
        if self.is_over_soon(round) {
            wait.end(true);
            return Some(BarrierWaitResult { is_leader: false });
        }
        while let Some(released) = self.announce(round) {
            wait.sleeps();
            if self.released.wait(released, Some(deadline)) == Wake::TimedOut {
                // Invariant 3: the leader is about to say so.
                return if self.withdraw(round) { None } else { Some(self.until_over(round)) };
            }
        }
        wait.end(true);
        Some(BarrierWaitResult { is_leader: false })
    }

    /// How many threads a round takes.
    pub fn threads(&self) -> u32 {
        // Relaxed: written once, before other threads see the barrier.
        self.threads.load(Ordering::Relaxed)
    }

    /// Comes; the round to wait for, or nothing if that was the last one to come.
    fn arrive(&self) -> Option<u32> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let is_last = arrived(state).saturating_add(1) >= self.threads();
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
        let this: *const Futex<S> = &self.released;
        let barrier: *const Self = self;
        let mut released = self.released.load(Ordering::Relaxed);
        loop {
            let after = (released & !ASLEEP).wrapping_add(RELEASED);
            // Release: partner is the Acquire in `is_over_soon` and `announce`. Leaders come one after another,
            // so it lasts.
            match self.released.compare_exchange_weak(
                released,
                after,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => released = now,
            }
        }
        if released & ASLEEP != 0 {
            profile::let_go(Kind::Barrier, barrier);
            Futex::wake(this, u32::MAX);
        }
    }

    /// Looks whether this round ends while the caller need not sleep.
    fn is_over_soon(&self, round: u32) -> bool {
        let mut spin = Spin::new(spin::BRIEF);
        // Acquire: partner is the Release in `release`.
        while !is_over(self.released.load(Ordering::Acquire), round) {
            if !spin.again() {
                return false;
            }
        }
        true
    }

    /// Says that somebody is about to sleep: while `released` is as returned. Nothing if this round is over.
    fn announce(&self, round: u32) -> Option<u32> {
        // Acquire, here and below: partner is the Release in `release`.
        let mut released = self.released.load(Ordering::Acquire);
        while !is_over(released, round) {
            let said = released | ASLEEP;
            if released == said {
                return Some(said);
            }
            match self.released.compare_exchange_weak(
                released,
                said,
                Ordering::Relaxed,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(said),
                Err(now) => released = now,
            }
        }
        None
    }

    /// Takes the caller out of its round; false if that is over.
    fn withdraw(&self, mine: u32) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while round(state) == mine {
            // Only another user that shares the barrier can have written 0: then there is nothing to take back.
            let after = if arrived(state) == 0 { state } else { state - 1 };
            // Relaxed: it takes back what it said, and learns nothing. A read-modify-write, so the Release of
            // those that came before lasts.
            match self.state.compare_exchange_weak(
                state,
                after,
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
        debug.field("threads", &self.threads()).field("arrived", &arrived).finish()
    }
}

#[cfg(all(test, loom))]
#[path = "barrier_loom.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Another user that shares the barrier writes any bytes to it.
    #[test]
    fn every_word_may_be_written_by_others() {
        let barrier = Barrier::new(3);
        let Barrier { state, released, threads } = &barrier;
        let numbers: (&AtomicU64, &Futex<Private>, &AtomicU32) = (state, released, threads);
        numbers.2.store(1, Ordering::Relaxed);
        assert!(barrier.wait().is_leader());
        assert_eq!(barrier.threads(), 1);
        // As many as there can be have arrived.
        state.store(u64::MAX, Ordering::Relaxed);
        threads.store(u32::MAX, Ordering::Relaxed);
        assert!(barrier.wait().is_leader());
        assert_eq!(arrived(state.load(Ordering::Relaxed)), 0);
    }

    /// Another user writes that no thread has arrived, while one waits.
    #[test]
    fn a_withdrawal_does_not_go_below_zero() {
        let barrier = Barrier::new(2);
        assert!(barrier.withdraw(0));
        assert_eq!(barrier.state.load(Ordering::Relaxed), 0);
    }
}
