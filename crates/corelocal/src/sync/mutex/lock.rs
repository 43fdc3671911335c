//! The mutex algorithm, without the protected value: two words, of which an uncontended lock uses only the first.
//!
//! `word.rs` has the two words and their bits.
//!
//! The first word changes with every owner, the second one only when a thread begins to wait, leaves, or is woken. So
//! a thread that wants to sleep is not disturbed by others that pass the lock around. A waiter counts itself in the
//! queue, sets WAITERS in the word, and sleeps while the queue holds no token.
//!
//! ```text
//!                 lock: compare-exchange                     unlock: `uncontended_unlock.rs`, compare-exchange
//!      FREE ------------------------------> OWNED by a tag -----------------------------> FREE
//!                                             |
//!                                             | a waiter comes: WAITERS
//!                                             v
//!   +-----------------------------> OWNED, WAITERS ----------------------------------+
//!   |                                 ^       |  unlock: WAKING, then a token, then  |
//!   | the waiter with the token       |       v  the lock is freed, then a wake-up   |
//!   | finds it owned and sleeps again |     FREE, WAITERS, WAKING                    |
//!   |                                 |       |  any thread may take it              |
//!   |                                 |       v                                      |
//!   +------------------------------ OWNED, WAITERS, WAKING <-------------------------+
//!                                     unlock here wakes no thread: one is on its way
//! ```
//!
//! # At most one waiter is on its way
//! An unlock that finds WAITERS without WAKING gives a token. No further token is given until the waiter that took it
//! has the lock or sleeps again: both clear WAKING. So threads are not woken faster than they can run. The token may
//! be taken by the thread that was woken, or by one that was just about to sleep:
//!
//! ```text
//!   owner                                    waiter, counted in the queue
//!   WAKING into the word                     finds no token
//!   the token into the queue
//!   the word is freed                        futex_wait(queue, old value): the kernel sees the token,
//!   futex_wake(queue, 1)                     or the wake-up finds the sleeper
//! ```
//!
//! The token is there before the lock is freed: after that store the memory may be gone, and the wake-up uses the
//! address only.
//!
//! # No thread starves
//! A free lock goes to the first thread that takes it, mostly one that is already running: fast, and unfair. A waiter
//! that has waited for `PATIENCE` (`waiter.rs`) sets STARVED. An unlock then frees the lock for waiters only: threads
//! that have slept, one of which is awake (the starving one) or on its way. The bit stays until a starving waiter has
//! the lock. So each thread gets its turn about every `PATIENCE`, at a cost to others that is too small to notice.
//! FAIR has the same effect for one unlock.
//!
//! # Invariants
//! 1. The tag is not 0 while a thread owns the lock. Only that thread clears it, except that `adopt` takes it from a
//!    thread that did not survive a fork. What an owner did happens before what the next owner does.
//! 2. The queue counts every thread that sleeps on it or is about to, except guests (see below). Such a thread set
//!    WAITERS after it was counted, by a read-modify-write of a word with an owner.
//! 3. WAITERS is cleared only by an owner that afterwards finds the queue empty, or else sets the bit again. Either
//!    the waiter's write to the word comes first, and the owner sees it counted; or the owner's comes first, and the
//!    waiter sets the bit again. An unlock in a section checks the queue before; there the waiter's fence orders both
//!    (`uncontended_unlock.rs`).
//! 4. While WAKING is set, the token is in the queue, or a thread took it and has not slept since, or no thread
//!    waits. A thread that gives up takes the token first, and clears WAKING. A guest that wakes by itself may come
//!    before its token, which then stays; the owner that moves guests here removes it (`condvar.pml`).
//! 5. Only an owner accesses the object after it has the lock, and not after the store that frees it.
//!
//! A process that records lock order (`profile/order/`) sets WAITERS and FENCED in each mutex that it locks, although
//! no thread waits. The unlock then takes the slow path, which records it and clears WAITERS.
//!
//! Guests are threads that slept on a condition variable and were moved here by the kernel. They do not know that, so
//! the owner that moved them counts them, and the unlock that wakes one removes it from the count. While ordinary
//! waiters are present as well, it is unknown which thread a wake-up reaches: then no guest is removed, and the
//! surplus costs a token later.
//!
//! # After fork
//! A forked child has one thread, the one that called fork. A lock that another thread owned stays owned by a thread
//! that is gone:
//! - The value may be inconsistent, so no attempt to lock succeeds: blocking ones panic, others fail at once.
//! - [`adopt`](Lock::adopt) takes the lock over, and [`abandon`](Lock::abandon) gives it back to the owner that is
//!   gone.
//! - Threads that sleep while it is adopted and then abandoned all wake up. Each one that leaves puts a token into
//!   the queue before it wakes the others, so that a thread that is about to sleep does not.
//! - FENCED and WAITERS are set as long as the owner is gone. An erroneous unlock, by a `lock_api` guard that lost
//!   its lock to a panic, then takes the slow path, which finds that the owner is gone and does nothing.
//!
//! What waiters of the parent left in the queue costs a token that no thread takes, and the next waiter some patience
//! if one of them starved. A lock that processes share is owned by its process; the copy of a guard in a forked child
//! does not belong to that process, and unlocks nothing.

