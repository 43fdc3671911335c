//! A condition variable: threads that hold a lock wait until another thread reports a change.
//!
//! A waiter counts itself, reads the sequence number, and sleeps while the number stays the same. A notification
//! increments the number first. `notify_all` wakes up to 256 waiters at once. Of more it wakes one, which requeues
//! the others to the lock's own wait queue once it has the lock. They then wake one by one as the lock is unlocked:
//!
//! ```text
//!   notifying thread            first waiter                   other waiters
//!   sequence += 1               asleep                         asleep
//!   sets ALL in the state
//!   wakes one                   takes the lock
//!                               leaves the count, finds ALL
//!                               requeues the others            asleep, but on the lock
//!                               unlocks                        wake one after the other
//! ```
//!
//! The first waiter holds the lock while it requeues. So the lock's memory exists, and the lock's word cannot change
//! between the check and the requeue.
//!
//! | bits of `state` | meaning |
//! |---|---|
//! | 0 to 29 | The number of waiters: from before each unlocks the lock until it has locked it again. |
//! | 30, AT_ONCE | Some waiter cannot be requeued, now or earlier. `notify_all` wakes all waiters at once. |
//! | 31, ALL | `notify_all` was called, and the other waiters are still to be requeued by the first one. |
//!
//! # Invariants
//! 1. A waiter is counted from before it unlocks the lock until it has locked it again. So a thread that changed
//!    something under the lock, and finds a count of 0, has no waiter to wake.
//! 2. The sequence number changes before a waiter is woken or ALL is set. A thread that has read the old number does
//!    not fall asleep any more. A thread that sleeps was there before, and the kernel wakes and requeues in the order
//!    in which threads fell asleep.
//! 3. ALL is set only while the count is not 0. Every waiter that leaves checks it in the same atomic step. So one of
//!    them finds it, and requeues the others. Threads that began to wait meanwhile are requeued too: for them it is a
//!    spurious wake-up.
//! 4. Waiters whose guards are passed by value (`wait_owned`) cannot be requeued, and the first of them may be killed
//!    before it wakes the others. The first such waiter sets AT_ONCE, which stays set, and `notify_all` then wakes
//!    all waiters. It always does so where processes share the condition variable, since any of them may be killed.
//!    There, waiters that the lock's owner requeued re-check within a second of falling asleep (`machinery/bounded_wait.rs`).
//! 5. Waiters are requeued to the lock that all of them use (`condvar/requeue.rs`). A waiter with another lock than
//!    the present waiters sets AT_ONCE before it sleeps.
//! 6. After its last store a notification does not access the object: it wakes by address.

mod requeue;

pub(in crate::sync) mod guard;

use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

use super::machinery::futex::Futex;
use super::machinery::scope::{Private, Scope};
use super::machinery::timeout::WaitTimeoutResult;
use super::profile::{Kind, Wait};
use crate::primitive::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::futex::{self, Deadline, Wake};
use guard::{CondvarGuard, OwnedGuard};
use requeue::WaitersLock;

/// `notify_all` was called, and the waiters are still to be requeued.
const ALL: u32 = 1 << 31;
/// Some waiter cannot be requeued, now or earlier: its lock is not a [`Mutex`](super::Mutex), or waiters use several
/// locks.
const AT_ONCE: u32 = 1 << 30;

/// `notify_all` wakes up to this many waiters at once. Waking them one after the other takes four times as long,
/// since each waits for a cpu to leave its idle state.
const FEW: u32 = if cfg!(loom) { 0 } else { 256 };

fn waiters(state: u32) -> u32 {
    state & !(ALL | AT_ONCE)
}

