//! A mutex whose holder a fork left behind, before anybody has looked at the value.
//!
//! Invariant: the lock is held as long as this exists; dropped, it is as it was found, so that the next one that
//! locks is told too.

use core::fmt;
use core::mem::ManuallyDrop;

use super::{MutexGuard, Private, Scope};

/// The mutex was held by a thread that is not in this process: see [`Mutex`](super::Mutex#after-fork).
///
/// It is locked for as long as this exists. Dropping this without a decision leaves the mutex as it was.
pub struct Orphaned<'a, T: ?Sized, S: Scope = Private> {
    guard: ManuallyDrop<MutexGuard<'a, T, S>>,
}

impl<'a, T: ?Sized, S: Scope> Orphaned<'a, T, S> {
    pub(super) fn new(guard: MutexGuard<'a, T, S>) -> Self {
        Orphaned { guard: ManuallyDrop::new(guard) }
    }

    /// Takes the value as it is: as any store of the gone thread left it.
    pub fn accept(self) -> MutexGuard<'a, T, S> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, for `self` is not dropped.
        unsafe { ManuallyDrop::take(&mut this.guard) }
    }
}

impl<'a, T, S: Scope> Orphaned<'a, T, S> {
    /// Puts another value in place of the old one, which is not even dropped: what it owned is lost.
    pub fn reset(self, value: T) -> MutexGuard<'a, T, S> {
        let guard = self.accept();
        // SAFETY: the lock is held, so nobody else has the value.
        unsafe { MutexGuard::mutex(&guard).value.get().write(value) };
        guard
    }
}

impl<T: ?Sized, S: Scope> Drop for Orphaned<'_, T, S> {
    fn drop(&mut self) {
        // SAFETY: the lock is held; the guard is not dropped.
        unsafe { MutexGuard::lock(&self.guard).abandon(MutexGuard::gone(&self.guard)) };
    }
}

impl<T: ?Sized, S: Scope> fmt::Debug for Orphaned<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orphaned").finish_non_exhaustive()
    }
}

impl<T: ?Sized, S: Scope> fmt::Display for Orphaned<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the mutex was held by a thread of the parent when this process was forked: \
             reset its value, or accept it as it is",
        )
    }
}

impl<T: ?Sized, S: Scope> core::error::Error for Orphaned<'_, T, S> {}
