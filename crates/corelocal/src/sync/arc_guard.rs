//! A guard that owns a share of its lock, by `Arc`, instead of borrowing it.
//!
//! # Invariants
//! 1. The lock is held in the guard's way, by the guard's thread, while the guard exists.
//! 2. The guard's share of the lock is given back after the lock is let go of, so the lock outlives the guard's use of
//!    it.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use std::sync::Arc;

use super::guard_traits::guard_traits;

pub(crate) mod sealed {
    /// A lock that protects a value.
    pub trait Protecting {
        /// What the lock protects.
        type Value: ?Sized;

        /// Where the value lies.
        fn value(&self) -> *mut Self::Value;
    }

    /// How a lock is held.
    pub trait Holding<L: Protecting + ?Sized> {
        /// What the holder was given, and unlocks with.
        type Key: Copy;

        /// Lets go of the lock.
        ///
        /// # Safety
        /// The calling thread holds it in this way, with this key, and does not use the value any more.
        unsafe fn unlock(lock: &L, key: Self::Key);
    }

    /// Held by one thread alone.
    pub trait Exclusive<L: Protecting + ?Sized>: Holding<L> {}
}

use sealed::{Exclusive, Holding, Protecting};

/// Access to the value of a lock that lies in an [`Arc`]; unlocks when dropped. With the feature `std`.
///
/// It is used by its names for each lock: [`ArcMutexGuard`](super::ArcMutexGuard),
/// [`ArcRwLockReadGuard`](super::ArcRwLockReadGuard), [`ArcRwLockWriteGuard`](super::ArcRwLockWriteGuard) and
/// [`ArcRwLockUpgradableGuard`](super::ArcRwLockUpgradableGuard). It borrows nothing, so a function can return it, and a
/// struct can hold it, without a lifetime. It stays in its thread.
#[must_use = "it unlocks at once if it is dropped"]
pub struct ArcGuard<L: Protecting + ?Sized, H: Holding<L>> {
    lock: Arc<L>,
    key: H::Key,
    /// Not Send: a lock is let go of by the thread that holds it.
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the value, and to the `Arc`, which may be shared and sent if the value
// may be.
unsafe impl<L: Protecting + ?Sized, H: Holding<L>> Sync for ArcGuard<L, H> where
    L::Value: Send + Sync
{
}

impl<L: Protecting + ?Sized, H: Holding<L>> ArcGuard<L, H> {
    /// # Safety
    /// The lock is held in this way, with this key, by the calling thread and for the guard alone.
    #[inline(always)]
    pub(super) unsafe fn new(lock: Arc<L>, key: H::Key) -> Self {
        ArcGuard { lock, key, stays: PhantomData }
    }

    /// The lock.
    #[inline(always)]
    pub(super) fn lock(this: &Self) -> &Arc<L> {
        &this.lock
    }

    /// The lock, which stays held, and the key.
    pub(super) fn into_parts(this: Self) -> (Arc<L>, H::Key) {
        let this = ManuallyDrop::new(this);
        // SAFETY: taken once, as `this` is not dropped.
        (unsafe { core::ptr::read(&this.lock) }, this.key)
    }

    /// Takes the guard's share of the lock.
    ///
    /// # Safety
    /// The guard is neither used nor dropped any more.
    pub(super) unsafe fn take_lock(this: &Self) -> Arc<L> {
        // SAFETY: the caller's promise: taken once.
        unsafe { core::ptr::read(&this.lock) }
    }
}

guard_traits!(shared [L: Protecting + ?Sized, H: Holding<L>] ArcGuard<L, H>, -> L::Value, |this| L::value(&this.lock));

impl<L: Protecting + ?Sized, H: Exclusive<L>> core::ops::DerefMut for ArcGuard<L, H> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut L::Value {
        // SAFETY: invariant 1, exclusively; and the guard is borrowed exclusively.
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
