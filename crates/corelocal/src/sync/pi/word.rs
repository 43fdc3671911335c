//! The word of a lock with priority inheritance: when to call the kernel, and how to interpret its answers.
//!
//! Its protocol is the kernel's (`sys/futex/pi.rs`). The kernel hands such a lock over: once it has waiters, each
//! unlock is a system call, and the next owner is a thread that has yet to wake up, 50 us later. So a thread that
//! finds the lock owned spins a few times before it asks to wait: two threads that lock alternately stay out of the
//! kernel. Not for long, since the owner is boosted only once the kernel knows the waiter; and not at all if the
//! waiter may run on one cpu only, where spinning keeps the owner from running.
//!
//! # Invariants
//! 1. While the waiters bit is set, only the kernel changes the owner.
//! 2. A thread asks to wait only for an owner that exists. With `Scope::Private` that is checked: after a fork the
//!    kernel would boost, and wait for, the thread of another process whose number is in the copied word.

use core::sync::atomic::fence;
use core::time::Duration;

use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sync::machinery::spin::Spin;
use crate::sync::profile::{self, Wait};
use crate::sync::robust::LockError;
use crate::sync::robust::word::{self, Taken, Whose};
use crate::sys::futex::{Deadline, Scope, pi};
use crate::sys::{self, Errno};

/// The checks before a thread sleeps, about ten microseconds: enough for a running owner that unlocks soon.
const LOOKS: u32 = 25;

/// For how long the kernel may call a word inconsistent. It does so, too, when an owner has ended with the lock and
/// the waiter that gets it has not updated the word yet (`attach_to_pi_state` in `kernel/futex/pi.c`).
const UNSETTLED: Duration = Duration::from_secs(1);

/// The way to treat a lock whose owner is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Reports it: the mutex is not robust.
    Report,
    /// Takes the lock: the mutex is robust.
    Take,
}

/// Waits for the lock and takes it.
#[cold]
pub(super) fn take(
    word: &AtomicU32,
    number: u32,
    deadline: Option<Deadline>,
    scope: Scope,
    left: Left,
) -> Result<Taken, LockError> {
    let mut wait = Wait::begin(profile::Kind::PiMutex, word);
    let taken = wait_and_take(word, number, deadline, scope, left, &mut wait);
    wait.end(taken.is_ok());
    taken
}

fn wait_and_take(
    word: &AtomicU32,
    number: u32,
    deadline: Option<Deadline>,
    scope: Scope,
    left: Left,
    wait: &mut Wait,
) -> Result<Taken, LockError> {
    // Determined after the first check has failed.
    let mut spin: Option<Spin> = None;
    let mut unsettled = Unsettled::new();
    loop {
        let seen = word.load(Ordering::Relaxed);
        if seen == word::FREE {
            // Acquire: partner is the Release in `leave`.
            match word.compare_exchange(seen, number, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Taken::Clean),
                Err(_) => continue,
            }
        }
        if word::owner(seen) == number {
            return Err(LockError::Deadlock);
        }
        if spin.get_or_insert_with(|| Spin::new(looks())).again() {
            continue;
        }
        if let Some(outcome) = take_left_behind(word, seen, number, scope, left) {
            return outcome;
        }
        wait.sleeps();
        match pi::lock(word, deadline, scope) {
            Ok(pi::Lock::Acquired) => return Ok(handed(word)),
            Ok(pi::Lock::TimedOut) => return Err(LockError::TimedOut),
            Err(errno) if unsettled.allows(errno) => {
                if deadline.is_some_and(Deadline::has_come) {
                    return Err(LockError::TimedOut);
                }
                yield_now();
            }
            Err(errno) => return Err(reason(errno)),
        }
    }
}

/// Returns how many times the calling thread spins.
fn looks() -> u32 {
    if sys::allowed_cpus() == 1 { 0 } else { LOOKS }
}

/// The owner is exiting, and the kernel has not updated the word yet.
struct Unsettled(Option<Deadline>);

impl Unsettled {
    fn new() -> Unsettled {
        Unsettled(None)
    }

