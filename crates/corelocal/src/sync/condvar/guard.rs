//! What a condition variable needs from a guard: to release its lock and take it again.
//!
//! # Invariants
//! 1. Between `release` and `reacquire` the guard is not accessible: the condition variable borrows it exclusively.
//! 2. The guard is one of a whole value, which exists whatever other threads do meanwhile. A part of a value, as a
//!    mapped guard has it, may be gone.

use crate::sync::machinery::scope::Scope;
use crate::sync::mutex::{Lock, MutexGuard};
#[cfg(not(loom))]
use crate::sync::pi::{PiMutex, PiMutexGuard};
#[cfg(not(loom))]
use crate::sync::robust::LockError;
use crate::sync::robust::{Recovered, RobustError, RobustMutex, RobustMutexGuard, Waiting};
use crate::sync::rwlock::{RwLockWriteGuard, Unlocked};
use crate::sys::forks::orphaned::Orphaned;

/// The guard of a lock that a [`Condvar`](crate::sync::Condvar) can release and take again: that of a
/// [`Mutex`](crate::sync::Mutex). Mapped guards are excluded, because their part of the value may be gone after the
/// wait:
///
/// ```compile_fail,E0277
/// # use corelocal::sync::{Condvar, Mutex, MutexGuard};
/// let lists = Mutex::new(vec![1]);
/// let mut first = MutexGuard::map(lists.lock(), |list| &mut list[0]);
/// Condvar::new().wait(&mut first);
/// ```
#[allow(private_bounds, reason = "a caller with such a bound must not reach the methods")]
pub trait CondvarGuard: sealed::CondvarGuard {}

impl<G: sealed::CondvarGuard> CondvarGuard for G {}

/// The guard of a lock that may fail to be taken again, or whose locking returns more than a guard: that of a
/// [`RobustMutex`], a [`PiMutex`], or a writer of a [`RwLock`](crate::sync::RwLock).
///
/// A [`Condvar`](crate::sync::Condvar) consumes it, and returns what locking returns.
pub trait OwnedGuard: sealed::OwnedGuard {}

impl<G: sealed::OwnedGuard> OwnedGuard for G {}

pub(in crate::sync) mod sealed {
    use crate::primitive::atomic::AtomicU32;
    use crate::sync::machinery::futex::Futex;
    use crate::sync::machinery::scope;
    use crate::sys::futex::Scope;

    pub(crate) trait CondvarGuard {
        /// Releases the lock.
        ///
        /// # Safety
        /// - The guard is not used until `reacquire`.
        unsafe fn release(&self);

        /// Takes the lock again, after a sleep on a condition variable or at the place to which `adopt` moved the
        /// thread.
        ///
        /// # Safety
        /// - `release` was called before.
        unsafe fn reacquire(&self);

        /// Returns the address of the lock.
        fn lock_address(&self) -> usize;

        /// Moves waiters to the queue of the held lock, so that its unlocks wake them one by one. `requeue` gets the
        /// maximum number and the place, and returns how many were moved. Does nothing if the lock has no such queue.
        fn adopt(&self, _requeue: &mut dyn FnMut(u32, Place<'_>) -> u32) {}
    }

    pub trait OwnedGuard {
        /// The unlocked lock, to be locked again.
        type Lock;
        /// The guard that locking returns.
        type Locked;

        fn unlock(self) -> Self::Lock;

        fn relock(lock: Self::Lock) -> Self::Locked;
    }

    /// The word on which the waiters of a lock sleep, and its scope.
    #[derive(Clone, Copy)]
    pub struct Place<'a> {
        word: &'a AtomicU32,
        scope: Scope,
    }

    impl<'a> Place<'a> {
        pub(in crate::sync) fn new<S: scope::Scope>(futex: &'a Futex<S>) -> Self {
            Place { word: futex, scope: S::FUTEX }
        }

        /// Returns the word, if it is of this scope.
        pub(in crate::sync) fn of_scope<S: scope::Scope>(self) -> Option<&'a Futex<S>> {
            // SAFETY: a futex is its word, whatever its scope.
            let futex = unsafe { &*core::ptr::from_ref(self.word).cast::<Futex<S>>() };
            (self.scope == S::FUTEX).then_some(futex)
        }
    }
}

/// Does what [`sealed::CondvarGuard::adopt`] does for a lock that is held.
///
/// # Safety
/// - The caller holds the lock.
pub(in crate::sync) unsafe fn adopt<S: Scope>(
    lock: &Lock<S>,
    requeue: &mut dyn FnMut(u32, sealed::Place<'_>) -> u32,
) {
    let moved = requeue(lock.room_for_guests(), sealed::Place::new(lock.queue()));
    if moved > 0 {
        // SAFETY: the caller holds the lock, and held it while they were moved.
        unsafe { lock.expect_guests(moved) };
    }
}

impl<T: ?Sized, S: Scope> sealed::CondvarGuard for MutexGuard<'_, T, S> {
    unsafe fn release(&self) {
        // SAFETY: the guard holds the lock, and is not used until it does again.
        unsafe { MutexGuard::lock(self).unlock() };
    }

    unsafe fn reacquire(&self) {
        MutexGuard::lock(self).lock_as_guest();
    }

    fn lock_address(&self) -> usize {
        core::ptr::from_ref(MutexGuard::lock(self)).addr()
    }

    fn adopt(&self, requeue: &mut dyn FnMut(u32, sealed::Place<'_>) -> u32) {
        // SAFETY: the guard holds the lock.
        unsafe { adopt(MutexGuard::lock(self), requeue) };
    }
}

impl<'a, T: ?Sized, S: Scope, W: Waiting> sealed::OwnedGuard for RobustMutexGuard<'a, T, S, W> {
    type Lock = &'a RobustMutex<T, S, W>;
    type Locked = Result<Self, RobustError<Recovered<'a, T, S, W>, Orphaned<Self>>>;

    fn unlock(self) -> Self::Lock {
        RobustMutexGuard::mutex(&self)
    }

    fn relock(lock: Self::Lock) -> Self::Locked {
        lock.lock()
    }
}

#[cfg(not(loom))]
impl<'a, T: ?Sized, S: Scope> sealed::OwnedGuard for PiMutexGuard<'a, T, S> {
    type Lock = &'a PiMutex<T, S>;
    type Locked = Result<Self, LockError>;

    fn unlock(self) -> Self::Lock {
        PiMutexGuard::mutex(&self)
    }

    fn relock(lock: Self::Lock) -> Self::Locked {
        lock.lock()
    }
}

impl<'a, T: ?Sized, S: Scope> sealed::OwnedGuard for RwLockWriteGuard<'a, T, S> {
    type Lock = Unlocked<'a, T, S>;
    type Locked = Self;

    fn unlock(self) -> Self::Lock {
        RwLockWriteGuard::unlock(self)
    }

    fn relock(lock: Self::Lock) -> Self::Locked {
        lock.write()
    }
}
