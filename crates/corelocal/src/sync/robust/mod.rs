//! A mutex that outlives its owners: if a thread or a process dies while it owns the lock, the next one gets
//! it all the same, and is told.
//!
//! The kernel does it: a thread's locks are in a list that it walks when the thread ends, be it by SIGKILL
//! (`sys/robust_list.rs`). It is libc's list too, so pthread's robust mutexes and these may be mixed.
//!
//! # Invariants
//! 1. A guard stands for the lock being owned by the thread that has it. It stays in that thread.
//! 2. In a forked child the guards of the forking thread own what they did, if the memory is private: the word names that
//!    thread by its number in the parent. The copy of a guard of a lock that processes share owns nothing.
//! 3. A reference to data that a fork may have left half changed is given out by `unsafe` functions only.

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

use super::scope::{Private, Scope};
use crate::sys::futex::Deadline;
use crate::sys::orphaned::Orphaned;
use crate::sys::robust_list::Thread;
use raw::Raw;
use word::Taken;

/// What locking gives: the lock, the lock of a dead owner, or none.
type Outcome<'a, T, S, W> = Result<
    RobustMutexGuard<'a, T, S, W>,
    RobustError<Recovered<'a, T, S, W>, OrphanedRobust<'a, T, S, W>>,
>;

/// A [`RobustMutex`] whose owner a fork left behind.
pub(in crate::sync) type OrphanedRobust<'a, T, S, W> = Orphaned<RobustMutexGuard<'a, T, S, W>>;

/// A mutex whose owner's death is reported to the next owner.
///
/// It behaves as POSIX says of robust mutexes. If a thread ends while it owns the lock, in whatever way, the
/// next one that locks gets [`RobustError::OwnerDied`] with a [`Recovered`]: the lock, and data that may be
/// half changed. Either it repairs the data and says [`make_consistent`](Recovered::make_consistent), or
/// the lock is lost for ever once it is unlocked: [`LockError::NotRecoverable`], for all.
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
/// # How many
/// A thread can hold 2048 robust mutexes, libc's among them: the kernel finds no more when the thread ends. Beyond that
/// locking is [`LockError::TooManyHeld`], and nothing is taken. Libc counts nothing: of a thread that takes more than a
/// thousand robust mutexes of libc's beside these, the oldest ones may stay locked when it dies.
///
/// # Who shares it
/// With [`Private`] the threads of one process; with [`Shared`](super::Shared) those of all that map it, in
/// one pid namespace and with one kind of libc. Waiting is always shared, as the kernel wakes nobody else when
/// an owner dies. With [`Inherit`] the owner gets the priority of those who wait (see
/// [`RobustPiMutex`](super::RobustPiMutex)).
///
/// # After fork
/// What its parent's threads own they still own if the memory is shared; the copy of a guard does nothing when it is
/// dropped in the child, and must not be used. In private memory, of which the child has a copy, with [`Private`]:
/// - What the forking thread owned it owns in the child, until the guard is dropped there too. But its death there is
///   not reported: the lock is in no list of the kernel's.
/// - What another thread owned gives [`RobustError::Orphaned`] with an [`Orphaned`], and so it stays until its
///   [`reset`](Orphaned::reset) puts new data in. The owner did not die after some whole statement: it may have been
///   stopped in the middle of any, so to take the data as it is is `unsafe`.
///
/// In doubt the owner counts as present.
///
/// # Not in a signal handler
/// One that interrupts its thread in the middle of locking, and locks itself, breaks the thread's list.
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
// SAFETY: the data is reached by the thread that owns the lock only, which it goes to from another one.
unsafe impl<T: ?Sized + Send, S: Scope, W: Waiting> Sync for RobustMutex<T, S, W> {}

impl<T: ?Sized, S: Scope, W: Waiting> UnwindSafe for RobustMutex<T, S, W> {}

impl<T: ?Sized, S: Scope, W: Waiting> RefUnwindSafe for RobustMutex<T, S, W> {}

#[cfg(not(loom))]
impl<T> RobustMutex<T> {
    /// A mutex that nobody owns, for the threads of this process.
    ///
    /// # Safety
    /// - As long as a thread owns it, the mutex is neither moved nor freed, nor its memory unmapped: it is part
    ///   of that thread's list.
    /// - A reference to the value that a guard or a [`Recovered`] gave out is not used after its thread has ended. The
    ///   kernel unlocks the mutex then, and [`make_consistent`](Recovered::make_consistent) gives the value to the next
    ///   owner.
    ///
    /// Guards borrow the mutex and stay in their thread, so both are about guards that are forgotten (`mem::forget`,
    /// `Box::leak`) only: a mutex in a static whose guards are all dropped is always right.
    ///
    /// `PiMutex::new` is safe: a `PiMutex` is in no list. If its owner ends with it, locking fails for all other
    /// threads, and none gets the value.
    pub const unsafe fn new(value: T) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::with_scope(value) }
    }
}

impl<T, S: Scope, W: Waiting> RobustMutex<T, S, W> {
    /// A mutex that nobody owns, of any kind.
    ///
    /// # Safety
    /// As for `new`.
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

    /// Acquires the lock if nobody owns it.
    ///
    /// # Errors
    /// [`LockError::Busy`] if somebody does, be it the calling thread; else as for [`lock`](Self::lock).
    #[inline]
    pub fn try_lock(&self) -> Outcome<'_, T, S, W> {
        let me = match known() {
            Some(me) => me,
            None => found()?,
        };
        // SAFETY: `new`'s caller promised it.
        self.outcome(unsafe { self.raw.try_lock::<W>(me, S::FUTEX) })
    }

    #[inline]
    fn acquire(&self, deadline: Option<Deadline>) -> Outcome<'_, T, S, W> {
        let me = match known() {
            Some(me) => me,
            None => found()?,
        };
        // SAFETY: `new`'s caller promised it.
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

    /// The data, of which nobody else has a reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Makes it unusable, if the calling thread owns it.
    fn give_up(&self) {
        if let Some(me) = known().or_else(|| found::<(), ()>().ok()) {
            self.raw.give_up(me, S::FUTEX);
        }
    }

    /// The owner made the data valid that a fork left behind.
    fn mark_valid(&self) {
        self.raw.mark_valid();
    }

    /// Unlocks it, if the calling thread owns it.
    #[inline(always)]
    fn unlock(&self) {
        // Without a thread's list it was not locked here.
        if let Some(me) = known().or_else(|| found::<(), ()>().ok()) {
            // Refused to the copy of a guard in a forked child. (2)
            let _ = self.raw.unlock::<W>(me, S::FUTEX);
        }
    }
}

/// The calling thread, if it remembers its list.
#[inline(always)]
fn known() -> Option<Thread<'static>> {
    #[cfg(not(loom))]
    return Thread::known();
    // Threads of a model have their lists from the model.
    #[cfg(loom)]
    None
}

/// The calling thread, whose list is looked for.
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