use core::time::Duration;

use super::owner;
use super::waiter::Waiter;
use super::word::{
    FENCED, FLAGS, GUEST, Lock, MASK, MOST_GUESTS, NotTaken, TOKEN, Taken, WAITERS, WAKING, guests,
    is_deserted, is_free,
};

use crate::primitive::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
use crate::sync::machinery::futex::Futex;
use crate::sync::machinery::scope::Scope;
use crate::sync::mutex::abort_on_unwind::AbortOnUnwind;
use crate::sync::profile::order::{self, Blocking};
use crate::sync::profile::{self, Wait};
use crate::sys::futex::{self, Deadline};

impl<S: Scope> Lock<S> {
    /// Locks, and sleeps until that is possible.
    #[inline]
    pub(in crate::sync) fn lock(&self) -> Taken {
        match owner::known::<S>() {
            Some(tag) if self.take_at_once(tag) => Taken { tag },
            _ => self.lock_or_panic(),
        }
    }

    /// Takes the slow path: the lock is not free, or the thread's name is not cached, because it locks for the first
    /// time or is recorded.
    fn lock_blocking(&self, is_guest: bool) -> Result<Taken, NotTaken> {
        if owner::known::<S>().is_some() {
            return self.lock_slowly(None, is_guest);
        }
        let tag = owner::mine::<S>();
        let blocking = Blocking::begin(self);
        let taken = match self.take_at_once(tag) {
            true => Taken { tag },
            false => self.lock_slowly(None, is_guest)?,
        };
        self.mark_if(blocking.end());
        Ok(taken)
    }

    /// Marks the lock, which the caller has just taken, if its unlock is to be recorded: sets flags with which the
    /// unlock takes the slow path, where it finds that no thread waits.
    fn mark_if(&self, is_recorded: bool) {
        if is_recorded && S::FUTEX == futex::Scope::Private {
            // No other thread runs a section on this lock: it would own it. Later owners see FENCED.
            self.queue.fetch_or(FENCED, Relaxed);
            self.word.fetch_or(WAITERS, Relaxed);
        }
    }

    #[inline(always)]
    fn mark_if_recorded(&self) {
        if S::FUTEX == futex::Scope::Private {
            self.mark_if(order::took(self));
        }
    }

    /// Locks; `None` if that was not possible before the deadline.
    #[inline]
    pub(in crate::sync) fn lock_until(&self, deadline: Deadline) -> Option<Taken> {
        match owner::known::<S>() {
            Some(tag) if self.take_at_once(tag) => Some(Taken { tag }),
            _ => self.lock_until_slowly(deadline),
        }
    }

