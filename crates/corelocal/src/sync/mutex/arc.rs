//! Guards that own their mutex through an `Arc` instead of borrowing it.
//!
//! # Invariants
//! 1. Those of `guard.rs` and `arc_guard.rs`.

use core::time::Duration;
use std::sync::Arc;

use super::guard;
use super::{Lock, Mutex, MutexGuard, Private, Scope};
use crate::sync::arc_guard::ArcGuard;
use crate::sync::arc_guard::sealed::{Exclusive, Holding, Protecting};
use crate::sync::condvar::guard as condvar_guard;
use crate::sys::forks::orphaned::{Orphaned, sealed};
use crate::sys::futex::Deadline;

/// The value of a locked [`Mutex`] in an [`Arc`]; unlocks when dropped. With the feature `std`.
///
/// The guard borrows nothing, so functions can return it and structs can hold it without a lifetime. Otherwise it is
/// like [`MutexGuard`]: it stays in its thread, and a [forked child](Mutex#after-fork) keeps what the forking
/// thread's guard held.
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
pub type ArcMutexGuard<T, S = Private> = ArcGuard<Mutex<T, S>, Locked>;

impl<T: ?Sized, S: Scope> Protecting for Mutex<T, S> {
    type Value = T;

    #[inline(always)]
    fn value(&self) -> *mut T {
        self.value.get()
    }
}

/// A locked mutex. For [`ArcMutexGuard`].
#[derive(Debug)]
pub enum Locked {}

impl<T: ?Sized, S: Scope> Holding<Mutex<T, S>> for Locked {
    /// The owner's tag.
    type Key = u32;

    #[inline(always)]
    unsafe fn unlock(mutex: &Mutex<T, S>, tag: u32) {
        // SAFETY: the caller owns the lock under this tag.
        unsafe { mutex.lock.unlock_as(tag) };
    }
}

impl<T: ?Sized, S: Scope> Exclusive<Mutex<T, S>> for Locked {}

impl<T: ?Sized, S: Scope> Mutex<T, S> {
    /// Does what [`lock`](Self::lock) does, with a guard that owns the `Arc`. With the feature `std`, like all
    /// following functions.
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

    /// Does what [`try_lock`](Self::try_lock) does, with a guard that owns the `Arc`.
    #[inline]
    pub fn try_lock_arc(self: &Arc<Self>) -> Option<ArcMutexGuard<T, S>> {
        self.try_lock().map(|guard| ArcMutexGuard::of(self, guard))
    }

    /// Does what [`try_lock_for`](Self::try_lock_for) does, with a guard that owns the `Arc`.
    #[inline]
    pub fn try_lock_arc_for(self: &Arc<Self>, span: Duration) -> Option<ArcMutexGuard<T, S>> {
        self.try_lock_for(span).map(|guard| ArcMutexGuard::of(self, guard))
    }

    /// Does what [`try_lock_until`](Self::try_lock_until) does, with a guard that owns the `Arc`.
    #[inline]
    pub fn try_lock_arc_until(self: &Arc<Self>, deadline: Deadline) -> Option<ArcMutexGuard<T, S>> {
        self.try_lock_until(deadline).map(|guard| ArcMutexGuard::of(self, guard))
    }

    /// Does what [`lock_checked`](Self::lock_checked) does, with a guard that owns the `Arc`.
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

impl<T: ?Sized, S: Scope> ArcGuard<Mutex<T, S>, Locked> {
    /// Replaces a borrowing guard of this mutex.
    #[inline(always)]
    fn of(mutex: &Arc<Mutex<T, S>>, guard: MutexGuard<'_, T, S>) -> Self {
        // SAFETY: the guard owned the lock under this tag, and has just given it up.
        unsafe { ArcGuard::new(mutex.clone(), MutexGuard::into_tag(guard)) }
    }

    /// Returns the locked mutex.
    pub fn mutex(guard: &Self) -> &Arc<Mutex<T, S>> {
        ArcGuard::lock(guard)
    }

    /// Does what [`MutexGuard::unlock_fairly`] does.
    pub fn unlock_fairly(guard: Self) {
        let (mutex, _) = ArcGuard::into_parts(guard);
        // SAFETY: invariant 1; not dropped again.
        unsafe { mutex.lock.unlock_fairly() };
    }

    /// Does what [`MutexGuard::unlocked`] does.
    ///
    /// # Panics
    /// As [`MutexGuard::unlocked`].
    pub fn unlocked<R>(guard: &mut Self, f: impl FnOnce() -> R) -> R {
        // SAFETY: invariant 1; the guard is mutably borrowed until it is locked again.
        unsafe { guard::unlocked_while(&ArcGuard::lock(guard).lock, f) }
    }
}

impl<T: ?Sized, S: Scope> sealed::OrphanedGuard for ArcMutexGuard<T, S> {
    type Value = T;

    fn value(&self) -> *mut T {
        Self::mutex(self).value.get()
    }

    unsafe fn abandon(&self, gone: u64) {
        // SAFETY: the guard is neither used nor dropped after this, so its `Arc` is taken once.
        let mutex = unsafe { ArcGuard::take_lock(self) };
        // SAFETY: the caller owns the lock through this guard.
        unsafe { mutex.lock.abandon(gone as u32) };
    }
}

impl<T: ?Sized, S: Scope> condvar_guard::sealed::CondvarGuard for ArcMutexGuard<T, S> {
    unsafe fn release(&self) {
        // SAFETY: the guard owns the lock, and is not used until it does again.
        unsafe { Self::mutex(self).lock.unlock() };
    }

    unsafe fn reacquire(&self) {
        Self::mutex(self).lock.lock_as_guest();
    }

    fn lock_address(&self) -> usize {
        core::ptr::from_ref::<Lock<S>>(&Self::mutex(self).lock).addr()
    }

    fn adopt(&self, requeue: &mut dyn FnMut(u32, condvar_guard::sealed::Place<'_>) -> u32) {
        // SAFETY: the guard owns the lock.
        unsafe { condvar_guard::adopt(&Self::mutex(self).lock, requeue) };
    }
}
