//! Condition variable for mutexes with priority inheritance.
//!
//! The kernel moves a waiter from the condition variable to the mutex and hands it the mutex in its turn. So no
//! thread wakes only to wait again, and the owner of the mutex is boosted on behalf of all notified threads.
//!
//! # Invariants
//! 1. Both words are changed by owners of the mutex only. So a notification is atomic with respect to waiters: it
//!    reaches threads that wait already, and no thread that comes later.
//! 2. `waiters` is an upper bound of the number of waiters. In shared memory it may be too high, because dead waiters
//!    are never subtracted. That only costs system calls.
//! 3. A waiter that is notified between its unlock and its sleep finds a changed `notified`.
//! 4. All concurrent waiters of one condition variable wait with one mutex.

use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

use super::{LockError, PiMutexGuard, word};
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sync::machinery::scope::{Private, Scope};
use crate::sync::machinery::timeout::WaitTimeoutResult;
use crate::sync::profile::{Kind, Wait};
use crate::sys::Errno;
use crate::sys::futex::{Deadline, Requeue, Wake, pi};

/// A condition variable for a [`PiMutex`](super::PiMutex): waiters are notified by priority, and queue for the mutex
/// by priority.
///
/// Notifying requires the mutex's guard. A wait may end spuriously, so check the condition again.
///
/// ```
/// use corelocal::sync::{PiCondvar, PiMutex};
///
/// static READY: PiMutex<bool> = PiMutex::new(false);
/// static CHANGED: PiCondvar = PiCondvar::new();
///
/// let waiter = std::thread::spawn(|| {
///     let ready = READY.lock()?;
///     CHANGED.wait_while(ready, |ready| !*ready).map(|ready| *ready)
/// });
/// let mut ready = READY.lock()?;
/// *ready = true;
/// CHANGED.notify_one(&ready);
/// drop(ready);
/// assert!(waiter.join().unwrap()?);
/// # Ok::<(), corelocal::sync::LockError>(())
/// ```
///
/// All concurrent waiters must use the same mutex. Otherwise a notification may reach none of them.
#[repr(C)]
pub struct PiCondvar<S: Scope = Private> {
    /// The number of notifications.
    notified: AtomicU32,
    waiters: AtomicU32,
    scope: PhantomData<S>,
}

impl PiCondvar {
    /// Creates a condition variable for the threads of this process.
    pub const fn new() -> Self {
        Self::with_scope()
    }
}

