//! Waiting until a number of things is done: once, or again and again.
//!
//! The protocol is in `countdown.rs`: these are its faces.

use core::fmt;
use core::time::Duration;

use super::countdown::{Countdown, MOST};
use super::scope::{Private, Scope};
use super::timeout::WaitTimeoutResult;
use crate::sys::futex::Deadline;

/// Opens, for good, when it was counted down to zero: 4 bytes.
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
    /// A latch of the threads of this process. One with a count of 0 is open.
    ///
    /// # Panics
    /// If the count is above [`MAX`](Self::MAX); while compiling, in a static.
    #[cfg(not(loom))]
    pub const fn new(count: u32) -> Self {
        Self::with_scope(count)
    }

    /// As above.
    #[cfg(loom)]
    pub fn new(count: u32) -> Self {
        Self::with_scope(count)
    }
}

impl<S: Scope> Latch<S> {
    /// The largest count.
    pub const MAX: u32 = MOST;

    /// A latch of whoever the scope says.
    ///
    /// # Panics
    /// As [`new`](Latch::new).
    #[cfg(not(loom))]
    pub const fn with_scope(count: u32) -> Self {
        Latch { countdown: Countdown::new(count) }
    }

    /// As above.
    #[cfg(loom)]
    pub fn with_scope(count: u32) -> Self {
        Latch { countdown: Countdown::new(count) }
    }

    /// One less. An open latch stays as it is. Async-signal-safe.
    ///
    /// What the caller did before happens before what those do who wait.
    #[inline]
    pub fn count_down(&self) {
        self.countdown.subtract(1);
    }

    /// So many less, down to zero. Async-signal-safe.
    #[inline]
    pub fn count_down_by(&self, count: u32) {
        self.countdown.subtract(count);
    }

    /// One less, then waits until it is open.
    #[inline]
    pub fn arrive_and_wait(&self) {
        self.count_down();
        self.wait();
    }

    /// Waits until it is open.
    #[inline]
    pub fn wait(&self) {
        self.countdown.wait(None);
    }

    /// Waits until it is open, at most so long.
    #[inline]
    pub fn wait_for(&self, span: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.is_open() || self.countdown.wait(Some(Deadline::after(span))))
    }

    /// Waits until it is open or until the deadline.
    #[inline]
    pub fn wait_until(&self, deadline: Deadline) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.countdown.wait(Some(deadline)))
    }

    /// Whether it is open; then what happened before happens before what follows.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.countdown.is_done()
    }

    /// What is left to count down at the moment.
    pub fn count(&self) -> u32 {
        self.countdown.count()
    }
}

impl<S: Scope> fmt::Debug for Latch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").field("count", &self.count()).finish()
    }
}

/// Counts tasks that are under way, and lets threads wait until there are none: 4 bytes.
///
/// Unlike a [`Latch`] it goes up as well, and may be used again. All bytes 0 is a group without tasks.
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
    /// A group of the threads of this process.
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

impl<S: Scope> WaitGroup<S> {
    /// The most tasks at a time.
    pub const MAX: u32 = MOST;

    /// A group of whoever the scope says.
    #[cfg(not(loom))]
    pub const fn with_scope() -> Self {
        WaitGroup { countdown: Countdown::new(0) }
    }

    /// As above.
    #[cfg(loom)]
    pub fn with_scope() -> Self {
        WaitGroup { countdown: Countdown::new(0) }
    }

    /// So many tasks more.
    ///
    /// # Panics
    /// If there were more than [`MAX`](Self::MAX) then.
    pub fn add(&self, tasks: u32) {
        assert!(self.countdown.add(tasks), "a wait group has at most 2^24 - 1 tasks");
    }

    /// One task less.
    ///
    /// What the caller did before happens before what those do who wait.
    ///
    /// # Panics
    /// If there was none.
    #[inline]
    pub fn done(&self) {
        assert!(self.countdown.subtract(1) > 0, "more tasks are done than were added");
    }

    /// One task more, until the guard is dropped.
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

    /// The same, at most so long.
    #[inline]
    pub fn wait_for(&self, span: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult::of(
            self.countdown.is_done() || self.countdown.wait(Some(Deadline::after(span))),
        )
    }

    /// The same, until the deadline.
    #[inline]
    pub fn wait_until(&self, deadline: Deadline) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.countdown.wait(Some(deadline)))
    }

    /// How many tasks there are at the moment.
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

/// One task of a [`WaitGroup`]: done when it is dropped, by whatever thread.
///
/// # Panics
/// Its drop, if more tasks were [done](WaitGroup::done) than there were besides; during a panic that ends the process.
#[derive(Debug)]
#[must_use = "the task is done when it is dropped"]
pub struct Task<'a, S: Scope = Private> {
    group: &'a WaitGroup<S>,
    stamp: S::Stamp,
}

impl<S: Scope> Drop for Task<'_, S> {
    #[inline]
    fn drop(&mut self) {
        // The task of a group that processes share is not that of its copy in a forked child.
        if S::is_of_this_process(self.stamp) {
            self.group.done();
        }
    }
}
