//! A guard that owns its lock through an `Arc` instead of borrowing it.
//!
//! # Invariants
//! 1. The lock is held in the guard's mode, by the guard's thread, while the guard exists.
//! 2. The `Arc` is dropped after the lock is released, so the lock outlives its use by the guard.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use std::sync::Arc;

use super::machinery::guard_traits::guard_traits;

pub(crate) mod sealed {
    /// A lock that protects a value.
    pub trait Protecting {
        /// The protected value.
        type Value: ?Sized;

        /// Returns the address of the value.
        fn value(&self) -> *mut Self::Value;
    }

    /// A mode in which a lock can be held.
    pub trait Holding<L: Protecting + ?Sized> {
        /// The value that locking returned, and that unlocking needs.
        type Key: Copy;

        /// Unlocks.
        ///
        /// # Safety
        /// - The calling thread holds the lock in this mode, with this key.
        /// - The value is not used any more.
        unsafe fn unlock(lock: &L, key: Self::Key);
    }

    /// A mode that excludes all other holders.
    pub trait Exclusive<L: Protecting + ?Sized>: Holding<L> {}
}

use sealed::{Exclusive, Holding, Protecting};

/// Access to the value of a lock in an [`Arc`]; unlocks when dropped. With the feature `std`.
///
/// Use it by its name for each lock: [`ArcMutexGuard`](super::ArcMutexGuard),
/// [`ArcRwLockReadGuard`](super::ArcRwLockReadGuard), [`ArcRwLockWriteGuard`](super::ArcRwLockWriteGuard) and
/// [`ArcRwLockUpgradableGuard`](super::ArcRwLockUpgradableGuard). The guard borrows nothing, so functions can return
/// it and structs can hold it without a lifetime. It stays in its thread.
#[must_use = "it unlocks at once if it is dropped"]
pub struct ArcGuard<L: Protecting + ?Sized, H: Holding<L>> {
    lock: Arc<L>,
    key: H::Key,
    /// Makes the guard !Send: a lock is released by the thread that holds it.
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared reference to the guard gives shared access to the value, and to the `Arc`, which may be shared and
// sent if the value may be.
unsafe impl<L: Protecting + ?Sized, H: Holding<L>> Sync for ArcGuard<L, H> where
    L::Value: Send + Sync
{
}

impl<L: Protecting + ?Sized, H: Holding<L>> ArcGuard<L, H> {
    /// # Safety
    /// - The calling thread holds the lock in this mode, with this key, on behalf of this guard alone.
    #[inline(always)]
    pub(super) unsafe fn new(lock: Arc<L>, key: H::Key) -> Self {
        ArcGuard { lock, key, stays: PhantomData }
    }

    /// Returns the lock.
    #[inline(always)]
    pub(super) fn lock(this: &Self) -> &Arc<L> {
        &this.lock
    }

    /// Ends the guard without unlocking, and returns lock and key.
    pub(super) fn into_parts(this: Self) -> (Arc<L>, H::Key) {
        let this = ManuallyDrop::new(this);
        // SAFETY: read once, since `this` is not dropped.
        (unsafe { core::ptr::read(&this.lock) }, this.key)
    }

    /// Moves the `Arc` out of the guard.
    ///
    /// # Safety
    /// - The guard is neither used nor dropped afterwards.
    pub(super) unsafe fn take_lock(this: &Self) -> Arc<L> {
        // SAFETY: read once, since the guard is neither used nor dropped afterwards.
        unsafe { core::ptr::read(&this.lock) }
    }
}

guard_traits!(shared [L: Protecting + ?Sized, H: Holding<L>] ArcGuard<L, H>, -> L::Value, |this| L::value(&this.lock));

impl<L: Protecting + ?Sized, H: Exclusive<L>> core::ops::DerefMut for ArcGuard<L, H> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut L::Value {
        // SAFETY: invariant 1 with an exclusive mode, and the guard is borrowed exclusively.
        unsafe { &mut *L::value(&self.lock) }
    }
}

impl<L: Protecting + ?Sized, H: Holding<L>> Drop for ArcGuard<L, H> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: invariant 1; the guard is not used any more.
        unsafe { H::unlock(&self.lock, self.key) };
    }
}
