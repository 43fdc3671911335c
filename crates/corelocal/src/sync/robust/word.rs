//! The lock word of a robust mutex: its bits, and how threads wait for it without priority inheritance.
//!
//! ```text
//!   31        30           29                  0
//!   waiters   owner died   owner's thread number
//! ```
//!
//! # Invariants
//! 1. When its owner dies, the kernel sets owner 0 and "owner died", keeps "waiters", and wakes one waiter if that
//!    was set.
//! 2. A thread that sleeps has seen "waiters" set in the very value that it sleeps on. A thread that has slept and
//!    then acquires the lock sets the bit again, since it does not know of other waiters. So the bit is set whenever
//!    a thread sleeps, except between an unlock and the next step of the thread that it woke.
//! 3. Acquiring keeps "waiters", so the state that an owner's death leaves is not lost.
//! 4. A woken thread that is killed before that step has the lock pending all the while, so the kernel wakes another
//!    waiter. It does not do so if a thread acquired the lock in between, and that thread knows of no waiters.
//!    Therefore waiters re-check at least once a second (`machinery/bounded_wait.rs`).
//! 5. All waiting is of scope `Shared`: when an owner dies, the kernel wakes waiters of shared futexes only.

use super::LockError;
use super::gate::Gate;
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sync::machinery::bounded_wait;
use crate::sync::machinery::fairness::{self, Patience};
use crate::sync::machinery::spin::{self, Spin};
use crate::sync::profile::{self, Wait};
use crate::sys::futex::{Deadline, Scope, Wake};
use crate::sys::sleep;
use crate::sys::thread::robust_list::Thread;

/// Bit: threads may be sleeping.
const WAITERS: u32 = libc::FUTEX_WAITERS;
const OWNER_DIED: u32 = libc::FUTEX_OWNER_DIED;
const OWNER: u32 = libc::FUTEX_TID_MASK;

pub(in crate::sync) const FREE: u32 = 0;

pub(in crate::sync) const fn owner(word: u32) -> u32 {
    word & OWNER
}

pub(in crate::sync) const fn is_free(word: u32) -> bool {
    owner(word) == 0
}

pub(in crate::sync) const fn owner_died(word: u32) -> bool {
    word & OWNER_DIED != 0
}

/// Clears the bit that marks a dead owner.
pub(in crate::sync) const ALL_BUT_OWNER_DIED: u32 = !OWNER_DIED;

/// The way in which the lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Its last owner unlocked it.
    Clean,
    /// Its last owner died.
    FromTheDead,
    /// Its last owner was left behind by a fork.
    Orphaned,
}

/// Takes the lock unless a living thread owns it.
#[cold]
pub(super) fn try_take(word: &AtomicU32, me: Thread<'_>, scope: Scope) -> Result<Taken, LockError> {
    loop {
        let seen = word.load(Ordering::Relaxed);
        if is_free(seen) {
            if let Some(taken) = take_free(word, seen, 0, me) {
                return Ok(taken);
            }
        } else {
            let Some(taken) = taken_from(whose(owner(seen), scope)) else {
                return Err(LockError::Busy);
            };
            if take_from_gone(word, seen, me.number) {
                return Ok(taken);
            }
        }
    }
}

/// Waits for the lock and takes it.
#[cold]
pub(super) fn take(
    word: &AtomicU32,
    gate: &Gate,
    me: Thread<'_>,
    deadline: Option<Deadline>,
    scope: Scope,
) -> Result<Taken, LockError> {
    let mut wait = Wait::begin(profile::Kind::RobustMutex, word);
    let mut has_closed = false;
    let is_starved = || {
        gate.close();
        has_closed = true;
    };
    let taken = wait_and_take(word, me, deadline, scope, &mut wait, is_starved);
    if has_closed {
        gate.open(scope);
    }
    wait.end(taken.is_ok());
    taken
}

