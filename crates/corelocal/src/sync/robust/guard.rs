//! What the owner of a robust mutex has in hand.
//!
//! Invariants: those of the parent module. A [`Recovered`] that is dropped gives the lock up for ever, before
//! it unlocks it.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use super::RobustMutex;
use super::waiting::{Plain, Waiting};
use crate::sync::machinery::guard_traits::guard_traits;
use crate::sync::machinery::scope::{Private, Scope};
use crate::sys::forks::orphaned::sealed;

/// A [`RobustMutex`] that is locked, until this is dropped.
#[must_use = "the mutex is unlocked when this is dropped"]
pub struct RobustMutexGuard<'a, T: ?Sized, S: Scope = Private, W: Waiting = Plain> {
    mutex: &'a RobustMutex<T, S, W>,
    /// The owner is a thread: it cannot be sent to another.
    here: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared references to the data.
unsafe impl<T: ?Sized + Sync, S: Scope, W: Waiting> Sync for RobustMutexGuard<'_, T, S, W> {}

impl<'a, T: ?Sized, S: Scope, W: Waiting> RobustMutexGuard<'a, T, S, W> {
    /// Makes the guard of a mutex that the calling thread owns, and has no guard of.
    #[inline(always)]
    pub(crate) fn of_owned(mutex: &'a RobustMutex<T, S, W>) -> Self {
        RobustMutexGuard { mutex, here: PhantomData }
    }

    pub(in crate::sync) fn mutex(guard: &Self) -> &'a RobustMutex<T, S, W> {
        guard.mutex
    }
}

guard_traits!(exclusive [T: ?Sized, S: Scope, W: Waiting] RobustMutexGuard<'_, T, S, W>, -> T, |this| this.mutex.value.get());

impl<T: ?Sized, S: Scope, W: Waiting> sealed::OrphanedGuard for RobustMutexGuard<'_, T, S, W> {
    type Value = T;

    fn value(&self) -> *mut T {
        self.mutex.value.get()
    }

    unsafe fn keep(&self) {
        self.mutex.mark_valid();
    }

    unsafe fn abandon(&self, _: u64) {
        // What it is like is said in a word of its own.
        self.mutex.unlock();
    }
}

impl<T: ?Sized, S: Scope, W: Waiting> Drop for RobustMutexGuard<'_, T, S, W> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.unlock();
    }
}

/// A [`RobustMutex`] that is locked, and whose last owner died with it: any store of that owner may have been
/// its last.
///
/// Dropped, it unlocks the mutex and makes it unusable for ever.
#[must_use = "the mutex is lost for ever when this is dropped"]
pub struct Recovered<'a, T: ?Sized, S: Scope = Private, W: Waiting = Plain> {
    guard: ManuallyDrop<RobustMutexGuard<'a, T, S, W>>,
}

impl<'a, T: ?Sized, S: Scope, W: Waiting> Recovered<'a, T, S, W> {
    pub(crate) fn of(guard: RobustMutexGuard<'a, T, S, W>) -> Self {
        Recovered { guard: ManuallyDrop::new(guard) }
    }

    /// Says that the data is as it should be. The mutex goes on as if nothing had been.
    pub fn make_consistent(self) -> RobustMutexGuard<'a, T, S, W> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, as `this` is not dropped.
        unsafe { ManuallyDrop::take(&mut this.guard) }
    }
}

impl<T: ?Sized, S: Scope, W: Waiting> Deref for Recovered<'_, T, S, W> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized, S: Scope, W: Waiting> DerefMut for Recovered<'_, T, S, W> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized, S: Scope, W: Waiting> Drop for Recovered<'_, T, S, W> {
    fn drop(&mut self) {
        self.guard.mutex.give_up();
        // SAFETY: dropped once: `make_consistent` does not come here.
        unsafe { ManuallyDrop::drop(&mut self.guard) };
    }
}

impl<T: ?Sized + fmt::Debug, S: Scope, W: Waiting> fmt::Debug for Recovered<'_, T, S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
