//! Priority-inheritance locks: the kernel gives the owner the priority of its highest waiter.
//!
//! The kernel defines the word: 0 is free. Otherwise it holds the owner's thread id (`gettid(2)`), with
//! `FUTEX_WAITERS` set while threads wait, and `FUTEX_OWNER_DIED` after a robust owner's death. User space acquires a
//! free word with a compare-exchange from 0 to its thread id, and releases it with one back to 0. Only if that fails
//! it calls the kernel.
//!
//! Invariant: deadlines are monotonic. `FUTEX_LOCK_PI` supports `CLOCK_REALTIME` only. Where `FUTEX_LOCK_PI2` (Linux
//! 5.14) is missing the deadline is converted at the call. Both operations share the word's state, so threads may use
//! either.
//!
//! Manual pages: FUTEX_LOCK_PI(2const), FUTEX_LOCK_PI2(2const), FUTEX_WAIT_REQUEUE_PI(2const).

use super::{Deadline, Requeue, Scope, Wake, address, deadline, futex};
use crate::primitive::global::AtomicU32;
use crate::sys::errno::Errno;

/// The outcome of an attempt to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The calling thread owns the lock; the word holds its thread id.
    Acquired,
    /// The deadline has passed.
    TimedOut,
}

/// Calls `futex(word, FUTEX_LOCK_PI2, 0, deadline)`, see futex(2).
///
/// Acquires the lock in `word`, asleep until it is free or until `deadline`.
///
/// Signal handlers run and the wait goes on.
///
/// # Errors
/// `EDEADLK` if the calling thread owns the lock; `ESRCH` if the owner no longer exists; `EAGAIN` if
/// it is just exiting (kernels before 5.5: repeat); `EPERM` if the owner is a kernel thread;
/// `EINVAL` if the word is waited for as an ordinary futex; `ENOMEM`; `ENOSYS` where the kernel has
/// no such locks.
#[doc(alias("FUTEX_LOCK_PI", "FUTEX_LOCK_PI2"))]
pub fn lock(word: &AtomicU32, deadline: Option<Deadline>, scope: Scope) -> Result<Lock, Errno> {
    let acquire = |operation: libc::c_int, deadline: &Option<Deadline>| {
        let timeout = deadline::pointer(deadline) as usize;
        // SAFETY: the kernel reads and updates the word, an atomic that is borrowed, and reads the
        // deadline, which outlives the call.
        unsafe { futex(operation, scope, address(word), 0, timeout, 0, 0) }
    };
    // Without a deadline the clock does not matter, and every kernel has LOCK_PI.
    let result = if deadline.is_none() {
        acquire(libc::FUTEX_LOCK_PI, &None)
    } else {
        match acquire(libc::FUTEX_LOCK_PI2, &deadline) {
            Err(Errno::ENOSYS) => {
                acquire(libc::FUTEX_LOCK_PI, &deadline.map(Deadline::on_realtime))
            }
            result => result,
        }
    };
    match result {
        Ok(_) => Ok(Lock::Acquired),
        Err(Errno::ETIMEDOUT) => Ok(Lock::TimedOut),
        Err(errno) => Err(errno),
    }
}

