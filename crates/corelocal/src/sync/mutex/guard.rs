//! What holds a mutex, and unlocks it when dropped.
//!
//! Invariants:
//! 1. The lock is held as long as the guard exists, and is unlocked once.
//! 2. No method of a guard hides one of the value's: what it does itself are functions that take it.
//! 3. A guard stays in its thread: the lock's word names the holder, by which a forked child tells whether the
//!    holder came along.
//! 4. A guard of a lock that processes share unlocks in the process only that locked: not its copy in a forked child.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use super::lock::{Lock, Taken};
use super::{Mutex, Private, Scope};
use crate::sync::guard_traits::guard_traits;
use crate::sys::orphaned::sealed;

/// The value of a locked [`Mutex`]; unlocks when dropped.
#[must_use = "the mutex is unlocked at once if this is dropped"]
pub struct MutexGuard<'a, T: ?Sized, S: Scope = Private> {
    mutex: &'a Mutex<T, S>,
    taken: Taken,
    /// Not Send (invariant 3).
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the value, no more.
unsafe impl<T: ?Sized + Sync, S: Scope> Sync for MutexGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Scope> MutexGuard<'a, T, S> {
    /// Of a mutex whose lock was taken just now.
    #[inline(always)]
    pub(super) fn new(mutex: &'a Mutex<T, S>, taken: Taken) -> Self {
        MutexGuard { mutex, taken, stays: PhantomData }
    }

    /// The tag, under which the mutex stays locked.
    #[cfg(any(test, feature = "std"))]
    #[inline(always)]
    pub(super) fn into_tag(guard: Self) -> u32 {
        ManuallyDrop::new(guard).taken.tag
    }

    pub(in crate::sync) fn lock(guard: &Self) -> &'a Lock<S> {
        &guard.mutex.lock
    }

    /// Unlocks, and lets a waiter have the mutex next, even if somebody else comes by sooner. Slower for all;
    /// [fair enough](Mutex#fairness) it is anyway.
    pub fn unlock_fairly(guard: Self) {
        let guard = ManuallyDrop::new(guard);
        // SAFETY: invariant 1; not dropped again.
        unsafe { guard.mutex.lock.unlock_fairly() };
    }

    /// Unlocks while `f` runs, and locks again, by a panic of `f` too.
    ///
    /// # Panics
    /// If `f` does. If `f` forks, and in the child the mutex is one whose [holder is gone](Mutex#after-fork): this panic
    /// cannot be caught but ends the child, since the caller would have a guard without the lock. If `f` forks and the
    /// mutex is one that processes share, the child must not return from `f`: it would lock again, and its copy of the
    /// guard unlocks nothing.
    ///
    /// ```
    /// # use corelocal::sync::{Mutex, MutexGuard};
    /// let mutex = Mutex::new(1);
    /// let mut guard = mutex.lock();
    /// MutexGuard::unlocked(&mut guard, || *mutex.lock() += 1);
    /// assert_eq!(*guard, 2);
    /// ```
    pub fn unlocked<R>(guard: &mut Self, f: impl FnOnce() -> R) -> R {
        // SAFETY: invariant 1. Nobody sees the guard, which is borrowed, until it is locked again.
        unsafe { unlocked_while(&guard.mutex.lock, f) }
    }

    /// A part of the value, still locked.
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
        // SAFETY: invariant 1: nobody else has the value. Should `part` panic, the guard is dropped.
        let value = NonNull::from(part(unsafe { &mut *guard.mutex.value.get() }));
        core::mem::forget(guard);
        MappedMutexGuard { lock, value, tag, borrows: PhantomData }
    }

    /// A part of the value, still locked, if the value has that part.
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
        Ok(MappedMutexGuard { lock, value, tag, borrows: PhantomData })
    }

    /// [`filter_map`](Self::filter_map), by the name that `lock_api` has for it.
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