fn wait_and_take(
    word: &AtomicU32,
    me: Thread<'_>,
    deadline: Option<Deadline>,
    scope: Scope,
    wait: &mut Wait,
    mut is_starved: impl FnMut(),
) -> Result<Taken, LockError> {
    // Set once this thread has slept.
    let mut patience = None;
    let mut spin = Spin::new(spin::BRIEF);
    // The bits to set beside the owner (invariant 2).
    let mut others = 0;
    loop {
        let seen = word.load(Ordering::Relaxed);
        if is_free(seen) {
            match take_free(word, seen, others, me) {
                Some(taken) => return Ok(taken),
                None => continue,
            }
        }
        if owner(seen) == me.number {
            return Err(LockError::Deadlock);
        }
        if spin.again() {
            continue;
        }
        let whose = whose(owner(seen), scope);
        if let Some(taken) = taken_from(whose) {
            match take_from_gone(word, seen, me.number) {
                true => return Ok(taken),
                false => continue,
            }
        }
        if whose == Whose::Mine {
            return Err(LockError::Deadlock);
        }
        // Relaxed: a hint to the owner, whose unlocking swaps the word.
        let waited = seen | WAITERS;
        if seen != waited
            && word.compare_exchange(seen, waited, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            continue;
        }
        me.step();
        let is_late = patience.is_some_and(Patience::has_ended);
        if is_late {
            is_starved();
        }
        patience = patience.or_else(|| Some(Patience::begin()));
        others = WAITERS;
        wait.sleeps();
        // The sleep is bounded (invariant 4), and shorter while this thread keeps the gate closed.
        let claim = if is_late { fairness::next_claim(deadline) } else { None };
        let is_over = match claim {
            Some(next) => {
                let _: Wake = sleep::wait(word, waited, Some(next), Scope::Shared);
                deadline.is_some_and(Deadline::has_come)
            }
            None => bounded_wait::wait(word, waited, deadline, Scope::Shared) == Wake::TimedOut,
        };
        if is_over {
            return Err(LockError::TimedOut);
        }
    }
}

/// Takes a lock that was seen free.
fn take_free(word: &AtomicU32, seen: u32, others: u32, me: Thread<'_>) -> Option<Taken> {
    let mine = me.number | (seen & WAITERS) | others;
    // Acquire: partner is the Release in `leave`, or the owner's death, which comes after all it did.
    word.compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed).ok()?;
    me.step();
    Some(if owner_died(seen) { Taken::FromTheDead } else { Taken::Clean })
}

/// Returns the outcome of taking the lock from such an owner. `None` if it must not be taken.
pub(in crate::sync) fn taken_from(whose: Whose) -> Option<Taken> {
    match whose {
        Whose::Ended => Some(Taken::FromTheDead),
        Whose::Gone => Some(Taken::Orphaned),
        Whose::Present | Whose::Mine | Whose::First => None,
    }
}

/// Takes the lock from an owner that does not exist in this process. False if the word changed.
///
/// An owner that has just ended may have unlocked before, or the kernel did it: then the word has changed.
fn take_from_gone(word: &AtomicU32, seen: u32, number: u32) -> bool {
    // Waiters of the parent do not exist here, but a thread of the child may have begun to wait.
    let mine = number | (seen & WAITERS);
    // Acquire: of the fork, which copied all that the owner had done.
    word.compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Returns whether the calling thread owned a private lock when it forked, and so still has its guard.
#[cold]
pub(in crate::sync) fn is_mine_since_before_fork(word: &AtomicU32, scope: Scope) -> bool {
    let owner = owner(word.load(Ordering::Relaxed));
    owner != FREE && whose(owner, scope) == Whose::Mine
}

/// Unlocks such a lock. It is in no list.
#[cold]
pub(in crate::sync) fn leave_since_before_fork(word: &AtomicU32) {
    let at = core::ptr::from_ref(word);
    // Release: partner is the Acquire in `take_free`.
    if word.swap(FREE, Ordering::Release) & WAITERS != 0 {
        wake(at);
    }
}

/// Returns whether the owner exists. In a forked child's copy of private memory it may be a thread of the parent,
/// which never unlocks the copy.
pub(in crate::sync) fn whose(owner: u32, scope: Scope) -> Whose {
    if scope == Scope::Shared { Whose::Present } else { asked(owner) }
}

#[cfg(not(loom))]
pub(in crate::sync) use crate::sys::thread::id::{Whose, whose as asked};

/// Loom models do not fork.
#[cfg(loom)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "as the real one")]
pub(in crate::sync) enum Whose {
    Present,
    Ended,
    Gone,
    Mine,
    First,
}

#[cfg(loom)]
fn asked(_: u32) -> Whose {
    Whose::Present
}

/// Unlocks a lock that is pending and in no list, and wakes one waiter. After the swap only the word's address is
/// used: a thread that finds the lock free may free its memory.
#[inline(always)]
pub(super) fn leave(word: &AtomicU32, me: Thread<'_>) {
    let at = core::ptr::from_ref(word);
    // Release: partner is the Acquire in `take_free`, and the one of the fast path in `Raw`.
    let seen = word.swap(FREE, Ordering::Release);
    me.step();
    if seen & WAITERS != 0 {
        wake(at);
    }
}

#[cold]
fn wake(word: *const AtomicU32) {
    profile::let_go(profile::Kind::RobustMutex, word);
    sleep::wake(word, 1, Scope::Shared);
}
