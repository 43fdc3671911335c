//! Events: signal one thread, or all threads.
//!
//! An [`AutoEvent`] is a semaphore of at most one permit (`machinery/permits.rs`). The word of a [`ManualEvent`]:
//!
//! ```text
//!   31            2   1         0
//!   times set         AWAITED   SET
//! ```
//!
//! # Invariants
//! 1. SET and AWAITED are never both set: setting the event clears AWAITED and wakes all, and a thread that finds SET
//!    does not sleep.
//! 2. The count changes with each change to SET. A waiter that sees another count than at its start waited when the
//!    event was set, and leaves, whether the event is still set or not.
//! 3. A thread that sets the event does not access the word after the exchange: its memory may be gone.

use core::fmt;
use core::time::Duration;

use super::machinery::futex::Futex;
use super::machinery::permits::Permits;
use super::machinery::scope::{Private, Scope};
use super::machinery::timeout::WaitTimeoutResult;
use super::profile::{Kind, Wait};
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::futex::{Deadline, Wake};

/// An event that releases one thread each time it is set. 4 bytes.
///
/// Setting it twice before a thread waits is the same as setting it once. All bytes 0 is an event that is not set.
///
/// ```
/// use corelocal::sync::AutoEvent;
///
/// let event = AutoEvent::new(false);
/// event.set();
/// event.wait();
/// assert!(!event.try_wait()); // it was reset by the wait
/// ```
#[repr(transparent)]
pub struct AutoEvent<S: Scope = Private> {
    pub(super) permits: Permits<S>,
}

impl AutoEvent {
    const_fn! {
        /// Creates an event for the threads of this process.
        pub const fn new(set: bool) -> Self {
            Self::with_scope(set)
        }
    }
}

impl<S: Scope> AutoEvent<S> {
    const_fn! {
        /// Creates an event of the scope that the type names.
        pub const fn with_scope(set: bool) -> Self {
            AutoEvent { permits: Permits::new(set as u32) }
        }
    }

    /// Sets the event: releases one waiting thread, or else the next one that waits. Async-signal-safe.
    ///
    /// What the caller did before happens before what the released thread does after its wait.
    #[inline]
    pub fn set(&self) {
        self.permits.give(1, 1, true);
    }

    /// Resets the event; returns whether it was set. Async-signal-safe.
    #[inline]
    pub fn reset(&self) -> bool {
        self.permits.try_take()
    }

    /// Waits until the event is set, and resets it.
    #[inline]
    pub fn wait(&self) {
        self.permits.take_until(None, Kind::Event);
    }

    /// Resets the event if it is set; returns whether it was. The same as [`reset`](Self::reset).
    #[inline]
    pub fn try_wait(&self) -> bool {
        self.permits.try_take()
    }

    /// Waits until the event is set, for at most this time span, and resets it.
    #[inline]
    pub fn wait_for(&self, span: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult::of(
            self.permits.take_unreserved()
                || self.permits.take_until(Some(Deadline::after(span)), Kind::Event),
        )
    }

    /// Waits until the event is set or the deadline passes, and resets it.
    #[inline]
    pub fn wait_until(&self, deadline: Deadline) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.permits.take_until(Some(deadline), Kind::Event))
    }

    /// Returns `true` if the event is set at the moment.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.permits.available() > 0
    }
}

impl<S: Scope> fmt::Debug for AutoEvent<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AutoEvent").field("set", &self.is_set()).finish()
    }
}

const SET: u32 = 1;
const AWAITED: u32 = 1 << 1;
const ONCE: u32 = 1 << 2;

#[inline(always)]
fn is_set(word: u32) -> bool {
    word & SET != 0
}

/// Returns how often it was set.
#[inline(always)]
fn times(word: u32) -> u32 {
    word / ONCE
}

/// An event that releases all threads while it is set. 4 bytes.
///
/// A thread that waits when the event is set returns, even if the event is reset before the thread runs. All bytes 0
/// is an event that is not set.
///
/// ```
/// use core::time::Duration;
/// use corelocal::sync::ManualEvent;
///
/// static STOP: ManualEvent = ManualEvent::new(false);
///
/// assert!(STOP.wait_for(Duration::from_millis(1)).timed_out());
/// STOP.set();
/// STOP.wait();
/// STOP.wait();
/// ```
#[repr(transparent)]
pub struct ManualEvent<S: Scope = Private> {
    word: Futex<S>,
}

