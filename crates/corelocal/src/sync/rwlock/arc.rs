//! Guards that own their read-write lock through an `Arc` instead of borrowing it.
//!
//! # Invariants
//! 1. Those of `guard.rs` and `arc_guard.rs`.

use core::time::Duration;
use std::sync::Arc;

use super::guard::{RwLockReadGuard, RwLockWriteGuard};
use super::upgradable::RwLockUpgradableGuard;
use super::{Private, RwLock, Scope};
use crate::sync::arc_guard::ArcGuard;
use crate::sync::arc_guard::sealed::{Exclusive, Holding, Protecting};
use crate::sync::condvar::guard as condvar_guard;
use crate::sys::forks::orphaned::{Orphaned, sealed};
use crate::sys::futex::Deadline;

/// Shared access to the value of a [`RwLock`] in an [`Arc`], until dropped, by the same thread. With the feature
/// `std`.
///
/// The guard borrows nothing, so functions can return it and structs can hold it without a lifetime.
///
/// ```
/// use std::sync::Arc;
///
/// use corelocal::sync::{ArcRwLockReadGuard, RwLock};
///
/// struct Page {
///     text: ArcRwLockReadGuard<String>,
/// }
///
/// let text = Arc::new(RwLock::new(String::from("one")));
/// let page = Page { text: text.read_arc() };
/// assert!(text.try_write().is_none());
/// drop(text); // the guard keeps the lock alive
/// assert_eq!(*page.text, "one");
/// ```
pub type ArcRwLockReadGuard<T, S = Private> = ArcGuard<RwLock<T, S>, Read>;

/// Exclusive access to the value of a [`RwLock`] in an [`Arc`], until dropped, by the same thread. With the feature
/// `std`.
pub type ArcRwLockWriteGuard<T, S = Private> = ArcGuard<RwLock<T, S>, Write>;

/// Access to the value of a [`RwLock`] in an [`Arc`] beside its readers, which can become exclusive; until dropped,
/// by the same thread. With the feature `std`.
///
/// ```
/// use std::sync::Arc;
///
/// use corelocal::sync::{ArcRwLockUpgradableGuard, RwLock};
///
/// let list = Arc::new(RwLock::new(vec![1]));
/// let guard = list.upgradable_read_arc();
/// if guard.len() < 2 {
///     // No thread has written in between.
///     ArcRwLockUpgradableGuard::upgrade(guard).push(2);
/// }
/// assert_eq!(*list.read(), [1, 2]);
/// ```
pub type ArcRwLockUpgradableGuard<T, S = Private> = ArcGuard<RwLock<T, S>, Upgradable>;

impl<T: ?Sized, S: Scope> Protecting for RwLock<T, S> {
    type Value = T;

    #[inline(always)]
    fn value(&self) -> *mut T {
        self.value.get()
    }
}

/// A lock held for reading. For [`ArcRwLockReadGuard`].
#[derive(Debug)]
pub enum Read {}

impl<T: ?Sized, S: Scope> Holding<RwLock<T, S>> for Read {
    type Key = S::Stamp;

    #[inline]
    unsafe fn unlock(lock: &RwLock<T, S>, stamp: Self::Key) {
        // SAFETY: the caller holds the lock for reading, with this stamp.
        drop(unsafe { RwLockReadGuard::new(&lock.raw, lock.value_ptr(), stamp) });
    }
}

/// A lock held for writing. For [`ArcRwLockWriteGuard`].
#[derive(Debug)]
pub enum Write {}

impl<T: ?Sized, S: Scope> Holding<RwLock<T, S>> for Write {
    type Key = u32;

    #[inline]
    unsafe fn unlock(lock: &RwLock<T, S>, tag: Self::Key) {
        lock.raw.unlock_write_as(tag);
    }
}

impl<T: ?Sized, S: Scope> Exclusive<RwLock<T, S>> for Write {}

/// A lock held as upgradable. For [`ArcRwLockUpgradableGuard`].
#[derive(Debug)]
pub enum Upgradable {}

impl<T: ?Sized, S: Scope> Holding<RwLock<T, S>> for Upgradable {
    type Key = S::Stamp;

    #[inline]
    unsafe fn unlock(lock: &RwLock<T, S>, stamp: Self::Key) {
        // SAFETY: the caller holds the lock as upgradable, with this stamp.
        drop(unsafe { RwLockUpgradableGuard::new(&lock.raw, lock.value_ptr(), stamp) });
    }
}

