//! Guards of a mutex, which unlock it when dropped.
//!
//! Invariants:
//! 1. The lock is owned as long as the guard exists, and is unlocked once.
//! 2. Guards have associated functions instead of methods, so that they hide no method of the value.
//! 3. A guard stays in its thread: the lock's word names the owner, by which a forked child tells whether the owner
//!    survived.
//! 4. A guard of a lock that processes share unlocks only in the process that locked it, not as a copy in a forked
//!    child.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::word::{Lock, Taken};
use super::{Mutex, Private, Scope};
use crate::sync::machinery::guard_traits::guard_traits;
use crate::sync::mapped_guard::MappedGuard;
use crate::sync::mapped_guard::sealed::Tagged;
use crate::sys::forks::orphaned::sealed;

/// The value of a locked [`Mutex`]; unlocks when dropped.
#[must_use = "the mutex is unlocked at once if this is dropped"]
pub struct MutexGuard<'a, T: ?Sized, S: Scope = Private> {
    mutex: &'a Mutex<T, S>,
    taken: Taken,
    /// Makes the guard !Send (invariant 3).
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared reference to the guard gives shared access to the value only.
unsafe impl<T: ?Sized + Sync, S: Scope> Sync for MutexGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Scope> MutexGuard<'a, T, S> {
    /// Creates a guard for a lock that was just taken.
    #[inline(always)]
    pub(super) fn new(mutex: &'a Mutex<T, S>, taken: Taken) -> Self {
        MutexGuard { mutex, taken, stays: PhantomData }
    }

    /// Ends the guard without unlocking, and returns the tag under which the mutex is locked.
    #[cfg(any(test, feature = "std"))]
    #[inline(always)]
    pub(super) fn into_tag(guard: Self) -> u32 {
        ManuallyDrop::new(guard).taken.tag
    }

    pub(in crate::sync) fn lock(guard: &Self) -> &'a Lock<S> {
        &guard.mutex.lock
    }

    /// Unlocks, and hands the mutex to a waiter even if another thread arrives first. Slower for all threads; the
    /// mutex is [fair enough](Mutex#fairness) without it.
    pub fn unlock_fairly(guard: Self) {
        let guard = ManuallyDrop::new(guard);
        // SAFETY: invariant 1; not dropped again.
        unsafe { guard.mutex.lock.unlock_fairly() };
    }

    /// Unlocks while `f` runs, and locks again afterwards, even if `f` panics.
    ///
    /// # Panics
    /// If `f` panics.
    ///
    /// Two cases concern an `f` that forks. In the child, if the mutex's [owner is gone](Mutex#after-fork), the panic
    /// cannot be caught and ends the child, because the caller would have a guard without the lock. If the mutex is
    /// shared between processes, the child must not return from `f`: it would lock again, and its copy of the guard
    /// unlocks nothing.
    ///
    /// ```
    /// # use corelocal::sync::{Mutex, MutexGuard};
    /// let mutex = Mutex::new(1);
    /// let mut guard = mutex.lock();
    /// MutexGuard::unlocked(&mut guard, || *mutex.lock() += 1);
    /// assert_eq!(*guard, 2);
    /// ```
    pub fn unlocked<R>(guard: &mut Self, f: impl FnOnce() -> R) -> R {
        // SAFETY: invariant 1. The guard is mutably borrowed until it is locked again.
        unsafe { unlocked_while(&guard.mutex.lock, f) }
    }

    /// Narrows the guard to a part of the value, which stays locked.
    ///
    /// ```
    /// # use corelocal::sync::{Mutex, MutexGuard};
    /// let mutex = Mutex::new((1, "one"));
    /// let mut number = MutexGuard::map(mutex.lock(), |pair| &mut pair.0);
    /// *number = 2;
    /// drop(number);
    /// assert_eq!(mutex.into_inner(), (2, "one"));
    /// ```
    pub fn map<U: ?Sized>(
        guard: Self,
        part: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedMutexGuard<'a, U, S> {
        let (lock, tag) = (&guard.mutex.lock, guard.taken.tag);
        // SAFETY: invariant 1: exclusive access to the value. If `part` panics, the guard is dropped.
        let value = NonNull::from(part(unsafe { &mut *guard.mutex.value.get() }));
        core::mem::forget(guard);
        // SAFETY: invariant 1, and `value` points into the value.
        unsafe { MappedGuard::new(lock, value, tag) }
    }

    /// Narrows the guard to a part of the value, if the value has that part.
    ///
    /// ```
    /// # use corelocal::sync::{Mutex, MutexGuard};
    /// let names = Mutex::new(vec!["a"]);
    /// let first = MutexGuard::filter_map(names.lock(), |names| names.first_mut());
    /// assert_eq!(*first.unwrap(), "a");
    /// let second = MutexGuard::filter_map(names.lock(), |names| names.get_mut(1));
    /// second.unwrap_err().push("b"); // the guard of the whole value
    /// ```
    ///
    /// # Errors
    /// The guard, if the value has no such part.
    pub fn filter_map<U: ?Sized>(
        mut guard: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedMutexGuard<'a, U, S>, Self> {
        let Some(value) = part(&mut guard).map(NonNull::from) else { return Err(guard) };
        let (lock, tag) = (&guard.mutex.lock, guard.taken.tag);
        core::mem::forget(guard);
        // SAFETY: invariant 1, and `value` points into the value.
        Ok(unsafe { MappedGuard::new(lock, value, tag) })
    }

    /// Does what [`filter_map`](Self::filter_map) does, under `lock_api`'s name.
    ///
    /// # Errors
    /// The guard, if the value has no such part.
    pub fn try_map<U: ?Sized>(
        guard: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedMutexGuard<'a, U, S>, Self> {
        Self::filter_map(guard, part)
    }
}