/// A condition variable: threads that hold a lock wait until another thread reports a change.
///
/// ```
/// use corelocal::sync::{Condvar, Mutex};
///
/// let (ready, changed) = (Mutex::new(false), Condvar::new());
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         *ready.lock() = true;
///         changed.notify_one();
///     });
///     let mut ready = ready.lock();
///     while !*ready {
///         changed.wait(&mut ready);
///     }
/// });
/// ```
///
/// Its size is 12 bytes, and all bytes 0 is its initial state. It works with all exclusive locks of this module: see
/// [`CondvarGuard`] for `wait` and its variants, [`OwnedGuard`] for `wait_owned`. Threads that wait at the same time
/// should use the same lock: waiters of several locks are woken all at once, and then contend.
///
/// # Guarantees
/// - A notification wakes a thread that waited when it was made, not only threads that began to wait later.
/// - A change that is made under the lock, and notified afterwards or before the lock is unlocked, is never missed.
/// - Wake-ups may be spurious. So check the condition in a loop.
///
/// Threads with real-time priority wake first, even those that began to wait after the notification.
///
/// # Scope
/// A `Condvar` is for the threads of one process. A `Condvar<Shared>` may lie in memory that several processes
/// map, at any address, with a lock of the same scope.
///
/// # After fork
/// A forked child has no waiters. If the parent had some, a notification in the child costs one system call.
#[repr(C)]
pub struct Condvar<S: Scope = Private> {
    sequence: Futex<S>,
    /// The number of waiters, [`ALL`] and [`AT_ONCE`].
    state: AtomicU32,
    lock: WaitersLock,
    scope: PhantomData<S>,
}

impl Condvar {
    const_fn! {
        /// Creates a condition variable for the threads of this process.
        pub const fn new() -> Self {
            Condvar::with_scope()
        }
    }
}

impl<S: Scope> Condvar<S> {
    const_fn! {
        /// Creates a condition variable of scope `S`.
        pub const fn with_scope() -> Self {
            Condvar {
                sequence: Futex::new(0),
                state: AtomicU32::new(0),
                lock: WaitersLock::new(),
                scope: PhantomData,
            }
        }
    }

    /// Unlocks, sleeps until notified, and locks again. Wake-ups may be spurious.
    ///
    /// # Aborts
    /// Aborts in a forked child if the lock cannot be locked again because its owner does not exist there. A panic
    /// could be caught, and would leave a guard without its lock.
    pub fn wait<G: CondvarGuard>(&self, guard: &mut G) {
        self.sleep(guard, None);
    }

