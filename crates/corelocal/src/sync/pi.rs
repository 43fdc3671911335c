//! Mutex with priority inheritance: the owner runs with the highest priority of all waiters.
//!
//! # Invariants
//! 1. A guard means that its thread owns the lock. It stays in that thread.
//! 2. `abandoned` is written by owners only, and never cleared. It means that an owner ended while it held the lock.
//!    Since the mutex is not robust, that owner's changes are not reported. A thread that acquires the lock
//!    afterwards releases it again.
//! 3. If processes share the lock, the copy of a guard in a forked child owns nothing: the word names a thread of the
//!    parent. The guard of a private lock, copied with the thread that called fork, owns the child's copy.

mod condvar;
mod robust;
mod word;

pub use condvar::PiCondvar;
pub use robust::RobustPiMutex;

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;

use super::machinery::guard_traits::guard_traits;
use super::machinery::scope::{Private, Scope};
use super::robust::LockError;
use super::robust::word::{self as owner_word, Taken};
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::futex::Deadline;
use crate::sys::thread::id;
use word::Left;

/// A mutex with priority inheritance: while a thread of higher priority waits, the owner runs with that priority, so
/// that no thread of medium priority keeps both from running.
///
/// Locking and unlocking are one instruction each while uncontended. A thread that finds the lock owned spins for
/// about 10 us, and then lets the kernel queue it by priority; a thread that may run on one cpu only does not spin.
///
/// ```
/// use corelocal::sync::PiMutex;
///
/// static COUNT: PiMutex<u64> = PiMutex::new(0);
///
/// *COUNT.lock()? += 1;
/// # Ok::<(), corelocal::sync::LockError>(())
/// ```
///
/// # Owners that are gone
/// If the owner ends without unlocking, locking fails with [`LockError::OwnerGone`] from then on. With
/// [`Shared`](super::Shared) that lasts until the dead thread's number is reused; use a [`RobustPiMutex`] if owners
/// may die. With [`Private`], in a forked child, the owner of a lock that was owned during the fork is gone as well.
/// A guard of the thread that called fork stays valid in the child, and unlocks the child's copy when it is dropped.
/// Until then attempts to lock it in the child fail likewise, since the kernel knows the owner only by its number in
/// the parent.
///
/// # Memory ordering
/// Locking acquires what unlocking released.
#[repr(C)]
pub struct PiMutex<T: ?Sized, S: Scope = Private> {
    word: AtomicU32,
    abandoned: AtomicU32,
    scope: PhantomData<S>,
    value: UnsafeCell<T>,
}

// SAFETY: the mutex consists of the value and words that any thread may change.
unsafe impl<T: ?Sized + Send, S: Scope> Send for PiMutex<T, S> {}
// SAFETY: only the owner accesses the value, as if it were sent to that thread.
unsafe impl<T: ?Sized + Send, S: Scope> Sync for PiMutex<T, S> {}

impl<T: ?Sized, S: Scope> UnwindSafe for PiMutex<T, S> {}

impl<T: ?Sized, S: Scope> RefUnwindSafe for PiMutex<T, S> {}

impl<T> PiMutex<T> {
    /// Creates an unlocked mutex for the threads of this process.
    pub const fn new(value: T) -> Self {
        Self::with_scope(value)
    }
}

impl<T, S: Scope> PiMutex<T, S> {
    /// Creates an unlocked mutex of the scope that the type names.
    pub const fn with_scope(value: T) -> Self {
        PiMutex {
            word: AtomicU32::new(owner_word::FREE),
            abandoned: AtomicU32::new(0),
            scope: PhantomData,
            value: UnsafeCell::new(value),
        }
    }

