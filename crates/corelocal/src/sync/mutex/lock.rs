//! The lock itself, without what it protects: two words, of which an uncontended one uses the first.
//!
//! ```text
//!   word    31 STARVED   30 FAIR   29 WAKING   28 WAITERS   27..0 holder's tag, 0 if free
//!   queue   31 FENCED   30..16 guests   15..1 waiters   0 TOKEN     what threads sleep on
//! ```
//!
//! The first word changes with every holder, the second one only when a thread comes to sleep or goes, or is
//! woken: so who wants to sleep is not kept from it by others that pass the lock to and fro. A waiter counts
//! itself in the queue, sets WAITERS in the word, and sleeps while the queue holds no token.
//!
//! ```text
//!                 lock: compare-exchange                     unlock: `uncontended_unlock.rs`, compare-exchange
//!      FREE ------------------------------> HELD by a tag ------------------------------> FREE
//!                                             |
//!                                             | a waiter comes: WAITERS
//!                                             v
//!   +-----------------------------> HELD, WAITERS -----------------------------------+
//!   |                                 ^       |  unlock: WAKING, then a token, then  |
//!   | who took the token finds it     |       v  the lock is free, then a wake-up    |
//!   | held again and sleeps again     |     FREE, WAITERS, WAKING                    |
//!   |                                 |       |  anybody who comes by may take it    |
//!   |                                 |       v                                      |
//!   +------------------------------ HELD, WAITERS, WAKING <--------------------------+
//!                                     unlock here wakes nobody: one is on its way
//! ```
//!
//! # One waiter is on its way
//! A token is given by an unlock that finds WAITERS without WAKING, and no other is given until whoever took
//! it has the lock or sleeps again: both clear WAKING. So threads are not woken faster than they can run. The
//! token may be taken by the thread that was woken or by one that was just about to sleep:
//!
//! ```text
//!   holder                                   waiter, of which the queue knows
//!   WAKING into the word                     finds no token
//!   the token into the queue
//!   the word is free                         futex_wait(queue, as it was): the kernel sees the token,
//!   futex_wake(queue, 1)                     or the wake-up finds the sleeper
//! ```
//!
//! The token is there before the lock is free: after that store the memory may be gone, and the wake-up is
//! by address only.
//!
//! # Nobody starves
//! A free lock goes to whoever takes it first, which is mostly a thread that runs already: fast, and unfair.
//! A waiter that has waited for `PATIENCE` (`waiter.rs`) sets STARVED. Then an unlock frees the lock for waiters alone:
//! those that slept, one of which is awake (the starving one) or on its way. The bit stays until one that
//! starves has the lock. So each thread gets its turn about every `PATIENCE`, and the others lose no
//! time by it that they notice. FAIR is the same for one unlock, whose caller asked for it.
//!
//! # Invariants
//! 1. The tag is not 0 as long as somebody holds the lock. Only who set it clears it, but for a thread that a
//!    fork left behind, from which `adopt` takes it. What a holder did happens before what the next one does.
//! 2. The queue counts every thread that sleeps on it, or is about to, but for guests (see below). Such a thread
//!    set WAITERS, by a read-modify-write of a word that was held, after it was counted.
//! 3. WAITERS is cleared only by a holder that afterwards looks at the queue and finds nobody, or sets it again.
//!    Either the waiter's write to the word comes first, then the holder sees it counted; or the holder's,
//!    then the waiter sets the bit again. Or by one that looked before, in a section: then the waiter's fence
//!    comes between (`uncontended_unlock.rs`).
//! 4. While WAKING is set the token is in the queue, or a thread took it and has not slept since, or nobody
//!    waits. A thread that leaves takes the token along first, and clears WAKING. A guest that wakes by itself
//!    may come before its token, which then stays: who moves guests there takes it away (`condvar.pml`).
//! 5. Only a holder touches the object after it, and none after the store that frees it.
//!
//! A process that records the order of its locks (`profile/order/`) sets WAITERS and FENCED in each mutex that it
//! locks, though nobody waits: then the unlock takes the slow path, which records it and clears WAITERS.
//!
//! Guests slept on a condition variable and were moved here by the kernel. They do not know it, so it is the
//! holder who moved them that counts them, and the unlock that wakes one that strikes it off. While others wait
//! too, nobody knows whom a wake-up reaches: then none is struck off, and one too many costs a token later.
//!
//! # After fork
//! A child has one thread, the one that forked. A lock that another thread held stays locked by a holder that is gone:
//! - The value may be half changed, so no attempt to lock takes it: blocking ones panic, others fail at once.
//! - [`adopt`](Lock::adopt) takes the lock over, and [`abandon`](Lock::abandon) gives it back to the gone holder.
//! - Threads that sleep while it is adopted, and abandoned then, wake one and all. Each one that leaves puts a token
//!   into the queue before it wakes the others: so a thread that is about to sleep does not.
//! - FENCED and WAITERS are set as long as the holder is gone. An unlock by mistake, of a `lock_api` guard that lost its
//!   lock to a panic, then takes the slow path, which finds that the holder is gone, and does nothing.
//!
//! What waiters left in the queue costs a token that no thread takes, and the next waiter some polite waiting if
//! one of them starved. A lock that processes share is held by its process; the copy of a guard in a child is not of that
//! process, and unlocks nothing.

