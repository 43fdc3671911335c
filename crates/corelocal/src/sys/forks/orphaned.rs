//! A lock whose owner was left behind by a fork, before the value has been examined.
//!
//! # Invariants
//! 1. While this exists the calling thread holds the lock, so there is no second guard.
//! 2. No reference to the value is returned here, since it may be half changed. A thread may have lent the value to
//!    the thread that forked (a scoped thread that borrows from a guard). `fork` is unsafe, and its caller guarantees
//!    that the child does not use what other threads lent.
//! 3. If this is dropped or forgotten, the lock remains orphaned: the next attempt to lock fails as well.

use core::fmt;
use core::mem::ManuallyDrop;

/// The guard of a lock that a fork may leave without a holder: that of a [`Mutex`](crate::sync::Mutex), of a
/// [`RobustMutex`](crate::sync::RobustMutex), of a [`percpu::Lock`](crate::percpu::Lock), or a writer's of a
/// [`RwLock`](crate::sync::RwLock).
pub trait OrphanedGuard: sealed::OrphanedGuard {}

impl<G: sealed::OrphanedGuard> OrphanedGuard for G {}

pub(crate) mod sealed {
    pub trait OrphanedGuard {
        type Value: ?Sized;

        /// Returns where the value is.
        fn value(&self) -> *mut Self::Value;

        /// Has the calling thread keep the lock from here on, like any other holder.
        ///
        /// # Safety
        /// - The lock was taken from a holder that is gone, by this guard, which is the only one.
        unsafe fn keep(&self) {}

        /// Makes the lock again one whose holder, of this tag, is gone.
        ///
        /// # Safety
        /// - The calling thread holds the lock, and the guard is not used after that, nor dropped.
        unsafe fn abandon(&self, gone: u64);
    }
}

/// The lock was held by a thread that is not in this process, since a fork left that thread behind: see
/// [After fork](crate::sync::Mutex#after-fork).
///
/// `G` is the lock's guard. The lock is held for as long as this exists. Dropping this without a decision leaves the
/// lock as it was.
///
/// ```
/// use corelocal::sync::Mutex;
///
/// static LIST: Mutex<Vec<u32>> = Mutex::new(Vec::new());
///
/// // In a forked child:
/// let list = LIST.lock_checked().unwrap_or_else(|orphaned| orphaned.reset(Vec::new()));
/// assert!(list.is_empty());
/// ```
#[must_use = "the lock stays without a holder if this is dropped"]
pub struct Orphaned<G: OrphanedGuard> {
    guard: ManuallyDrop<G>,
    /// The tag of the holder that is gone.
    gone: u64,
}

impl<G: OrphanedGuard> Orphaned<G> {
    /// Creates that of a lock that the calling thread took from a holder with this tag.
    pub(crate) fn new(guard: G, gone: u64) -> Self {
        Orphaned { guard: ManuallyDrop::new(guard), gone }
    }

    /// Returns the same with a guard in place of this one.
    #[cfg(any(test, feature = "std"))]
    pub(crate) fn with_guard<H: OrphanedGuard>(self, replace: impl FnOnce(G) -> H) -> Orphaned<H> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, for `self` is not dropped.
        let guard = unsafe { ManuallyDrop::take(&mut this.guard) };
        Orphaned::new(replace(guard), this.gone)
    }

    /// Takes the value as it is: as any store of the gone thread left it.
    ///
    /// # Safety
    /// - The caller knows that the value is valid, whatever the gone thread was doing. Nearly no type promises that:
    ///   a `Vec` that an `insert` stopped in the middle of has the same element twice.
    pub unsafe fn accept(self) -> G {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, for `self` is not dropped.
        let guard = unsafe { ManuallyDrop::take(&mut this.guard) };
        // SAFETY: it was locked by this guard, and no other was made (1).
        unsafe { guard.keep() };
        guard
    }

    /// Puts another value in place of the old one. The old one is not dropped: what it owned is lost.
    ///
    /// A reference to the old value that the gone thread lent to the thread that forked must not be used any more: that
    /// is part of what the caller of `fork`, an unsafe function, promises for the child.
    pub fn reset(self, value: G::Value) -> G
    where
        G::Value: Sized,
    {
        // SAFETY: the lock is held by this thread alone (1), and no reference to the old value is used (2).
        unsafe { self.guard.value().write(value) };
        // SAFETY: the value is the caller's.
        unsafe { self.accept() }
    }
}

impl<G: OrphanedGuard> Drop for Orphaned<G> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: the lock is held (1); the guard is not dropped.
        unsafe { self.guard.abandon(self.gone) };
    }
}

impl<G: OrphanedGuard> fmt::Debug for Orphaned<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orphaned").finish_non_exhaustive()
    }
}

impl<G: OrphanedGuard> fmt::Display for Orphaned<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the lock was held by a thread of the parent when this process was forked, and its value may be half \
             changed: reset it",
        )
    }
}

impl<G: OrphanedGuard> core::error::Error for Orphaned<G> {}
