//! A robust lock without its data: the word, its place in the owner's list, and the order of the steps.
//!
//! ```text
//!   lock                                 unlock
//!   pending = this                       pending = this
//!   the word: 0 -> my number             out of the list
//!   into the list                        the word: my number -> 0
//!   pending = nothing                    wake one
//!                                        pending = nothing
//! ```
//!
//! # Invariants
//! 1. Whenever the word names a thread, the lock is in that thread's list, or pending there, or both. So the
//!    kernel finds every lock of a thread that dies: a list is never longer than the kernel walks it.
//! 2. Whenever the thread may have to wake somebody for the lock, it is pending there.
//! 3. A lock is in no other list than that of the thread its word names.
//! 4. `state` is written by owners only. `BROKEN` is never cleared: a thread that acquires such a lock lets it go again,
//!    so those that wait learn of it one after the other. `ORPHANED` is cleared by an owner that made the data valid; every
//!    other one is told, after a death too.
//! 5. What the forking thread owned it owns in the child, where the word has its number of the parent, and its list is
//!    empty. So such a lock is in no list.

use super::LockError;
use super::gate::Gate;
use super::waiting::Waiting;
use super::word::{self, Taken};
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::Errno;
use crate::sys::futex::{Deadline, Scope};
use crate::sys::robust_list::{Links, Thread};

/// The data is as it should be, as far as is known.
const VALID: u32 = 0;
/// An owner died, and the data was not made consistent.
const BROKEN: u32 = 1;
/// A fork left an owner behind, and the data was not made valid.
const ORPHANED: u32 = 2;

/// Laid out as libc's mutexes are, as far as the kernel goes by it. All bytes 0 is a free one.
#[repr(C)]
pub(super) struct Raw {
    #[cfg(target_env = "musl")]
    state: AtomicU32,
    word: AtomicU32,
    #[cfg(not(target_env = "musl"))]
    state: AtomicU32,
    gate: Gate,
    unused: [u32; 3],
    links: Links,
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    let entry = offset_of!(Raw, links) + size_of::<usize>();
    assert!(
        entry as isize + crate::sys::robust_list::FUTEX_OFFSET == offset_of!(Raw, word) as isize
    );
};

