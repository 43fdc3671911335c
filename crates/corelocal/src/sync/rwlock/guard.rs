//! Read and write guards of a read-write lock.
//!
//! # Invariants
//! 1. A guard's thread holds the lock in the guard's mode while the guard exists. The exception is the copy of a
//!    guard of a shared lock in a forked child: it holds nothing, and its stamp is not that of the child.
//! 2. `value` points into the lock's value, or to what a user's closure derived from a reference to it.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use super::raw::Raw;
use super::slow_path::Kind;
use super::state;
use super::upgradable::RwLockUpgradableGuard;
use crate::sync::machinery::guard_traits::guard_traits;
use crate::sync::machinery::scope::{Private, Scope};
use crate::sync::mapped_guard::MappedGuard;
use crate::sync::mapped_guard::sealed::Tagged;
use crate::sys::forks::orphaned::sealed;

/// Shared access to the value of a [`RwLock`](super::RwLock), until dropped, by the same thread.
///
/// ```compile_fail,E0277
/// fn sent(_: impl Send) {}
///
/// sent(corelocal::sync::RwLock::new(1).read());
/// ```
#[must_use = "it unlocks when it is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized, S: Scope = Private> {
    raw: &'a Raw<S>,
    /// Also makes the guard !Send.
    value: NonNull<T>,
    stamp: S::Stamp,
    reads: PhantomData<&'a T>,
}

// SAFETY: a shared reference to the guard gives `&T` only.
unsafe impl<T: ?Sized + Sync, S: Scope> Sync for RwLockReadGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> UnwindSafe for RwLockReadGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> RefUnwindSafe for RwLockReadGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Scope> RwLockReadGuard<'a, T, S> {
    /// # Safety
    /// - The thread holds the lock for reading, on behalf of this guard.
    /// - `value` is the lock's value, or a part of it.
    #[inline(always)]
    pub(super) unsafe fn new(raw: &'a Raw<S>, value: NonNull<T>, stamp: S::Stamp) -> Self {
        RwLockReadGuard { raw, value, stamp, reads: PhantomData }
    }

    /// Ends the guard without unlocking, and returns its stamp.
    #[cfg(any(test, feature = "std"))]
    #[inline(always)]
    pub(super) fn into_stamp(this: Self) -> S::Stamp {
        ManuallyDrop::new(this).stamp
    }

    /// Narrows the guard to a part of the value.
    ///
    /// An associated function: `RwLockReadGuard::map(guard, |value| &value.part)`.
    pub fn map<U: ?Sized>(this: Self, part: impl FnOnce(&T) -> &U) -> RwLockReadGuard<'a, U, S> {
        let value = NonNull::from(part(&this));
        let this = ManuallyDrop::new(this);
        RwLockReadGuard { raw: this.raw, value, stamp: this.stamp, reads: PhantomData }
    }

    /// Narrows the guard to a part of the value, if the value has that part.
    ///
    /// # Errors
    /// The guard, if the value has no such part.
    pub fn filter_map<U: ?Sized>(
        this: Self,
        part: impl FnOnce(&T) -> Option<&U>,
    ) -> Result<RwLockReadGuard<'a, U, S>, Self> {
        match part(&this).map(NonNull::from) {
            Some(value) => {
                let this = ManuallyDrop::new(this);
                Ok(RwLockReadGuard { raw: this.raw, value, stamp: this.stamp, reads: PhantomData })
            }
            None => Err(this),
        }
    }

    /// Does what [`filter_map`](Self::filter_map) does, under `lock_api`'s name.
    ///
    /// # Errors
    /// The guard, if the value has no such part.
    pub fn try_map<U: ?Sized>(
        this: Self,
        part: impl FnOnce(&T) -> Option<&U>,
    ) -> Result<RwLockReadGuard<'a, U, S>, Self> {
        Self::filter_map(this, part)
    }
}

impl<T: ?Sized, S: Scope> Drop for RwLockReadGuard<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        if S::is_of_this_process(self.stamp) {
            self.raw.unlock_read();
        }
    }
}

guard_traits!(shared [T: ?Sized, S: Scope] RwLockReadGuard<'_, T, S>, -> T, |this| this.value.as_ptr());

/// Exclusive access to the value of a [`RwLock`](super::RwLock), until dropped, by the same thread.
#[must_use = "it unlocks when it is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized, S: Scope = Private> {
    raw: &'a Raw<S>,
    /// Also makes the guard !Send.
    value: NonNull<T>,
    /// The tag under which the thread took the lock.
    tag: u32,
    writes: PhantomData<&'a mut T>,
}

