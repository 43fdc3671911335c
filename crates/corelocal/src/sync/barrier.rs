//! Barrier: threads wait until a given number of them has arrived.
//!
//! ```text
//!   state       round (32 bits) | threads that arrived in it (32 bits)
//!   released    rounds that are over (31 bits) | ASLEEP: the word that sleepers wait on
//! ```
//!
//! ```text
//!   a waiter                                 the last thread (the leader)
//!   state: arrived += 1                      state: round += 1, arrived = 0
//!   spins on released for a moment
//!   ASLEEP into released
//!   sleeps while released is its round       released += 1, ASLEEP cleared; wakes all sleepers
//! ```
//!
//! If processes share the barrier, the leader may be killed between its two changes. So there `state` alone decides
//! whether a round is over, and `released` follows it: the leader sets it to the round in `state`. A waiter that
//! wakes, after a second at the latest, reads `state` as well. If its round is over, it completes what the leader
//! left undone, and returns.
//!
//! Sleepers wait on a word that only leaders, waiters in place of leaders, and the first sleeper of a round write. A
//! thread that wakes reads it once and leaves, and a thread that arrives does not disturb threads that are going to
//! sleep.
//!
//! Before a thread sleeps, it spins a few times and yields the cpu in between (`machinery/spin.rs`). If there are more
//! threads than cpus, the others arrive meanwhile, so that no thread sleeps or has to be woken.
//!
//! # Invariants
//! 1. `state` changes by a compare-exchange of the whole word: a thread arrives in the round that it then waits for,
//!    and one thread of each round is its leader, the one that completes it.
//! 2. The leader of a round adds to `released` after its round is over; the leader of a later round may be faster. So
//!    when `released` passes a round, that round is over, although a later leader may have reported it: that one saw
//!    the end of the earlier round in `state`, with everything that came before. The leader of a private barrier adds
//!    one. In a shared barrier a thread reads `released`, then `state`, and exchanges `released` for the round in
//!    `state`. Leaders and waiters may do that in any order and any number of times: `released` never passes `state`,
//!    never decreases, and becomes right whatever it was.
//! 3. A thread that gives up removes itself from its round, unless the round is over and it has been released. In
//!    that case a private waiter waits until the leader reports it, since it may free the barrier afterwards. A
//!    shared waiter does not wait: a shared barrier stays mapped while a call borrows it.
//! 4. A sleeper has seen ASLEEP together with a number of rounds that does not release it. A thread that changes the
//!    number clears ASLEEP and wakes all; those whose round is not over set ASLEEP again. If the process is killed
//!    before it wakes them, they wake within a second (`machinery/bounded_wait.rs`).

use core::fmt;
use core::time::Duration;

use super::machinery::bounded_wait;
use super::machinery::futex::Futex;
use super::machinery::scope::{Private, Scope};
use super::machinery::spin::{self, Spin};
use super::profile::{self, Kind, Wait};
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sys::futex::{self, Deadline, Wake};

const ROUND: u64 = 1 << 32;

/// Bit of `released`: threads may be sleeping.
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

/// Returns the first state of the next round.
#[inline(always)]
fn next_round(state: u64) -> u64 {
    u64::from(round(state).wrapping_add(1)) * ROUND
}

/// Returns `true` if this round is over. Rounds never differ by half the range of numbers, since the threads of a round
/// wait for its end.
#[inline(always)]
fn is_over(released: u32, round: u32) -> bool {
    // The number has 31 bits.
    ((released / RELEASED).wrapping_sub(round) << 1) as i32 > 0
}

/// Releases waiting threads when a given number has arrived. 16 bytes.
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
/// More threads than that may use it: each round takes those that arrive first. It can be used again at once. What
/// threads did before they arrived happens before what follows in all threads that were released with them.
///
/// # After fork
/// In a forked child, threads of the parent that wait at a private barrier count as arrived but do not exist. A
/// barrier is usable in a child if no thread waited at it.
///
/// # Processes that die
/// A thread that is killed while it waits at a shared barrier has arrived, and counts in that round. If it was the
/// last one, the others continue within a second or at their deadline, although perhaps no thread is reported as the
/// leader.
#[repr(C)]
pub struct Barrier<S: Scope = Private> {
    state: AtomicU64,
    released: Futex<S>,
    /// Constant in correct use. Another user that shares the barrier may write to it (`TamperSafe`).
    threads: AtomicU32,
}

