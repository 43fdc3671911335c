//! A guard of a part of the value of a lock that is held exclusively.
//!
//! It cannot be downgraded: the part may have been reached through something that only a writer may look into (the
//! contents of a `Cell`), while readers see the whole value.
//!
//! # Invariants
//! 1. The guard's thread holds the lock exclusively under `tag` while the guard exists. The exception is the copy of a
//!    guard of a shared lock in a forked child: unlocking by its tag does nothing there.
//! 2. `value` points into the lock's value, or to what a user's closure derived from a reference to it.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use super::machinery::guard_traits::guard_traits;

pub(crate) mod sealed {
    /// The words of a lock that is unlocked under its owner's tag.
    pub trait Tagged {
        /// Unlocks.
        ///
        /// # Safety
        /// - The calling thread holds the lock exclusively, under this tag; or this is the copy of its guard in a forked
        ///   child.
        unsafe fn unlock_exclusive(&self, tag: u32);
    }
}

use sealed::Tagged;

/// Exclusive access to a part of the value of a lock, until dropped, by the same thread.
///
/// Use it by its name for each lock: [`MappedMutexGuard`](super::MappedMutexGuard) and
/// [`MappedRwLockWriteGuard`](super::MappedRwLockWriteGuard).
#[must_use = "it unlocks at once if it is dropped"]
pub struct MappedGuard<'a, T: ?Sized, L: Tagged> {
    lock: &'a L,
    value: NonNull<T>,
    /// The owner's tag.
    tag: u32,
    /// Makes the guard invariant in `T`, since it gives `&mut T`, and !Send, by the pointer.
    borrows: PhantomData<&'a mut T>,
}

// SAFETY: a shared reference to the guard gives `&T` only.
unsafe impl<T: ?Sized + Sync, L: Tagged> Sync for MappedGuard<'_, T, L> {}

impl<T: ?Sized, L: Tagged> UnwindSafe for MappedGuard<'_, T, L> {}

impl<T: ?Sized, L: Tagged> RefUnwindSafe for MappedGuard<'_, T, L> {}

impl<'a, T: ?Sized, L: Tagged> MappedGuard<'a, T, L> {
    /// # Safety
    /// - The thread holds the lock exclusively under this tag, on behalf of this guard.
    /// - `value` points into the lock's value.
    pub(super) unsafe fn new(lock: &'a L, value: NonNull<T>, tag: u32) -> Self {
        MappedGuard { lock, value, tag, borrows: PhantomData }
    }

    /// Narrows the guard further.
    pub fn map<U: ?Sized>(
        mut this: Self,
        part: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedGuard<'a, U, L> {
        let value = NonNull::from(part(&mut this));
        let this = ManuallyDrop::new(this);
        MappedGuard { lock: this.lock, value, tag: this.tag, borrows: PhantomData }
    }

    /// Narrows the guard further, if the part has such a part.
    ///
    /// # Errors
    /// The guard, if the part has no such part.
    pub fn filter_map<U: ?Sized>(
        mut this: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedGuard<'a, U, L>, Self> {
        let Some(value) = part(&mut this).map(NonNull::from) else { return Err(this) };
        let this = ManuallyDrop::new(this);
        Ok(MappedGuard { lock: this.lock, value, tag: this.tag, borrows: PhantomData })
    }

    /// Does what [`filter_map`](Self::filter_map) does, under `lock_api`'s name.
    ///
    /// # Errors
    /// The guard, if the part has no such part.
    pub fn try_map<U: ?Sized>(
        this: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedGuard<'a, U, L>, Self> {
        Self::filter_map(this, part)
    }
}

guard_traits!(exclusive [T: ?Sized, L: Tagged] MappedGuard<'_, T, L>, -> T, |this| this.value.as_ptr());

impl<T: ?Sized, L: Tagged> Drop for MappedGuard<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        unsafe { self.lock.unlock_exclusive(self.tag) };
    }
}
