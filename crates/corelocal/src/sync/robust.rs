//! A mutex that outlives its owners: if a thread or process dies while it owns the lock, the next owner gets the lock
//! and learns of the death.
//!
//! The kernel does this. Each thread has a list of its locks, which the kernel walks when the thread ends, also by
//! SIGKILL (`sys/thread/robust_list.rs`). It is libc's list too, so pthread's robust mutexes and these may be mixed.
//!
//! # Invariants
//! 1. While a guard exists, the lock is owned by the thread that has the guard. A guard stays in its thread.
//! 2. In a forked child the guards of the forking thread still own their locks, if the memory is private: the word
//!    names the thread by its number in the parent. The copy of a guard of a lock that processes share owns nothing.
//! 3. References to data that a fork may have left half changed are returned by `unsafe` functions only.

mod error;
pub(in crate::sync) mod gate;
mod guard;
mod raw;
mod waiting;
pub(in crate::sync) mod word;

pub use error::{LockError, RobustError};
pub use guard::{Recovered, RobustMutexGuard};
#[cfg(not(loom))]
pub(in crate::sync) use waiting::protocol::Protocol;
pub use waiting::{Inherit, Plain, Waiting};

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;

use super::machinery::scope::{Private, Scope};
use crate::sys::forks::orphaned::Orphaned;
use crate::sys::futex::Deadline;
use crate::sys::thread::robust_list::Thread;
use raw::Raw;
use word::Taken;

/// The result of locking: the lock, the lock of a dead owner, or an error.
type Outcome<'a, T, S, W> = Result<
    RobustMutexGuard<'a, T, S, W>,
    RobustError<Recovered<'a, T, S, W>, OrphanedRobust<'a, T, S, W>>,
>;

/// A [`RobustMutex`] whose owner a fork left behind.
pub(in crate::sync) type OrphanedRobust<'a, T, S, W> = Orphaned<RobustMutexGuard<'a, T, S, W>>;

/// A mutex whose owner's death is reported to the next owner.
///
/// It behaves like the robust mutexes of POSIX. If a thread ends while it owns the lock, for whatever reason, the
/// next thread that locks gets [`RobustError::OwnerDied`] with a [`Recovered`]: the lock, and data that may be half
/// changed. It either repairs the data and calls [`make_consistent`](Recovered::make_consistent), or the mutex
/// becomes unusable when it is unlocked: [`LockError::NotRecoverable`] for all later attempts.
///
/// Locking a mutex that the thread owns already is [`LockError::Deadlock`].
///
/// ```
/// use corelocal::sync::{RobustError, RobustMutex};
///
/// // SAFETY: a static is neither moved nor freed.
/// static PAIR: RobustMutex<(u32, u32)> = unsafe { RobustMutex::new((0, 0)) };
///
/// let mut pair = match PAIR.lock() {
///     Ok(pair) => pair,
///     Err(RobustError::OwnerDied(mut pair)) => {
///         pair.1 = pair.0; // whatever it takes
///         pair.make_consistent()
///     }
///     Err(error) => panic!("{error}"),
/// };
/// *pair = (pair.0 + 1, pair.1 + 1);
/// ```
///
/// # Limits
/// A thread can hold 2048 robust mutexes, libc's among them: the kernel finds no more when the thread ends. Locking
/// another one fails with [`LockError::TooManyHeld`]. Libc does not count. If a thread holds more than a thousand
/// robust mutexes of libc's beside these, the oldest ones may stay locked when it dies.
///
/// # Scope
/// With [`Private`] it is for the threads of one process. With [`Shared`](super::Shared) it is for those of all
/// processes that map it, in one pid namespace and with one kind of libc. Waiting is always shared, as the kernel
/// wakes only such waiters when an owner dies. With [`Inherit`] the owner gets the priority of its waiters (see
/// [`RobustPiMutex`](super::RobustPiMutex)).
///
/// # After fork
/// In shared memory the threads of the parent keep their locks. The copy of a guard does nothing when it is dropped
/// in the child, and must not be used. In private memory, of which the child has a copy, with [`Private`]:
/// - Locks that the forking thread owned it owns in the child, until the guard is dropped there too. But its death in
///   the child is not reported, since the lock is in none of the kernel's lists.
/// - Locks that another thread owned give [`RobustError::Orphaned`] with an [`Orphaned`], until its
///   [`reset`](Orphaned::reset) puts new data in. The fork may have stopped the owner in the middle of any operation,
///   so using the data as it is is `unsafe`.
///
/// When in doubt the owner counts as present.
///
/// # Signal handlers
/// Do not lock in a signal handler: if it interrupts its thread in the middle of locking, it breaks the thread's
/// list.
///
/// # Memory ordering
/// Locking acquires what unlocking released, and all that a dead owner did.
#[repr(C)]
pub struct RobustMutex<T: ?Sized, S: Scope = Private, W: Waiting = Plain> {
    raw: Raw,
    kind: PhantomData<(S, W)>,
    value: UnsafeCell<T>,
}

// SAFETY: a mutex is its data and words that any thread may change.
unsafe impl<T: ?Sized + Send, S: Scope, W: Waiting> Send for RobustMutex<T, S, W> {}
// SAFETY: only the thread that owns the lock accesses the data, and the lock orders one owner after the other.
unsafe impl<T: ?Sized + Send, S: Scope, W: Waiting> Sync for RobustMutex<T, S, W> {}

impl<T: ?Sized, S: Scope, W: Waiting> UnwindSafe for RobustMutex<T, S, W> {}

impl<T: ?Sized, S: Scope, W: Waiting> RefUnwindSafe for RobustMutex<T, S, W> {}