impl ManualEvent {
    const_fn! {
        /// Creates an event for the threads of this process.
        pub const fn new(set: bool) -> Self {
            Self::with_scope(set)
        }
    }
}

impl<S: Scope> ManualEvent<S> {
    const_fn! {
        /// Creates an event of the scope that the type names.
        pub const fn with_scope(set: bool) -> Self {
            ManualEvent { word: Futex::new(if set { SET } else { 0 }) }
        }
    }

    /// Sets the event: releases all waiting threads, and all that wait before it is reset. Returns whether it was set
    /// already. Async-signal-safe.
    ///
    /// What the caller did before happens before what those threads do afterwards.
    #[inline]
    pub fn set(&self) -> bool {
        let this: *const Futex<S> = &self.word;
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let after =
                if is_set(word) { word } else { (word & !AWAITED | SET).wrapping_add(ONCE) };
            // Release: partner is the Acquire in `is_set` and `wait_until`.
            match self.word.compare_exchange_weak(word, after, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => {
                    // Invariant 3: by address only.
                    if word & AWAITED != 0 {
                        Futex::wake(this, u32::MAX);
                    }
                    return is_set(word);
                }
                Err(now) => word = now,
            }
        }
    }

    /// Resets the event, so that threads wait again; returns whether it was set. Async-signal-safe.
    #[inline]
    pub fn reset(&self) -> bool {
        // A read-modify-write, which continues the release sequence of `set` for its waiters. Acquire: partner is
        // that Release.
        is_set(self.word.fetch_and(!SET, Ordering::Acquire))
    }

    /// Returns `true` if the event is set. If so, what happened before `set` happens before what follows.
    #[inline]
    pub fn is_set(&self) -> bool {
        // Acquire: partner is the Release in `set`.
        is_set(self.word.load(Ordering::Acquire))
    }

    /// Waits until the event is set.
    #[inline]
    pub fn wait(&self) {
        if !self.is_set() {
            self.wait_cold(None);
        }
    }

    /// Waits until the event is set, for at most this time span.
    #[inline]
    pub fn wait_for(&self, span: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.is_set() || self.wait_cold(Some(Deadline::after(span))))
    }

    /// Waits until the event is set or the deadline passes.
    #[inline]
    pub fn wait_until(&self, deadline: Deadline) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.is_set() || self.wait_cold(Some(deadline)))
    }

    #[cold]
    fn wait_cold(&self, deadline: Option<Deadline>) -> bool {
        let start = self.start();
        let mut wait = Wait::begin(Kind::Event, self);
        loop {
            let Some(expected) = self.announce(start) else { return wait.end(true) };
            wait.sleeps();
            if self.word.wait(expected, deadline) == Wake::TimedOut {
                return wait.end(self.announce(start).is_none());
            }
        }
    }

    /// Sets AWAITED and returns the word to sleep on. `None` if the event is set, or has been since it was set
    /// `start` times.
    pub(super) fn announce(&self, start: u32) -> Option<u32> {
        // Acquire, here and below: partner is the Release in `set`.
        let mut word = self.word.load(Ordering::Acquire);
        while !is_set(word) && times(word) == start {
            if word & AWAITED != 0 {
                return Some(word);
            }
            let after = word | AWAITED;
            match self.word.compare_exchange_weak(word, after, Ordering::Relaxed, Ordering::Acquire)
            {
                Ok(_) => return Some(after),
                Err(now) => word = now,
            }
        }
        None
    }

    /// Returns how often it was set, as far as is known.
    pub(super) fn start(&self) -> u32 {
        times(self.word.load(Ordering::Relaxed))
    }

    /// Returns `true` if `announce` would return `None`.
    pub(super) fn is_there(&self, start: u32) -> bool {
        // Acquire: partner is the Release in `set`.
        let word = self.word.load(Ordering::Acquire);
        is_set(word) || times(word) != start
    }

    /// Returns the word, for waits on several objects.
    pub(super) fn word(&self) -> &AtomicU32 {
        &self.word
    }
}

impl<S: Scope> fmt::Debug for ManualEvent<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualEvent").field("set", &self.is_set()).finish()
    }
}

#[cfg(all(test, loom))]
mod loom;
