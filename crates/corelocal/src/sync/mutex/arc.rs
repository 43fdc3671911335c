//! Guards that own a share of their mutex, by `Arc`, instead of borrowing it.
//!
//! # Invariants
//! 1. Those of `guard.rs`.
//! 2. The guard's share of the mutex is given back after the lock is let go of, so the mutex outlives the guard's use
//!    of it.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::sync::Arc;

use super::guard;
use super::{Lock, Mutex, MutexGuard, Private, Scope};
use crate::sync::condvar_guard;
use crate::sys::futex::Deadline;
use crate::sys::orphaned::{Orphaned, sealed};

/// The value of a locked [`Mutex`] that lies in an [`Arc`]; unlocks when dropped. With the feature `std`.
///
/// It borrows nothing, so a function can return it, and a struct can hold it, without a lifetime. In all else it is as
/// [`MutexGuard`]: it stays in its thread, and a [forked child](Mutex#after-fork) has what the forking thread's guard
/// held.
///
/// ```
/// use std::sync::Arc;
///
/// use corelocal::sync::{ArcMutexGuard, Mutex};
///
/// fn checked_out(list: &Arc<Mutex<Vec<u32>>>) -> ArcMutexGuard<Vec<u32>> {
///     list.lock_arc()
/// }
///
/// let list = Arc::new(Mutex::new(vec![1]));
/// let mut guard = checked_out(&list);
/// drop(list); // the guard keeps the mutex alive
/// guard.push(2);
/// assert_eq!(*guard, [1, 2]);
/// ```
#[must_use = "the mutex is unlocked at once if this is dropped"]
pub struct ArcMutexGuard<T: ?Sized, S: Scope = Private> {
    mutex: Arc<Mutex<T, S>>,
    /// The holder's.
    tag: u32,
    /// Not Send: see `guard.rs`, invariant 3.
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the value, and to the `Arc`, which needs more to be shared: as much as
// to be sent, which is `T: Send` for the mutex.
unsafe impl<T: ?Sized + Send + Sync, S: Scope> Sync for ArcMutexGuard<T, S> {}

impl<T: ?Sized, S: Scope> Mutex<T, S> {
    /// As [`lock`](Self::lock), with a guard that owns a share of the mutex. With the feature `std`, as all that
    /// follows.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let mutex = Arc::new(corelocal::sync::Mutex::new(1));
    /// *mutex.lock_arc() += 1;
    /// assert_eq!(*mutex.lock(), 2);
    /// ```
    #[inline]
    pub fn lock_arc(self: &Arc<Self>) -> ArcMutexGuard<T, S> {
        ArcMutexGuard::of(self, self.lock())
    }

    /// As [`try_lock`](Self::try_lock), with a guard that owns a share of the mutex.
    #[inline]
    pub fn try_lock_arc(self: &Arc<Self>) -> Option<ArcMutexGuard<T, S>> {
        self.try_lock().map(|guard| ArcMutexGuard::of(self, guard))
    }

    /// As [`try_lock_for`](Self::try_lock_for), with a guard that owns a share of the mutex.
    #[inline]
    pub fn try_lock_arc_for(self: &Arc<Self>, span: Duration) -> Option<ArcMutexGuard<T, S>> {
        self.try_lock_for(span).map(|guard| ArcMutexGuard::of(self, guard))
    }

    /// As [`try_lock_until`](Self::try_lock_until), with a guard that owns a share of the mutex.
    #[inline]
    pub fn try_lock_arc_until(self: &Arc<Self>, deadline: Deadline) -> Option<ArcMutexGuard<T, S>> {
        self.try_lock_until(deadline).map(|guard| ArcMutexGuard::of(self, guard))
    }

    /// As [`lock_checked`](Self::lock_checked), with a guard that owns a share of the mutex.
    ///
    /// # Errors
    /// As [`lock_checked`](Self::lock_checked).
    #[allow(clippy::type_complexity, reason = "a guard, or what may become one")]
    pub fn lock_arc_checked(
        self: &Arc<Self>,
    ) -> Result<ArcMutexGuard<T, S>, Orphaned<ArcMutexGuard<T, S>>> {
        let owned = |guard| ArcMutexGuard::of(self, guard);
        self.lock_checked().map(owned).map_err(|orphaned| orphaned.with_guard(owned))
    }
}

impl<T: ?Sized, S: Scope> ArcMutexGuard<T, S> {
    /// In place of a guard of this mutex.
    #[inline(always)]
    fn of(mutex: &Arc<Mutex<T, S>>, guard: MutexGuard<'_, T, S>) -> Self {
        let mutex = mutex.clone();
        ArcMutexGuard { mutex, tag: MutexGuard::into_tag(guard), stays: PhantomData }
    }

    /// The mutex that is locked.
    pub fn mutex(guard: &Self) -> &Arc<Mutex<T, S>> {
        &guard.mutex
    }

    /// As [`MutexGuard::unlock_fairly`].
    pub fn unlock_fairly(guard: Self) {
        let guard = ManuallyDrop::new(guard);
        // SAFETY: taken once: the guard is not dropped.
        let mutex = unsafe { core::ptr::read(&guard.mutex) };
        // SAFETY: invariant 1; not dropped again.
        unsafe { mutex.lock.unlock_fairly() };
    }

    /// As [`MutexGuard::unlocked`].
    ///
    /// # Panics
    /// As [`MutexGuard::unlocked`].
    pub fn unlocked<R>(guard: &mut Self, f: impl FnOnce() -> R) -> R {
        // SAFETY: invariant 1; the guard is borrowed until it is locked again.
        unsafe { guard::unlocked_while(&guard.mutex.lock, f) }
    }
}

impl<T: ?Sized, S: Scope> Deref for ArcMutexGuard<T, S> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: invariant 1: no other thread has the value.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized, S: Scope> DerefMut for ArcMutexGuard<T, S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized, S: Scope> Drop for ArcMutexGuard<T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: invariant 1, as of `MutexGuard`.
        unsafe { self.mutex.lock.unlock_as(self.tag) };
    }
}

impl<T: ?Sized, S: Scope> sealed::OrphanedGuard for ArcMutexGuard<T, S> {
    type Value = T;

    fn value(&self) -> *mut T {
        self.mutex.value.get()
    }

    unsafe fn abandon(&self, gone: u64) {
        // SAFETY: the guard is neither used nor dropped after this, so its share is taken once.
        let mutex = unsafe { core::ptr::read(&self.mutex) };
        // SAFETY: the caller's promise.
        unsafe { mutex.lock.abandon(gone as u32) };
    }
}

impl<T: ?Sized, S: Scope> condvar_guard::sealed::CondvarGuard for ArcMutexGuard<T, S> {
    unsafe fn release(&self) {
        // SAFETY: the guard holds the lock, and is not used until it does again.
        unsafe { self.mutex.lock.unlock() };
    }

    unsafe fn reacquire(&self) {
        self.mutex.lock.lock_as_guest();
    }

    fn lock_address(&self) -> usize {
        core::ptr::from_ref::<Lock<S>>(&self.mutex.lock).addr()
    }

    fn adopt(&self, requeue: &mut dyn FnMut(u32, condvar_guard::sealed::Place<'_>) -> u32) {
        // SAFETY: the guard holds the lock.
        unsafe { condvar_guard::adopt(&self.mutex.lock, requeue) };
    }
}

impl<T: ?Sized + fmt::Debug, S: Scope> fmt::Debug for ArcMutexGuard<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display, S: Scope> fmt::Display for ArcMutexGuard<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
