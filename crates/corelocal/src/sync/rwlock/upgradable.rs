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
use crate::sync::guard_traits::guard_traits;
use crate::sync::scope::{Private, Scope};
use crate::sys::futex::Deadline;

/// Access to the value of a [`RwLock`](super::RwLock) beside its readers, which can become exclusive, until it
/// is dropped, by the same thread.
///
/// ```
/// use corelocal::sync::{RwLock, RwLockUpgradableGuard};
///
/// let list = RwLock::new(vec![1]);
/// let guard = list.upgradable_read();
/// if guard.len() < 2 {
///     // Nobody has written in between.
///     RwLockUpgradableGuard::upgrade(guard).push(2);
/// }
/// assert_eq!(*list.read(), [1, 2]);
/// ```
#[must_use = "it unlocks when it is dropped"]
pub struct RwLockUpgradableGuard<'a, T: ?Sized, S: Scope = Private> {
    raw: &'a Raw<S>,
    /// Also what makes it stay on its thread.
    value: NonNull<T>,
    stamp: S::Stamp,
    writes: PhantomData<&'a mut T>,
}

// SAFETY: it gives `&T`, and nothing else, to whoever sees it.
unsafe impl<T: ?Sized + Sync, S: Scope> Sync for RwLockUpgradableGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> UnwindSafe for RwLockUpgradableGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> RefUnwindSafe for RwLockUpgradableGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Scope> RwLockUpgradableGuard<'a, T, S> {
    /// # Safety
    /// The thread holds the lock as upgradable, for the guard, and `value` is its value.
    pub(super) unsafe fn new(raw: &'a Raw<S>, value: NonNull<T>, stamp: S::Stamp) -> Self {
        RwLockUpgradableGuard { raw, value, stamp, writes: PhantomData }
    }

    /// The stamp; the lock stays held.
    #[cfg(any(test, feature = "std"))]
    pub(super) fn into_stamp(this: Self) -> S::Stamp {
        ManuallyDrop::new(this).stamp
    }

    /// For writing: sleeps while others read. Readers that come wait, and nobody writes in between.
    ///
    /// # Panics
    /// After a fork, as the [lock](super::RwLock) says; and if this is the copy in a forked child of a guard of a lock that
    /// processes share.
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

    /// For writing, if nobody else reads.
    ///
    /// # Errors
    /// The guard as it was, if somebody does.
    pub fn try_upgrade(this: Self) -> Result<RwLockWriteGuard<'a, T, S>, Self> {
        let is_upgraded = S::is_of_this_process(this.stamp) && this.raw.try_upgrade();
        if is_upgraded { Ok(this.upgraded()) } else { Err(this) }
    }

    /// For writing, if the others that read leave within the time span.
    ///
    /// # Errors
    /// The guard as it was, if they did not.
    pub fn try_upgrade_for(this: Self, span: Duration) -> Result<RwLockWriteGuard<'a, T, S>, Self> {
        Self::try_upgrade_until(this, Deadline::after(span))
    }

    /// For writing, if the others that read leave before the deadline.
    ///
    /// # Errors
    /// The guard as it was, if they did not.
    pub fn try_upgrade_until(
        this: Self,
        deadline: Deadline,
    ) -> Result<RwLockWriteGuard<'a, T, S>, Self> {
        let is_upgraded = S::is_of_this_process(this.stamp)
            && (this.raw.try_upgrade() || this.raw.upgrade_cold(Some(deadline)));
        if is_upgraded { Ok(this.upgraded()) } else { Err(this) }
    }

    /// Goes on as a plain reader.
    pub fn downgrade(this: Self) -> RwLockReadGuard<'a, T, S> {
        let this = ManuallyDrop::new(this);
        if S::is_of_this_process(this.stamp) {
            this.raw.downgrade_upgradable();
        }
        // SAFETY: as just arranged.
        unsafe { RwLockReadGuard::new(this.raw, this.value, this.stamp) }
    }

    /// The lock is held for writing by now.
    fn upgraded(self) -> RwLockWriteGuard<'a, T, S> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the caller has arranged it.
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
