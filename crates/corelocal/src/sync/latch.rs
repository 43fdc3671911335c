//! Latches and wait groups: waiting until a number of things is done, once or repeatedly.
//!
//! `countdown.rs` has the protocol.

use core::fmt;
use core::time::Duration;

use super::countdown::{Countdown, MOST};
use super::machinery::scope::{Private, Scope};
use super::machinery::timeout::WaitTimeoutResult;
use crate::sys::futex::Deadline;

/// Opens for good when it has been counted down to zero. 4 bytes.
///
/// ```
/// use corelocal::sync::Latch;
///
/// let ready = Latch::new(3);
/// std::thread::scope(|scope| {
///     for _ in 0..3 {
///         scope.spawn(|| ready.count_down());
///     }
///     ready.wait();
/// });
/// ```
#[repr(transparent)]
pub struct Latch<S: Scope = Private> {
    pub(super) countdown: Countdown<S>,
}

impl Latch {
    const_fn! {
        /// Creates a latch for the threads of this process. With a count of 0 it is open.
        ///
        /// # Panics
        /// If the count is above [`MAX`](Self::MAX); while compiling, in a static.
        pub const fn new(count: u32) -> Self {
            Self::with_scope(count)
        }
    }
}

impl<S: Scope> Latch<S> {
    /// The maximum count.
    pub const MAX: u32 = MOST;

    const_fn! {
        /// Creates a latch of the scope that the type names.
        ///
        /// # Panics
        /// As [`new`](Latch::new).
        pub const fn with_scope(count: u32) -> Self {
            Latch { countdown: Countdown::new(count) }
        }
    }

    /// Decrements the count. Does nothing if the latch is open. Async-signal-safe.
    ///
    /// What the caller did before happens before what waiting threads do afterwards.
    #[inline]
    pub fn count_down(&self) {
        self.countdown.subtract(1);
    }

    /// Subtracts from the count, down to zero. Async-signal-safe.
    #[inline]
    pub fn count_down_by(&self, count: u32) {
        self.countdown.subtract(count);
    }

    /// Decrements the count, then waits until the latch is open.
    #[inline]
    pub fn arrive_and_wait(&self) {
        self.count_down();
        self.wait();
    }

    /// Waits until the latch is open.
    #[inline]
    pub fn wait(&self) {
        self.countdown.wait(None);
    }

    /// Waits until the latch is open, for at most this time span.
    #[inline]
    pub fn wait_for(&self, span: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.is_open() || self.countdown.wait(Some(Deadline::after(span))))
    }

    /// Waits until the latch is open or the deadline passes.
    #[inline]
    pub fn wait_until(&self, deadline: Deadline) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.countdown.wait(Some(deadline)))
    }

    /// Returns `true` if the latch is open. If so, what happened before happens before what follows.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.countdown.is_done()
    }

    /// Returns the count at the moment.
    pub fn count(&self) -> u32 {
        self.countdown.count()
    }
}

impl<S: Scope> fmt::Debug for Latch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").field("count", &self.count()).finish()
    }
}

/// Counts tasks in progress, and lets threads wait until there are none. 4 bytes.
///
/// Unlike a [`Latch`] it also counts up, and can be used again. All bytes 0 is a group without tasks.
///
/// ```
/// use corelocal::sync::WaitGroup;
///
/// let group = WaitGroup::new();
/// std::thread::scope(|scope| {
///     for _ in 0..3 {
///         let task = group.enter(); // before the thread starts: else `wait` may not know of it
///         scope.spawn(move || drop(task));
///     }
///     group.wait();
/// });
/// ```
#[repr(transparent)]
pub struct WaitGroup<S: Scope = Private> {
    pub(super) countdown: Countdown<S>,
}

impl WaitGroup {
    const_fn! {
        /// Creates a group for the threads of this process.
        pub const fn new() -> Self {
            Self::with_scope()
        }
    }
}

impl<S: Scope> WaitGroup<S> {
    /// The maximum number of tasks at a time.
    pub const MAX: u32 = MOST;

    const_fn! {
        /// Creates a group of the scope that the type names.
        pub const fn with_scope() -> Self {
            WaitGroup { countdown: Countdown::new(0) }
        }
    }

    /// Adds tasks.
    ///
    /// # Panics
    /// If there would be more than [`MAX`](Self::MAX).
    pub fn add(&self, tasks: u32) {
        assert!(self.countdown.add(tasks), "a wait group has at most 2^24 - 1 tasks");
    }

    /// Removes a task.
    ///
    /// What the caller did before happens before what waiting threads do afterwards.
    ///
    /// # Panics
    /// If there is no task.
    #[inline]
    pub fn done(&self) {
        assert!(self.countdown.subtract(1) > 0, "more tasks are done than were added");
    }

    /// Adds a task, until the guard is dropped.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    pub fn enter(&self) -> Task<'_, S> {
        self.add(1);
        Task { group: self, stamp: S::stamp() }
    }

    /// Waits until there are no tasks, or were none at some moment since the call.
    #[inline]
    pub fn wait(&self) {
        self.countdown.wait(None);
    }

    /// Does what [`wait`](Self::wait) does, for at most this time span.
    #[inline]
    pub fn wait_for(&self, span: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult::of(
            self.countdown.is_done() || self.countdown.wait(Some(Deadline::after(span))),
        )
    }

    /// Does what [`wait`](Self::wait) does, until the deadline.
    #[inline]
    pub fn wait_until(&self, deadline: Deadline) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.countdown.wait(Some(deadline)))
    }

    /// Returns the number of tasks at the moment.
    pub fn tasks(&self) -> u32 {
        self.countdown.count()
    }
}

impl<S: Scope> Default for WaitGroup<S> {
    fn default() -> Self {
        Self::with_scope()
    }
}

impl<S: Scope> fmt::Debug for WaitGroup<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGroup").field("tasks", &self.tasks()).finish()
    }
}

/// A task of a [`WaitGroup`]: done when dropped, by any thread.
///
/// # Panics
/// Dropping it, if more tasks were [done](WaitGroup::done) than there were otherwise. During a panic that ends the
/// process.
#[derive(Debug)]
#[must_use = "the task is done when it is dropped"]
pub struct Task<'a, S: Scope = Private> {
    group: &'a WaitGroup<S>,
    stamp: S::Stamp,
}

impl<S: Scope> Drop for Task<'_, S> {
    #[inline]
    fn drop(&mut self) {
        // In a forked child, the copy does not stand for a task of a group that processes share.
        if S::is_of_this_process(self.stamp) {
            self.group.done();
        }
    }
}