    /// Locks; `None` if that was not possible within the time. The clock is not read if the lock is free and the
    /// thread's name is cached.
    #[inline]
    pub(in crate::sync) fn lock_for(&self, span: Duration) -> Option<Taken> {
        match owner::known::<S>() {
            Some(tag) if self.take_at_once(tag) => Some(Taken { tag }),
            _ => self.lock_until_slowly(Deadline::after(span)),
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_until_slowly(&self, deadline: Deadline) -> Option<Taken> {
        let slowly = || self.lock_slowly(Some(deadline), false).ok();
        match owner::known::<S>() {
            Some(_) => slowly(),
            None => self.try_lock_unknown(slowly),
        }
    }

    /// Locks without waiting for ever: at once, or else by `slowly`. For a thread whose name is not cached.
    fn try_lock_unknown(&self, slowly: impl FnOnce() -> Option<Taken>) -> Option<Taken> {
        let tag = owner::mine::<S>();
        let taken = if self.take_at_once(tag) { Some(Taken { tag }) } else { slowly() };
        taken.inspect(|_| self.mark_if_recorded())
    }

    /// Does what [`lock`](Self::lock) does, for a thread that slept as a guest, or may have, and whose caller keeps the
    /// guard.
    #[inline]
    pub(in crate::sync) fn lock_as_guest(&self) {
        // A lock without flags has given no token.
        match owner::known::<S>() {
            Some(tag) if self.take_at_once(tag) => {}
            _ => self.relock_slowly(true),
        }
    }

    /// Does what [`lock`](Self::lock) does, for a thread whose caller keeps the guard.
    #[inline]
    pub(super) fn relock(&self) {
        match owner::known::<S>() {
            Some(tag) if self.take_at_once(tag) => {}
            _ => self.relock_slowly(false),
        }
    }

    #[cold]
    #[inline(never)]
    fn relock_slowly(&self, is_guest: bool) {
        if let Err(NotTaken::HolderGone(_)) = self.lock_blocking(is_guest) {
            let _end = AbortOnUnwind;
            holder_is_gone();
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_or_panic(&self) -> Taken {
        match self.lock_blocking(false) {
            Ok(taken) => taken,
            Err(_) => holder_is_gone(),
        }
    }

    /// Locks, and sleeps until that is possible; or takes the lock over from an owner that is gone, whose tag is
    /// returned.
    pub(in crate::sync) fn lock_or_adopt(&self) -> Result<Taken, (Taken, u32)> {
        match owner::known::<S>() {
            Some(tag) => self.lock_or_adopt_as(tag),
            None => {
                let tag = owner::mine::<S>();
                let blocking = Blocking::begin(self);
                let taken = self.lock_or_adopt_as(tag);
                self.mark_if(blocking.end());
                taken
            }
        }
    }

    fn lock_or_adopt_as(&self, tag: u32) -> Result<Taken, (Taken, u32)> {
        loop {
            if self.take_at_once(tag) {
                return Ok(Taken { tag });
            }
            match self.lock_slowly(None, false) {
                Ok(taken) => return Ok(taken),
                Err(NotTaken::HolderGone(gone)) if self.adopt(gone, tag) => {
                    return Err((Taken { tag }, gone));
                }
                Err(_) => (),
            }
        }
    }

    /// Takes the lock over from the owner with the tag `gone`, which did not survive a fork; false if another thread
    /// did.
    fn adopt(&self, gone: u32, tag: u32) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & MASK == gone {
            // Acquire: of the fork, which copied all that the owner had done, and after which the child's threads
            // were started. Or of `abandon`.
            match self.word.compare_exchange(word, word & FLAGS | tag, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Frees the lock if its owner did not survive a fork, because the value is known to be valid. Returns whether it
    /// did.
    #[cfg(all(feature = "lock_api", not(loom)))]
    pub(in crate::sync) fn forget_holder(&self) -> bool {
        let gone = self.word.load(Relaxed) & MASK;
        let is_adopted = owner::is_gone::<S>(gone) && self.adopt(gone, owner::mine::<S>());
        if is_adopted {
            self.unlock_slowly(0);
        }
        is_adopted
    }

    /// Locks if the lock is free.
    #[inline]
    pub(in crate::sync) fn try_lock(&self) -> Option<Taken> {
        match owner::known::<S>() {
            Some(tag) if self.take_at_once(tag) => Some(Taken { tag }),
            _ => self.try_lock_slowly(),
        }
    }

    /// Returns `true` if the lock is owned, also by a thread that is gone.
    pub(in crate::sync) fn is_locked(&self) -> bool {
        !is_free(self.word.load(Relaxed))
    }

    /// Unlocks as if the thread with this tag, which no longer exists, still held the lock.
    ///
    /// # Safety
    /// - The caller holds the lock.
    pub(in crate::sync) unsafe fn abandon(&self, gone: u32) {
        order::let_go(self);
        // No critical section of another thread is running: that thread would hold the lock.
        self.queue.fetch_or(FENCED, Relaxed);
        // Release: partner is the Acquire in `adopt`.
        self.change_word(Release, |_| gone | WAITERS);
        // The token comes after the word: a waiter that saw the lock held finds one of the two.
        self.dismiss_waiters();
    }

    /// Wakes all sleeping waiters, and prevents others from falling asleep, because the owner no longer exists.
    #[cold]
    pub(super) fn dismiss_waiters(&self) {
        // AcqRel: partner is the Acquire in `Waiter::take_token`.
        self.queue.fetch_or(TOKEN, AcqRel);
        Futex::wake(&self.queue, u32::MAX);
    }

    /// Sets the word to its value for an owner that no longer exists, if it still names that owner.
    #[cold]
    pub(super) fn mark_orphaned(&self, gone: u32) {
        // Relaxed: a thread that adopts the lock acquires the fork.
        self.change_word(Relaxed, |word| match word & MASK == gone {
            true => gone | WAITERS,
            false => word,
        });
    }

    fn change_word(&self, success: Ordering, to: impl Fn(u32) -> u32) {
        let mut word = self.word.load(Relaxed);
        while let Err(now) = self.word.compare_exchange(word, to(word), success, Relaxed) {
            word = now;
        }
    }

    /// Returns the futex to which a condition variable requeues its waiters.
    pub(in crate::sync) fn queue(&self) -> &Futex<S> {
        &self.queue
    }

    /// Returns how many more guests the queue can count.
    pub(in crate::sync) fn room_for_guests(&self) -> u32 {
        MOST_GUESTS - guests(self.queue.load(Relaxed))
    }

    /// Counts waiters that were requeued here, so that later unlocks wake them.
    ///
    /// # Safety
    /// - The caller holds the lock, and has held it since before they were requeued.
    pub(in crate::sync) unsafe fn expect_guests(&self, count: u32) {
        // A token left in the queue may be for a guest that timed out and will not take it. A guest that is still on
        // its way finds no token, and is either woken again or arrives in time.
        if self.queue.fetch_and(!TOKEN, Relaxed) & TOKEN != 0 {
            self.word.fetch_and(!WAKING, Relaxed);
        }
        self.queue.fetch_add(count * GUEST, Relaxed);
        self.word.fetch_or(WAITERS, Relaxed);
    }

    /// Returns whether the lock is free and no waiter has left a trace, apart from FENCED.
    #[cfg(test)]
    pub(in crate::sync) fn is_at_rest(&self) -> bool {
        self.word.load(Relaxed) == 0 && self.queue.load(Relaxed) & !FENCED == 0
    }

    /// Returns a lock whose waiters may time out at any step.
    #[cfg(loom)]
    fn timed() -> Self {
        Lock { is_timed: true, ..Lock::new() }
    }

    /// Creates a lock whose uncontended unlock is a critical section.
    #[cfg(loom)]
    fn with_sections() -> Self {
        Lock { has_sections: true, ..Lock::new() }
    }

    /// Returns the same, where no fence aborts the critical sections.
    #[cfg(loom)]
    fn without_fences() -> Self {
        Lock { refuses_fences: true, ..Lock::with_sections() }
    }

    /// Returns whether a thread waits or is about to.
    #[cfg(all(test, not(loom)))]
    pub(in crate::sync) fn is_awaited(&self) -> bool {
        self.word.load(Relaxed) & WAITERS != 0
    }

    #[inline(always)]
    fn take_at_once(&self, tag: u32) -> bool {
        // Acquire: partner is the Release of the previous owner's unlock (invariant 1).
        self.word.compare_exchange(0, tag, Acquire, Relaxed).is_ok()
    }

    #[cold]
    fn try_lock_slowly(&self) -> Option<Taken> {
        match owner::known::<S>() {
            Some(tag) => self.try_lock_as(tag),
            None => self.try_lock_unknown(|| self.try_lock_as(owner::mine::<S>())),
        }
    }

    fn try_lock_as(&self, tag: u32) -> Option<Taken> {
        let mut word = self.word.load(Relaxed);
        loop {
            if !is_free(word) {
                return None;
            }
            let taken = word & FLAGS | tag;
            // Acquire: as in `take_at_once`.
            match self.word.compare_exchange(word, taken, Acquire, Relaxed) {
                Ok(_) => return Some(Taken { tag }),
                Err(now) => word = now,
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, deadline: Option<Deadline>, is_guest: bool) -> Result<Taken, NotTaken> {
        let mut wait = Wait::begin(profile::Kind::Mutex, self);
        let taken = Waiter::new(self, deadline, is_guest).wait(&mut wait);
        wait.end(taken.is_ok());
        taken
    }

    /// Clears the flags of a lock that seems to have no waiters. Called with the lock held. Returns the new word.
    pub(super) fn tidy(&self) -> u32 {
        // AcqRel: partner is the AcqRel in `Waiter::sleep` (invariant 3).
        let word = self.word.fetch_and(!FLAGS, AcqRel) & !FLAGS;
        // A token that no waiter took would be left behind.
        let queue = self.queue.fetch_and(!TOKEN, Relaxed);
        match is_deserted(queue) {
            true => word,
            false => self.word.fetch_or(WAITERS, Relaxed) | WAITERS,
        }
    }
}

/// Ends a blocking attempt to take a lock whose owner no longer exists.
#[cold]
#[inline(never)]
fn holder_is_gone() -> ! {
    panic!(
        "a thread that held this mutex when the process was forked is not in the child, and may have left the value half \
         changed: in the child lock it by `lock_checked`, and `reset` the value (of a `RawMutex`: `forget_holder`)"
    )
}

#[cfg(all(test, loom))]
mod loom;
