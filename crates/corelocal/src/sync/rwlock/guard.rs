//! What a read-write lock gives out to readers and writers.
//!
//! # Invariants
//! 1. A guard's thread holds the lock in the guard's way while the guard exists.
//!    But the copy of a guard in a forked child, of a lock that processes share, holds nothing: its stamp is not that of the
//!    child.
//! 2. `value` points into the lock's value, or to what a closure of the user made of a reference to it.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use super::mapped::MappedRwLockWriteGuard;
use super::raw::Raw;
use super::slow_path::Kind;
use super::state;
use super::upgradable::RwLockUpgradableGuard;
use crate::sync::guard_traits::guard_traits;
use crate::sync::scope::{Private, Scope};
use crate::sys::orphaned::sealed;

/// Shared access to the value of a [`RwLock`](super::RwLock), until it is dropped, by the same thread.
///
/// ```compile_fail,E0277
/// fn sent(_: impl Send) {}
///
/// sent(corelocal::sync::RwLock::new(1).read());
/// ```
#[must_use = "it unlocks when it is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized, S: Scope = Private> {
    raw: &'a Raw<S>,
    /// Also what makes it stay on its thread.
    value: NonNull<T>,
    stamp: S::Stamp,
    reads: PhantomData<&'a T>,
}

// SAFETY: it gives `&T`, and nothing else, to whoever sees it.
unsafe impl<T: ?Sized + Sync, S: Scope> Sync for RwLockReadGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> UnwindSafe for RwLockReadGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> RefUnwindSafe for RwLockReadGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Scope> RwLockReadGuard<'a, T, S> {
    /// # Safety
    /// The thread holds the lock for reading, for the guard, and `value` is its value.
    #[inline(always)]
    pub(super) unsafe fn new(raw: &'a Raw<S>, value: NonNull<T>, stamp: S::Stamp) -> Self {
        RwLockReadGuard { raw, value, stamp, reads: PhantomData }
    }

    /// The stamp; the lock stays held.
    #[cfg(any(test, feature = "std"))]
    #[inline(always)]
    pub(super) fn into_stamp(this: Self) -> S::Stamp {
        ManuallyDrop::new(this).stamp
    }

    /// A guard of a part of the value.
    ///
    /// It is a function, not a method: `RwLockReadGuard::map(guard, |value| &value.part)`.
    pub fn map<U: ?Sized>(this: Self, part: impl FnOnce(&T) -> &U) -> RwLockReadGuard<'a, U, S> {
        let value = NonNull::from(part(&this));
        let this = ManuallyDrop::new(this);
        RwLockReadGuard { raw: this.raw, value, stamp: this.stamp, reads: PhantomData }
    }

    /// A guard of a part of the value, if it has that part.
    ///
    /// # Errors
    /// The guard, if it has not.
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

    /// [`filter_map`](Self::filter_map), by the name that `lock_api` has for it.
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

/// Exclusive access to the value of a [`RwLock`](super::RwLock), until it is dropped, by the same thread.
#[must_use = "it unlocks when it is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized, S: Scope = Private> {
    raw: &'a Raw<S>,
    /// Also what makes it stay on its thread.
    value: NonNull<T>,
    /// The thread's, with which it came.
    tag: u32,
    writes: PhantomData<&'a mut T>,
}

// SAFETY: it gives `&T`, and nothing else, to whoever sees it.
unsafe impl<T: ?Sized + Sync, S: Scope> Sync for RwLockWriteGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> UnwindSafe for RwLockWriteGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> RefUnwindSafe for RwLockWriteGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Scope> RwLockWriteGuard<'a, T, S> {
    /// # Safety
    /// The thread, whose tag this is, holds the lock for writing, for the guard, and `value` is its value.
    #[inline(always)]
    pub(super) unsafe fn new(raw: &'a Raw<S>, value: NonNull<T>, tag: u32) -> Self {
        RwLockWriteGuard { raw, value, tag, writes: PhantomData }
    }

    /// The tag; the lock stays held.
    #[cfg(any(test, feature = "std"))]
    #[inline(always)]
    pub(super) fn into_tag(this: Self) -> u32 {
        ManuallyDrop::new(this).tag
    }

    /// Unlocks, to lock again later.
    pub(in crate::sync) fn unlock(this: Self) -> Unlocked<'a, T, S> {
        Unlocked { raw: this.raw, value: this.value, writes: PhantomData }
    }

    /// Goes on as a reader; no writer comes in between.
    ///
    /// It is a function, not a method: `RwLockWriteGuard::downgrade(guard)`.
    pub fn downgrade(this: Self) -> RwLockReadGuard<'a, T, S> {
        let this = ManuallyDrop::new(this);
        let stamp = S::stamp_of(this.tag);
        if S::is_of_this_process(stamp) {
            this.raw.downgrade();
        }
        // SAFETY: as just arranged.
        unsafe { RwLockReadGuard::new(this.raw, this.value, stamp) }
    }

    /// Goes on as an upgradable reader; no writer comes in between.
    pub fn downgrade_to_upgradable(this: Self) -> RwLockUpgradableGuard<'a, T, S> {
        let this = ManuallyDrop::new(this);
        let stamp = S::stamp_of(this.tag);
        if S::is_of_this_process(stamp) {
            this.raw.downgrade_to_upgradable();
        }
        // SAFETY: as just arranged.
        unsafe { RwLockUpgradableGuard::new(this.raw, this.value, stamp) }
    }

    /// A guard of a part of the value.
    ///
    /// It is a function, not a method: `RwLockWriteGuard::map(guard, |value| &mut value.part)`.
    pub fn map<U: ?Sized>(
        mut this: Self,
        part: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedRwLockWriteGuard<'a, U, S> {
        let value = NonNull::from(part(&mut this));
        let this = ManuallyDrop::new(this);
        // SAFETY: the lock is held for writing, `value` points into its value.
        unsafe { MappedRwLockWriteGuard::new(this.raw, value, this.tag) }
    }

    /// A guard of a part of the value, if it has that part.
    ///
    /// # Errors
    /// The guard, if it has not.
    pub fn filter_map<U: ?Sized>(
        mut this: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedRwLockWriteGuard<'a, U, S>, Self> {
        match part(&mut this).map(NonNull::from) {
            Some(value) => {
                let this = ManuallyDrop::new(this);
                // SAFETY: as in `map`.
                Ok(unsafe { MappedRwLockWriteGuard::new(this.raw, value, this.tag) })
            }
            None => Err(this),
        }
    }

    /// [`filter_map`](Self::filter_map), by the name that `lock_api` has for it.
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

/// A lock that a writer had, and its whole value.
pub struct Unlocked<'a, T: ?Sized, S: Scope> {
    raw: &'a Raw<S>,
    value: NonNull<T>,
    writes: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized, S: Scope> Unlocked<'a, T, S> {
    /// As [`RwLock::write`](super::RwLock::write).
    pub(in crate::sync) fn write(self) -> RwLockWriteGuard<'a, T, S> {
        let tag = state::tag::<S>();
        if !self.raw.try_write(tag) {
            self.raw.lock_cold(Kind::Writer, None);
        }
        // SAFETY: just locked for writing; the value of a writer's guard, which is not a mapped one, is the
        // lock's.
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
