//! Waiting for what a lock protects to change.
//!
//! A waiter counts itself, reads the sequence number and sleeps while it stays the same; whoever notifies makes it
//! another one first. A notification of all wakes up to 256 waiters at once. Of more it wakes one, which moves the others
//! to where the lock's own waiters sleep once it has the lock, so that they come one by one as the lock is unlocked:
//!
//! ```text
//!   who notifies all            the first waiter               the others
//!   sequence += 1               asleep                         asleep
//!   ALL into the state
//!   wakes one                   takes the lock
//!                               leaves the count, finds ALL
//!                               moves the others               asleep, but on the lock
//!                               unlocks                        one after the other
//! ```
//!
//! It holds the lock: so the lock's memory is there, and its word cannot change between a look and the move.
//!
//! # Invariants
//! 1. A waiter is counted from before it lets go of the lock until it has it again. So who changed something
//!    under the lock, and finds nobody counted, has nobody to wake.
//! 2. The sequence changes before anybody is woken or ALL is set. Whoever has read the old number does not go to
//!    sleep any more; whoever sleeps was there before, and the kernel wakes and moves the longest first.
//! 3. ALL is set only while somebody is counted. Every waiter that leaves looks for it, in the same step; so
//!    one of them finds it, and does the move. Others that came meanwhile are moved too: they wake for
//!    nothing, which a waiter must expect anyway.
//! 4. Waiters whose guards are taken (`wait_owned`) cannot be moved, and the first of them may be killed before
//!    it wakes the others. Once there was one, AT_ONCE is set for good: then who notifies all wakes all; so it does
//!    where processes share the condition variable, any of which may be killed. There those that the lock's holder
//!    moved look within a second of going to sleep, wherever they sleep by then (`bounded_wait.rs`).
//! 5. Waiters are moved to the lock that all of them have (`condvar/requeue.rs`). A waiter with another lock than those
//!    that wait already sets AT_ONCE before it sleeps.
//! 6. After its last store a notification touches the object no more: it wakes by address.

mod requeue;

use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

use super::condvar_guard::{CondvarGuard, OwnedGuard};
use super::futex::Futex;
use super::profile::{Kind, Wait};
use super::scope::{Private, Scope};
use super::timeout::WaitTimeoutResult;
use crate::primitive::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::futex::{self, Deadline, Wake};
use requeue::WaitersLock;

/// Somebody notified all, and the waiters are still to be moved.
const ALL: u32 = 1 << 31;
/// There are or were waiters that cannot be moved: of other locks than [`Mutex`](super::Mutex), or of several at a time.
const AT_ONCE: u32 = 1 << 30;

/// So many waiters are woken at once by a notification of all. One after the other takes four times as long: each of them
/// then waits for the wake-up of a cpu that has gone idle meanwhile.
const FEW: u32 = if cfg!(loom) { 0 } else { 256 };

fn waiters(state: u32) -> u32 {
    state & !(ALL | AT_ONCE)
}

/// Lets threads that hold a lock wait until another one says that something has changed.
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
/// It is 12 bytes, all 0 at first. It works with all exclusive locks of this module: see [`CondvarGuard`] for `wait`
/// and its kin, [`OwnedGuard`] for `wait_owned`. All who wait at one time should use the same lock: waiters of several
/// locks are woken all at once, and then contend.
///
/// # What is promised
/// A notification wakes somebody who waited when it came, never only one who came later. The other way round, a
/// waiter may wake for nothing: so it looks, in a loop, at what it waits for. What is changed under the
/// lock, and notified afterwards or before the lock is unlocked, is never missed.
///
/// Threads with real-time priority wake first, as the kernel has it, even one that came after the notification.
///
/// # Scope
/// A `Condvar` is for the threads of one process. A `Condvar<Shared>` may lie in memory that several processes
/// map, at any address, with a lock of the same scope.
///
/// # After fork
/// Nobody in the child waits. To notify costs a system call there if somebody in the parent did, nothing more.
#[repr(C)]
pub struct Condvar<S: Scope = Private> {
    sequence: Futex<S>,
    /// How many wait, [`ALL`] and [`AT_ONCE`].
    state: AtomicU32,
    lock: WaitersLock,
    scope: PhantomData<S>,
}

impl Condvar {
    /// One for the threads of this process.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Condvar::with_scope()
    }

    /// One for the threads of this process.
    #[cfg(loom)]
    pub fn new() -> Self {
        Condvar::with_scope()
    }
}

impl<S: Scope> Condvar<S> {
    /// One for whom the type says.
    #[cfg(not(loom))]
    pub const fn with_scope() -> Self {
        Condvar {
            sequence: Futex::new(0),
            state: AtomicU32::new(0),
            lock: WaitersLock::new(),
            scope: PhantomData,
        }
    }

    /// One for whom the type says.
    #[cfg(loom)]
    pub fn with_scope() -> Self {
        Condvar {
            sequence: Futex::new(0),
            state: AtomicU32::new(0),
            lock: WaitersLock::new(),
            scope: PhantomData,
        }
    }

    /// Unlocks, sleeps until notified, and locks again. May return for nothing.
    ///
    /// # Aborts
    /// In a forked child, where the lock cannot be had again because a thread that is gone holds it: a panic could be
    /// caught, and would leave a guard without its lock.
    pub fn wait<G: CondvarGuard>(&self, guard: &mut G) {
        self.sleep(guard, None);
    }

