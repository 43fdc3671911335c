//! A read guard that can become a write guard.
//!
//! The invariants are those of `guard.rs`.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use core::time::Duration;

use super::guard::{RwLockReadGuard, RwLockWriteGuard};
use super::raw::Raw;
use super::state;
use crate::sync::machinery::guard_traits::guard_traits;
use crate::sync::machinery::scope::{Private, Scope};
use crate::sys::futex::Deadline;

/// Access to the value of a [`RwLock`](super::RwLock) beside its readers, which can become exclusive; until dropped,
/// by the same thread.
///
/// ```
/// use corelocal::sync::{RwLock, RwLockUpgradableGuard};
///
/// let list = RwLock::new(vec![1]);
/// let guard = list.upgradable_read();
/// if guard.len() < 2 {
///     // No other thread has written in between.
///     RwLockUpgradableGuard::upgrade(guard).push(2);
/// }
/// assert_eq!(*list.read(), [1, 2]);
/// ```
#[must_use = "it unlocks when it is dropped"]
pub struct RwLockUpgradableGuard<'a, T: ?Sized, S: Scope = Private> {
    raw: &'a Raw<S>,
    /// Also makes the guard !Send.
    value: NonNull<T>,
    stamp: S::Stamp,
    writes: PhantomData<&'a mut T>,
}

// SAFETY: a shared reference to the guard gives `&T` only.
unsafe impl<T: ?Sized + Sync, S: Scope> Sync for RwLockUpgradableGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> UnwindSafe for RwLockUpgradableGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> RefUnwindSafe for RwLockUpgradableGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Scope> RwLockUpgradableGuard<'a, T, S> {
    /// # Safety
    /// - The thread holds the lock as upgradable, on behalf of this guard.
    /// - `value` is the lock's value.
    pub(super) unsafe fn new(raw: &'a Raw<S>, value: NonNull<T>, stamp: S::Stamp) -> Self {
        RwLockUpgradableGuard { raw, value, stamp, writes: PhantomData }
    }

    /// Ends the guard without unlocking, and returns its stamp.
    #[cfg(any(test, feature = "std"))]
    pub(super) fn into_stamp(this: Self) -> S::Stamp {
        ManuallyDrop::new(this).stamp
    }

    /// Becomes a write guard; sleeps while others read. New readers wait, and no other writer comes in between.
    ///
    /// # Panics
    /// After a fork, as described for the [lock](super::RwLock); and if this is the copy of a shared lock's guard in
    /// a forked child.
    pub fn upgrade(this: Self) -> RwLockWriteGuard<'a, T, S> {
        assert!(
            S::is_of_this_process(this.stamp),
            "the guard is a copy of one that the parent of this process has: the child must lock by itself"
        );
        if !this.raw.try_upgrade() {
            this.raw.upgrade_cold(None);
        }
        this.upgraded()
    }

    /// Becomes a write guard, if no other thread reads.
    ///
    /// # Errors
    /// The guard, if another thread reads.
    pub fn try_upgrade(this: Self) -> Result<RwLockWriteGuard<'a, T, S>, Self> {
        let is_upgraded = S::is_of_this_process(this.stamp) && this.raw.try_upgrade();
        if is_upgraded { Ok(this.upgraded()) } else { Err(this) }
    }

    /// Becomes a write guard, if other readers leave within the time span.
    ///
    /// # Errors
    /// The guard, if they did not.
    pub fn try_upgrade_for(this: Self, span: Duration) -> Result<RwLockWriteGuard<'a, T, S>, Self> {
        Self::try_upgrade_until(this, Deadline::after(span))
    }

    /// Becomes a write guard, if other readers leave before the deadline.
    ///
    /// # Errors
    /// The guard, if they did not.
    pub fn try_upgrade_until(
        this: Self,
        deadline: Deadline,
    ) -> Result<RwLockWriteGuard<'a, T, S>, Self> {
        let is_upgraded = S::is_of_this_process(this.stamp)
            && (this.raw.try_upgrade() || this.raw.upgrade_cold(Some(deadline)));
        if is_upgraded { Ok(this.upgraded()) } else { Err(this) }
    }

    /// Becomes a plain read guard.
    pub fn downgrade(this: Self) -> RwLockReadGuard<'a, T, S> {
        let this = ManuallyDrop::new(this);
        if S::is_of_this_process(this.stamp) {
            this.raw.downgrade_upgradable();
        }
        // SAFETY: the lock was just downgraded to reading for this guard.
        unsafe { RwLockReadGuard::new(this.raw, this.value, this.stamp) }
    }

    /// Returns the write guard, once the lock is held for writing.
    fn upgraded(self) -> RwLockWriteGuard<'a, T, S> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the caller has upgraded the lock for this guard.
        unsafe { RwLockWriteGuard::new(this.raw, this.value, state::tag::<S>()) }
    }
}

impl<T: ?Sized, S: Scope> Drop for RwLockUpgradableGuard<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        if S::is_of_this_process(self.stamp) {
            self.raw.unlock_upgradable();
        }
    }
}

guard_traits!(shared [T: ?Sized, S: Scope] RwLockUpgradableGuard<'_, T, S>, -> T, |this| this.value.as_ptr());
