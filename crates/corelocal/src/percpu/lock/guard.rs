//! The guard of a lock's shard.
//!
//! Invariant: while a guard exists, its thread has the lock of its shard, and the shard holds a value (`mod.rs`,
//! invariants 1 to 3).

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};

use super::Slot;
use super::mutex::Gone;
use crate::sys::forks::orphaned::sealed;

/// Exclusive access to one shard of a [`Lock`](super::Lock). The shard is unlocked when the guard is dropped.
///
/// The drop is a plain store. It makes a system call only if a thread on another core waits. A guard stays with the
/// thread that locked: the lock records that thread, so that a forked child recognises locks whose owners do not
/// exist in it.
///
/// ```compile_fail,E0277
/// fn sent(_: impl Send) {}
///
/// let numbers: corelocal::percpu::Lock<u32> = Default::default();
/// sent(numbers.lock());
/// ```
///
/// A guard of a value that is not `Sync` is not `Sync` either:
///
/// ```compile_fail,E0277
/// fn shared(_: impl Sync) {}
///
/// let cells: corelocal::percpu::Lock<std::cell::Cell<u32>> = Default::default();
/// shared(cells.lock());
/// ```
#[must_use = "it unlocks when it is dropped"]
pub struct Guard<'a, T: Send + 'static> {
    pub(super) slot: &'a Slot<T>,
    /// Whether it holds `bias`. Otherwise it holds `mutex`.
    pub(super) biased: bool,
    /// The pointer makes the guard `!Send`.
    value: PhantomData<(&'a mut T, *const ())>,
}

// SAFETY: a shared guard gives access to `&T` only.
unsafe impl<T: Send + Sync + 'static> Sync for Guard<'_, T> {}

/// As far as the value is unwind-safe: no lock is poisoned.
impl<T: Send + UnwindSafe + RefUnwindSafe + 'static> UnwindSafe for Guard<'_, T> {}

impl<'a, T: Send + 'static> Guard<'a, T> {
    /// The caller has taken the lock.
    #[inline(always)]
    pub(super) fn new(slot: &'a Slot<T>, biased: bool) -> Self {
        Guard { slot, biased, value: PhantomData }
    }
}

impl<T: Send + 'static> sealed::OrphanedGuard for Guard<'_, T> {
    type Value = T;

    fn value(&self) -> *mut T {
        self.slot.value.as_ptr()
    }

    unsafe fn abandon(&self, gone: u64) {
        match self.biased {
            true => self.slot.bias.abandon(gone),
            false => self.slot.mutex.abandon(Gone::of_number(gone)),
        }
    }
}

impl<T: Send + 'static> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.biased { self.slot.bias.unlock() } else { self.slot.mutex.unlock() }
    }
}

impl<T: Send + 'static> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: while a guard exists the shard holds a value, and other threads are excluded (invariants 1 to 3 of
        // `mod.rs`).
        unsafe { &*self.slot.value.as_ptr() }
    }
}

impl<T: Send + 'static> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.slot.value.as_ptr() }
    }
}

impl<T: fmt::Debug + Send + 'static> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
