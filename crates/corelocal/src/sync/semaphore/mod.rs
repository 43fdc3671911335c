//! A counting semaphore.
//!
//! The protocol is in `permits.rs`: this is its face.

mod permit;

use core::fmt;
use core::time::Duration;

use super::permits::Permits;
use super::profile::Kind;
use super::scope::{Private, Scope};
use crate::sys::futex::Deadline;

#[cfg(any(test, feature = "std"))]
pub use permit::ArcPermit;
pub use permit::Permit;

/// A number of permits, which threads take and give back: 4 bytes.
///
/// A permit has no owner: another thread than the one that acquired it may release it, or a signal handler. As a [`Permit`] it is a value that releases it. All bytes 0 is a semaphore without permits.
///
/// Sleeping threads are woken in the order of arrival. A thread that comes just then may be faster, but not again and
/// again: after 2 ms permits go to threads that have slept. [`try_acquire`](Self::try_acquire) takes any.
///
/// ```
/// use corelocal::sync::Semaphore;
///
/// static SLOTS: Semaphore = Semaphore::new(2);
///
/// SLOTS.acquire();
/// assert_eq!(SLOTS.available(), 1);
/// SLOTS.release();
/// ```
///
/// # After fork
/// A private semaphore has as many permits in the child as in the parent at that moment; what other threads
/// of the parent held is not given back there.
#[repr(transparent)]
pub struct Semaphore<S: Scope = Private> {
    pub(super) permits: Permits<S>,
}

impl Semaphore {
    /// A semaphore of the threads of this process.
    ///
    /// # Panics
    /// If there are more than [`MAX`](Self::MAX) permits; while compiling, in a static.
    #[cfg(not(loom))]
    pub const fn new(permits: u32) -> Self {
        Self::with_scope(permits)
    }

    /// As above.
    #[cfg(loom)]
    pub fn new(permits: u32) -> Self {
        Self::with_scope(permits)
    }
}

impl<S: Scope> Semaphore<S> {
    /// The most permits a semaphore can have.
    pub const MAX: u32 = Permits::<S>::MAX;

    /// A semaphore of the threads that the scope names: those of this process, or of all that map it.
    ///
    /// # Panics
    /// As [`new`](Semaphore::new).
    #[cfg(not(loom))]
    pub const fn with_scope(permits: u32) -> Self {
        assert!(permits <= Self::MAX, "a semaphore has at most 2^30 - 1 permits");
        Semaphore { permits: Permits::new(permits) }
    }

    /// As above.
    #[cfg(loom)]
    pub fn with_scope(permits: u32) -> Self {
        Semaphore { permits: Permits::new(permits) }
    }

    /// Takes a permit; sleeps until there is one.
    ///
    /// What threads did before they released permits that are taken by now happens before what follows.
    #[inline]
    pub fn acquire(&self) {
        self.permits.take_until(None, Kind::Semaphore);
    }

    /// Takes a permit if there is one. Async-signal-safe.
    #[inline]
    pub fn try_acquire(&self) -> bool {
        self.permits.try_take()
    }

    /// Takes a permit, if there is one within the time span; says whether it did.
    #[inline]
    pub fn try_acquire_for(&self, span: Duration) -> bool {
        self.permits.take_unreserved() || self.try_acquire_until(Deadline::after(span))
    }

    /// Takes a permit, if there is one before the deadline; says whether it did.
    #[inline]
    pub fn try_acquire_until(&self, deadline: Deadline) -> bool {
        self.permits.take_until(Some(deadline), Kind::Semaphore)
    }

    /// Gives a permit, and wakes a thread that waits for it. Async-signal-safe.
    ///
    /// # Panics
    /// If there are [`MAX`](Self::MAX) permits already.
    #[inline]
    pub fn release(&self) {
        self.release_many(1);
    }

    /// Gives so many permits at once, and wakes as many who wait for them.
    ///
    /// The semaphore's memory may be freed as soon as the last permit was taken: a release does not touch it
    /// after.
    ///
    /// # Panics
    /// If there were more than [`MAX`](Self::MAX) then; none is given.
    #[inline]
    pub fn release_many(&self, permits: u32) {
        if self.permits.give(permits, Self::MAX, false).is_none() {
            too_many();
        }
    }

    /// How many permits there are at the moment.
    #[inline]
    pub fn available(&self) -> u32 {
        self.permits.available()
    }
}

#[cold]
#[track_caller]
fn too_many() -> ! {
    panic!("a semaphore has at most 2^30 - 1 permits: more were released than acquired");
}

impl<S: Scope> fmt::Debug for Semaphore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available", &self.available()).finish()
    }
}