    /// As [`wait`](Self::wait), but no longer than this. Times out if no notification came within this time.
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

    /// As [`wait`](Self::wait), but until the deadline. Times out if no notification came until then.
    pub fn wait_until<G: CondvarGuard>(
        &self,
        guard: &mut G,
        deadline: Deadline,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.sleep(guard, Some(deadline)))
    }

    /// Waits as long as `condition` holds of the guard, which is looked at first.
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

    /// As [`wait_while`](Self::wait_while), but no longer than this. Times out if the condition still holds then.
    pub fn wait_while_for<G: CondvarGuard>(
        &self,
        guard: &mut G,
        span: Duration,
        condition: impl FnMut(&mut G) -> bool,
    ) -> WaitTimeoutResult {
        self.wait_while_until(guard, Deadline::after(span), condition)
    }

    /// As [`wait_while`](Self::wait_while), but until the deadline. Times out if the condition still holds then.
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

    /// As [`wait`](Self::wait) with a lock that may fail, or have something to tell, when it is locked again:
    /// takes the guard and gives what locking gives.
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
    /// Whoever notifies all of such waiters wakes them at once. A waiter that is killed after one notification was
    /// meant for it takes that along.
    pub fn wait_owned<G: OwnedGuard>(&self, guard: G) -> G::Locked {
        self.sleep_owned(guard, None).0
    }

    /// As [`wait_owned`](Self::wait_owned), but no longer than this. Times out if no notification came within
    /// this time.
    pub fn wait_owned_for<G: OwnedGuard>(
        &self,
        guard: G,
        span: Duration,
    ) -> (G::Locked, WaitTimeoutResult) {
        let (locked, is_notified) = self.sleep_owned(guard, Some(Deadline::after(span)));
        (locked, WaitTimeoutResult::of(is_notified))
    }

    /// As [`wait_owned`](Self::wait_owned), but until the deadline. Times out if no notification came until then.
    pub fn wait_owned_until<G: OwnedGuard>(
        &self,
        guard: G,
        deadline: Deadline,
    ) -> (G::Locked, WaitTimeoutResult) {
        let (locked, is_notified) = self.sleep_owned(guard, Some(deadline));
        (locked, WaitTimeoutResult::of(is_notified))
    }

    /// Wakes one waiter, the longest first; does nothing, and makes no system call, if nobody waits.
    ///
    /// While the caller holds the lock the waiter would wake only to wait for that: there
    /// [`notify_one_locked`](Self::notify_one_locked) takes half the time.
    #[inline]
    pub fn notify_one(&self) {
        if self.is_awaited() {
            self.next();
            Futex::wake(&self.sequence, 1);
        }
    }

    /// Wakes all waiters. More than 256 are woken one after the other, as each of them unlocks again, but where processes
    /// share the condition variable, since one of them may be killed.
    #[inline]
    pub fn notify_all(&self) {
        if self.is_awaited() {
            self.notify_all_slowly();
        }
    }

    /// As [`notify_one`](Self::notify_one), by the holder of the lock: the waiter is not woken until that is
    /// unlocked, so it does not wake in vain.
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

    /// As [`notify_all`](Self::notify_all), by the holder of the lock: nobody is woken until that is unlocked, and then
    /// one after the other. Where processes share it, and one is killed as it wakes, the others wake within a second.
    /// Until the last one has had the lock it takes longer than after [`notify_all`](Self::notify_all), but no thread
    /// wakes only to wait for the lock.
    ///
    /// With the guard of a lock that is not the waiters' they are woken at once, as by [`notify_all`](Self::notify_all)
    /// where it cannot move them; so they are where the kernel or a filter refuses to move them.
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
        // Relaxed: who waits reads it under the lock, and the kernel compares it.
        self.sequence.fetch_add(1, Relaxed);
    }

    fn sleep<G: CondvarGuard>(&self, guard: &mut G, deadline: Option<Deadline>) -> bool {
        self.enter(guard);
        let sequence = self.sequence.load(Relaxed);
        // SAFETY: the guard, borrowed exclusively, is not used until `reacquire`.
        unsafe { guard.release() };
        let mut wait = Wait::begin(Kind::Condvar, self);
        wait.sleeps();
        let wake = self.sequence.wait(sequence, deadline);
        wait.end(wake != Wake::TimedOut);
        // SAFETY: after `release`.
        unsafe { guard.reacquire() };
        // Acquire: partner is the Release in `notify_all_slowly`: who finds ALL finds the new number.
        if self.state.fetch_sub(1, Acquire) & ALL != 0 {
            self.pass_on(guard);
        }
        // A notification that came to a place where it waited no longer is not lost on the caller.
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
        // Acquire: as in `sleep`. It was set before anybody knew of AT_ONCE.
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
        // Where processes share it the first one might die, and would wake nobody.
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

    /// With the lock, by a waiter that found [`ALL`]: the others' turn.
    #[cold]
    fn pass_on<G: CondvarGuard>(&self, guard: &G) {
        // Another one may have been quicker; one that notifies again meanwhile finds its waiters here too.
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
#[path = "condvar_loom.rs"]
mod loom_tests;
