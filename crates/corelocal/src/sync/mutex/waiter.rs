//! The slow path of `lock`: a thread that did not get the lock at once.
//!
//! It spins briefly, then counts itself in the queue and sleeps until it is woken. `lock.rs` describes word and
//! queue; invariant numbers here are those of that file.
//!
//! ```text
//!   spin -----------------> count, WAITERS -----------> sleep
//!     |    ^                                              | woken, or patience has ended
//!     |    +----------------------------------------------+
//!     v
//!   lock: leave the queue, tidy up                        deadline passed: leave without the lock
//! ```
//!
//! # Patience
//! When a waiter's patience ends for the first time, after 2 ms, it reserves the lock for threads that have slept.
//! Later ends are for waiters that no unlock will wake:
//! - The thread that took the token is gone, and WAKING stays set: it did not survive a fork, or its process was
//!   killed.
//! - A section has cleared WAITERS, because the fence was refused (`uncontended_unlock.rs`).
//! - A process was killed between its unlock and the wake-up.
//!
//! The time doubles at each end. After half a second a private waiter has none of these to fear if its lock was
//! fenced: in a child all waits are new, and the first end of patience clears a WAKING that was left behind. (A wait
//! that continues in a child forked by a signal handler starts over.) Such a waiter then sleeps until it is woken.
//! All others check once a second for as long as they wait (`machinery/bounded_wait.rs`).

#[cfg(not(loom))]
use core::time::Duration;

use super::owner;
use super::uncontended_unlock;
use super::word::{
    FAIR, FENCED, FLAGS, Lock, MASK, MOST_WAITERS, NotTaken, STARVED, TOKEN, Taken, WAITER,
    WAITERS, WAKING, is_deserted, is_free, is_reserved, waiters,
};
use crate::primitive::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
#[cfg(not(loom))]
use crate::sync::machinery::bounded_wait;
#[cfg(not(loom))]
use crate::sync::machinery::fairness::PATIENCE;
use crate::sync::machinery::futex::Futex;
use crate::sync::machinery::scope::{Private, Scope};
use crate::sync::machinery::spin::{self, Spin};
use crate::sync::profile::Wait;
use crate::sys::futex::{self, Deadline, Wake};

/// The number of times that patience ends while every unlock wakes a waiter: after 2, 2, 4, 8, ... 256 ms.
const MOST_LOOKS: u32 = if cfg!(loom) { 1 } else { 9 };
/// Waiters for which the queue has no room check at least every 64 ms.
const MOST_NAPS: u32 = 6;
/// The number of times that a newcomer leaves a reserved lock to others: tens of microseconds, or as long as other
/// threads run in its place.
const MOST_STEPS_BACK: u32 = if cfg!(loom) { 1 } else { 128 };

/// A thread that waits for the lock.
pub(super) struct Waiter<'a, S: Scope> {
    pub(super) lock: &'a Lock<S>,
    deadline: Option<Deadline>,
    /// Whether it is counted in the queue.
    pub(super) is_counted: bool,
    /// Whether it has slept: reserved locks are for such waiters.
    slept: bool,
    /// The number of times that it left a reserved lock to others.
    steps_back: u32,
    /// Whether its deadline passed while it did so.
    is_late: bool,
    /// Whether it must clear WAKING: it took the token, or found that one was given long ago.
    pub(super) owes: bool,
    /// The end of its patience; set once it has slept.
    patience: Option<Deadline>,
    /// The number of times that its patience has ended.
    timeouts: u32,
    /// Set while others have overtaken it for longer than its patience.
    is_starved: bool,
}

impl<'a, S: Scope> Waiter<'a, S> {
    /// With `is_guest`, the thread slept on a condition variable, and possibly here.
    pub(super) fn new(lock: &'a Lock<S>, deadline: Option<Deadline>, is_guest: bool) -> Self {
        let mut waiter = Waiter {
            lock,
            deadline,
            is_counted: false,
            slept: is_guest,
            steps_back: 0,
            is_late: false,
            owes: false,
            patience: None,
            timeouts: 0,
            is_starved: false,
        };
        if is_guest {
            waiter.take_token();
        }
        waiter
    }

