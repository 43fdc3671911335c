//! A lock for one writer or many readers.
//!
//! The lock proper is `raw.rs` and `slow_path.rs`, its word `state.rs`. This is its face.
//!
//! Invariant: a reference to the value is given out by guards alone, and a guard exists while the lock is held
//! in its way (`raw.rs`, invariant 1); or to whoever has the lock exclusively.

#[cfg(any(test, feature = "std"))]
mod arc;
#[cfg(all(feature = "lock_api", not(loom)))]
mod generic;
mod guard;
mod half_word_wait;
mod mapped;
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
pub use guard::{RwLockReadGuard, RwLockWriteGuard};
pub use mapped::MappedRwLockWriteGuard;
pub use upgradable::RwLockUpgradableGuard;

use self::raw::Raw;
use self::slow_path::Kind;
use super::scope::{Private, Scope};
use crate::sys::futex::Deadline;
use crate::sys::orphaned::Orphaned;

/// A value that many threads read, or one writes: the value and 8 bytes.
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
/// All bytes 0 is an unlocked one, as far as the lock is concerned.
///
/// # Fairness
/// A writer that waits keeps new readers out, and a writer that leaves lets those in that wait. Who was
/// overtaken for half a millisecond all the same comes next: neither readers nor writers starve.
///
/// So a thread that has a read guard must not ask for another one: a writer may have come in between, and both
/// would wait for ever. A thread that has an upgradable guard must not ask for any other.
///
/// # Memory ordering
/// What was done under a guard happens before what is done under a later guard that excludes it. There is no
/// poison: a panic under a write guard unlocks.
///
/// # After fork
/// In the child of a [`Private`] lock that other threads of the parent held at the moment of the fork:
///
/// - What a writer held stays locked, since the value may be as any store of that writer left it. Blocking functions
///   panic, those that may fail do so at once. [`write_checked`](Self::write_checked) and
///   [`read_checked`](Self::read_checked) take such a lock over: they return [`Orphaned`], whose
///   [`reset`](Orphaned::reset) puts a new value in. In doubt the writer counts as present.
/// - An upgradable reader has changed nothing, and counts as a reader from then on.
/// - Readers have no names, so that reading costs no more than it must. Others read on beside those that are
///   gone. A writer of the thread that forked panics instead of waiting for any reader, as long as the lock has not been
///   free since the fork: it might wait for ever. Writers of other threads of the child wait, and what may fail fails.
///   [`forget_readers`](Self::forget_readers) makes them leave.
/// - What the thread that forked held itself, it holds in the child too.
///
/// A [`Shared`](super::Shared) lock is one lock for parent and child, of which no holder is gone. The copy of a guard in
/// the child unlocks nothing, and must not be used.
///
/// # Panics
/// To read panics with 2^20 readers there. To read and to write may panic after a fork, as told above.
#[repr(C)]
pub struct RwLock<T: ?Sized, S: Scope = Private> {
    raw: Raw<S>,
    value: UnsafeCell<T>,
}

// SAFETY: readers of any thread see `&T`, and a writer of any thread may take the value out.
unsafe impl<T: ?Sized + Send + Sync, S: Scope> Sync for RwLock<T, S> {}

// SAFETY: it owns a `T`.
unsafe impl<T: ?Sized + Send, S: Scope> Send for RwLock<T, S> {}

impl<T: ?Sized, S: Scope> core::panic::UnwindSafe for RwLock<T, S> {}

impl<T: ?Sized, S: Scope> core::panic::RefUnwindSafe for RwLock<T, S> {}

impl<T> RwLock<T> {
    /// A lock of the threads of this process.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self::with_scope(value)
    }

    /// As above.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self::with_scope(value)
    }
}

impl<T, S: Scope> RwLock<T, S> {
    /// A lock of whoever the scope says.
    #[cfg(not(loom))]
    pub const fn with_scope(value: T) -> Self {
        RwLock { raw: Raw::new(), value: UnsafeCell::new(value) }
    }

    /// As above.
    #[cfg(loom)]
    pub fn with_scope(value: T) -> Self {
        RwLock { raw: Raw::new(), value: UnsafeCell::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, S: Scope> RwLock<T, S> {
    /// For reading; sleeps while a writer has it or waits for it.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T, S> {
        if !self.raw.read_at_once() {
            self.raw.read_cold(None);
        }
        self.read_guard()
    }

    /// For reading, if no writer has it or waits for it.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T, S>> {
        self.raw.try_read().then(|| self.read_guard())
    }

    /// For reading, if that is possible within the time span.
    #[inline]
    pub fn try_read_for(&self, span: Duration) -> Option<RwLockReadGuard<'_, T, S>> {
        (self.raw.try_read() || self.raw.read_cold(Some(Deadline::after(span))))
            .then(|| self.read_guard())
    }

