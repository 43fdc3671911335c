//! Read-write lock: one writer or many readers.
//!
//! `raw.rs` and `slow_path.rs` have the algorithm, `state.rs` the state word. This file adds the value.
//!
//! Invariant: only guards give out references to the value, and a guard exists only while the lock is held in its
//! mode (`raw.rs`, invariant 1). The other way is exclusive access to the whole lock.

#[cfg(any(test, feature = "std"))]
mod arc;
#[cfg(all(feature = "lock_api", not(loom)))]
mod generic;
mod guard;
mod half_word_wait;
mod raw;
mod slow_path;
mod state;
mod upgradable;
mod wait_policy;

use core::cell::UnsafeCell;
use core::fmt;
use core::time::Duration;

#[cfg(any(test, feature = "std"))]
pub use arc::{ArcRwLockReadGuard, ArcRwLockUpgradableGuard, ArcRwLockWriteGuard};
#[cfg(all(feature = "lock_api", not(loom)))]
pub use generic::RawRwLock;
pub(super) use guard::Unlocked;
pub use guard::{MappedRwLockWriteGuard, RwLockReadGuard, RwLockWriteGuard};
pub use upgradable::RwLockUpgradableGuard;

use self::raw::Raw;
use self::slow_path::Kind;
use super::machinery::scope::{Private, Scope};
use crate::sys::forks::orphaned::Orphaned;
use crate::sys::futex::Deadline;

/// A read-write lock that protects a value. Its size is that of the value plus 8 bytes.
///
/// ```
/// use corelocal::sync::RwLock;
///
/// static NAMES: RwLock<Vec<&str>> = RwLock::new(Vec::new());
///
/// NAMES.write().push("first");
/// assert_eq!(NAMES.read().len(), 1);
/// ```
///
/// All bytes 0 is an unlocked lock; the value must allow that.
///
/// # Fairness
/// A writer that waits keeps new readers out. A writer that leaves lets waiting readers in. A thread that has been
/// overtaken for half a millisecond comes next: neither readers nor writers starve.
///
/// So a thread that has a read guard must not ask for another one: a writer may wait in between, and both would wait
/// for ever. A thread that has an upgradable guard must not ask for any other guard.
///
/// # Memory ordering
/// What was done under a guard happens before what is done under a later guard that excludes it. There is no
/// poisoning: a panic under a write guard unlocks.
///
/// # After fork
/// In the child, if other threads of the parent held a [`Private`] lock at the moment of the fork:
///
/// - A lock that was held for writing stays locked, since the writer may have been changing the value. Blocking
///   functions panic, fallible ones fail at once. [`write_checked`](Self::write_checked) and
///   [`read_checked`](Self::read_checked) take the lock over: they return [`Orphaned`], whose
///   [`reset`](Orphaned::reset) replaces the value. In case of doubt the writer counts as present.
/// - An upgradable reader has changed nothing, and counts as a reader from then on.
/// - Readers are anonymous, which keeps reading cheap. New readers are let in beside those that are gone. The thread
///   that called fork panics instead of waiting as a writer for any reader, as long as the lock has not been free
///   since the fork: it might wait for ever. Writers in other threads of the child wait, and fallible functions fail.
///   [`forget_readers`](Self::forget_readers) removes the readers that are gone.
/// - Guards that the thread held which called fork are valid in the child, too.
///
/// A [`Shared`](super::Shared) lock is one lock for parent and child, whose holders are never gone. The copy of a
/// guard in the child unlocks nothing, and must not be used.
///
/// # Panics
/// Reading panics if there are 2^20 readers. Reading and writing may panic after a fork, as described above.
#[repr(C)]
pub struct RwLock<T: ?Sized, S: Scope = Private> {
    raw: Raw<S>,
    value: UnsafeCell<T>,
}

// SAFETY: readers of any thread see `&T`, and a writer of any thread may move the value out.
unsafe impl<T: ?Sized + Send + Sync, S: Scope> Sync for RwLock<T, S> {}

// SAFETY: sending the lock sends the value.
unsafe impl<T: ?Sized + Send, S: Scope> Send for RwLock<T, S> {}

impl<T: ?Sized, S: Scope> core::panic::UnwindSafe for RwLock<T, S> {}

impl<T: ?Sized, S: Scope> core::panic::RefUnwindSafe for RwLock<T, S> {}

impl<T> RwLock<T> {
    const_fn! {
        /// Creates an unlocked lock for the threads of this process.
        pub const fn new(value: T) -> Self {
            Self::with_scope(value)
        }
    }
}