/// Unlocks while `f` runs, and locks again.
///
/// # Safety
/// - The calling thread owns the lock through a guard that is not used until this returns or unwinds.
pub(super) unsafe fn unlocked_while<S: Scope, R>(lock: &Lock<S>, f: impl FnOnce() -> R) -> R {
    struct Relock<'a, S: Scope>(&'a Lock<S>);
    impl<S: Scope> Drop for Relock<'_, S> {
        fn drop(&mut self) {
            self.0.relock();
        }
    }
    // SAFETY: the caller owns the lock, and its guard is not used meanwhile.
    unsafe { lock.unlock() };
    let _relock = Relock(lock);
    f()
}

guard_traits!(exclusive [T: ?Sized, S: Scope] MutexGuard<'_, T, S>, -> T, |this| this.mutex.value.get());

impl<T: ?Sized, S: Scope> Drop for MutexGuard<'_, T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: invariant 1. If it was relocked meanwhile, then by this thread, which has one tag in a process. In
        // a forked child it may have another one, which costs a second check.
        unsafe { self.mutex.lock.unlock_as(self.taken.tag) };
    }
}

impl<T: ?Sized, S: Scope> sealed::OrphanedGuard for MutexGuard<'_, T, S> {
    type Value = T;

    fn value(&self) -> *mut T {
        self.mutex.value.get()
    }

    unsafe fn abandon(&self, gone: u64) {
        // SAFETY: the guard owns the lock and is neither used nor dropped after this.
        unsafe { self.mutex.lock.abandon(gone as u32) };
    }
}

/// A part of the value of a locked [`Mutex`]; unlocks when dropped. See [`MutexGuard::map`].
pub type MappedMutexGuard<'a, T, S = Private> = MappedGuard<'a, T, Lock<S>>;

impl<S: Scope> Tagged for Lock<S> {
    #[inline(always)]
    unsafe fn unlock_exclusive(&self, tag: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.unlock_as(tag) };
    }
}