    /// Waits for the lock. Fails if the deadline passes, and at once if the owner is gone.
    pub(super) fn wait(&mut self, profile: &mut Wait) -> Result<Taken, NotTaken> {
        let mut spin = Spin::new(spin::BRIEF);
        loop {
            let word = self.lock.word.load(Relaxed);
            if let Some(taken) = self.try_take(word) {
                self.leave();
                return Ok(taken);
            }
            if owner::is_gone::<S>(word & MASK) {
                return Err(self.leave_to_gone(word & MASK));
            }
            if is_free(word) || spin.again() {
                continue;
            }
            profile.sleeps();
            match self.sleep(word) {
                Slept::Not => {}
                Slept::Awake => spin = Spin::new(spin::BRIEF),
                Slept::TooLong => return self.give_up().ok_or(NotTaken::TooLate),
            }
        }
    }

    /// Returns `true` if the lock, if free, is reserved for others. Not without limit: they may not have survived a
    /// fork. Nor for a waiter whose deadline has passed: the lock might then be left to no thread.
    fn is_barred(&self, word: u32) -> bool {
        let is_over = self.steps_back == MOST_STEPS_BACK || self.is_late;
        is_reserved(word) && !self.slept && !self.owes && !is_over
    }

    /// Lets a waiter go first that the lock is reserved for: it is awake, or about to get a cpu.
    #[cold]
    fn step_back(&mut self) {
        self.steps_back += 1;
        self.is_late = self.is_too_late();
        #[cfg(not(loom))]
        // SAFETY: no preconditions.
        unsafe {
            libc::sched_yield();
        }
        #[cfg(loom)]
        loom::thread::yield_now();
    }

    /// Takes the lock if it is free and not reserved for others.
    pub(super) fn try_take(&mut self, word: u32) -> Option<Taken> {
        if !is_free(word) {
            return None;
        }
        if self.is_barred(word) {
            self.step_back();
            return None;
        }
        let tag = owner::mine::<S>();
        let taken = self.flags_after(word) | tag;
        // Acquire: as in `Lock::take_at_once` and `Lock::try_lock_as`.
        self.lock.word.compare_exchange(word, taken, Acquire, Relaxed).ok()?;
        self.owes = false;
        Some(Taken { tag })
    }

    /// Returns the flags of the word as this waiter leaves them when it takes the lock.
    fn flags_after(&self, word: u32) -> u32 {
        let waking = if self.owes { WAKING } else { 0 };
        // A waiter that stepped back in vain has found that no thread starves any more: the starving thread's process
        // is dead, or it did not survive a fork.
        let in_vain = self.steps_back == MOST_STEPS_BACK;
        let starved = if self.is_starved || in_vain { STARVED } else { 0 };
        word & FLAGS & !(waking | starved | FAIR)
    }

    /// Once the lock is taken: leaves the queue, and tidies up after the last waiter.
    fn leave(&mut self) {
        let queue = if self.is_counted {
            self.is_counted = false;
            self.lock.queue.fetch_sub(WAITER, Relaxed) - WAITER
        } else {
            self.lock.queue.load(Relaxed)
        };
        if is_deserted(queue) && self.lock.word.load(Relaxed) & FLAGS != 0 {
            self.lock.tidy();
        }
    }

    /// Leaves without the lock, whose owner of this tag is gone; so do all waiters.
    #[cold]
    fn leave_to_gone(&mut self, gone: u32) -> NotTaken {
        // Counted for FENCED. Without it, only the erroneous unlock by a `lock_api` guard goes unnoticed.
        let is_counted = self.is_counted || self.count();
        self.lock.mark_orphaned(gone);
        self.owes = false;
        if is_counted {
            self.is_counted = false;
            self.lock.queue.fetch_sub(WAITER, Relaxed);
        }
        self.lock.dismiss_waiters();
        NotTaken::HolderGone(gone)
    }

