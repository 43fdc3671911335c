//! A parker: one thread sleeps until another one unparks it.
//!
//! | word | meaning |
//! |---|---|
//! | EMPTY (0) | No unpark is pending, and no thread sleeps. |
//! | PARKED | A thread may be sleeping on the word. |
//! | TOLD | An unpark is pending: the next park returns at once. |
//!
//! # Invariants
//! 1. TOLD changes to EMPTY only, once for each park that returns because of it.
//! 2. PARKED means that threads may be sleeping. `unpark` wakes all of them. A woken thread that finds EMPTY sets
//!    PARKED again. A park that times out leaves PARKED behind: then the next unpark makes one wake-up call too many.
//! 3. `unpark` does not access the word after the exchange: its memory may be freed.

use core::fmt;
use core::time::Duration;

use super::machinery::futex::Futex;
use super::machinery::scope::{Private, Scope};
use super::machinery::timeout::WaitTimeoutResult;
use super::profile::{Kind, Wait};
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::futex::{Deadline, Wake};

const EMPTY: u32 = 0;
const TOLD: u32 = 1;
const PARKED: u32 = 2;

/// Lets one thread sleep until another one unparks it. Its size is 4 bytes, and all bytes 0 is its initial state.
///
/// An unpark that comes before the park is not lost: the next park returns at once. Several of them count as one.
///
/// It is meant for one thread that parks. If several park, each unpark releases one of them.
///
/// ```
/// use corelocal::sync::Parker;
///
/// let parker = Parker::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| parker.unpark());
///     parker.park();
/// });
/// ```
#[repr(transparent)]
pub struct Parker<S: Scope = Private> {
    word: Futex<S>,
}

impl Parker {
    const_fn! {
        /// Creates a parker for the threads of this process.
        pub const fn new() -> Self {
            Self::with_scope()
        }
    }
}

impl<S: Scope> Parker<S> {
    const_fn! {
        /// Creates a parker of scope `S`.
        pub const fn with_scope() -> Self {
            Parker { word: Futex::new(EMPTY) }
        }
    }

    /// Releases the thread that is parked here, or the next one to park. Async-signal-safe.
    ///
    /// What the caller did before happens before what that thread does after its park.
    #[inline]
    pub fn unpark(&self) {
        let this: *const Futex<S> = &self.word;
        // Release: partner is the Acquire in `take`.
        if self.word.swap(TOLD, Ordering::Release) == PARKED {
            // By address: invariant 3.
            Futex::wake(this, u32::MAX);
        }
    }

    /// Sleeps until unparked.
    #[inline]
    pub fn park(&self) {
        if !self.take() {
            self.park_cold(None);
        }
    }

    /// Does what [`park`](Self::park) does, with a time limit.
    #[inline]
    pub fn park_for(&self, span: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.take() || self.park_cold(Some(Deadline::after(span))))
    }

    /// Does what [`park`](Self::park) does, with a deadline.
    #[inline]
    pub fn park_until(&self, deadline: Deadline) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.take() || self.park_cold(Some(deadline)))
    }

    #[cold]
    fn park_cold(&self, deadline: Option<Deadline>) -> bool {
        let mut wait = Wait::begin(Kind::Parker, self);
        loop {
            wait.sleeps();
            let timed_out = match self.announce() {
                Some(expected) => self.word.wait(expected, deadline) == Wake::TimedOut,
                None => deadline.is_some_and(Deadline::has_come),
            };
            if self.take() {
                return wait.end(true);
            }
            if timed_out {
                return wait.end(false);
            }
        }
    }

    /// Takes a pending unpark. False if there is none.
    #[inline]
    pub(super) fn take(&self) -> bool {
        // Acquire: partner is the Release in `unpark`.
        self.word.compare_exchange(TOLD, EMPTY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Sets PARKED and returns the word to sleep on. `None` if an unpark is pending.
    pub(super) fn announce(&self) -> Option<u32> {
        // Relaxed: `take` has the Acquire.
        match self.word.compare_exchange(EMPTY, PARKED, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) | Err(PARKED) => Some(PARKED),
            Err(TOLD) => None,
            // Another user, with which the parker is shared, has written this value. It counts as EMPTY.
            Err(other) => self
                .word
                .compare_exchange(other, PARKED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
                .then_some(PARKED),
        }
    }

    /// Returns whether the next park would return at once.
    #[inline]
    pub fn is_unparked(&self) -> bool {
        self.word.load(Ordering::Relaxed) == TOLD
    }

    /// Returns the word, for waits on several objects at once.
    pub(super) fn word(&self) -> &AtomicU32 {
        &self.word
    }
}

impl<S: Scope> Default for Parker<S> {
    fn default() -> Self {
        Self::with_scope()
    }
}

impl<S: Scope> fmt::Debug for Parker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parker").field("unparked", &self.is_unparked()).finish()
    }
}

#[cfg(all(test, loom))]
mod loom;
