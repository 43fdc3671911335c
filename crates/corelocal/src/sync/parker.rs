//! A place where a thread sleeps until it is told to go on.
//!
//! # Invariants
//! 1. TOLD goes to EMPTY for each park that returns for it, and to nothing else.
//! 2. PARKED means that somebody may sleep; who unparks wakes all. One that finds EMPTY then says PARKED
//!    again. A park that gives up leaves PARKED behind: at worst the next unpark wakes nobody.
//! 3. Who unparks does not touch the word after the exchange: its memory may be gone.

use core::fmt;
use core::time::Duration;

use super::futex::Futex;
use super::profile::{Kind, Wait};
use super::scope::{Private, Scope};
use super::timeout::WaitTimeoutResult;
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::futex::{Deadline, Wake};

const EMPTY: u32 = 0;
const TOLD: u32 = 1;
const PARKED: u32 = 2;

/// One thread parks, others unpark it: 4 bytes.
///
/// An unpark that comes first is not lost: the next park returns at once. Several of them count as one. All
/// bytes 0 is a parker that nobody has unparked.
///
/// It is meant for one thread that parks. If several do, each unpark lets one of them go.
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
    /// A parker of the threads of this process.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self::with_scope()
    }

    /// As above.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self::with_scope()
    }
}

impl<S: Scope> Parker<S> {
    /// A parker of whoever the scope says.
    #[cfg(not(loom))]
    pub const fn with_scope() -> Self {
        Parker { word: Futex::new(EMPTY) }
    }

    /// As above.
    #[cfg(loom)]
    pub fn with_scope() -> Self {
        Parker { word: Futex::new(EMPTY) }
    }

    /// Lets the thread that parks here go on, or the next one that does. Async-signal-safe.
    ///
    /// What the caller did before happens before what that thread does after.
    #[inline]
    pub fn unpark(&self) {
        let this: *const Futex<S> = &self.word;
        // Release: partner is the Acquire in `take`.
        if self.word.swap(TOLD, Ordering::Release) == PARKED {
            // Invariant 3: by address.
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

    /// Sleeps until unparked, at most so long.
    #[inline]
    pub fn park_for(&self, span: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.take() || self.park_cold(Some(Deadline::after(span))))
    }

    /// Sleeps until unparked or until the deadline.
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

    /// Takes what an unpark left.
    #[inline]
    pub(super) fn take(&self) -> bool {
        // Acquire: partner is the Release in `unpark`.
        self.word.compare_exchange(TOLD, EMPTY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Says that somebody is about to sleep: while the word is as returned. Nothing if there was an unpark.
    pub(super) fn announce(&self) -> Option<u32> {
        // Relaxed: who takes acquires then.
        match self.word.compare_exchange(EMPTY, PARKED, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) | Err(PARKED) => Some(PARKED),
            Err(TOLD) => None,
            // Another user, with whom the parker is shared, has written it. It counts as EMPTY.
            Err(other) => self
                .word
                .compare_exchange(other, PARKED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
                .then_some(PARKED),
        }
    }

    /// Whether the next park would return at once.
    #[inline]
    pub fn is_unparked(&self) -> bool {
        self.word.load(Ordering::Relaxed) == TOLD
    }

    /// The word, for those who wait for several.
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
#[path = "parker_loom.rs"]
mod loom_tests;