use core::time::Duration;

use super::owner;
use super::uncontended_unlock;
use super::waiter::Waiter;
use crate::primitive::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
use crate::sync::futex::Futex;
use crate::sync::mutex::abort_on_unwind::AbortOnUnwind;
use crate::sync::profile::order::{self, Blocking};
use crate::sync::profile::{self, Wait};
use crate::sync::scope::Scope;
use crate::sys::futex::{self, Deadline};

// The word.
pub(super) const STARVED: u32 = 1 << 31;
pub(super) const FAIR: u32 = 1 << 30;
pub(super) const WAKING: u32 = 1 << 29;
pub(super) const WAITERS: u32 = 1 << 28;
pub(super) const FLAGS: u32 = STARVED | FAIR | WAKING | WAITERS;
const _: () = assert!(FLAGS & owner::MASK == 0);

// The queue.
pub(super) const TOKEN: u32 = 1;
pub(super) const WAITER: u32 = 1 << 1;
const GUEST: u32 = 1 << 16;
pub(super) const FENCED: u32 = 1 << 31;
pub(super) const MOST_WAITERS: u32 = (1 << 15) - 1;
const MOST_GUESTS: u32 = (1 << 15) - 1;

pub(super) fn is_free(word: u32) -> bool {
    word & owner::MASK == 0
}

/// Whether the lock, if free, is for those who slept.
pub(super) fn is_reserved(word: u32) -> bool {
    word & (STARVED | FAIR) != 0
}

/// Whether the unlock of a lock with this word has to give a token.
fn wants_token(word: u32) -> bool {
    word & (WAITERS | WAKING) == WAITERS
}

pub(super) fn is_deserted(queue: u32) -> bool {
    queue & !(TOKEN | FENCED) == 0
}

pub(super) fn waiters(queue: u32) -> u32 {
    queue >> 1 & MOST_WAITERS
}

fn guests(queue: u32) -> u32 {
    queue >> 16 & MOST_GUESTS
}

/// How the lock was got.
#[derive(Clone, Copy)]
pub(in crate::sync) struct Taken {
    /// The holder's tag.
    pub(super) tag: u32,
}

/// Why the lock was not got.
#[derive(Clone, Copy)]
pub(super) enum NotTaken {
    /// Another thread holds it, and the deadline has passed.
    TooLate,
    /// The thread with this tag holds it, which a fork left behind.
    HolderGone(u32),
}

/// See the module's text. All bytes 0 is a free one.
#[repr(C)]
pub(in crate::sync) struct Lock<S: Scope> {
    pub(super) word: Futex<S>,
    pub(super) queue: Futex<S>,
    /// Whether patience ends in this model.
    #[cfg(loom)]
    pub(super) is_timed: bool,
    /// Whether critical sections work in this model.
    #[cfg(loom)]
    pub(super) has_sections: bool,
    /// Whether the kernel ends no sections in this model.
    #[cfg(loom)]
    pub(super) refuses_fences: bool,
}