    /// Returns whether the kernel, which answered this, is to be asked again.
    fn allows(&mut self, errno: Errno) -> bool {
        match errno {
            Errno::EAGAIN => true,
            Errno::EINVAL => {
                let until = *self.0.get_or_insert_with(|| Deadline::after(UNSETTLED));
                !until.remaining().is_zero()
            }
            _ => false,
        }
    }
}

/// Takes the lock unless a living thread owns it.
#[cold]
pub(super) fn try_take(
    word: &AtomicU32,
    number: u32,
    scope: Scope,
    left: Left,
) -> Result<Taken, LockError> {
    loop {
        let seen = word.load(Ordering::Relaxed);
        if word::owner(seen) == number {
            return Err(LockError::Busy);
        }
        if let Some(outcome) = take_left_behind(word, seen, number, scope, left) {
            return outcome;
        }
        if !word::is_free(seen) {
            return Err(LockError::Busy);
        }
        // Just unlocked; or its owner died, perhaps with waiters, of which the kernel knows.
        match pi::try_lock(word, scope) {
            Ok(true) => return Ok(handed(word)),
            Ok(false) => return Err(LockError::Busy),
            Err(Errno::EINTR) => {}
            // The kernel is handing it to a waiter (see `UNSETTLED`).
            Err(Errno::EINVAL) => return Err(LockError::Busy),
            Err(errno) => return Err(reason(errno)),
        }
    }
}

/// Returns the kernel gave the lock to the calling thread.
pub(super) fn handed(word: &AtomicU32) -> Taken {
    // Acquire: partner is the fence in `leave`; the kernel's own locks are in between.
    fence(Ordering::Acquire);
    if word::owner_died(word.load(Ordering::Relaxed)) { Taken::FromTheDead } else { Taken::Clean }
}

/// Checks whether the owner is a thread of this process, if it must be one (invariant 2).
fn take_left_behind(
    word: &AtomicU32,
    seen: u32,
    number: u32,
    scope: Scope,
    left: Left,
) -> Option<Result<Taken, LockError>> {
    let owner = word::owner(seen);
    if owner == 0 {
        return None;
    }
    // An owner that has just ended may have unlocked before. Otherwise the word stays, since no thread waits here
    // (2).
    let failed = |error| (word.load(Ordering::Relaxed) == seen).then_some(Err(error));
    let whose = word::whose(owner, scope);
    match (word::taken_from(whose), left) {
        (Some(how), Left::Take) => {
            // Acquire: of the fork, which copied all that the owner had done. Threads that wait for the kernel's
            // hand-off do so in the parent.
            let taken =
                word.compare_exchange(seen, number, Ordering::Acquire, Ordering::Relaxed).is_ok();
            taken.then_some(Ok(how))
        }
        (Some(_), Left::Report) => failed(LockError::OwnerGone),
        (None, _) if whose == Whose::Present => None,
        (None, Left::Take) if whose == Whose::Mine => failed(LockError::Deadlock),
        // The first thread of this process owns it, under a number that the kernel cannot wait for.
        (None, _) => failed(LockError::OwnerGone),
    }
}

/// Unlocks the lock that the thread with this number owns. The word's memory may be freed afterwards.
#[inline(always)]
pub(super) fn leave(word: &AtomicU32, number: u32, scope: Scope) {
    // Release: partner is the Acquire in `take`, and those of the fast paths.
    if word.compare_exchange(number, word::FREE, Ordering::Release, Ordering::Relaxed).is_err() {
        hand_over(word, scope);
    }
}

#[cold]
fn hand_over(word: &AtomicU32, scope: Scope) {
    profile::let_go(profile::Kind::PiMutex, word);
    // Release: partner is the fence in `handed`.
    fence(Ordering::Release);
    // Any other error means that the kernel does not support such locks. Then no thread waits for one.
    while pi::unlock(word, scope) == Err(Errno::EAGAIN) {}
}

pub(super) fn reason(errno: Errno) -> LockError {
    match errno {
        Errno::EDEADLK => LockError::Deadlock,
        Errno::ESRCH => LockError::OwnerGone,
        errno => LockError::Refused(errno),
    }
}

fn yield_now() {
    // SAFETY: no preconditions.
    unsafe { libc::sched_yield() };
}
