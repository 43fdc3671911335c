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
//! Where processes share the barrier, the leader may be killed between its two changes. So `state` alone decides there
//! whether a round is over, and `released` follows it: the leader sets it to the round in `state`. A waiter that wakes,
//! after a second at most, reads `state` as well. If its round is over, the waiter does what the leader has left
//! undone, and returns.
//!
//! Sleepers wait for a word that only leaders, waiters in their stead, and the first sleeper of a round write: a thread
//! that wakes reads it once and goes, and a thread that arrives disturbs none that is falling asleep.
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
//!    The leader of a private barrier adds 1. Where processes share the barrier, a thread reads `released`, then
//!    `state`, and exchanges `released` for the round in `state`. Leaders and waiters may do that in any order and any
//!    number of times: `released` never passes `state`, never goes back, and is right again whatever it was.
//! 3. Who gives up takes itself out of its round, if that is not over; else it was let go. A private waiter then
//!    waits until the leader says so, since it may free the barrier. A shared waiter does not: a shared barrier stays
//!    mapped while a call borrows it.
//! 4. Whoever sleeps has seen ASLEEP beside a number of rounds that does not let it go. Who changes that number
//!    clears ASLEEP and wakes all: those whose round is not over say again that they sleep. If the process is killed
//!    before it wakes them, they wake within a second (`bounded_wait.rs`).

use core::fmt;
use core::time::Duration;

use super::bounded_wait;
use super::futex::Futex;
use super::profile::{self, Kind, Wait};
use super::scope::{Private, Scope};
use super::spin::{self, Spin};
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sys::futex::{self, Deadline, Wake};

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
///
/// # Processes that die
/// A thread that is killed while it waits at a shared barrier has come, and counts in that round. If it was the last
/// one to come, the others go on, within a second or at their deadline, though no thread may be told that it leads.
#[repr(C)]
pub struct Barrier<S: Scope = Private> {
    state: AtomicU64,
    released: Futex<S>,
    /// Never changes here. Another user that shares the barrier may write to it (`TamperSafe`).
    threads: AtomicU32,
}

/// Whether a thread made a round full: one in each round did (of a shared barrier, it may have been killed since).
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
    /// Whether the leader of a round may be killed while others live on.
    const IS_SHARED: bool = matches!(S::FUTEX, futex::Scope::Shared);

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
        let is_over = self.is_over_by(round, None, &mut wait);
        wait.end(is_over);
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
        if !self.is_over_by(round, Some(deadline), &mut wait) {
            if self.withdraw(round) {
                return None;
            }
            // Invariant 3.
            if Self::IS_SHARED {
                self.release();
            } else {
                self.is_over_by(round, None, &mut wait);
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

    /// Lets the waiters go whose rounds are over.
    fn release(&self) {
        // Whoever is let go may free a private barrier: from then on it is an address.
        let this: *const Futex<S> = &self.released;
        let barrier: *const Self = self;
        // Acquire: `state`, which is read below, is not older than what is read here. So `released` never goes back.
        let look = if Self::IS_SHARED { Ordering::Acquire } else { Ordering::Relaxed };
        // Release: partner is the Acquire in `is_over_soon` and `announce`. Leaders come one after another,
        // so it lasts.
        let before = self.released.fetch_update(Ordering::Release, look, |released| {
            let over = if Self::IS_SHARED {
                // Acquire: partner is the Release of the leaders in `arrive`.
                round(self.state.load(Ordering::Acquire))
            } else {
                (released / RELEASED).wrapping_add(1)
            };
            let after = over.wrapping_mul(RELEASED);
            (after != released & !ASLEEP).then_some(after)
        });
        // An error: another thread has released all rounds that are over, and wakes their sleepers.
        if before.is_ok_and(|released| released & ASLEEP != 0) {
            profile::let_go(Kind::Barrier, barrier);
            Futex::wake(this, u32::MAX);
        }
    }

    /// Waits until this round is over; false if the deadline comes first.
    fn is_over_by(&self, round: u32, deadline: Option<Deadline>, wait: &mut Wait) -> bool {
        if self.is_over_soon(round) {
            return true;
        }
        while let Some(released) = self.announce(round) {
            wait.sleeps();
            let limit = bounded_wait::limit(deadline, S::FUTEX);
            let woken = self.released.wait_briefly(released, limit);
            if Self::IS_SHARED && self.has_passed(round) {
                // The leader has released it, is about to, or was killed.
                self.release();
                return true;
            }
            if woken == Wake::TimedOut && limit == deadline {
                return false;
            }
        }
        true
    }

    /// Whether `state` is in another round than this one, which is over then.
    fn has_passed(&self, mine: u32) -> bool {
        // Acquire: partner is the Release of the leader in `arrive`.
        round(self.state.load(Ordering::Acquire)) != mine
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
        // Acquire, here and below: partner is the Release of the leader in `arrive`, if the round is over.
        let mut state = self.state.load(Ordering::Acquire);
        while round(state) == mine {
            // Only another user that shares the barrier can have written 0: then there is nothing to take back.
            let after = if arrived(state) == 0 { state } else { state - 1 };
            // Relaxed: it takes back what it said, and learns nothing. A read-modify-write, so the Release of
            // those that came before lasts.
            match self.state.compare_exchange_weak(
                state,
                after,
                Ordering::Relaxed,
                Ordering::Acquire,
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
    use crate::sync::scope::Shared;

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

    /// Whatever `released` was, it follows `state` after the next round.
    #[test]
    fn what_is_released_follows_the_rounds() {
        for was in [0, ASLEEP, 5 * RELEASED, u32::MAX] {
            for rounds in [0, 1, u32::MAX] {
                let barrier = Barrier::<Shared>::with_scope(1);
                barrier.state.store(u64::from(rounds) * ROUND, Ordering::Relaxed);
                barrier.released.store(was, Ordering::Relaxed);
                assert!(barrier.wait().is_leader());
                let after = rounds.wrapping_add(1).wrapping_mul(RELEASED);
                assert_eq!(barrier.released.load(Ordering::Relaxed) & !ASLEEP, after);
            }
        }
    }
}