/// Functions that lock with guards that own the `Arc`. With the feature `std`.
impl<T: ?Sized, S: Scope> RwLock<T, S> {
    /// Does what [`read`](Self::read) does, with a guard that owns the `Arc`.
    #[inline]
    pub fn read_arc(self: &Arc<Self>) -> ArcRwLockReadGuard<T, S> {
        ArcRwLockReadGuard::of(self, self.read())
    }

    /// Does what [`try_read`](Self::try_read) does, with a guard that owns the `Arc`.
    #[inline]
    pub fn try_read_arc(self: &Arc<Self>) -> Option<ArcRwLockReadGuard<T, S>> {
        self.try_read().map(|guard| ArcRwLockReadGuard::of(self, guard))
    }

    /// Does what [`try_read_for`](Self::try_read_for) does, with a guard that owns the `Arc`.
    #[inline]
    pub fn try_read_arc_for(self: &Arc<Self>, span: Duration) -> Option<ArcRwLockReadGuard<T, S>> {
        self.try_read_for(span).map(|guard| ArcRwLockReadGuard::of(self, guard))
    }

    /// Does what [`try_read_until`](Self::try_read_until) does, with a guard that owns the `Arc`.
    #[inline]
    pub fn try_read_arc_until(
        self: &Arc<Self>,
        deadline: Deadline,
    ) -> Option<ArcRwLockReadGuard<T, S>> {
        self.try_read_until(deadline).map(|guard| ArcRwLockReadGuard::of(self, guard))
    }

    /// Does what [`write`](Self::write) does, with a guard that owns the `Arc`.
    #[inline]
    pub fn write_arc(self: &Arc<Self>) -> ArcRwLockWriteGuard<T, S> {
        ArcRwLockWriteGuard::of(self, self.write())
    }

    /// Does what [`try_write`](Self::try_write) does, with a guard that owns a share of the lock.
    #[inline]
    pub fn try_write_arc(self: &Arc<Self>) -> Option<ArcRwLockWriteGuard<T, S>> {
        self.try_write().map(|guard| ArcRwLockWriteGuard::of(self, guard))
    }

    /// Does what [`try_write_for`](Self::try_write_for) does, with a guard that owns a share of the lock.
    #[inline]
    pub fn try_write_arc_for(
        self: &Arc<Self>,
        span: Duration,
    ) -> Option<ArcRwLockWriteGuard<T, S>> {
        self.try_write_for(span).map(|guard| ArcRwLockWriteGuard::of(self, guard))
    }

    /// Does what [`try_write_until`](Self::try_write_until) does, with a guard that owns a share of the lock.
    #[inline]
    pub fn try_write_arc_until(
        self: &Arc<Self>,
        deadline: Deadline,
    ) -> Option<ArcRwLockWriteGuard<T, S>> {
        self.try_write_until(deadline).map(|guard| ArcRwLockWriteGuard::of(self, guard))
    }

    /// Does what [`read_checked`](Self::read_checked) does, with guards that own a share of the lock.
    ///
    /// # Errors
    /// As [`read_checked`](Self::read_checked).
    ///
    /// # Panics
    /// As [`read_checked`](Self::read_checked).
    #[allow(clippy::type_complexity, reason = "a guard, or what may become one")]
    pub fn read_arc_checked(
        self: &Arc<Self>,
    ) -> Result<ArcRwLockReadGuard<T, S>, Orphaned<ArcRwLockWriteGuard<T, S>>> {
        let written = |guard| ArcRwLockWriteGuard::of(self, guard);
        self.read_checked()
            .map(|guard| ArcRwLockReadGuard::of(self, guard))
            .map_err(|orphaned| orphaned.with_guard(written))
    }

    /// Does what [`write_checked`](Self::write_checked) does, with a guard that owns a share of the lock.
    ///
    /// # Errors
    /// As [`write_checked`](Self::write_checked).
    ///
    /// # Panics
    /// As [`write_checked`](Self::write_checked).
    #[allow(clippy::type_complexity, reason = "a guard, or what may become one")]
    pub fn write_arc_checked(
        self: &Arc<Self>,
    ) -> Result<ArcRwLockWriteGuard<T, S>, Orphaned<ArcRwLockWriteGuard<T, S>>> {
        let written = |guard| ArcRwLockWriteGuard::of(self, guard);
        self.write_checked().map(written).map_err(|orphaned| orphaned.with_guard(written))
    }

    /// Does what [`upgradable_read`](Self::upgradable_read) does, with a guard that owns a share of the lock.
    pub fn upgradable_read_arc(self: &Arc<Self>) -> ArcRwLockUpgradableGuard<T, S> {
        ArcRwLockUpgradableGuard::of(self, self.upgradable_read())
    }

