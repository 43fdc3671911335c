//! A robust lock without its data: the word, its place in the owner's list, and the order of the steps.
//!
//! ```text
//!   lock                                 unlock
//!   pending = this                       pending = this
//!   word: 0 -> own number                remove from the list
//!   insert into the list                 word: own number -> 0
//!   pending = none                       wake one
//!                                        pending = none
//! ```
//!
//! # Invariants
//! 1. Whenever the word names a thread, the lock is in that thread's list, or pending there, or both. So the kernel
//!    finds every lock of a thread that dies. A list is never longer than the kernel walks it.
//! 2. Whenever the thread may have to wake a waiter of the lock, the lock is pending there.
//! 3. A lock is in no list other than that of the thread that its word names.
//! 4. Only owners write `state`. `BROKEN` is never cleared: a thread that acquires such a lock unlocks it again, so
//!    the waiters learn of it one after the other. `ORPHANED` is cleared by an owner that made the data valid. Every
//!    other owner is told of it, also after a death.
//! 5. The forking thread owns its locks in the child as well. There the word has its number of the parent, and its
//!    list is empty, so such a lock is in no list.

use super::LockError;
use super::gate::Gate;
use super::waiting::Waiting;
use super::word::{self, Taken};
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::Errno;
use crate::sys::futex::{Deadline, Scope};
use crate::sys::thread::robust_list::{Links, Thread};

/// The data is valid, as far as is known.
const VALID: u32 = 0;
/// An owner died, and the data was not made consistent.
const BROKEN: u32 = 1;
/// A fork left an owner behind, and the data was not made valid.
const ORPHANED: u32 = 2;

/// Laid out like libc's mutexes, as far as the kernel relies on it. All bytes 0 is a free lock.
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
        entry as isize + crate::sys::thread::robust_list::FUTEX_OFFSET
            == offset_of!(Raw, word) as isize
    );
};

impl Raw {
    const_fn! {
        pub(super) const fn new() -> Self {
            let (word, state) = (AtomicU32::new(word::FREE), AtomicU32::new(0));
            Raw { word, state, gate: Gate::new(), unused: [0; 3], links: Links::new() }
        }
    }

    /// Waits for the lock and acquires it.
    ///
    /// # Safety
    /// - The lock is neither moved nor freed until it is unlocked.
    #[inline]
    pub(super) unsafe fn lock<W: Waiting>(
        &self,
        me: Thread<'_>,
        deadline: Option<Deadline>,
        scope: Scope,
    ) -> Result<Taken, LockError> {
        let is_open = W::INHERITS || self.gate.is_open() || self.gate.wait(deadline, scope);
        let take = || W::take(&self.word, &self.gate, me, deadline, scope);
        // SAFETY: the caller guarantees that the lock is neither moved nor freed until it is unlocked.
        let taken = unsafe { self.lock_by::<W>(me, scope, take) };
        if !is_open && taken.is_ok() {
            self.gate.open(scope);
        }
        taken
    }

    /// Acquires the lock if it is free.
    ///
    /// # Safety
    /// - The lock is neither moved nor freed until it is unlocked.
    #[inline]
    pub(super) unsafe fn try_lock<W: Waiting>(
        &self,
        me: Thread<'_>,
        scope: Scope,
    ) -> Result<Taken, LockError> {
        // SAFETY: the caller guarantees that the lock is neither moved nor freed until it is unlocked.
        unsafe { self.lock_by::<W>(me, scope, || W::try_take(&self.word, me, scope)) }
    }

    /// # Safety
    /// - The lock is neither moved nor freed until it is unlocked.
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
        // Acquire: partner is the Release in `leave` of the `Waiting`.
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
            // SAFETY: the lock had no owner, so it is in no list (invariant 3). The caller keeps it in place until it
            // is unlocked.
            unsafe { me.link(&self.links, W::INHERITS) };
        }
        me.withdraw();
        // Relaxed: only owners write it (invariant 4).
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

    /// Called by an owner that took the lock from one that a fork left behind.
    #[cold]
    fn mark_orphaned(&self) {
        // Relaxed: the unlock that follows publishes it. `BROKEN` stays.
        if self.state.load(Ordering::Relaxed) == VALID {
            self.state.store(ORPHANED, Ordering::Relaxed);
        }
    }

    /// Called by an owner that made the data of an orphaned lock valid.
    #[cold]
    pub(super) fn mark_valid(&self) {
        // Relaxed: the unlock that follows publishes it.
        self.state.store(VALID, Ordering::Relaxed);
    }

    /// Unlocks. The lock's memory may be freed afterwards.
    ///
    /// # Errors
    /// `EPERM` if the thread does not own the lock, which then stays as it is.
    #[inline]
    pub(super) fn unlock<W: Waiting>(&self, me: Thread<'_>, scope: Scope) -> Result<(), Errno> {
        if !self.is_mine(me) {
            return self.unlock_since_before_fork(scope);
        }
        me.publish(self.links.entry(), W::INHERITS);
        // SAFETY: the word names this thread, and it has linked the lock when it locked it (invariant 3).
        unsafe { me.unlink(&self.links) };
        W::leave(&self.word, me, scope);
        me.withdraw();
        Ok(())
    }

    /// Unlocks a lock that the thread owned when it forked (invariant 5).
    #[cold]
    fn unlock_since_before_fork(&self, scope: Scope) -> Result<(), Errno> {
        if !word::is_mine_since_before_fork(&self.word, scope) {
            return Err(Errno::EPERM);
        }
        word::leave_since_before_fork(&self.word);
        Ok(())
    }

    /// Returns whether the thread owns the lock.
    #[inline(always)]
    fn is_mine(&self, me: Thread<'_>) -> bool {
        // Relaxed: only the thread itself writes its number there.
        word::owner(self.word.load(Ordering::Relaxed)) == me.number
    }

    /// Makes the lock unusable, if the thread owns it.
    #[cold]
    pub(super) fn give_up(&self, me: Thread<'_>, scope: Scope) {
        if self.is_mine(me) || word::is_mine_since_before_fork(&self.word, scope) {
            // Relaxed: the unlock that follows publishes it.
            self.state.store(BROKEN, Ordering::Relaxed);
            me.step();
        }
    }
}

#[cfg(all(test, loom))]
mod loom;
