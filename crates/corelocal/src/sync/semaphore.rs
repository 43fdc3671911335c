//! Counting semaphore.
//!
//! `machinery/permits.rs` has the protocol.

mod permit;

use core::fmt;
use core::time::Duration;

use super::machinery::permits::Permits;
use super::machinery::scope::{Private, Scope};
use super::profile::Kind;
use crate::sys::futex::Deadline;

#[cfg(any(test, feature = "std"))]
pub use permit::ArcPermit;
pub use permit::Permit;

/// A number of permits that threads take and give back. 4 bytes.
///
/// A [`Permit`] is released when it is dropped, by any thread. Where one thread acquires and another one releases, as
/// in a queue, permits have no owner: [`acquire_raw`](Self::acquire_raw) and [`release`](Self::release). All bytes 0 is
/// a semaphore without permits.
///
/// Sleeping threads are woken in order of arrival. A newcomer may be faster, but not repeatedly: after 2 ms permits
/// are reserved for threads that have slept. [`try_acquire`](Self::try_acquire) takes any permit.
///
/// ```
/// use corelocal::sync::Semaphore;
///
/// static SLOTS: Semaphore = Semaphore::new(2);
///
/// let permit = SLOTS.acquire();
/// assert_eq!(SLOTS.available(), 1);
/// drop(permit);
/// ```
///
/// # After fork
/// A private semaphore has as many permits in the child as in the parent at that moment; permits that other threads
/// of the parent held are not given back there.
#[repr(transparent)]
pub struct Semaphore<S: Scope = Private> {
    pub(super) permits: Permits<S>,
}

impl Semaphore {
    const_fn! {
        /// Creates a semaphore for the threads of this process.
        ///
        /// # Panics
        /// If there are more than [`MAX`](Self::MAX) permits; while compiling, in a static.
        pub const fn new(permits: u32) -> Self {
            Self::with_scope(permits)
        }
    }
}

impl<S: Scope> Semaphore<S> {
    /// The maximum number of permits.
    pub const MAX: u32 = Permits::<S>::MAX;

    const_fn! {
        /// Creates a semaphore of the scope that the type names.
        ///
        /// # Panics
        /// As [`new`](Semaphore::new).
        pub const fn with_scope(permits: u32) -> Self {
            assert!(permits <= Self::MAX, "a semaphore has at most 2^30 - 1 permits");
            Semaphore { permits: Permits::new(permits) }
        }
    }

    /// Takes a permit that no value stands for; sleeps until there is one. The permit is gone until one is given by
    /// [`release`](Self::release). Memory ordering: as [`acquire`](Self::acquire).
    #[inline]
    pub fn acquire_raw(&self) {
        self.permits.take_until(None, Kind::Semaphore);
    }

    /// Does what [`acquire_raw`](Self::acquire_raw) does, if there is a permit; returns whether there was.
    /// Async-signal-safe.
    #[inline]
    #[must_use = "if it is `true`, a permit was taken"]
    pub fn try_acquire_raw(&self) -> bool {
        self.permits.try_take()
    }

    /// Does what [`acquire_raw`](Self::acquire_raw) does, if there is a permit within the time span; returns whether
    /// there was.
    #[inline]
    #[must_use = "if it is `true`, a permit was taken"]
    pub fn try_acquire_raw_for(&self, span: Duration) -> bool {
        self.permits.take_unreserved() || self.try_acquire_raw_until(Deadline::after(span))
    }

    /// Does what [`acquire_raw`](Self::acquire_raw) does, if there is a permit before the deadline; returns whether
    /// there was.
    #[inline]
    #[must_use = "if it is `true`, a permit was taken"]
    pub fn try_acquire_raw_until(&self, deadline: Deadline) -> bool {
        self.permits.take_until(Some(deadline), Kind::Semaphore)
    }

    /// Gives a permit, and wakes a waiting thread. Async-signal-safe.
    ///
    /// # Panics
    /// If there are [`MAX`](Self::MAX) permits already.
    #[inline]
    pub fn release(&self) {
        self.release_many(1);
    }

    /// Gives several permits at once, and wakes as many waiting threads.
    ///
    /// The semaphore's memory may be freed as soon as the last permit was taken: a release does not access it
    /// afterwards.
    ///
    /// # Panics
    /// If there would be more than [`MAX`](Self::MAX); none is given then.
    #[inline]
    pub fn release_many(&self, permits: u32) {
        if self.permits.give(permits, Self::MAX, false).is_none() {
            too_many();
        }
    }

    /// Returns the number of permits at the moment.
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