impl<T, S: Scope> RwLock<T, S> {
    const_fn! {
        /// Creates an unlocked lock of the scope that the type names.
        pub const fn with_scope(value: T) -> Self {
            RwLock { raw: Raw::new(), value: UnsafeCell::new(value) }
        }
    }

    /// Consumes the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, S: Scope> RwLock<T, S> {
    /// Locks for reading; sleeps while a writer holds the lock or waits for it.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T, S> {
        if !self.raw.read_at_once() {
            self.raw.read_cold(None);
        }
        self.read_guard()
    }

    /// Locks for reading, unless a writer holds the lock or waits for it.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T, S>> {
        self.raw.try_read().then(|| self.read_guard())
    }

    /// Locks for reading, if that is possible within the time span.
    #[inline]
    pub fn try_read_for(&self, span: Duration) -> Option<RwLockReadGuard<'_, T, S>> {
        (self.raw.try_read() || self.raw.read_cold(Some(Deadline::after(span))))
            .then(|| self.read_guard())
    }

    /// Locks for reading, if that is possible before the deadline.
    #[inline]
    pub fn try_read_until(&self, deadline: Deadline) -> Option<RwLockReadGuard<'_, T, S>> {
        (self.raw.try_read() || self.raw.read_cold(Some(deadline))).then(|| self.read_guard())
    }

    /// Locks for writing; sleeps while any other thread holds the lock.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T, S> {
        let tag = state::tag::<S>();
        if !self.raw.try_write(tag) {
            self.raw.lock_cold(Kind::Writer, None);
        }
        self.write_guard(tag)
    }

    /// Locks for writing, if the lock is free and no thread has been overtaken for so long that it comes next.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T, S>> {
        let tag = state::tag::<S>();
        self.raw.try_write(tag).then(|| self.write_guard(tag))
    }

    /// Locks for writing, if that is possible within the time span.
    #[inline]
    pub fn try_write_for(&self, span: Duration) -> Option<RwLockWriteGuard<'_, T, S>> {
        let tag = state::tag::<S>();
        (self.raw.try_write(tag) || self.raw.lock_cold(Kind::Writer, Some(Deadline::after(span))))
            .then(|| self.write_guard(tag))
    }

    /// Locks for writing, if that is possible before the deadline.
    #[inline]
    pub fn try_write_until(&self, deadline: Deadline) -> Option<RwLockWriteGuard<'_, T, S>> {
        let tag = state::tag::<S>();
        (self.raw.try_write(tag) || self.raw.lock_cold(Kind::Writer, Some(deadline)))
            .then(|| self.write_guard(tag))
    }

    /// Does what [`read`](Self::read) does, for a forked child: returns [`Orphaned`] if the writer is gone.
    ///
    /// ```
    /// use corelocal::sync::{RwLock, RwLockWriteGuard};
    ///
    /// let lock = RwLock::new(vec![1, 2]);
    /// let list = lock
    ///     .read_checked()
    ///     .unwrap_or_else(|orphaned| RwLockWriteGuard::downgrade(orphaned.reset(Vec::new())));
    /// assert_eq!(*list, [1, 2]);
    /// ```
    ///
    /// # Errors
    /// [`Orphaned`] in a forked child, if another thread of the parent held the lock for writing at the fork. The
    /// caller then holds it for writing.
    ///
    /// # Panics
    /// If there are 2^20 readers.
    #[allow(clippy::type_complexity, reason = "a guard, or what may become one")]
    pub fn read_checked(
        &self,
    ) -> Result<RwLockReadGuard<'_, T, S>, Orphaned<RwLockWriteGuard<'_, T, S>>> {
        loop {
            if self.raw.try_read() {
                return Ok(self.read_guard());
            }
            if let Some(orphaned) = self.adopt() {
                return Err(orphaned);
            }
            if self.raw.read_cold(Some(Deadline::NEVER)) {
                return Ok(self.read_guard());
            }
        }
    }

    /// Does what [`write`](Self::write) does, for a forked child: returns [`Orphaned`] if the writer is gone.
    ///
    /// ```
    /// let lock = corelocal::sync::RwLock::new(vec![1, 2]);
    /// let list = lock.write_checked().unwrap_or_else(|orphaned| orphaned.reset(Vec::new()));
    /// assert_eq!(*list, [1, 2]);
    /// ```
    ///
    /// # Errors
    /// [`Orphaned`] in a forked child, if another thread of the parent held the lock for writing at the fork.
    ///
    /// # Panics
    /// As [`write`](Self::write), because of readers. Only the thread that called fork panics; others wait.
    #[allow(clippy::type_complexity, reason = "a guard, or what may become one")]
    pub fn write_checked(
        &self,
    ) -> Result<RwLockWriteGuard<'_, T, S>, Orphaned<RwLockWriteGuard<'_, T, S>>> {
        let tag = state::tag::<S>();
        loop {
            if self.raw.try_write(tag) {
                return Ok(self.write_guard(tag));
            }
            if let Some(orphaned) = self.adopt() {
                return Err(orphaned);
            }
            if self.raw.lock_cold(Kind::Writer, Some(Deadline::NEVER)) {
                return Ok(self.write_guard(tag));
            }
            self.raw.panic_if_readers_are_gone();
        }
    }

    fn adopt(&self) -> Option<Orphaned<RwLockWriteGuard<'_, T, S>>> {
        let tag = state::tag::<S>();
        self.raw.adopt(tag).map(|gone| Orphaned::new(self.write_guard(tag), gone.into()))
    }

    /// Locks for reading, with the option to write later. There is one such guard at a time, beside plain readers.
    pub fn upgradable_read(&self) -> RwLockUpgradableGuard<'_, T, S> {
        if !self.raw.try_upgradable() {
            self.raw.lock_cold(Kind::Upgradable, None);
        }
        self.upgradable_guard()
    }

    /// Does what [`upgradable_read`](Self::upgradable_read) does, unless another such guard exists, or a writer holds
    /// the lock or waits for it.
    pub fn try_upgradable_read(&self) -> Option<RwLockUpgradableGuard<'_, T, S>> {
        self.raw.try_upgradable().then(|| self.upgradable_guard())
    }

    /// Does what [`upgradable_read`](Self::upgradable_read) does, if that is possible within the time span.
    pub fn try_upgradable_read_for(
        &self,
        span: Duration,
    ) -> Option<RwLockUpgradableGuard<'_, T, S>> {
        self.try_upgradable_read_until(Deadline::after(span))
    }

    /// Does what [`upgradable_read`](Self::upgradable_read) does, if that is possible before the deadline.
    pub fn try_upgradable_read_until(
        &self,
        deadline: Deadline,
    ) -> Option<RwLockUpgradableGuard<'_, T, S>> {
        (self.raw.try_upgradable() || self.raw.lock_cold(Kind::Upgradable, Some(deadline)))
            .then(|| self.upgradable_guard())
    }

    /// Returns the value. Exclusive access to the lock makes locking unnecessary.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// In a forked child: removes the readers that were there at the fork.
    ///
    /// # Safety
    /// - No thread of this process has a read guard of this lock, neither from before the fork (in the thread that
    ///   called it) nor from after it: those readers would be removed, too.
    pub unsafe fn forget_readers(&self) {
        self.raw.forget_readers();
    }

    /// Returns a read guard. The caller holds the lock for reading.
    #[inline(always)]
    fn read_guard(&self) -> RwLockReadGuard<'_, T, S> {
        // SAFETY: the pointer is not null, and the caller holds the lock for reading.
        unsafe { RwLockReadGuard::new(&self.raw, self.value_ptr(), S::stamp()) }
    }

    /// Returns a write guard. The caller, with this tag, holds the lock for writing.
    #[inline(always)]
    fn write_guard(&self, tag: u32) -> RwLockWriteGuard<'_, T, S> {
        // SAFETY: the pointer is not null, and the caller holds the lock for writing.
        unsafe { RwLockWriteGuard::new(&self.raw, self.value_ptr(), tag) }
    }

    /// Returns an upgradable guard. The caller holds the lock as upgradable.
    fn upgradable_guard(&self) -> RwLockUpgradableGuard<'_, T, S> {
        // SAFETY: the pointer is not null, and the caller holds the lock as upgradable.
        unsafe { RwLockUpgradableGuard::new(&self.raw, self.value_ptr(), S::stamp()) }
    }

    #[inline(always)]
    fn value_ptr(&self) -> core::ptr::NonNull<T> {
        // SAFETY: the address of a field is not null.
        unsafe { core::ptr::NonNull::new_unchecked(self.value.get()) }
    }
}

impl<T: Default, S: Scope> Default for RwLock<T, S> {
    fn default() -> Self {
        Self::with_scope(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        RwLock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug, S: Scope> fmt::Debug for RwLock<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("RwLock");
        match self.try_read() {
            Some(value) => debug.field("value", &&*value).finish(),
            None => debug.field("value", &format_args!("<locked>")).finish(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