#[cfg(not(loom))]
impl<T> RobustMutex<T> {
    /// Creates an unlocked mutex for the threads of this process.
    ///
    /// # Safety
    /// - While a thread owns the mutex, it is neither moved nor freed, nor its memory unmapped: it is part of that
    ///   thread's list.
    /// - A reference to the value from a guard or a [`Recovered`] is not used after its thread has ended. The kernel
    ///   unlocks the mutex then, and [`make_consistent`](Recovered::make_consistent) gives the value to the next
    ///   owner.
    ///
    /// Guards borrow the mutex and stay in their thread, so both conditions concern forgotten guards only
    /// (`mem::forget`, `Box::leak`). A mutex in a static whose guards are all dropped always meets them.
    ///
    /// `PiMutex::new` is safe: a `PiMutex` is in no list. If its owner ends with it, locking fails for all other
    /// threads, and none gets the value.
    pub const unsafe fn new(value: T) -> Self {
        // SAFETY: the caller keeps the conditions of `with_scope`, which are the same.
        unsafe { Self::with_scope(value) }
    }
}

impl<T, S: Scope, W: Waiting> RobustMutex<T, S, W> {
    /// Creates an unlocked mutex of any scope and way of waiting.
    ///
    /// # Safety
    /// - As for `new`.
    #[cfg(not(loom))]
    pub const unsafe fn with_scope(value: T) -> Self {
        RobustMutex { raw: Raw::new(), kind: PhantomData, value: UnsafeCell::new(value) }
    }
}

impl<T: ?Sized, S: Scope, W: Waiting> RobustMutex<T, S, W> {
    /// Waits for the lock and acquires it.
    ///
    /// # Errors
    /// [`OwnerDied`](RobustError::OwnerDied) or [`Orphaned`](RobustError::Orphaned) with the lock; else
    /// [`LockError::Deadlock`], [`LockError::NotRecoverable`], [`LockError::TooManyHeld`], or
    /// [`LockError::Refused`] where there are no robust lists.
    #[inline]
    pub fn lock(&self) -> Outcome<'_, T, S, W> {
        self.acquire(None)
    }

    /// Waits for the lock for at most this time span.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock), and [`LockError::TimedOut`].
    pub fn try_lock_for(&self, span: Duration) -> Outcome<'_, T, S, W> {
        self.acquire(Some(Deadline::after(span)))
    }

    /// Waits for the lock until the deadline.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock), and [`LockError::TimedOut`].
    pub fn try_lock_until(&self, deadline: Deadline) -> Outcome<'_, T, S, W> {
        self.acquire(Some(deadline))
    }

    /// Acquires the lock if it is free.
    ///
    /// # Errors
    /// [`LockError::Busy`] if it has an owner, including the calling thread. Otherwise as for [`lock`](Self::lock).
    #[inline]
    pub fn try_lock(&self) -> Outcome<'_, T, S, W> {
        let me = match known() {
            Some(me) => me,
            None => found()?,
        };
        // SAFETY: the caller of `new` guarantees that the mutex is neither moved nor freed while it is owned.
        self.outcome(unsafe { self.raw.try_lock::<W>(me, S::FUTEX) })
    }

    #[inline]
    fn acquire(&self, deadline: Option<Deadline>) -> Outcome<'_, T, S, W> {
        let me = match known() {
            Some(me) => me,
            None => found()?,
        };
        // SAFETY: the caller of `new` guarantees that the mutex is neither moved nor freed while it is owned.
        self.outcome(unsafe { self.raw.lock::<W>(me, deadline, S::FUTEX) })
    }

    #[inline(always)]
    fn outcome(&self, taken: Result<Taken, LockError>) -> Outcome<'_, T, S, W> {
        match taken {
            Ok(Taken::Clean) => Ok(RobustMutexGuard::of_owned(self)),
            Ok(Taken::FromTheDead) => {
                Err(RobustError::OwnerDied(Recovered::of(RobustMutexGuard::of_owned(self))))
            }
            Ok(Taken::Orphaned) => {
                Err(RobustError::Orphaned(Orphaned::new(RobustMutexGuard::of_owned(self), 0)))
            }
            Err(error) => Err(RobustError::Failed(error)),
        }
    }

    /// Returns a mutable reference to the data. The exclusive borrow makes locking unnecessary.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Makes the mutex unusable, if the calling thread owns it.
    fn give_up(&self) {
        if let Some(me) = known().or_else(|| found::<(), ()>().ok()) {
            self.raw.give_up(me, S::FUTEX);
        }
    }

    /// Records that the owner has made the data valid that a fork left behind.
    fn mark_valid(&self) {
        self.raw.mark_valid();
    }

    /// Unlocks it, if the calling thread owns it.
    #[inline(always)]
    fn unlock(&self) {
        // A thread without a list has not locked it.
        if let Some(me) = known().or_else(|| found::<(), ()>().ok()) {
            // Refused for the copy of a guard in a forked child (invariant 2).
            let _ = self.raw.unlock::<W>(me, S::FUTEX);
        }
    }
}

/// Returns the calling thread, if its list is cached.
#[inline(always)]
fn known() -> Option<Thread<'static>> {
    #[cfg(not(loom))]
    return Thread::known();
    // Threads of a loom model get their lists from the model.
    #[cfg(loom)]
    None
}

/// Returns the calling thread, with its list looked up.
#[cold]
fn found<R, O>() -> Result<Thread<'static>, RobustError<R, O>> {
    #[cfg(not(loom))]
    return Thread::find().map_err(|errno| RobustError::Failed(LockError::Refused(errno)));
    #[cfg(loom)]
    Err(RobustError::Failed(LockError::Refused(crate::sys::Errno::ENOSYS)))
}

impl<T: ?Sized, S: Scope, W: Waiting> fmt::Debug for RobustMutex<T, S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RobustMutex").finish_non_exhaustive()
    }
}