/// Lets go of a lock while `f` runs, and takes it again.
///
/// # Safety
/// The calling thread holds the lock, by a guard that is not used until this returns or unwinds.
pub(super) unsafe fn unlocked_while<S: Scope, R>(lock: &Lock<S>, f: impl FnOnce() -> R) -> R {
    struct Relock<'a, S: Scope>(&'a Lock<S>);
    impl<S: Scope> Drop for Relock<'_, S> {
        fn drop(&mut self) {
            self.0.relock();
        }
    }
    // SAFETY: the caller's promise.
    unsafe { lock.unlock() };
    let _relock = Relock(lock);
    f()
}

guard_traits!(exclusive [T: ?Sized, S: Scope] MutexGuard<'_, T, S>, -> T, |this| this.mutex.value.get());

impl<T: ?Sized, S: Scope> Drop for MutexGuard<'_, T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: invariant 1. Relocked meanwhile, it was by this thread, which has one tag in a process; in a
        // child it may have another, which costs a second look.
        unsafe { self.mutex.lock.unlock_as(self.taken.tag) };
    }
}

impl<T: ?Sized, S: Scope> sealed::OrphanedGuard for MutexGuard<'_, T, S> {
    type Value = T;

    fn value(&self) -> *mut T {
        self.mutex.value.get()
    }

    unsafe fn abandon(&self, gone: u64) {
        // SAFETY: the caller's promise.
        unsafe { self.mutex.lock.abandon(gone as u32) };
    }
}

/// A part of the value of a locked [`Mutex`]; unlocks when dropped. See [`MutexGuard::map`].
#[must_use = "the mutex is unlocked at once if this is dropped"]
pub struct MappedMutexGuard<'a, T: ?Sized, S: Scope = Private> {
    lock: &'a Lock<S>,
    value: NonNull<T>,
    /// The holder's.
    tag: u32,
    /// Invariant in `T`, as what gives `&mut T`; and not Send, for the pointer.
    borrows: PhantomData<&'a mut T>,
}

// SAFETY: as of `MutexGuard`.
unsafe impl<T: ?Sized + Sync, S: Scope> Sync for MappedMutexGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> UnwindSafe for MappedMutexGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> RefUnwindSafe for MappedMutexGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Scope> MappedMutexGuard<'a, T, S> {
    /// A part of the part.
    pub fn map<U: ?Sized>(
        mut guard: Self,
        part: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedMutexGuard<'a, U, S> {
        let (lock, tag) = (guard.lock, guard.tag);
        let value = NonNull::from(part(&mut guard));
        core::mem::forget(guard);
        MappedMutexGuard { lock, value, tag, borrows: PhantomData }
    }

    /// A part of the part, if the part has that. See [`MutexGuard::filter_map`].
    ///
    /// # Errors
    /// The guard, if the part has no such part.
    pub fn filter_map<U: ?Sized>(
        mut guard: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedMutexGuard<'a, U, S>, Self> {
        let Some(value) = part(&mut guard).map(NonNull::from) else { return Err(guard) };
        let (lock, tag) = (guard.lock, guard.tag);
        core::mem::forget(guard);
        Ok(MappedMutexGuard { lock, value, tag, borrows: PhantomData })
    }

    /// [`filter_map`](Self::filter_map), by the name that `lock_api` has for it.
    ///
    /// # Errors
    /// The guard, if the part has no such part.
    pub fn try_map<U: ?Sized>(
        guard: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedMutexGuard<'a, U, S>, Self> {
        Self::filter_map(guard, part)
    }
}

guard_traits!(exclusive [T: ?Sized, S: Scope] MappedMutexGuard<'_, T, S>, -> T, |this| this.value.as_ptr());

impl<T: ?Sized, S: Scope> Drop for MappedMutexGuard<'_, T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: invariant 1, as of the whole value's guard.
        unsafe { self.lock.unlock_as(self.tag) };
    }
}