    /// Does what [`try_upgradable_read`](Self::try_upgradable_read) does, with a guard that owns the `Arc`.
    pub fn try_upgradable_read_arc(self: &Arc<Self>) -> Option<ArcRwLockUpgradableGuard<T, S>> {
        self.try_upgradable_read().map(|guard| ArcRwLockUpgradableGuard::of(self, guard))
    }

    /// Does what [`try_upgradable_read_for`](Self::try_upgradable_read_for) does, with a guard that owns the `Arc`.
    pub fn try_upgradable_read_arc_for(
        self: &Arc<Self>,
        span: Duration,
    ) -> Option<ArcRwLockUpgradableGuard<T, S>> {
        self.try_upgradable_read_for(span).map(|guard| ArcRwLockUpgradableGuard::of(self, guard))
    }

    /// Does what [`try_upgradable_read_until`](Self::try_upgradable_read_until) does, with a guard that owns the `Arc`.
    pub fn try_upgradable_read_arc_until(
        self: &Arc<Self>,
        deadline: Deadline,
    ) -> Option<ArcRwLockUpgradableGuard<T, S>> {
        self.try_upgradable_read_until(deadline)
            .map(|guard| ArcRwLockUpgradableGuard::of(self, guard))
    }
}

impl<T: ?Sized, S: Scope> ArcGuard<RwLock<T, S>, Read> {
    /// Replaces a borrowing guard of the lock's whole value.
    #[inline(always)]
    fn of(lock: &Arc<RwLock<T, S>>, guard: RwLockReadGuard<'_, T, S>) -> Self {
        // SAFETY: the guard held the lock with this stamp, and has just given it up.
        unsafe { Self::new(lock.clone(), RwLockReadGuard::into_stamp(guard)) }
    }

    /// Returns the lock, which is held for reading.
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T, S>> {
        ArcGuard::lock(this)
    }
}

impl<T: ?Sized, S: Scope> ArcGuard<RwLock<T, S>, Write> {
    /// Replaces a borrowing guard of the lock's whole value.
    #[inline(always)]
    fn of(lock: &Arc<RwLock<T, S>>, guard: RwLockWriteGuard<'_, T, S>) -> Self {
        // SAFETY: the guard held the lock with this tag, and has just given it up.
        unsafe { Self::new(lock.clone(), RwLockWriteGuard::into_tag(guard)) }
    }

    /// Returns the lock, which is held for writing.
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T, S>> {
        ArcGuard::lock(this)
    }

    /// Does what [`RwLockWriteGuard::downgrade`] does.
    pub fn downgrade(this: Self) -> ArcRwLockReadGuard<T, S> {
        let (lock, tag) = ArcGuard::into_parts(this);
        // SAFETY: the lock is held for writing under this tag, and no other guard has it.
        let guard = unsafe { RwLockWriteGuard::new(&lock.raw, lock.value_ptr(), tag) };
        let stamp = RwLockReadGuard::into_stamp(RwLockWriteGuard::downgrade(guard));
        // SAFETY: the lock is held for reading, with this stamp.
        unsafe { ArcRwLockReadGuard::new(lock, stamp) }
    }

    /// Does what [`RwLockWriteGuard::downgrade_to_upgradable`] does.
    pub fn downgrade_to_upgradable(this: Self) -> ArcRwLockUpgradableGuard<T, S> {
        let (lock, tag) = ArcGuard::into_parts(this);
        // SAFETY: the lock is held for writing under this tag, and no other guard has it.
        let guard = unsafe { RwLockWriteGuard::new(&lock.raw, lock.value_ptr(), tag) };
        let guard = RwLockWriteGuard::downgrade_to_upgradable(guard);
        let stamp = RwLockUpgradableGuard::into_stamp(guard);
        // SAFETY: the lock is held as upgradable, with this stamp.
        unsafe { ArcRwLockUpgradableGuard::new(lock, stamp) }
    }
}

impl<T: ?Sized, S: Scope> ArcGuard<RwLock<T, S>, Upgradable> {
    /// Replaces a borrowing guard of this lock.
    fn of(lock: &Arc<RwLock<T, S>>, guard: RwLockUpgradableGuard<'_, T, S>) -> Self {
        // SAFETY: the guard held the lock with this stamp, and has just given it up.
        unsafe { Self::new(lock.clone(), RwLockUpgradableGuard::into_stamp(guard)) }
    }