/// Whether the thread completed its round. One thread of each round did; for a shared barrier, it may have been
/// killed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult {
    is_leader: bool,
}

impl BarrierWaitResult {
    /// Returns `true` if the thread was the last one to arrive.
    pub fn is_leader(&self) -> bool {
        self.is_leader
    }
}

impl Barrier {
    const_fn! {
        /// Creates a barrier for the threads of this process. With 0 as with 1 no thread waits.
        pub const fn new(threads: u32) -> Self {
            Self::with_scope(threads)
        }
    }
}

impl<S: Scope> Barrier<S> {
    /// Whether the leader of a round may be killed while others survive.
    const IS_SHARED: bool = matches!(S::FUTEX, futex::Scope::Shared);

    const_fn! {
        /// Creates a barrier of the scope that the type names.
        pub const fn with_scope(threads: u32) -> Self {
            Barrier {
                state: AtomicU64::new(0),
                released: Futex::new(0),
                threads: AtomicU32::new(threads),
            }
        }
    }

    /// Waits until the number of threads has arrived.
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

    /// Does what [`wait`](Self::wait) does, for at most this time span. `None` if the others did not arrive; the caller
    /// then has not arrived either.
    pub fn wait_for(&self, span: Duration) -> Option<BarrierWaitResult> {
        self.wait_until(Deadline::after(span))
    }

    /// Does what [`wait`](Self::wait) does, until the deadline. `None` if the others did not arrive; the caller then
    /// has not arrived either.
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

    /// Returns the number of threads in a round.
    pub fn threads(&self) -> u32 {
        // Relaxed: written once, before other threads see the barrier.
        self.threads.load(Ordering::Relaxed)
    }

    /// Arrives; returns the round to wait for, `None` for the last thread of the round.
    fn arrive(&self) -> Option<u32> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let is_last = arrived(state).saturating_add(1) >= self.threads();
            let after = if is_last { next_round(state) } else { state + 1 };
            // Release and Acquire: partners of each other. The leader sees what all threads did before they arrived.
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

    /// Releases the waiters whose rounds are over.
    fn release(&self) {
        // A released thread may free a private barrier: from then on only the address is used.
        let this: *const Futex<S> = &self.released;
        let barrier: *const Self = self;
        // Acquire: `state`, which is read below, is not older than what is read here. So `released` never decreases.
        let look = if Self::IS_SHARED { Ordering::Acquire } else { Ordering::Relaxed };
        // Release: partner is the Acquire in `is_over_soon` and `announce`. Leaders follow one another, so the
        // release sequence continues.
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
        // An error means that another thread has released all rounds that are over, and wakes their sleepers.
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

    /// Returns `true` if `state` is in another round than this one, which is over then.
    fn has_passed(&self, mine: u32) -> bool {
        // Acquire: partner is the Release of the leader in `arrive`.
        round(self.state.load(Ordering::Acquire)) != mine
    }

    /// Spins for the end of this round.
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

    /// Sets ASLEEP, and returns the value to sleep on. `None` if this round is over.
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

    /// Removes the caller from its round; false if the round is over.
    fn withdraw(&self, mine: u32) -> bool {
        // Acquire, here and below: partner is the Release of the leader in `arrive`, if the round is over.
        let mut state = self.state.load(Ordering::Acquire);
        while round(state) == mine {
            // Only another user that shares the barrier can have written 0; then there is nothing to remove.
            let after = if arrived(state) == 0 { state } else { state - 1 };
            // Relaxed: it removes its own arrival, and learns nothing. A read-modify-write, so it continues the
            // release sequence of threads that arrived before.
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
mod loom;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::machinery::scope::Shared;

    /// Another user that shares the barrier writes arbitrary bytes to it.
    #[test]
    fn every_word_may_be_written_by_others() {
        let barrier = Barrier::new(3);
        let Barrier { state, released, threads } = &barrier;
        let numbers: (&AtomicU64, &Futex<Private>, &AtomicU32) = (state, released, threads);
        numbers.2.store(1, Ordering::Relaxed);
        assert!(barrier.wait().is_leader());
        assert_eq!(barrier.threads(), 1);
        // The maximum number has arrived.
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