    /// Consumes the mutex and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, S: Scope> PiMutex<T, S> {
    /// Waits for the lock and acquires it.
    ///
    /// # Errors
    /// [`LockError::Deadlock`] if the thread owns it, or its owner waits for this thread; [`LockError::OwnerGone`];
    /// [`LockError::Refused`] if the kernel or a filter does not provide such locks.
    #[inline]
    pub fn lock(&self) -> Result<PiMutexGuard<'_, T, S>, LockError> {
        self.acquire(None)
    }

    /// Waits for the lock for at most this time span.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock), and [`LockError::TimedOut`].
    pub fn try_lock_for(&self, span: Duration) -> Result<PiMutexGuard<'_, T, S>, LockError> {
        self.acquire(Some(Deadline::after(span)))
    }

    /// Waits for the lock until the deadline.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock), and [`LockError::TimedOut`].
    pub fn try_lock_until(&self, deadline: Deadline) -> Result<PiMutexGuard<'_, T, S>, LockError> {
        self.acquire(Some(deadline))
    }

    /// Acquires the lock if it is free.
    ///
    /// # Errors
    /// [`LockError::Busy`] if it is owned, even by the calling thread; [`LockError::OwnerGone`]. An owner that has
    /// ended counts as present for as long as the kernel knows it, possibly for a moment after it was joined. With
    /// [`Shared`](super::Shared) that may be for good, since the existence of another process's thread is not
    /// checked.
    #[inline]
    pub fn try_lock(&self) -> Result<PiMutexGuard<'_, T, S>, LockError> {
        let number = id::current();
        let taken = match self.take_free(number) {
            true => Ok(Taken::Clean),
            false => word::try_take(&self.word, number, S::FUTEX, Left::Report),
        };
        self.outcome(taken)
    }

    #[inline]
    fn acquire(&self, deadline: Option<Deadline>) -> Result<PiMutexGuard<'_, T, S>, LockError> {
        let number = id::current();
        let taken = match self.take_free(number) {
            true => Ok(Taken::Clean),
            false => word::take(&self.word, number, deadline, S::FUTEX, Left::Report),
        };
        self.outcome(taken)
    }

    #[inline(always)]
    fn take_free(&self, number: u32) -> bool {
        let free = owner_word::FREE;
        // Acquire: partner is the Release of `word::leave`.
        self.word.compare_exchange(free, number, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    fn outcome(
        &self,
        taken: Result<Taken, LockError>,
    ) -> Result<PiMutexGuard<'_, T, S>, LockError> {
        // Relaxed: written by owners. (2)
        if taken == Ok(Taken::Clean) && self.abandoned.load(Ordering::Relaxed) == 0 {
            return Ok(PiMutexGuard { mutex: self, here: PhantomData });
        }
        Err(self.refuse(taken))
    }

    #[cold]
    fn refuse(&self, taken: Result<Taken, LockError>) -> LockError {
        let taken = match taken {
            Err(error) => return error,
            Ok(taken) => taken,
        };
        if taken == Taken::FromTheDead {
            // Relaxed: the unlock that follows publishes it.
            self.abandoned.store(1, Ordering::Relaxed);
        }
        self.unlock();
        LockError::OwnerGone
    }

    /// Returns the value. Exclusive access to the mutex makes locking unnecessary.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Unlocks, if the calling thread is the owner.
    #[inline(always)]
    fn unlock(&self) {
        let number = id::current();
        let free = owner_word::FREE;
        // Release: partner is the Acquire in `take_free`, and that in `word::take`.
        if self.word.compare_exchange(number, free, Ordering::Release, Ordering::Relaxed).is_err() {
            self.unlock_cold(number);
        }
    }

    #[cold]
    fn unlock_cold(&self, number: u32) {
        // Not for the copy of a guard in a forked child, if the lock is shared with the parent. (3)
        if owner_word::owner(self.word.load(Ordering::Relaxed)) == number {
            word::leave(&self.word, number, S::FUTEX);
        } else if owner_word::is_mine_since_before_fork(&self.word, S::FUTEX) {
            owner_word::leave_since_before_fork(&self.word);
        }
    }
}

impl<T: ?Sized, S: Scope> fmt::Debug for PiMutex<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PiMutex").finish_non_exhaustive()
    }
}

impl<T: Default, S: Scope> Default for PiMutex<T, S> {
    fn default() -> Self {
        Self::with_scope(T::default())
    }
}

/// A locked [`PiMutex`]; unlocks when dropped.
#[must_use = "the mutex is unlocked when this is dropped"]
pub struct PiMutexGuard<'a, T: ?Sized, S: Scope = Private> {
    mutex: &'a PiMutex<T, S>,
    /// Makes the guard !Send: the owner is a thread.
    here: PhantomData<*const ()>,
}

// SAFETY: a shared reference to the guard gives shared references to the value only.
unsafe impl<T: ?Sized + Sync, S: Scope> Sync for PiMutexGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Scope> PiMutexGuard<'a, T, S> {
    pub(in crate::sync) fn mutex(guard: &Self) -> &'a PiMutex<T, S> {
        guard.mutex
    }
}

guard_traits!(exclusive [T: ?Sized, S: Scope] PiMutexGuard<'_, T, S>, -> T, |this| this.mutex.value.get());

impl<T: ?Sized, S: Scope> Drop for PiMutexGuard<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.unlock();
    }
}
