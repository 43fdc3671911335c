//! The word of a lock whose owner the kernel knows: its bits, and how it is waited for without priority
//! inheritance.
//!
//! ```text
//!   31        30           29                  0
//!   waiters   owner died   owner's thread number
//! ```
//!
//! # Invariants
//! 1. The kernel writes to the word when its owner dies: owner 0, "owner died" set, "waiters" as it was; if
//!    that was set, it wakes one who waits.
//! 2. Whoever sleeps has seen "waiters" set, by itself or another, in the very value that it sleeps on.
//!    Who slept and then acquires sets the bit again, for it does not know of others; so the bit is set
//!    whenever somebody sleeps, but between an unlock and the next step of the one that it woke.
//! 3. Acquiring keeps "waiters": what an owner's death leaves is not lost.
//! 4. Who was woken and is killed before that step has the lock pending all the while. The kernel then wakes
//!    another, unless somebody acquired the lock in between, who knows nothing of waiters. So nobody sleeps
//!    for long without a look (`bounded_wait.rs`).
//! 5. All waiting is shared: at a death the kernel wakes nobody else.

use super::LockError;
use super::gate::Gate;
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sync::bounded_wait;
use crate::sync::fairness::Patience;
use crate::sync::profile::{self, Wait};
use crate::sync::spin::{self, Spin};
use crate::sys::futex::{Deadline, Scope, Wake};
use crate::sys::robust_list::Thread;
use crate::sys::sleep;

/// Somebody may sleep.
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

/// What the bits of the dead owner's are taken off with.
pub(in crate::sync) const ALL_BUT_OWNER_DIED: u32 = !OWNER_DIED;

/// A lock is acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// From one that unlocked it.
    Clean,
    /// From one that died with it.
    FromTheDead,
    /// From one that a fork left behind.
    Orphaned,
}

/// Takes the lock if nobody who lives owns it.
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
    // Known once it has slept.
    let mut patience = None;
    let mut spin = Spin::new(spin::BRIEF);
    // What acquiring sets beside the owner (2).
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
        match patience {
            None => patience = Some(Patience::begin()),
            Some(patience) if patience.has_ended() => is_starved(),
            Some(_) => {}
        }
        others = WAITERS;
        wait.sleeps();
        // Not for long without a look (4).
        if bounded_wait::wait(word, waited, deadline, Scope::Shared) == Wake::TimedOut {
            return Err(LockError::TimedOut);
        }
    }
}

/// Takes a free lock, seen as such.
fn take_free(word: &AtomicU32, seen: u32, others: u32, me: Thread<'_>) -> Option<Taken> {
    let mine = me.number | (seen & WAITERS) | others;
    // Acquire: partner is the Release in `leave`, or the owner's death, which comes after all it did.
    word.compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed).ok()?;
    me.step();
    Some(if owner_died(seen) { Taken::FromTheDead } else { Taken::Clean })
}

/// What taking the lock from such an owner is; nothing if it is not to be taken.
pub(in crate::sync) fn taken_from(whose: Whose) -> Option<Taken> {
    match whose {
        Whose::Ended => Some(Taken::FromTheDead),
        Whose::Gone => Some(Taken::Orphaned),
        Whose::Present | Whose::Mine | Whose::First => None,
    }
}

/// Takes the lock from an owner that is not here, in whose list it is no longer; false if the word changed.
///
/// A thread that ended right now may have unlocked before, or the kernel did: then the word is another.
fn take_from_gone(word: &AtomicU32, seen: u32, number: u32) -> bool {
    // Who waited in the parent is gone as well; but a thread of the child may wait since.
    let mine = number | (seen & WAITERS);
    // Acquire: of the fork, which copied all that the owner had done.
    word.compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Whether the calling thread owned a private lock when it forked, and its guard came along.
#[cold]
pub(in crate::sync) fn is_mine_since_before_fork(word: &AtomicU32, scope: Scope) -> bool {
    let owner = owner(word.load(Ordering::Relaxed));
    owner != FREE && whose(owner, scope) == Whose::Mine
}

/// Frees a lock of which that is so. It is in no list.
#[cold]
pub(in crate::sync) fn leave_since_before_fork(word: &AtomicU32) {
    let at = core::ptr::from_ref(word);
    // Release: partner is the Acquire in `take_free`.
    if word.swap(FREE, Ordering::Release) & WAITERS != 0 {
        wake(at);
    }
}

/// In a forked child's copy of private memory the owner may be a thread of the parent, which will never
/// unlock the copy.
pub(in crate::sync) fn whose(owner: u32, scope: Scope) -> Whose {
    if scope == Scope::Shared { Whose::Present } else { asked(owner) }
}

#[cfg(not(loom))]
pub(in crate::sync) use crate::sys::thread_id::{Whose, whose as asked};

/// Nobody forks in a model.
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

/// Lets the lock go, which is pending and in no list, and wakes one who waits. After the swap the word is an
/// address only: whoever finds the lock free may free its memory.
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
