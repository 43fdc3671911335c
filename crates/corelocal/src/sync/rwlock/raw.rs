//! The read-write lock algorithm without the value: fast paths, and the wake-ups that a leaving holder owes.
//!
//! `state.rs` describes the state word. Readers, writers and upgradable readers take the lock when it admits them,
//! first come, first served. A thread that is not admitted spins briefly and then sleeps (`slow_path.rs`):
//!
//! - A writer that has to wait closes the lock to new readers. Those inside leave, and the last one wakes a sleeping
//!   writer.
//! - A writer that leaves opens the lock, and wakes all readers and one writer; the first to run gets it.
//! - A thread that has been overtaken for half a millisecond insists. A reader then keeps writers out until it is in.
//!   A writer keeps out writers that have not slept, and sleepers are woken in order of arrival.
//!
//! So neither kind starves the other or itself. While no thread insists, no thread waits for the wake-up of another
//! one that could be overtaken.
//!
//! # Invariants
//! 1. Either one writer holds the lock, or readers, among them at most one upgradable reader. What a holder did
//!    happens before what a later holder does that excludes it: every change of the word is a read-modify-write,
//!    which continues the release sequence.
//! 2. A holder that leaves wakes sleepers after its last access to the word, whose memory may be gone by then.
//! 3. While a writer or an upgradable reader sleeps, WRITERS_ASLEEP is set, or a thread is awake that will set it or
//!    wake them: one that was woken and has not left yet (it takes the lock with WRITERS_ASLEEP set, or gives up and
//!    wakes all others), or a reader that insists (it wakes one once it is in). The same holds for readers and
//!    READERS_ASLEEP; readers are woken all at once.
//! 4. The lock is CLOSED only while a writer or an upgrading reader waits that is awake or will be woken: each one
//!    closes it itself, before it checks again and before it sleeps. One that gives up opens it again and wakes all;
//!    others that still wait close it again. (WRITERS_ASLEEP does not prove that a thread is there to open it.)
//! 5. A free lock of an earlier generation than the process's is renewed before it is taken, and all sleepers are
//!    woken. Threads that exist in this process set their flags again.
//! 6. A reader that is prepared to wait may count itself first and check afterwards: a single instruction that cannot
//!    fail. If it should not have entered, it was a visitor and leaves like a reader, without having read anything.
//!    It visits once, before it waits, so that it keeps writers out only for a moment. Visitors exist only in the
//!    first generation: in a child, the copy of one would be a reader that never leaves. In later generations such
//!    copies are the only ones; those beside a writer disappear with it, others look like readers of the parent that
//!    are gone. Locks shared between processes have no visitors either, since one may die.
//! 7. CLOSED, READER_FIRST and SLEEPERS_FIRST are advice that affects only fairness. If processes share the lock, the
//!    thread that set it may be dead. So there no thread sleeps for long without checking, and a thread that has
//!    waited for a second ignores advice (`machinery/bounded_wait.rs`) and enters without leaving any. A live thread that still
//!    insists sets it again.
//! 8. A writer that did not survive a fork holds the lock for good: blocking attempts panic, others fail at once,
//!    except `adopt`. An upgradable reader that is gone becomes a plain reader that is gone: it has changed nothing,
//!    and the thread that called fork may have borrowed the value from its guard.
//! 9. If processes share the lock, a holder leaves in the process in which it came, not as the copy of a guard in a
//!    forked child.

use core::marker::PhantomData;

use super::half_word_wait::{self, Half};
use super::slow_path::Kind;
use super::state::{
    self, ASLEEP, READER, READER_FIRST, READERS, READERS_ASLEEP, State, UPGRADABLE, UPGRADING,
    WRITERS_ASLEEP, WRITING,
};
#[cfg(test)]
use super::state::{CLOSED, SLEEPERS_FIRST};
use super::wait_policy::Patience;
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::sync::machinery::scope::Scope;
use crate::sync::profile;
use crate::sys::futex;

/// The lock. All bytes 0 is a free one.
#[repr(transparent)]
pub struct Raw<S: Scope> {
    pub(super) state: AtomicU64,
    scope: PhantomData<S>,
}

impl<S: Scope> Raw<S> {
    const_fn! {
        pub(super) const fn new() -> Self {
            Raw { state: AtomicU64::new(0), scope: PhantomData }
        }
    }

    /// Returns the state. Relaxed: conclusions from it are verified by compare-exchange.
    #[inline(always)]
    pub(super) fn load(&self) -> State {
        State(self.state.load(Ordering::Relaxed))
    }