    /// Does what [`wait`](Self::wait) does, with a time limit. Reports a time-out if no notification came within it.
    ///
    /// ```
    /// # use core::time::Duration;
    /// # use corelocal::sync::{Condvar, Mutex};
    /// let (mutex, changed) = (Mutex::new(()), Condvar::new());
    /// while !changed.wait_for(&mut mutex.lock(), Duration::from_millis(1)).timed_out() {}
    /// ```
    pub fn wait_for<G: CondvarGuard>(&self, guard: &mut G, span: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.sleep(guard, Some(Deadline::after(span))))
    }

    /// Does what [`wait`](Self::wait) does, with a deadline. Reports a time-out if no notification came before it.
    pub fn wait_until<G: CondvarGuard>(
        &self,
        guard: &mut G,
        deadline: Deadline,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.sleep(guard, Some(deadline)))
    }

    /// Waits while `condition` is true. The condition is checked first.
    ///
    /// ```
    /// # use corelocal::sync::{Condvar, Mutex};
    /// let (queue, changed) = (Mutex::new(vec![1]), Condvar::new());
    /// let mut queue = queue.lock();
    /// changed.wait_while(&mut queue, |queue| queue.is_empty());
    /// assert_eq!(queue.pop(), Some(1));
    /// ```
    pub fn wait_while<G: CondvarGuard>(
        &self,
        guard: &mut G,
        mut condition: impl FnMut(&mut G) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Does what [`wait_while`](Self::wait_while) does, with a time limit. Reports a time-out if the condition is still
    /// true then.
    pub fn wait_while_for<G: CondvarGuard>(
        &self,
        guard: &mut G,
        span: Duration,
        condition: impl FnMut(&mut G) -> bool,
    ) -> WaitTimeoutResult {
        self.wait_while_until(guard, Deadline::after(span), condition)
    }

    /// Does what [`wait_while`](Self::wait_while) does, with a deadline. Reports a time-out if the condition is still
    /// true then.
    pub fn wait_while_until<G: CondvarGuard>(
        &self,
        guard: &mut G,
        deadline: Deadline,
        mut condition: impl FnMut(&mut G) -> bool,
    ) -> WaitTimeoutResult {
        while condition(guard) {
            if self.wait_until(guard, deadline).timed_out() {
                return WaitTimeoutResult::timed_out_if(condition(guard));
            }
        }
        WaitTimeoutResult::of(true)
    }

    /// Does what [`wait`](Self::wait) does, for locks that may fail or report something when they are locked again.
    /// Takes the guard by value and returns the lock's result.
    ///
    /// ```
    /// use corelocal::sync::{Condvar, RobustMutex};
    ///
    /// // SAFETY: a static is neither moved nor freed.
    /// static READY: RobustMutex<bool> = unsafe { RobustMutex::new(false) };
    /// static CHANGED: Condvar = Condvar::new();
    ///
    /// let other = std::thread::spawn(|| {
    ///     *READY.lock().unwrap() = true;
    ///     CHANGED.notify_one();
    /// });
    /// let mut ready = READY.lock().unwrap();
    /// while !*ready {
    ///     ready = CHANGED.wait_owned(ready).expect("no owner died");
    /// }
    /// # drop(ready);
    /// # other.join().unwrap();
    /// ```
    ///
    /// `notify_all` wakes such waiters at once. If a waiter is killed after `notify_one` chose it, that notification
    /// is lost.
    pub fn wait_owned<G: OwnedGuard>(&self, guard: G) -> G::Locked {
        self.sleep_owned(guard, None).0
    }

    /// Does what [`wait_owned`](Self::wait_owned) does, with a time limit. Reports a time-out if no notification came
    /// within it.
    pub fn wait_owned_for<G: OwnedGuard>(
        &self,
        guard: G,
        span: Duration,
    ) -> (G::Locked, WaitTimeoutResult) {
        let (locked, is_notified) = self.sleep_owned(guard, Some(Deadline::after(span)));
        (locked, WaitTimeoutResult::of(is_notified))
    }

    /// Does what [`wait_owned`](Self::wait_owned) does, with a deadline. Reports a time-out if no notification came
    /// before it.
    pub fn wait_owned_until<G: OwnedGuard>(
        &self,
        guard: G,
        deadline: Deadline,
    ) -> (G::Locked, WaitTimeoutResult) {
        let (locked, is_notified) = self.sleep_owned(guard, Some(deadline));
        (locked, WaitTimeoutResult::of(is_notified))
    }

    /// Wakes the thread that has waited longest. Without waiters it does nothing, and makes no system call.
    ///
    /// If the caller holds the lock, the woken thread would have to wait for it at once. In that case
    /// [`notify_one_locked`](Self::notify_one_locked) takes half the time.
    #[inline]
    pub fn notify_one(&self) {
        if self.is_awaited() {
            self.next();
            Futex::wake(&self.sequence, 1);
        }
    }

    /// Wakes all waiters. More than 256 are woken one after the other, as each of them unlocks the lock again. Where
    /// processes share the condition variable all are woken at once, since one of them may be killed.
    #[inline]
    pub fn notify_all(&self) {
        if self.is_awaited() {
            self.notify_all_slowly();
        }
    }

    /// Does what [`notify_one`](Self::notify_one) does, for a caller that holds the lock: the waiter is woken when the
    /// lock is unlocked.
    ///
    /// ```
    /// # use corelocal::sync::{Condvar, Mutex};
    /// # let (ready, changed) = (Mutex::new(false), Condvar::new());
    /// let mut ready = ready.lock();
    /// *ready = true;
    /// changed.notify_one_locked(&ready);
    /// ```
    pub fn notify_one_locked<G: CondvarGuard>(&self, guard: &G) {
        if self.is_awaited() {
            self.next();
            self.hand_over(guard, 1);
        }
    }

    /// Does what [`notify_all`](Self::notify_all) does, for a caller that holds the lock. The waiters are woken one
    /// after the other, from when the lock is unlocked on. Until the last one has had the lock this takes longer than
    /// [`notify_all`](Self::notify_all), but no thread wakes only to wait for the lock. Where processes share the
    /// condition variable, and one is killed while it wakes, the others wake within a second.
    ///
    /// If the guard is not that of the waiters' lock, the waiters are woken at once. The same happens where the
    /// kernel or a seccomp filter refuses to requeue them.
    pub fn notify_all_locked<G: CondvarGuard>(&self, guard: &G) {
        if self.is_awaited() {
            self.next();
            self.hand_over(guard, u32::MAX);
        }
    }

    #[inline(always)]
    fn is_awaited(&self) -> bool {
        // Relaxed: the lock orders it (invariant 1).
        waiters(self.state.load(Relaxed)) != 0
    }

    fn next(&self) {
        // Relaxed: waiters read it under the lock, and the kernel compares it.
        self.sequence.fetch_add(1, Relaxed);
    }

    fn sleep<G: CondvarGuard>(&self, guard: &mut G, deadline: Option<Deadline>) -> bool {
        self.enter(guard);
        let sequence = self.sequence.load(Relaxed);
        // SAFETY: the guard holds the lock, is borrowed exclusively, and is not used until `reacquire`.
        unsafe { guard.release() };
        let mut wait = Wait::begin(Kind::Condvar, self);
        wait.sleeps();
        let wake = self.sequence.wait(sequence, deadline);
        wait.end(wake != Wake::TimedOut);
        // SAFETY: `release` was called, and `reacquire` has not been since.
        unsafe { guard.reacquire() };
        // Acquire: partner is the Release in `notify_all_slowly`. A thread that finds ALL finds the new number.
        if self.state.fetch_sub(1, Acquire) & ALL != 0 {
            self.pass_on(guard);
        }
        // A thread that timed out still counts a notification that came meanwhile.
        wake != Wake::TimedOut || self.sequence.load(Relaxed) != sequence
    }

    fn sleep_owned<G: OwnedGuard>(
        &self,
        guard: G,
        deadline: Option<Deadline>,
    ) -> (G::Locked, bool) {
        if self.state.fetch_add(1, Relaxed) & AT_ONCE == 0 {
            self.state.fetch_or(AT_ONCE, Relaxed);
        }
        let sequence = self.sequence.load(Relaxed);
        let lock = guard.unlock();
        let mut wait = Wait::begin(Kind::Condvar, self);
        wait.sleeps();
        let wake = self.sequence.wait(sequence, deadline);
        wait.end(wake != Wake::TimedOut);
        let locked = G::relock(lock);
        // Acquire: as in `sleep`. ALL was set before the notifying thread saw AT_ONCE.
        if self.state.fetch_sub(1, Acquire) & ALL != 0 {
            self.state.fetch_and(!ALL, Relaxed);
            Futex::wake(&self.sequence, u32::MAX);
        }
        (locked, wake != Wake::TimedOut || self.sequence.load(Relaxed) != sequence)
    }

    #[cold]
    #[inline(never)]
    fn notify_all_slowly(&self) {
        self.next();
        let mut state = self.state.load(Relaxed);
        // Where processes share it, the first waiter might be killed and would wake no other.
        let are_few = waiters(state) <= FEW;
        if are_few || state & AT_ONCE != 0 || S::FUTEX == futex::Scope::Shared {
            Futex::wake(&self.sequence, u32::MAX);
            return;
        }
        while waiters(state) != 0 {
            // Release: partner is the Acquire in `sleep`.
            match self.state.compare_exchange(state, state | ALL, Release, Relaxed) {
                Ok(_) => {
                    Futex::wake(&self.sequence, 1);
                    return;
                }
                Err(now) => state = now,
            }
        }
    }

    /// Requeues the other waiters. Called with the lock held, by a waiter that found [`ALL`].
    #[cold]
    fn pass_on<G: CondvarGuard>(&self, guard: &G) {
        // Another waiter may have done it already. Waiters of a notification that came meanwhile are requeued as
        // well.
        let state = self.state.fetch_and(!ALL, Acquire);
        if state & ALL != 0 && waiters(state) != 0 {
            self.hand_over(guard, u32::MAX);
        }
    }
}

impl<S: Scope> Default for Condvar<S> {
    fn default() -> Self {
        Condvar::with_scope()
    }
}

impl<S: Scope> fmt::Debug for Condvar<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiters = waiters(self.state.load(Relaxed));
        f.debug_struct("Condvar").field("waiters", &waiters).finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom;