    /// For reading, if that is possible before the deadline.
    #[inline]
    pub fn try_read_until(&self, deadline: Deadline) -> Option<RwLockReadGuard<'_, T, S>> {
        (self.raw.try_read() || self.raw.read_cold(Some(deadline))).then(|| self.read_guard())
    }

    /// For writing; sleeps while anybody has it.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T, S> {
        let tag = state::tag::<S>();
        if !self.raw.try_write(tag) {
            self.raw.lock_cold(Kind::Writer, None);
        }
        self.write_guard(tag)
    }

    /// For writing, if nobody has it, nor was overtaken for so long that it comes next.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T, S>> {
        let tag = state::tag::<S>();
        self.raw.try_write(tag).then(|| self.write_guard(tag))
    }

    /// For writing, if that is possible within the time span.
    #[inline]
    pub fn try_write_for(&self, span: Duration) -> Option<RwLockWriteGuard<'_, T, S>> {
        let tag = state::tag::<S>();
        (self.raw.try_write(tag) || self.raw.lock_cold(Kind::Writer, Some(Deadline::after(span))))
            .then(|| self.write_guard(tag))
    }

    /// For writing, if that is possible before the deadline.
    #[inline]
    pub fn try_write_until(&self, deadline: Deadline) -> Option<RwLockWriteGuard<'_, T, S>> {
        let tag = state::tag::<S>();
        (self.raw.try_write(tag) || self.raw.lock_cold(Kind::Writer, Some(deadline)))
            .then(|| self.write_guard(tag))
    }

    /// As [`read`](Self::read), for a forked child: returns [`Orphaned`] if a thread that is gone holds the lock for writing.
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
    /// [`Orphaned`] in a forked child, if another thread of the parent was writing at the fork: the lock is held for
    /// writing then.
    ///
    /// # Panics
    /// With 2^20 readers there.
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

    /// As [`write`](Self::write), for a forked child: returns [`Orphaned`] if a thread that is gone holds the lock for writing.
    ///
    /// ```
    /// let lock = corelocal::sync::RwLock::new(vec![1, 2]);
    /// let list = lock.write_checked().unwrap_or_else(|orphaned| orphaned.reset(Vec::new()));
    /// assert_eq!(*list, [1, 2]);
    /// ```
    ///
    /// # Errors
    /// [`Orphaned`] in a forked child, if another thread of the parent was writing at the fork.
    ///
    /// # Panics
    /// As [`write`](Self::write), because of readers; writers of other threads than the one that forked wait for these.
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

    /// For reading, and for writing later: there is one of these at a time, beside readers.
    pub fn upgradable_read(&self) -> RwLockUpgradableGuard<'_, T, S> {
        if !self.raw.try_upgradable() {
            self.raw.lock_cold(Kind::Upgradable, None);
        }
        self.upgradable_guard()
    }

    /// The same, if there is no other one, and no writer has the lock or waits for it.
    pub fn try_upgradable_read(&self) -> Option<RwLockUpgradableGuard<'_, T, S>> {
        self.raw.try_upgradable().then(|| self.upgradable_guard())
    }

    /// The same, if that is possible within the time span.
    pub fn try_upgradable_read_for(
        &self,
        span: Duration,
    ) -> Option<RwLockUpgradableGuard<'_, T, S>> {
        self.try_upgradable_read_until(Deadline::after(span))
    }

    /// The same, if that is possible before the deadline.
    pub fn try_upgradable_read_until(
        &self,
        deadline: Deadline,
    ) -> Option<RwLockUpgradableGuard<'_, T, S>> {
        (self.raw.try_upgradable() || self.raw.lock_cold(Kind::Upgradable, Some(deadline)))
            .then(|| self.upgradable_guard())
    }

    /// The value, without locking: nobody else can have the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// In a forked child: readers that were there at the fork have left.
    ///
    /// # Safety
    /// No thread of this process has a read guard of this lock now, be it of before the fork (the thread that forked) or
    /// since: such readers are forgotten, too.
    pub unsafe fn forget_readers(&self) {
        self.raw.forget_readers();
    }

    /// The caller has it for reading.
    #[inline(always)]
    fn read_guard(&self) -> RwLockReadGuard<'_, T, S> {
        // SAFETY: the pointer is never null; the caller's promise.
        unsafe { RwLockReadGuard::new(&self.raw, self.value_ptr(), S::stamp()) }
    }

    /// The caller, whose tag this is, has it for writing.
    #[inline(always)]
    fn write_guard(&self, tag: u32) -> RwLockWriteGuard<'_, T, S> {
        // SAFETY: as above.
        unsafe { RwLockWriteGuard::new(&self.raw, self.value_ptr(), tag) }
    }

    /// The caller has it as upgradable.
    fn upgradable_guard(&self) -> RwLockUpgradableGuard<'_, T, S> {
        // SAFETY: as above.
        unsafe { RwLockUpgradableGuard::new(&self.raw, self.value_ptr(), S::stamp()) }
    }

    #[inline(always)]
    fn value_ptr(&self) -> core::ptr::NonNull<T> {
        // SAFETY: a field's address is not null.
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
