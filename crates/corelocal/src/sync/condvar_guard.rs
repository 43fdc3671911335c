//! What a condition variable must know of a guard: how to let go of its lock for a while.
//!
//! Invariant: between `release` and `reacquire` nobody sees the guard, which the condition variable borrows
//! exclusively.

use super::mutex::{Lock, MappedMutexGuard, MutexGuard};
use super::scope::Scope;

/// The guard of a lock that a [`Condvar`](super::Condvar) can let go of and take again.
pub trait CondvarGuard: sealed::CondvarGuard {}

impl<G: sealed::CondvarGuard> CondvarGuard for G {}

pub(super) mod sealed {
    use crate::primitive::atomic::AtomicU32;
    use crate::sync::futex::Futex;
    use crate::sync::scope;
    use crate::sys::futex::Scope;

    pub trait CondvarGuard {
        /// Lets go of the lock.
        ///
        /// # Safety
        /// The guard is not used until `reacquire`.
        unsafe fn release(&self);

        /// Takes the lock again, after a sleep on a condition variable or where `adopt` moved it.
        ///
        /// # Safety
        /// After `release`.
        unsafe fn reacquire(&self);

        /// Moves waiters to where those of the held lock sleep, so that its unlocking wakes them one by one: as many
        /// as `requeue` says, which is given a number of waiters at most and the place. Nothing, if the lock has
        /// no such place.
        fn adopt(&self, _requeue: &mut dyn FnMut(u32, Place<'_>) -> u32) {}
    }

    /// Where the waiters of a lock sleep, and who they may be.
    #[derive(Clone, Copy)]
    pub struct Place<'a> {
        word: &'a AtomicU32,
        scope: Scope,
    }

    impl<'a> Place<'a> {
        pub(in crate::sync) fn new<S: scope::Scope>(futex: &'a Futex<S>) -> Self {
            Place { word: futex, scope: S::FUTEX }
        }

        /// The place, if it is of this scope.
        pub(in crate::sync) fn of_scope<S: scope::Scope>(self) -> Option<&'a Futex<S>> {
            // SAFETY: a futex is its word, whatever its scope.
            let futex = unsafe { &*core::ptr::from_ref(self.word).cast::<Futex<S>>() };
            (self.scope == S::FUTEX).then_some(futex)
        }
    }
}

/// [`sealed::CondvarGuard::adopt`] for a lock that is held.
///
/// # Safety
/// The caller holds it.
pub(super) unsafe fn adopt<S: Scope>(
    lock: &Lock<S>,
    requeue: &mut dyn FnMut(u32, sealed::Place<'_>) -> u32,
) {
    let moved = requeue(lock.room_for_guests(), sealed::Place::new(lock.queue()));
    if moved > 0 {
        // SAFETY: the caller holds the lock, and held it when they were moved.
        unsafe { lock.expect_guests(moved) };
    }
}

macro_rules! of_a_mutex {
    ($guard:ident) => {
        impl<T: ?Sized, S: Scope> sealed::CondvarGuard for $guard<'_, T, S> {
            unsafe fn release(&self) {
                // SAFETY: the guard holds the lock, and is not used until it does again.
                unsafe { $guard::lock(self).unlock() };
            }

            unsafe fn reacquire(&self) {
                $guard::lock(self).lock_as_guest();
            }

            fn adopt(&self, requeue: &mut dyn FnMut(u32, sealed::Place<'_>) -> u32) {
                // SAFETY: the guard holds the lock.
                unsafe { adopt($guard::lock(self), requeue) };
            }
        }
    };
}

of_a_mutex!(MutexGuard);
of_a_mutex!(MappedMutexGuard);
