//! A permit as a value that is released when dropped.
//!
//! # Invariants
//! 1. Each value stands for one permit taken from the semaphore, which its drop gives back once, unless it is
//!    forgotten.
//! 2. The copy of a value in a forked child gives a permit back to the child's copy of a private semaphore, and none
//!    to a semaphore that processes share, where the permit is the parent's.

use core::time::Duration;
#[cfg(any(test, feature = "std"))]
use std::sync::Arc;

use super::{Private, Scope, Semaphore};
use crate::sys::futex::Deadline;

/// A permit of a [`Semaphore`], released when this is dropped, by any thread.
///
/// ```
/// use corelocal::sync::Semaphore;
///
/// static CONNECTIONS: Semaphore = Semaphore::new(100);
///
/// let Some(permit) = CONNECTIONS.try_acquire() else { return };
/// assert_eq!(CONNECTIONS.available(), 99);
/// drop(permit); // at the end of the request, also by an early return or a panic
/// assert_eq!(CONNECTIONS.available(), 100);
/// ```
///
/// # Panics
/// Dropping it, if more permits were [released](Semaphore::release) than acquired otherwise. During a panic that ends
/// the process.
#[derive(Debug)]
#[must_use = "the permit is released when this is dropped"]
pub struct Permit<'a, S: Scope = Private> {
    semaphore: &'a Semaphore<S>,
    stamp: S::Stamp,
}

impl<'a, S: Scope> Permit<'a, S> {
    /// For a permit that was just taken.
    fn of(semaphore: &'a Semaphore<S>) -> Self {
        Permit { semaphore, stamp: S::stamp() }
    }

    /// Keeps the permit: the semaphore has one less until one is added by [`release`](Semaphore::release).
    pub fn forget(self) {
        core::mem::forget(self);
    }
}

impl<S: Scope> Drop for Permit<'_, S> {
    #[inline]
    fn drop(&mut self) {
        if S::is_of_this_process(self.stamp) {
            self.semaphore.release();
        }
    }
}

/// A permit of a [`Semaphore`] in an [`Arc`], which it owns; otherwise as [`Permit`]. With the feature `std`.
///
/// It borrows nothing, so a task can take it along:
///
/// ```
/// use std::sync::Arc;
///
/// use corelocal::sync::Semaphore;
///
/// let workers = Arc::new(Semaphore::new(2));
/// let permit = workers.acquire_arc();
/// let task = std::thread::spawn(move || {
///     // work
///     drop(permit);
/// });
/// # task.join().unwrap();
/// # assert_eq!(workers.available(), 2);
/// ```
#[cfg(any(test, feature = "std"))]
#[derive(Debug)]
#[must_use = "the permit is released when this is dropped"]
pub struct ArcPermit<S: Scope = Private> {
    semaphore: Arc<Semaphore<S>>,
    stamp: S::Stamp,
}

#[cfg(any(test, feature = "std"))]
impl<S: Scope> ArcPermit<S> {
    /// For a permit that was just taken.
    fn of(semaphore: &Arc<Semaphore<S>>) -> Self {
        ArcPermit { semaphore: semaphore.clone(), stamp: S::stamp() }
    }

    /// Does what [`Permit::forget`] does; drops the `Arc`.
    pub fn forget(self) {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: read once, since the permit is not dropped.
        drop(unsafe { core::ptr::read(&this.semaphore) });
    }
}

#[cfg(any(test, feature = "std"))]
impl<S: Scope> Drop for ArcPermit<S> {
    #[inline]
    fn drop(&mut self) {
        if S::is_of_this_process(self.stamp) {
            self.semaphore.release();
        }
    }
}

impl<S: Scope> Semaphore<S> {
    /// Takes a permit, which is released when the result is dropped; sleeps until there is one.
    ///
    /// What threads did before they released permits that have been taken happens before what follows.
    #[inline]
    pub fn acquire(&self) -> Permit<'_, S> {
        self.acquire_raw();
        Permit::of(self)
    }

    /// Takes a permit if there is one, also one that is reserved for threads that have slept. Async-signal-safe.
    #[inline]
    pub fn try_acquire(&self) -> Option<Permit<'_, S>> {
        self.try_acquire_raw().then(|| Permit::of(self))
    }

    /// Takes a permit if there is one within the time span.
    #[inline]
    pub fn try_acquire_for(&self, span: Duration) -> Option<Permit<'_, S>> {
        self.try_acquire_raw_for(span).then(|| Permit::of(self))
    }

    /// Takes a permit if there is one before the deadline.
    #[inline]
    pub fn try_acquire_until(&self, deadline: Deadline) -> Option<Permit<'_, S>> {
        self.try_acquire_raw_until(deadline).then(|| Permit::of(self))
    }
}

/// Permits that own the `Arc` of the semaphore. With the feature `std`.
#[cfg(any(test, feature = "std"))]
impl<S: Scope> Semaphore<S> {
    /// Does what [`acquire`](Self::acquire) does; returns a value that owns the `Arc`.
    #[inline]
    pub fn acquire_arc(self: &Arc<Self>) -> ArcPermit<S> {
        self.acquire_raw();
        ArcPermit::of(self)
    }

    /// Does what [`try_acquire`](Self::try_acquire) does; returns a value that owns the `Arc`.
    #[inline]
    pub fn try_acquire_arc(self: &Arc<Self>) -> Option<ArcPermit<S>> {
        self.try_acquire_raw().then(|| ArcPermit::of(self))
    }

    /// Does what [`try_acquire_for`](Self::try_acquire_for) does; returns a value that owns the `Arc`.
    #[inline]
    pub fn try_acquire_arc_for(self: &Arc<Self>, span: Duration) -> Option<ArcPermit<S>> {
        self.try_acquire_raw_for(span).then(|| ArcPermit::of(self))
    }

    /// Does what [`try_acquire_until`](Self::try_acquire_until) does, with a value that owns a share of the semaphore.
    #[inline]
    pub fn try_acquire_arc_until(self: &Arc<Self>, deadline: Deadline) -> Option<ArcPermit<S>> {
        self.try_acquire_raw_until(deadline).then(|| ArcPermit::of(self))
    }
}