impl<S: Scope> Lock<S> {
    #[cfg(not(loom))]
    pub(in crate::sync) const fn new() -> Self {
        Lock { word: Futex::new(0), queue: Futex::new(0) }
    }

    #[cfg(loom)]
    pub(in crate::sync) fn new() -> Self {
        let (word, queue) = (Futex::new(0), Futex::new(0));
        Lock { word, queue, is_timed: false, has_sections: false, refuses_fences: false }
    }

    /// Takes the lock, asleep until it can.
    #[inline]
    pub(in crate::sync) fn lock(&self) -> Taken {
        match owner::known::<S>() {
            Some(tag) if self.take_at_once(tag) => Taken { tag },
            _ => self.lock_or_panic(),
        }
    }

    /// The same, slowly: the lock is not free, or the thread does not know its name. Then it locks for the first time,
    /// or is recorded.
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

    /// Marks the lock, which the caller has just taken, if its unlock is to be recorded: by flags for which the unlock
    /// takes the slow path, and finds that nobody waits.
    fn mark_if(&self, is_recorded: bool) {
        if is_recorded && S::FUTEX == futex::Scope::Private {
            // No section of another thread runs: it would hold the lock. Later holders see FENCED.
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

    /// Takes the lock; nothing if it could not until the deadline.
    #[inline]
    pub(in crate::sync) fn lock_until(&self, deadline: Deadline) -> Option<Taken> {
        match owner::known::<S>() {
            Some(tag) if self.take_at_once(tag) => Some(Taken { tag }),
            _ => self.lock_until_slowly(deadline),
        }
    }

    /// Takes the lock; nothing if it could not in that time. The time is not asked for if it is free and the
    /// thread knows its name.
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

    /// Takes the lock as one that does not wait for ever: at once, or else by `slowly`. For a thread that does not know
    /// its name.
    fn try_lock_unknown(&self, slowly: impl FnOnce() -> Option<Taken>) -> Option<Taken> {
        let tag = owner::mine::<S>();
        let taken = if self.take_at_once(tag) { Some(Taken { tag }) } else { slowly() };
        taken.inspect(|_| self.mark_if_recorded())
    }

    /// As [`lock`](Self::lock), for a thread that slept as a guest, or may have, and whose caller has the guard.
    #[inline]
    pub(in crate::sync) fn lock_as_guest(&self) {
        // A lock without flags has given no token.
        match owner::known::<S>() {
            Some(tag) if self.take_at_once(tag) => {}
            _ => self.relock_slowly(true),
        }
    }

    /// As [`lock`](Self::lock), for a thread whose caller has the guard.
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

    /// Takes the lock, asleep until it can; or from a thread that a fork left behind, whose tag is returned.
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

    /// Takes the lock from the thread with the tag `gone`, which a fork left behind; false if another thread did.
    fn adopt(&self, gone: u32, tag: u32) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & owner::MASK == gone {
            // Acquire: of the fork, which copied all that the holder had done; threads of the child were started after
            // it. Or of `abandon`.
            match self.word.compare_exchange(word, word & FLAGS | tag, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Makes the lock one of which the value is as it should be, if a fork left its holder behind; whether it was such.
    #[cfg(all(feature = "lock_api", not(loom)))]
    pub(in crate::sync) fn forget_holder(&self) -> bool {
        let gone = self.word.load(Relaxed) & owner::MASK;
        let is_adopted = owner::is_gone::<S>(gone) && self.adopt(gone, owner::mine::<S>());
        if is_adopted {
            self.unlock_slowly(0);
        }
        is_adopted
    }

    /// Takes the lock if nobody has it.
    #[inline]
    pub(in crate::sync) fn try_lock(&self) -> Option<Taken> {
        match owner::known::<S>() {
            Some(tag) if self.take_at_once(tag) => Some(Taken { tag }),
            _ => self.try_lock_slowly(),
        }
    }

    /// Whether a thread holds it, be it one that a fork left behind.
    pub(in crate::sync) fn is_locked(&self) -> bool {
        !is_free(self.word.load(Relaxed))
    }

    /// Lets go of the lock.
    ///
    /// # Safety
    /// The caller holds it.
    #[inline]
    pub(in crate::sync) unsafe fn unlock(&self) {
        // SAFETY: the caller's promise.
        if !unsafe { uncontended_unlock::let_go(self) } {
            self.unlock_by_exchange();
        }
    }

    #[inline]
    fn unlock_by_exchange(&self) {
        let word = self.word.load(Relaxed);
        if owner::is_another_process::<S>(word) {
            return;
        }
        // Release: partner is the Acquire of the next one that takes it (invariant 1).
        if word & FLAGS != 0 || self.word.compare_exchange(word, 0, Release, Relaxed).is_err() {
            self.unlock_flagged();
        }
    }

    /// Lets go of the lock, as a caller that knows the holder's tag. Nothing happens if that is another process.
    ///
    /// # Safety
    /// The caller holds it.
    #[inline(always)]
    pub(super) unsafe fn unlock_as(&self, tag: u32) {
        if owner::is_another_process::<S>(tag) {
            return;
        }
        // Release: as in `unlock_by_exchange`.
        // SAFETY: the caller's promise.
        if !unsafe { uncontended_unlock::let_go(self) }
            && self.word.compare_exchange(tag, 0, Release, Relaxed).is_err()
        {
            self.unlock_flagged();
        }
    }

    #[cold]
    #[inline(never)]
    fn unlock_flagged(&self) {
        let word = self.word.load(Relaxed);
        if owner::is_another_process::<S>(word) {
            return;
        }
        order::let_go(self);
        // Release: as in `unlock_by_exchange`.
        if wants_token(word)
            || self.word.compare_exchange(word, word & FLAGS, Release, Relaxed).is_err()
        {
            self.unlock_slowly(0);
        }
    }

    /// Lets go of the lock and leaves it to a waiter, if there is one, whoever comes by.
    ///
    /// # Safety
    /// The caller holds it.
    pub(in crate::sync) unsafe fn unlock_fairly(&self) {
        if !owner::is_another_process::<S>(self.word.load(Relaxed)) {
            order::let_go(self);
            self.unlock_slowly(FAIR);
        }
    }

    /// Lets go of the lock as if the thread with this tag, which is gone, still had it.
    ///
    /// # Safety
    /// The caller holds it.
    pub(in crate::sync) unsafe fn abandon(&self, gone: u32) {
        order::let_go(self);
        // No section of another thread runs: it would hold the lock.
        self.queue.fetch_or(FENCED, Relaxed);
        // Release: partner is the Acquire in `adopt`.
        self.change_word(Release, |_| gone | WAITERS);
        // After it, the token: a waiter that saw the word held finds either of them.
        self.dismiss_waiters();
    }

    /// Wakes all that sleep, and keeps those from it that are about to: the holder is gone.
    #[cold]
    pub(super) fn dismiss_waiters(&self) {
        // AcqRel: partner is the Acquire in `Waiter::take_token`.
        self.queue.fetch_or(TOKEN, AcqRel);
        Futex::wake(&self.queue, u32::MAX);
    }

    /// What the word must be like as long as its holder, who has this tag, is gone.
    #[cold]
    pub(super) fn mark_orphaned(&self, gone: u32) {
        // Relaxed: whoever adopts the lock acquires the fork.
        self.change_word(Relaxed, |word| match word & owner::MASK == gone {
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

    /// What a condition variable moves its waiters to.
    pub(in crate::sync) fn queue(&self) -> &Futex<S> {
        &self.queue
    }

    /// How many guests there is room for.
    pub(in crate::sync) fn room_for_guests(&self) -> u32 {
        MOST_GUESTS - guests(self.queue.load(Relaxed))
    }

    /// So many guests were moved here: a later unlock wakes them.
    ///
    /// # Safety
    /// The caller holds the lock, and has held it since before they were moved.
    pub(in crate::sync) unsafe fn expect_guests(&self, count: u32) {
        // A token that lies there may be one that nobody takes: its guest had woken by itself, at its deadline.
        // Whoever is on its way after all finds none, and is woken anew or comes to the lock in time.
        if self.queue.fetch_and(!TOKEN, Relaxed) & TOKEN != 0 {
            self.word.fetch_and(!WAKING, Relaxed);
        }
        self.queue.fetch_add(count * GUEST, Relaxed);
        self.word.fetch_or(WAITERS, Relaxed);
    }

    /// Whether it is free, and nothing is left of those who waited, but that somebody did.
    #[cfg(test)]
    pub(in crate::sync) fn is_at_rest(&self) -> bool {
        self.word.load(Relaxed) == 0 && self.queue.load(Relaxed) & !FENCED == 0
    }

    /// One whose waiters lose patience at any time.
    #[cfg(loom)]
    fn timed() -> Self {
        Lock { is_timed: true, ..Lock::new() }
    }

    /// One that is let go by sections.
    #[cfg(loom)]
    fn with_sections() -> Self {
        Lock { has_sections: true, ..Lock::new() }
    }

    /// One that is let go by sections, which no fence ends.
    #[cfg(loom)]
    fn without_fences() -> Self {
        Lock { refuses_fences: true, ..Lock::with_sections() }
    }

    /// Whether somebody waits, or is about to.
    #[cfg(all(test, not(loom)))]
    pub(in crate::sync) fn is_awaited(&self) -> bool {
        self.word.load(Relaxed) & WAITERS != 0
    }

    #[inline(always)]
    fn take_at_once(&self, tag: u32) -> bool {
        // Acquire: partner is the Release of who held it before (invariant 1).
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

    /// `left` is what the word gets besides its flags: nothing, or [`FAIR`] if a thread waits.
    #[cold]
    #[inline(never)]
    fn unlock_slowly(&self, left: u32) {
        let mut wakes = 0;
        let mut word = self.word.load(Relaxed);
        if owner::is_gone::<S>(word & owner::MASK) {
            // The guard's lock is not this thread's: see the module's text.
            return;
        }
        loop {
            if wakes == 0 && wants_token(word) {
                // Acquire: partner is the AcqRel in `Waiter::sleep`; who set WAITERS is counted.
                word = self.word.fetch_or(WAKING, Acquire) | WAKING;
                if is_deserted(self.queue.load(Relaxed)) {
                    word = self.tidy();
                    continue;
                }
                self.give_token();
                profile::let_go(profile::Kind::Mutex, self);
                wakes = 1;
            }
            // Nobody is on its way to whom it could be left.
            let is_for_nobody = left == FAIR && wakes == 0 && word & WAKING == 0;
            let left = if is_for_nobody { 0 } else { left };
            // Release: as in `unlock`.
            match self.word.compare_exchange(word, word & FLAGS | left, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        if wakes > 0 {
            // Who took the token already sleeps again, and a guest may be behind it.
            let more = u32::from(word & WAKING == 0);
            Futex::wake(&self.queue, wakes + more);
        }
    }

    /// The token into the queue, by the holder.
    fn give_token(&self) {
        let mut queue = self.queue.load(Relaxed);
        loop {
            // Whoever is woken, guests are not forgotten as long as they may be asleep.
            let is_for_guest = waiters(queue) == 0 && guests(queue) > 0;
            let guest = if is_for_guest { GUEST } else { 0 };
            // Release: partner is the Acquire in `Waiter::take_token`: WAKING is set before.
            match self.queue.compare_exchange(queue, (queue - guest) | TOKEN, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => queue = now,
            }
        }
    }

    /// Clears the flags of a lock for which nobody seems to wait, by its holder; the word after it.
    pub(super) fn tidy(&self) -> u32 {
        // AcqRel: partner is the AcqRel in `Waiter::sleep` (invariant 3).
        let word = self.word.fetch_and(!FLAGS, AcqRel) & !FLAGS;
        // A token that nobody took, of which nobody knows any more.
        let queue = self.queue.fetch_and(!TOKEN, Relaxed);
        match is_deserted(queue) {
            true => word,
            false => self.word.fetch_or(WAITERS, Relaxed) | WAITERS,
        }
    }
}

/// Ends a blocking attempt to take a lock whose holder is gone.
#[cold]
#[inline(never)]
fn holder_is_gone() -> ! {
    panic!(
        "a thread that held this mutex when the process was forked is not in the child, and may have left the value half \
         changed: in the child lock it by `lock_checked`, and `reset` the value (of a `RawMutex`: `forget_holder`)"
    )
}

#[cfg(all(test, loom))]
#[path = "lock_loom.rs"]
mod loom_tests;