    /// Changes the state if it is still `from`.
    #[inline(always)]
    pub(super) fn change(&self, from: State, to: State, success: Ordering) -> Result<(), State> {
        match self.state.compare_exchange(from.0, to.0, success, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(now) => Err(State(now)),
        }
    }

    /// Changes the state to what `to` returns; returns the state before that.
    #[inline]
    pub(super) fn change_any(&self, success: Ordering, to: impl Fn(State) -> State) -> State {
        let mut state = self.load();
        while let Err(now) = self.change(state, to(state), success) {
            state = now;
        }
        state
    }

    /// For a reader that is prepared to wait: enters, and returns whether it was admitted. If not, it was a visitor
    /// (invariant 6).
    #[inline]
    pub(super) fn read_at_once(&self) -> bool {
        if !state::has_visitors::<S>() {
            return self.try_read();
        }
        // Without a load first: if this thread was the last to unlock, a load would wait for that store. Acquire:
        // partner is the Release of a writer that left.
        let before = State(self.state.fetch_add(READER, Ordering::Acquire));
        before.is_open_in_first_generation() || self.visitor_leaves()
    }

    /// Takes back a visit, and returns false.
    #[cold]
    fn visitor_leaves(&self) -> bool {
        self.unlock_read();
        false
    }

    /// Enters as a reader, unless a writer holds the lock or waits for it.
    #[inline]
    pub(super) fn try_read(&self) -> bool {
        let mut state = self.load();
        loop {
            if !state.is_open::<S>() {
                return self.try_read_cold();
            }
            // Acquire: partner is the Release of a writer that left.
            match self.change(state, state.with_reader(), Ordering::Acquire) {
                Ok(()) => return true,
                Err(now) => state = now,
            }
        }
    }

    #[cold]
    fn try_read_cold(&self) -> bool {
        let patience = Patience::none();
        while let Err(state) = self.enter(&patience) {
            if !self.demotes_upgradable(state) {
                return false;
            }
        }
        true
    }

    /// Locks as a writer with this tag, if the lock is free.
    #[inline]
    pub(super) fn try_write(&self, tag: u32) -> bool {
        // Most likely it is free, and a load first would be wasted.
        let (free, taken) = State::free_and_taken::<S>(tag);
        // Acquire: partners are the Releases of holders that left.
        self.change(free, taken, Ordering::Acquire).is_ok() || self.try_write_cold()
    }

    #[cold]
    fn try_write_cold(&self) -> bool {
        self.try_begin(Kind::Writer)
    }

    /// Locks as an upgradable reader, unless there is another one, or a writer holds the lock or waits for it.
    pub(super) fn try_upgradable(&self) -> bool {
        self.try_begin(Kind::Upgradable)
    }

    fn try_begin(&self, kind: Kind) -> bool {
        let patience = Patience::none();
        while let Err(state) = self.begin(kind, &patience) {
            if !self.demotes_upgradable(state) {
                return false;
            }
        }
        true
    }

    /// Unlocks for a reader.
    #[inline]
    pub(super) fn unlock_read(&self) {
        let this: *const AtomicU64 = &self.state;
        // Release: partner is the Acquire of a writer that begins.
        let before = State(self.state.fetch_sub(READER, Ordering::Release));
        if before.awaits_readers() {
            Self::wake_after_readers(this, before);
        }
    }

    #[cold]
    fn wake_after_readers(this: *const AtomicU64, before: State) {
        if before.readers() > 1 || before.has(WRITING) {
            // The last reader does it, or the writer beside which the visitor was.
            return;
        }
        profile::let_go(profile::Kind::Write, this);
        if before.has(UPGRADING) {
            // The upgrading reader is one of the sleepers; the kernel does not know which.
            half_word_wait::wake::<S>(this, Half::Writers, u32::MAX);
        } else if !before.has(UPGRADABLE) {
            // WRITERS_ASLEEP stays: the woken thread takes the lock with it.
            half_word_wait::wake::<S>(this, Half::Writers, 1);
        }
    }

    /// Unlocks for a writer with this tag. Does nothing if that is another process's.
    #[inline]
    pub(super) fn unlock_write_as(&self, tag: u32) {
        if Self::is_another_process(tag) {
            return;
        }
        // Most likely no thread has come meanwhile, and the state is unchanged.
        let (free, taken) = State::free_and_taken::<S>(tag);
        // Release: as in `unlock_write`.
        if self.change(taken, free, Ordering::Release).is_err() {
            self.unlock_write_cold();
        }
    }

    /// Returns `true` if this tag is another process's. A private lock is copied by fork.
    #[inline(always)]
    fn is_another_process(tag: u32) -> bool {
        S::FUTEX == futex::Scope::Shared && tag != state::tag::<S>()
    }