impl Raw {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        let (word, state) = (AtomicU32::new(word::FREE), AtomicU32::new(0));
        Raw { word, state, gate: Gate::new(), unused: [0; 3], links: Links::new() }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        let (word, state) = (AtomicU32::new(word::FREE), AtomicU32::new(0));
        Raw { word, state, gate: Gate::new(), unused: [0; 3], links: Links::new() }
    }

    /// Waits for the lock and acquires it.
    ///
    /// # Safety
    /// The lock is neither moved nor freed until it is unlocked.
    #[inline]
    pub(super) unsafe fn lock<W: Waiting>(
        &self,
        me: Thread<'_>,
        deadline: Option<Deadline>,
        scope: Scope,
    ) -> Result<Taken, LockError> {
        if !W::INHERITS && !self.gate.is_open() {
            self.gate.wait(deadline, scope);
        }
        let take = || W::take(&self.word, &self.gate, me, deadline, scope);
        // SAFETY: the caller's promise.
        unsafe { self.lock_by::<W>(me, scope, take) }
    }

    /// Acquires the lock if nobody owns it.
    ///
    /// # Safety
    /// As for [`lock`](Self::lock).
    #[inline]
    pub(super) unsafe fn try_lock<W: Waiting>(
        &self,
        me: Thread<'_>,
        scope: Scope,
    ) -> Result<Taken, LockError> {
        // SAFETY: the caller's promise.
        unsafe { self.lock_by::<W>(me, scope, || W::try_take(&self.word, me, scope)) }
    }

    /// # Safety
    /// As for [`lock`](Self::lock).
    #[inline(always)]
    unsafe fn lock_by<W: Waiting>(
        &self,
        me: Thread<'_>,
        scope: Scope,
        take: impl FnOnce() -> Result<Taken, LockError>,
    ) -> Result<Taken, LockError> {
        if !me.has_room() {
            return Err(LockError::TooManyHeld);
        }
        me.publish(self.links.entry(), W::INHERITS);
        let (free, mine) = (word::FREE, me.number);
        // Acquire: partner is the Release of `Waiting`'s `leave`.
        let fast = self.word.compare_exchange(free, mine, Ordering::Acquire, Ordering::Relaxed);
        me.step();
        let taken = match fast {
            Ok(_) => Ok(Taken::Clean),
            Err(_) => take(),
        };
        if taken == Ok(Taken::Orphaned) {
            self.mark_orphaned();
        }
        if taken.is_ok() {
            // SAFETY: nobody owned it, so it is in no list (3); the caller's promise.
            unsafe { me.link(&self.links, W::INHERITS) };
        }
        me.withdraw();
        // Relaxed: written by owners (4).
        if taken.is_ok() && self.state.load(Ordering::Relaxed) != VALID {
            return self.refuse::<W>(me, scope);
        }
        taken
    }

    #[cold]
    fn refuse<W: Waiting>(&self, me: Thread<'_>, scope: Scope) -> Result<Taken, LockError> {
        if self.state.load(Ordering::Relaxed) == ORPHANED {
            return Ok(Taken::Orphaned);
        }
        let _ = self.unlock::<W>(me, scope);
        Err(LockError::NotRecoverable)
    }

    /// By an owner that took the lock from one that a fork left behind.
    #[cold]
    fn mark_orphaned(&self) {
        // Relaxed: the unlocking that follows publishes it. What is broken stays so.
        if self.state.load(Ordering::Relaxed) == VALID {
            self.state.store(ORPHANED, Ordering::Relaxed);
        }
    }

    /// By an owner that made the data of an orphaned lock valid.
    #[cold]
    pub(super) fn mark_valid(&self) {
        // Relaxed: as above.
        self.state.store(VALID, Ordering::Relaxed);
    }

    /// Lets the lock go. Afterwards its memory may be gone.
    ///
    /// # Errors
    /// `EPERM` if the thread does not own it: nothing is done.
    #[inline]
    pub(super) fn unlock<W: Waiting>(&self, me: Thread<'_>, scope: Scope) -> Result<(), Errno> {
        if !self.is_mine(me) {
            return self.unlock_since_before_fork(scope);
        }
        me.publish(self.links.entry(), W::INHERITS);
        // SAFETY: the word names this thread, and what it locked it linked. (3)
        unsafe { me.unlink(&self.links) };
        W::leave(&self.word, me, scope);
        me.withdraw();
        Ok(())
    }

    /// Lets the lock go that the thread owned when it forked (5).
    #[cold]
    fn unlock_since_before_fork(&self, scope: Scope) -> Result<(), Errno> {
        if !word::is_mine_since_before_fork(&self.word, scope) {
            return Err(Errno::EPERM);
        }
        word::leave_since_before_fork(&self.word);
        Ok(())
    }

    /// Whether the thread owns the lock.
    #[inline(always)]
    fn is_mine(&self, me: Thread<'_>) -> bool {
        // Relaxed: only the thread itself writes its number there.
        word::owner(self.word.load(Ordering::Relaxed)) == me.number
    }

    /// Gives the lock up for ever, if the thread owns it.
    #[cold]
    pub(super) fn give_up(&self, me: Thread<'_>, scope: Scope) {
        if self.is_mine(me) || word::is_mine_since_before_fork(&self.word, scope) {
            // Relaxed: the unlocking that follows publishes it.
            self.state.store(BROKEN, Ordering::Relaxed);
            me.step();
        }
    }
}

#[cfg(all(test, loom))]
#[path = "raw_loom.rs"]
mod loom_tests;