    /// Sleeps if the word is unchanged, that is, owned.
    fn sleep(&mut self, word: u32) -> Slept {
        if !self.is_counted && !self.count() {
            return self.nap();
        }
        let is_sure = self.is_sure_to_be_woken();
        let waking = if self.owes { WAKING } else { 0 };
        let starved = if self.is_starved { STARVED } else { 0 };
        let waits = word & !waking | WAITERS | starved;
        // AcqRel: partners are the Acquire in `unlock_slowly` and the AcqRel in `tidy`, which then see this thread
        // counted (invariants 2 and 3).
        if self.lock.word.compare_exchange(word, waits, AcqRel, Relaxed).is_err() {
            return Slept::Not;
        }
        self.owes = false;
        if self.take_token() {
            return Slept::Awake;
        }
        let queue = self.lock.queue.load(Relaxed);
        if queue & TOKEN != 0 {
            return Slept::Not;
        }
        let wake = self.lock.queue.wait_briefly(queue, self.next_look(is_sure));
        self.slept |= wake != Wake::Differed;
        let has_token = self.take_token();
        if wake == Wake::TimedOut {
            if self.is_too_late() {
                return Slept::TooLong;
            }
            #[cfg(loom)]
            uncontended_unlock::time_passes();
            // The thread that is on its way has been so for long, or its process is dead.
            (self.is_starved, self.owes) = (true, true);
            self.patience = None;
            self.timeouts += 1;
            // No unlock woke it: it sets STARVED, and sleeps again if the lock is owned.
            return Slept::Not;
        }
        if wake == Wake::Interrupted && self.timeouts >= MOST_LOOKS {
            // The signal handler may have forked. This is then the only thread of a child, and WAKING stands for no
            // thread.
            (self.timeouts, self.patience) = (0, None);
        }
        if has_token {
            self.is_starved |= self.has_lost_patience();
        }
        Slept::Awake
    }

    /// Returns `true` if an unlock is certain to wake this waiter, which is counted, if WAITERS is set from now on.
    fn is_sure_to_be_woken(&self) -> bool {
        // Acquire: partner is the Release in `fence`: flags that are set from here on come after the fence.
        S::FUTEX == futex::Scope::Private && self.lock.queue.load(Acquire) & FENCED != 0
    }

    /// Returns when to wake without being woken: at the deadline, or when patience ends. Patience doubles: a lock that
    /// is held for long is not a matter of fairness.
    #[cfg(not(loom))]
    fn next_look(&mut self, is_sure: bool) -> Option<Deadline> {
        let is_enough = is_sure && self.timeouts >= MOST_LOOKS;
        let patience = *self.patience.get_or_insert_with(|| match is_enough {
            // Not without a deadline: a signal handler may have forked, and in the child the owner is gone.
            true => Deadline::NEVER,
            false => Deadline::after(patience_after(self.timeouts)),
        });
        Some(self.deadline.map_or(patience, |deadline| deadline.min(patience)))
    }

    #[cfg(not(loom))]
    fn is_too_late(&self) -> bool {
        self.deadline.is_some_and(Deadline::has_come)
    }

    #[cfg(not(loom))]
    fn has_lost_patience(&self) -> bool {
        self.patience.is_some_and(Deadline::has_come)
    }

    /// In a model everything with a deadline ends at any time.
    #[cfg(loom)]
    fn next_look(&mut self, is_sure: bool) -> Option<Deadline> {
        let looks = (self.lock.is_timed || !is_sure) && self.timeouts < MOST_LOOKS;
        self.deadline.or_else(|| looks.then(Deadline::now))
    }