/// Calls `futex(word, FUTEX_TRYLOCK_PI)`, see futex(2).
///
/// Acquires the lock in `word` if it is free or its owner is dead, which the kernel knows
/// better than the word. Returns whether it was acquired.
///
/// # Errors
/// As for [`lock`], except that a live owner is `Ok(false)`.
#[doc(alias = "FUTEX_TRYLOCK_PI")]
pub fn try_lock(word: &AtomicU32, scope: Scope) -> Result<bool, Errno> {
    // SAFETY: the kernel reads and updates the word, an atomic that is borrowed.
    match unsafe { futex(libc::FUTEX_TRYLOCK_PI, scope, address(word), 0, 0, 0, 0) } {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Calls `futex(word, FUTEX_UNLOCK_PI)`, see futex(2).
///
/// Releases the lock in `word` and hands it to its highest waiter.
///
/// # Errors
/// `EPERM` if the calling thread does not own the lock; `EINVAL` if the word is waited for as an
/// ordinary futex; `ENOSYS` where the kernel has no such locks.
#[doc(alias = "FUTEX_UNLOCK_PI")]
pub fn unlock(word: &AtomicU32, scope: Scope) -> Result<(), Errno> {
    // SAFETY: the kernel reads and updates the word, an atomic that is borrowed.
    unsafe { futex(libc::FUTEX_UNLOCK_PI, scope, address(word), 0, 0, 0, 0) }.map(drop)
}

/// Calls `futex(word, FUTEX_WAIT_REQUEUE_PI, expected, deadline, lock)`, see futex(2).
///
/// Sleeps while `word` holds `expected`, until [`requeue`] moves the thread to `lock` and the lock
/// is its own: the waiting half of a condition variable with priority inheritance.
///
/// [`Wake::Woken`] means that the lock is owned. After every other outcome it is not;
/// [`Wake::Differed`] stands also for a wake-up that came without the lock.
///
/// # Errors
/// `EINVAL` if both words are the same or `word` was woken by other means; `ENOSYS` where the kernel
/// has no such locks; those of [`lock()`] for `lock`.
#[doc(alias = "FUTEX_WAIT_REQUEUE_PI")]
pub fn wait_requeue(
    word: &AtomicU32,
    expected: u32,
    lock: &AtomicU32,
    deadline: Option<Deadline>,
    scope: Scope,
) -> Result<Wake, Errno> {
    let timeout = deadline::pointer(&deadline) as usize;
    // SAFETY: the kernel reads `word`, reads and updates `lock`, both atomics that are borrowed, and
    // reads the deadline, which outlives the call.
    Wake::from_result(unsafe {
        let (word, lock) = (address(word), address(lock));
        futex(libc::FUTEX_WAIT_REQUEUE_PI, scope, word, expected, timeout, lock, 0)
    })
}

/// Calls `futex(word, FUTEX_CMP_REQUEUE_PI, 1, requeue, lock, expected)`, see futex(2).
///
/// If `word` holds `expected`: gives `lock` to its highest waiter if the lock is free, and lets up
/// to `requeue` others wait for `lock`. They must have been put to sleep by [`wait_requeue`] with
/// the same `lock`.
///
/// # Errors
/// `EINVAL` if both words are the same or a waiter expects another lock; `ENOSYS` where the kernel
/// has no such locks; those of [`lock()`] for `lock`.
#[doc(alias = "FUTEX_CMP_REQUEUE_PI")]
pub fn requeue(
    word: &AtomicU32,
    expected: u32,
    requeue: u32,
    lock: &AtomicU32,
    scope: Scope,
) -> Result<Requeue, Errno> {
    let requeue = requeue.min(i32::MAX as u32) as usize;
    // The kernel accepts no other number of waiters to wake: only one can own the lock.
    let wake = 1;
    // SAFETY: the kernel reads `word` and reads and updates `lock`, both atomics that are borrowed.
    Requeue::from_result(unsafe {
        let (word, lock) = (address(word), address(lock));
        futex(libc::FUTEX_CMP_REQUEUE_PI, scope, word, wake, requeue, lock, expected)
    })
}

/// Returns `true` if the kernel knows `FUTEX_LOCK_PI2`.
pub(super) fn has_lock_pi2() -> bool {
    let free = AtomicU32::new(0);
    // SAFETY: the kernel reads and updates the word, an atomic that is borrowed. It acquires the lock, of which it
    // keeps no record while no other thread waits, so the word may be freed.
    let result = unsafe { futex(libc::FUTEX_LOCK_PI2, Scope::Shared, address(&free), 0, 0, 0, 0) };
    result.is_ok()
}