    #[cold]
    fn unlock_write_cold(&self) {
        self.unlock_write();
    }

    /// Unlocks for a writer.
    #[inline]
    pub(super) fn unlock_write(&self) {
        let state = self.load();
        if Self::is_another_process(state.holder()) {
            return;
        }
        let is_alone = !state.has(ASLEEP | READERS);
        // Release: partner is the Acquire of the next holder.
        if !is_alone || self.change(state, state.let_go(), Ordering::Release).is_err() {
            self.leave_cold(0);
        }
    }

    /// Unlocks for an upgradable reader.
    #[inline]
    pub(super) fn unlock_upgradable(&self) {
        let state = self.load();
        // Release: as in `unlock_read`.
        if state.has(ASLEEP) || self.change(state, state.let_go(), Ordering::Release).is_err() {
            self.leave_cold(0);
        }
    }

    /// Turns a writer into a reader.
    #[inline]
    pub(super) fn downgrade(&self) {
        self.leave_cold(READER);
    }

    /// Turns an upgradable reader into a plain one.
    #[inline]
    pub(super) fn downgrade_upgradable(&self) {
        self.leave_cold(READER);
    }

    /// Turns a writer into an upgradable reader.
    #[inline]
    pub(super) fn downgrade_to_upgradable(&self) {
        let this: *const AtomicU64 = &self.state;
        // Release: partner is the Acquire of a reader. Writers cannot begin.
        let before = self.change_any(Ordering::Release, |state| {
            let tag = u64::from(state.holder());
            state
                .without_copied_visitors::<S>()
                .let_go()
                .without(READERS_ASLEEP)
                .with(UPGRADABLE | tag)
        });
        if before.has(READERS_ASLEEP) {
            profile::let_go(profile::Kind::Read, this);
            half_word_wait::wake::<S>(this, Half::Readers, u32::MAX);
        }
    }

    /// Unlocks and wakes others; `stays` is `READER` if the holder stays as a reader.
    #[cold]
    fn leave_cold(&self, stays: u64) {
        if Self::has_gone_writer(self.load()) {
            // The guard is one of `lock_api` that lost its lock to a panic (`fails_or_panics`).
            return;
        }
        let this: *const AtomicU64 = &self.state;
        if self.load().has(ASLEEP) {
            profile::let_go(profile::Kind::Read, this);
            if stays == 0 {
                profile::let_go(profile::Kind::Write, this);
            }
        }
        // Release: partner is the Acquire of the next holder.
        let before = self.change_any(Ordering::Release, |state| {
            // A reader that insists leaves writers asleep; it wakes one once it is in.
            let kept = if state.seen::<S>().has(READER_FIRST) { WRITERS_ASLEEP } else { 0 };
            let left = state.without_copied_visitors::<S>().let_go();
            State(left.without(ASLEEP & !kept).0 + stays)
        });
        if before.has(READERS_ASLEEP) {
            half_word_wait::wake::<S>(this, Half::Readers, u32::MAX);
        }
        if before.has(WRITERS_ASLEEP) && !before.seen::<S>().has(READER_FIRST) {
            half_word_wait::wake::<S>(this, Half::Writers, 1);
        }
    }

    /// Returns the state; if it is that of a free lock of an earlier generation, renews it first (invariant 5).
    #[inline]
    pub(super) fn renew(&self, state: State) -> State {
        if state.is_free() && !state.is_current::<S>() { self.renew_cold(state) } else { state }
    }

    #[cold]
    fn renew_cold(&self, mut state: State) -> State {
        let this: *const AtomicU64 = &self.state;
        while state.is_free() && !state.is_current::<S>() {
            // Relaxed: no holder leaves here. The release sequence of the last one continues.
            match self.change(state, State::renewed::<S>(), Ordering::Relaxed) {
                Ok(()) => {
                    if state.has(ASLEEP) {
                        Self::wake_everybody(this);
                    }
                    return State::renewed::<S>();
                }
                Err(now) => state = now,
            }
        }
        state
    }

    #[cold]
    pub(super) fn wake_everybody(this: *const AtomicU64) {
        half_word_wait::wake::<S>(this, Half::Readers, u32::MAX);
        half_word_wait::wake::<S>(this, Half::Writers, u32::MAX);
    }

    /// Returns `true` if the lock is free, and no thread insists.
    #[cfg(test)]
    pub(super) fn is_quiet(&self) -> bool {
        let state = self.load();
        state.is_free() && !state.has(CLOSED | READER_FIRST | SLEEPERS_FIRST)
    }
}

#[cfg(all(test, loom))]
mod loom;