impl<S: Scope> PiCondvar<S> {
    /// Creates a condition variable of the scope that the type names.
    pub const fn with_scope() -> Self {
        PiCondvar { notified: AtomicU32::new(0), waiters: AtomicU32::new(0), scope: PhantomData }
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again.
    ///
    /// # Errors
    /// Those of [`PiMutex::lock`](super::PiMutex::lock); the mutex is not locked then. [`LockError::Refused`] also if
    /// the kernel or a filter would not let a notification move the waiter (`FUTEX_CMP_REQUEUE_PI`). A filter that is
    /// installed while a thread waits is not noticed: that thread sleeps until its deadline.
    pub fn wait<'a, T: ?Sized>(
        &self,
        guard: PiMutexGuard<'a, T, S>,
    ) -> Result<PiMutexGuard<'a, T, S>, LockError> {
        self.sleep(guard, None).map(|(guard, _)| guard)
    }

    /// Does what [`wait`](Self::wait) does, for at most this time span.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_for<'a, T: ?Sized>(
        &self,
        guard: PiMutexGuard<'a, T, S>,
        span: Duration,
    ) -> Result<(PiMutexGuard<'a, T, S>, WaitTimeoutResult), LockError> {
        self.sleep(guard, Some(Deadline::after(span)))
    }

    /// Does what [`wait`](Self::wait) does, until the deadline.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_until<'a, T: ?Sized>(
        &self,
        guard: PiMutexGuard<'a, T, S>,
        deadline: Deadline,
    ) -> Result<(PiMutexGuard<'a, T, S>, WaitTimeoutResult), LockError> {
        self.sleep(guard, Some(deadline))
    }

    /// Waits until `condition` returns false.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: PiMutexGuard<'a, T, S>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> Result<PiMutexGuard<'a, T, S>, LockError> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// Wakes the waiter of the highest priority, which continues once it owns the mutex of this guard.
    pub fn notify_one<T: ?Sized>(&self, guard: &PiMutexGuard<'_, T, S>) {
        // The call wakes one waiter in addition.
        self.notify(guard, 0);
    }

    /// Wakes all waiters, which continue one after the other by priority.
    pub fn notify_all<T: ?Sized>(&self, guard: &PiMutexGuard<'_, T, S>) {
        self.notify(guard, u32::MAX);
    }

    #[inline]
    fn notify<T: ?Sized>(&self, guard: &PiMutexGuard<'_, T, S>, more: u32) {
        // Relaxed: the mutex orders it. (1)
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.notify_cold(&guard.mutex.word, more);
        }
    }

    #[cold]
    fn notify_cold(&self, lock: &AtomicU32, more: u32) {
        // Relaxed: changed under the mutex (1); the kernel compares it atomically with going to sleep.
        let now = self.notified.load(Ordering::Relaxed).wrapping_add(1);
        self.notified.store(now, Ordering::Relaxed);
        while let Err(Errno::EAGAIN) | Ok(Requeue::Differed) =
            pi::requeue(&self.notified, now, more, lock, S::FUTEX)
        {
            // The kernel had to release a lock, and asks to repeat the call; or another thread notifies with another
            // mutex.
            if self.notified.load(Ordering::Relaxed) != now {
                return;
            }
        }
    }

    fn sleep<'a, T: ?Sized>(
        &self,
        guard: PiMutexGuard<'a, T, S>,
        deadline: Option<Deadline>,
    ) -> Result<(PiMutexGuard<'a, T, S>, WaitTimeoutResult), LockError> {
        let mutex = guard.mutex;
        // Relaxed: under the mutex. (1)
        let seen = self.notified.load(Ordering::Relaxed);
        self.ask_for_moves(seen, &mutex.word)?;
        self.change_waiters(1);
        drop(guard);
        let mut wait = Wait::begin(Kind::Condvar, self);
        wait.sleeps();
        let outcome = pi::wait_requeue(&self.notified, seen, &mutex.word, deadline, S::FUTEX);
        wait.end(outcome == Ok(Wake::Woken));
        let guard = match outcome {
            Ok(Wake::Woken) => mutex.outcome(Ok(word::handed(&mutex.word)))?,
            _ => mutex.lock()?,
        };
        self.change_waiters(-1);
        match outcome {
            Ok(outcome) => Ok((guard, WaitTimeoutResult::timed_out_if(outcome == Wake::TimedOut))),
            Err(errno) => Err(word::reason(errno)),
        }
    }

    /// Whether the kernel would move a waiter, so that no thread goes to sleep that a notification cannot reach:
    /// nothing else wakes such a waiter. `seen` is the number of notifications.
    fn ask_for_moves(&self, seen: u32, lock: &AtomicU32) -> Result<(), LockError> {
        // With another number nothing is moved.
        match pi::requeue(&self.notified, seen.wrapping_add(1), 0, lock, S::FUTEX) {
            Ok(_) | Err(Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(word::reason(errno)),
        }
    }

    /// Called by the mutex's owner.
    fn change_waiters(&self, by: i32) {
        // Relaxed: under the mutex. (1)
        let now = self.waiters.load(Ordering::Relaxed).saturating_add_signed(by);
        self.waiters.store(now, Ordering::Relaxed);
    }
}

impl<S: Scope> Default for PiCondvar<S> {
    fn default() -> Self {
        Self::with_scope()
    }
}

impl<S: Scope> fmt::Debug for PiCondvar<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PiCondvar").finish_non_exhaustive()
    }
}