// SAFETY: a shared reference to the guard gives `&T` only.
unsafe impl<T: ?Sized + Sync, S: Scope> Sync for RwLockWriteGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> UnwindSafe for RwLockWriteGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> RefUnwindSafe for RwLockWriteGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Scope> RwLockWriteGuard<'a, T, S> {
    /// # Safety
    /// - The thread, with this tag, holds the lock for writing, on behalf of this guard.
    /// - `value` is the lock's value.
    #[inline(always)]
    pub(super) unsafe fn new(raw: &'a Raw<S>, value: NonNull<T>, tag: u32) -> Self {
        RwLockWriteGuard { raw, value, tag, writes: PhantomData }
    }

    /// Ends the guard without unlocking, and returns its tag.
    #[cfg(any(test, feature = "std"))]
    #[inline(always)]
    pub(super) fn into_tag(this: Self) -> u32 {
        ManuallyDrop::new(this).tag
    }

    /// Unlocks, to lock again later.
    pub(in crate::sync) fn unlock(this: Self) -> Unlocked<'a, T, S> {
        Unlocked { raw: this.raw, value: this.value, writes: PhantomData }
    }

    /// Becomes a read guard; no writer comes in between.
    ///
    /// An associated function: `RwLockWriteGuard::downgrade(guard)`.
    pub fn downgrade(this: Self) -> RwLockReadGuard<'a, T, S> {
        let this = ManuallyDrop::new(this);
        let stamp = S::stamp_of(this.tag);
        if S::is_of_this_process(stamp) {
            this.raw.downgrade();
        }
        // SAFETY: the lock was just downgraded to reading for this guard.
        unsafe { RwLockReadGuard::new(this.raw, this.value, stamp) }
    }

    /// Becomes an upgradable guard; no writer comes in between.
    pub fn downgrade_to_upgradable(this: Self) -> RwLockUpgradableGuard<'a, T, S> {
        let this = ManuallyDrop::new(this);
        let stamp = S::stamp_of(this.tag);
        if S::is_of_this_process(stamp) {
            this.raw.downgrade_to_upgradable();
        }
        // SAFETY: the lock was just downgraded to upgradable for this guard.
        unsafe { RwLockUpgradableGuard::new(this.raw, this.value, stamp) }
    }

    /// Narrows the guard to a part of the value.
    ///
    /// An associated function: `RwLockWriteGuard::map(guard, |value| &mut value.part)`.
    pub fn map<U: ?Sized>(
        mut this: Self,
        part: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedRwLockWriteGuard<'a, U, S> {
        let value = NonNull::from(part(&mut this));
        let this = ManuallyDrop::new(this);
        // SAFETY: the lock is held for writing, and `value` points into its value.
        unsafe { MappedGuard::new(this.raw, value, this.tag) }
    }

    /// Narrows the guard to a part of the value, if the value has that part.
    ///
    /// # Errors
    /// The guard, if the value has no such part.
    pub fn filter_map<U: ?Sized>(
        mut this: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedRwLockWriteGuard<'a, U, S>, Self> {
        match part(&mut this).map(NonNull::from) {
            Some(value) => {
                let this = ManuallyDrop::new(this);
                // SAFETY: the lock is held for writing, and `value` points into its value.
                Ok(unsafe { MappedGuard::new(this.raw, value, this.tag) })
            }
            None => Err(this),
        }
    }

    /// Does what [`filter_map`](Self::filter_map) does, under `lock_api`'s name.
    ///
    /// # Errors
    /// The guard, if the value has no such part.
    pub fn try_map<U: ?Sized>(
        this: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedRwLockWriteGuard<'a, U, S>, Self> {
        Self::filter_map(this, part)
    }
}

/// A lock that a writer held, with its whole value.
pub struct Unlocked<'a, T: ?Sized, S: Scope> {
    raw: &'a Raw<S>,
    value: NonNull<T>,
    writes: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized, S: Scope> Unlocked<'a, T, S> {
    /// Does what [`RwLock::write`](super::RwLock::write) does.
    pub(in crate::sync) fn write(self) -> RwLockWriteGuard<'a, T, S> {
        let tag = state::tag::<S>();
        if !self.raw.try_write(tag) {
            self.raw.lock_cold(Kind::Writer, None);
        }
        // SAFETY: just locked for writing; the guard was not a mapped one, so this is the lock's whole value.
        unsafe { RwLockWriteGuard::new(self.raw, self.value, tag) }
    }
}

impl<T: ?Sized, S: Scope> sealed::OrphanedGuard for RwLockWriteGuard<'_, T, S> {
    type Value = T;

    fn value(&self) -> *mut T {
        self.value.as_ptr()
    }

    unsafe fn abandon(&self, gone: u64) {
        self.raw.abandon(gone as u32);
    }
}

impl<T: ?Sized, S: Scope> Drop for RwLockWriteGuard<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.raw.unlock_write_as(self.tag);
    }
}

guard_traits!(exclusive [T: ?Sized, S: Scope] RwLockWriteGuard<'_, T, S>, -> T, |this| this.value.as_ptr());

/// Exclusive access to a part of the value of a [`RwLock`](super::RwLock), until dropped, by the same thread. See
/// [`RwLockWriteGuard::map`].
pub type MappedRwLockWriteGuard<'a, T, S = Private> = MappedGuard<'a, T, Raw<S>>;

impl<S: Scope> Tagged for Raw<S> {
    #[inline(always)]
    unsafe fn unlock_exclusive(&self, tag: u32) {
        self.unlock_write_as(tag);
    }
}
