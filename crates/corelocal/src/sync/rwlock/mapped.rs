//! A write guard of a part of a value.
//!
//! It cannot be downgraded: the part may have been reached through something that only a writer may look into (the
//! contents of a `Cell`), while readers see the whole value.
//!
//! The invariants are those of `guard.rs`.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use super::raw::Raw;
use crate::sync::machinery::guard_traits::guard_traits;
use crate::sync::machinery::scope::{Private, Scope};

/// Exclusive access to a part of the value of a [`RwLock`](super::RwLock), until dropped, by the same thread.
#[must_use = "it unlocks when it is dropped"]
pub struct MappedRwLockWriteGuard<'a, T: ?Sized, S: Scope = Private> {
    raw: &'a Raw<S>,
    /// Also makes the guard !Send.
    value: NonNull<T>,
    /// The tag of the whole value's guard.
    tag: u32,
    writes: PhantomData<&'a mut T>,
}

// SAFETY: a shared reference to the guard gives `&T` only.
unsafe impl<T: ?Sized + Sync, S: Scope> Sync for MappedRwLockWriteGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> UnwindSafe for MappedRwLockWriteGuard<'_, T, S> {}

impl<T: ?Sized, S: Scope> RefUnwindSafe for MappedRwLockWriteGuard<'_, T, S> {}

impl<'a, T: ?Sized, S: Scope> MappedRwLockWriteGuard<'a, T, S> {
    /// # Safety
    /// - The thread holds the lock for writing, on behalf of this guard.
    /// - `value` points into the lock's value.
    pub(super) unsafe fn new(raw: &'a Raw<S>, value: NonNull<T>, tag: u32) -> Self {
        MappedRwLockWriteGuard { raw, value, tag, writes: PhantomData }
    }

    /// Narrows the guard further.
    pub fn map<U: ?Sized>(
        mut this: Self,
        part: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedRwLockWriteGuard<'a, U, S> {
        let value = NonNull::from(part(&mut this));
        let this = ManuallyDrop::new(this);
        MappedRwLockWriteGuard { raw: this.raw, value, tag: this.tag, writes: PhantomData }
    }

    /// Narrows the guard further, if the part has such a part.
    ///
    /// # Errors
    /// The guard, if the part has no such part.
    pub fn filter_map<U: ?Sized>(
        mut this: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedRwLockWriteGuard<'a, U, S>, Self> {
        let Some(value) = part(&mut this).map(NonNull::from) else { return Err(this) };
        let this = ManuallyDrop::new(this);
        Ok(MappedRwLockWriteGuard { raw: this.raw, value, tag: this.tag, writes: PhantomData })
    }

    /// Does what [`filter_map`](Self::filter_map) does, under `lock_api`'s name.
    ///
    /// # Errors
    /// The guard, if the part has no such part.
    pub fn try_map<U: ?Sized>(
        this: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedRwLockWriteGuard<'a, U, S>, Self> {
        Self::filter_map(this, part)
    }
}

impl<T: ?Sized, S: Scope> Drop for MappedRwLockWriteGuard<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.raw.unlock_write_as(self.tag);
    }
}

guard_traits!(exclusive [T: ?Sized, S: Scope] MappedRwLockWriteGuard<'_, T, S>, -> T, |this| this.value.as_ptr());