    /// Returns the lock.
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T, S>> {
        ArcGuard::lock(this)
    }

    /// Does what [`RwLockUpgradableGuard::upgrade`] does.
    ///
    /// # Panics
    /// As [`RwLockUpgradableGuard::upgrade`].
    pub fn upgrade(this: Self) -> ArcRwLockWriteGuard<T, S> {
        match this.upgraded_by(|guard| Ok(RwLockUpgradableGuard::upgrade(guard))) {
            Ok(guard) => guard,
            Err(_) => unreachable!("`upgrade` does not fail"),
        }
    }

    /// Does what [`RwLockUpgradableGuard::try_upgrade`] does.
    ///
    /// # Errors
    /// The guard, if another thread reads.
    pub fn try_upgrade(this: Self) -> Result<ArcRwLockWriteGuard<T, S>, Self> {
        this.upgraded_by(|guard| RwLockUpgradableGuard::try_upgrade(guard))
    }

    /// Does what [`RwLockUpgradableGuard::try_upgrade_for`] does.
    ///
    /// # Errors
    /// The guard, if other readers did not leave in time.
    pub fn try_upgrade_for(this: Self, span: Duration) -> Result<ArcRwLockWriteGuard<T, S>, Self> {
        this.upgraded_by(|guard| RwLockUpgradableGuard::try_upgrade_for(guard, span))
    }

    /// Does what [`RwLockUpgradableGuard::try_upgrade_until`] does.
    ///
    /// # Errors
    /// The guard, if other readers did not leave in time.
    pub fn try_upgrade_until(
        this: Self,
        deadline: Deadline,
    ) -> Result<ArcRwLockWriteGuard<T, S>, Self> {
        this.upgraded_by(|guard| RwLockUpgradableGuard::try_upgrade_until(guard, deadline))
    }

    /// Does what [`RwLockUpgradableGuard::downgrade`] does.
    pub fn downgrade(this: Self) -> ArcRwLockReadGuard<T, S> {
        let (lock, stamp) = ArcGuard::into_parts(this);
        // SAFETY: the lock is held as upgradable, and no other guard has it.
        let guard = unsafe { RwLockUpgradableGuard::new(&lock.raw, lock.value_ptr(), stamp) };
        let stamp = RwLockReadGuard::into_stamp(RwLockUpgradableGuard::downgrade(guard));
        // SAFETY: the lock is held for reading, with this stamp.
        unsafe { ArcRwLockReadGuard::new(lock, stamp) }
    }

    fn upgraded_by(
        self,
        upgrade: impl for<'a> FnOnce(
            RwLockUpgradableGuard<'a, T, S>,
        ) -> Result<
            RwLockWriteGuard<'a, T, S>,
            RwLockUpgradableGuard<'a, T, S>,
        >,
    ) -> Result<ArcRwLockWriteGuard<T, S>, Self> {
        let (lock, stamp) = ArcGuard::into_parts(self);
        // SAFETY: the lock is held as upgradable, and no other guard has it.
        let guard = unsafe { RwLockUpgradableGuard::new(&lock.raw, lock.value_ptr(), stamp) };
        let upgraded = upgrade(guard).map(RwLockWriteGuard::into_tag);
        match upgraded.map_err(RwLockUpgradableGuard::into_stamp) {
            // SAFETY: the lock is held for writing, with this tag.
            Ok(tag) => Ok(unsafe { ArcRwLockWriteGuard::new(lock, tag) }),
            // SAFETY: the lock is held as upgradable, as before.
            Err(stamp) => Err(unsafe { Self::new(lock, stamp) }),
        }
    }
}

impl<T: ?Sized, S: Scope> sealed::OrphanedGuard for ArcRwLockWriteGuard<T, S> {
    type Value = T;

    fn value(&self) -> *mut T {
        Self::rwlock(self).value.get()
    }

    unsafe fn abandon(&self, gone: u64) {
        // SAFETY: the guard is neither used nor dropped after this, so its `Arc` is taken once.
        let lock = unsafe { ArcGuard::take_lock(self) };
        lock.raw.abandon(gone as u32);
    }
}

impl<T: ?Sized, S: Scope> condvar_guard::sealed::OwnedGuard for ArcRwLockWriteGuard<T, S> {
    type Lock = Arc<RwLock<T, S>>;
    type Locked = Self;

    fn unlock(self) -> Self::Lock {
        Self::rwlock(&self).clone()
    }

    fn relock(lock: Self::Lock) -> Self {
        lock.write_arc()
    }
}