    #[cfg(loom)]
    fn is_too_late(&self) -> bool {
        self.deadline.is_some()
    }

    #[cfg(loom)]
    fn has_lost_patience(&self) -> bool {
        false
    }

    /// Counts itself in the queue; false if the queue is full.
    pub(super) fn count(&mut self) -> bool {
        let before = self.enter_queue();
        before.inspect(|before| self.fence(*before)).is_some()
    }

    /// Increments the queue's count; returns the queue before that, if there was room.
    pub(super) fn enter_queue(&mut self) -> Option<u32> {
        let mut queue = self.lock.queue.load(Relaxed);
        while waiters(queue) < MOST_WAITERS {
            match self.lock.queue.compare_exchange(queue, queue + WAITER, Relaxed, Relaxed) {
                Ok(before) => {
                    self.is_counted = true;
                    return Some(before);
                }
                Err(now) => queue = now,
            }
        }
        None
    }

    /// After this waiter was counted in `queue`: ends all unlocks that found the queue empty.
    fn fence(&self, queue: u32) {
        let is_private = S::FUTEX == futex::Scope::Private;
        if is_private && queue & FENCED == 0 && uncontended_unlock::fence(self.lock) {
            // Release: partner is the Acquire in `is_sure_to_be_woken`.
            self.lock.queue.fetch_or(FENCED, Release);
        }
    }

    /// Sleeps as a waiter that is not counted: it is not woken, sleeps for a while and checks.
    #[cold]
    fn nap(&mut self) -> Slept {
        self.timeouts = (self.timeouts + 1).min(MOST_NAPS);
        self.patience = None;
        let until = self.next_look(false);
        Futex::<Private>::new(0).wait_briefly(0, until);
        if self.is_too_late() { Slept::TooLong } else { Slept::Not }
    }

    /// Takes the token if it is there.
    pub(super) fn take_token(&mut self) -> bool {
        let mut queue = self.lock.queue.load(Relaxed);
        while queue & TOKEN != 0 {
            // Acquire: partner is the Release in `give_token`: this thread sees WAKING and clears it.
            match self.lock.queue.compare_exchange(queue, queue & !TOKEN, Acquire, Relaxed) {
                Ok(_) => {
                    self.owes = true;
                    return true;
                }
                Err(now) => queue = now,
            }
        }
        false
    }

    /// Leaves without the lock, unless it can be had at the last moment. Other waiters are unaffected.
    #[cold]
    fn give_up(&mut self) -> Option<Taken> {
        loop {
            let word = self.lock.word.load(Relaxed);
            if let Some(taken) = self.try_take(word) {
                self.leave();
                return Some(taken);
            }
            if is_free(word) {
                continue;
            }
            // A thread owns the lock, and its unlock wakes a remaining waiter (invariant 4).
            let left = self.flags_after(word) | word & MASK;
            if self.lock.word.compare_exchange(word, left, AcqRel, Relaxed).is_err() {
                continue;
            }
            self.owes = false;
            if !self.is_counted {
                return None;
            }
            if self.take_token() {
                continue;
            }
            let mut queue = self.lock.queue.load(Relaxed);
            while queue & TOKEN == 0 {
                match self.lock.queue.compare_exchange(queue, queue - WAITER, AcqRel, Relaxed) {
                    Ok(_) => return None,
                    Err(now) => queue = now,
                }
            }
        }
    }
}

/// The duration of a waiter's patience after this many ends.
#[cfg(not(loom))]
fn patience_after(timeouts: u32) -> Duration {
    let doublings = timeouts.saturating_sub(1).min(16);
    (PATIENCE * (1 << doublings)).min(bounded_wait::LONGEST)
}

/// The outcome of an attempt to sleep.
enum Slept {
    /// The word changed before the sleep: check again.
    Not,
    /// It was woken.
    Awake,
    /// The deadline has passed.
    TooLong,
}
