//! The mutex without a value, for crates that bring their own: `lock_api`'s traits.
//!
//! Invariant: a guard of `lock_api` exists only while the raw lock is held, as `lock_api` promises.

use super::condvar::guard::{adopt, sealed};
use super::machinery::scope::{Private, Scope};
use super::mutex::{Lock, Taken};
use crate::sys::futex::Deadline;
use core::time::Duration;

/// The lock of a [`Mutex`](super::Mutex), for `lock_api::Mutex<RawMutex, T>` and everything else that is generic over
/// [`lock_api::RawMutex`].
///
/// ```
/// use corelocal::sync::RawMutex;
///
/// static COUNT: lock_api::Mutex<RawMutex, u32> = lock_api::Mutex::new(1);
/// *COUNT.lock() += 1;
/// assert_eq!(*COUNT.lock(), 2);
/// ```
///
/// # After fork
/// A lock that another thread of the parent owned stays locked in the child, as described for
/// [`Mutex`](super::Mutex#after-fork): locking it panics, trying fails. `lock_api` cannot take it over.
/// [`forget_holder`](Self::forget_holder) does that, through `lock_api::Mutex::raw`.
///
/// A closure of `lock_api::MutexGuard::unlocked` must not fork: if locking again panics in the child and the panic is
/// caught, `lock_api` leaves the caller a guard without the lock.
#[repr(transparent)]
pub struct RawMutex<S: Scope = Private> {
    lock: Lock<S>,
}

impl<S: Scope> RawMutex<S> {
    /// In a forked child: unlocks if another thread of the parent owned the lock at the fork. Returns whether it did.
    ///
    /// # Safety
    /// - The protected value is valid, whatever that thread was doing, or is made valid before it is used.
    pub unsafe fn forget_holder(&self) -> bool {
        self.lock.forget_holder()
    }
}

impl<S: Scope> RawMutex<S> {
    /// Locks. False if the owner was gone after a fork: the calling thread owns the lock then, and the value may be half
    /// changed.
    pub(crate) fn lock_or_adopt(&self) -> bool {
        self.lock.lock_or_adopt().is_ok()
    }
}

fn is_taken(taken: Option<Taken>) -> bool {
    taken.is_some()
}

// SAFETY: the lock has one owner at a time, by invariant 1 of `mutex/lock.rs`.
unsafe impl<S: Scope> lock_api::RawMutex for RawMutex<S> {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait asks for it")]
    const INIT: Self = RawMutex { lock: Lock::new() };

    /// The lock's word names the owning thread.
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        self.lock.lock();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        is_taken(self.lock.try_lock())
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller owns the lock.
        unsafe { self.lock.unlock() };
    }

    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

// SAFETY: as for `RawMutex`; `unlock_fair` unlocks.
unsafe impl<S: Scope> lock_api::RawMutexFair for RawMutex<S> {
    unsafe fn unlock_fair(&self) {
        // SAFETY: the caller owns the lock.
        unsafe { self.lock.unlock_fairly() };
    }
}

// SAFETY: as for `RawMutex`; a timed attempt that returns true owns the lock.
unsafe impl<S: Scope> lock_api::RawMutexTimed for RawMutex<S> {
    type Duration = Duration;
    type Instant = Deadline;

    fn try_lock_for(&self, span: Duration) -> bool {
        is_taken(self.lock.lock_for(span))
    }

    fn try_lock_until(&self, deadline: Deadline) -> bool {
        is_taken(self.lock.lock_until(deadline))
    }
}

fn lock<'a, T: ?Sized, S: Scope>(
    guard: &'a lock_api::MutexGuard<'_, RawMutex<S>, T>,
) -> &'a Lock<S> {
    // SAFETY: it is unlocked only by `release`, whose caller does not use the guard until it is locked again.
    unsafe { &lock_api::MutexGuard::mutex(guard).raw().lock }
}

impl<T: ?Sized, S: Scope> sealed::CondvarGuard for lock_api::MutexGuard<'_, RawMutex<S>, T> {
    unsafe fn release(&self) {
        // SAFETY: the guard holds the lock (the file's invariant).
        unsafe { lock(self).unlock() };
    }

    unsafe fn reacquire(&self) {
        lock(self).lock_as_guest();
    }

    fn lock_address(&self) -> usize {
        core::ptr::from_ref(lock(self)).addr()
    }

    fn adopt(&self, requeue: &mut dyn FnMut(u32, sealed::Place<'_>) -> u32) {
        // SAFETY: the guard holds the lock (the file's invariant).
        unsafe { adopt(lock(self), requeue) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Condvar, Shared};

    type Mutex<T, S = Private> = lock_api::Mutex<RawMutex<S>, T>;

    #[test]
    fn as_lock_api_has_it() {
        let mutex: Mutex<u32> = Mutex::new(1);
        let mut held = mutex.lock();
        assert!(mutex.is_locked() && mutex.try_lock().is_none());
        assert!(mutex.try_lock_for(Duration::from_millis(2)).is_none());
        assert!(mutex.try_lock_until(Deadline::now()).is_none());
        *held = 2;
        lock_api::MutexGuard::unlock_fair(held);
        assert_eq!(*mutex.lock(), 2);
    }

    #[test]
    fn waits_on_a_condition() {
        let mutex: Mutex<u32, Shared> = Mutex::new(0);
        let changed: Condvar<Shared> = Condvar::with_scope();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut number = mutex.lock();
                    changed.wait_while(&mut number, |number| **number == 0);
                    *number += 1;
                });
            }
            *mutex.lock() = 1;
            changed.notify_all();
        });
        assert_eq!(mutex.into_inner(), 5);
    }
}
