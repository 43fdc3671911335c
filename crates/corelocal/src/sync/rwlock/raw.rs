//! The lock itself, without a value: its fast paths, and what leaving it owes to those who sleep.
//!
//! The word is told in `state.rs`. Readers, writers and upgradable readers take it when it is free for them,
//! whoever is first. Who does not get it looks again for a moment, then sleeps (`slow_path.rs`):
//!
//! - A writer that has to wait closes the lock to readers that come. Those inside leave; the last one wakes
//!   a writer that sleeps.
//! - A writer that leaves opens it, and wakes all readers and one writer: whoever is first.
//! - Who was overtaken for half a millisecond insists: a reader keeps writers out until it came in, a writer
//!   keeps those out that have not slept, and sleepers are woken in the order in which they came.
//!
//! So neither kind starves the other, nor its own, and while nobody insists nobody waits for a thread to be
//! woken that another could overtake.
//!
//! # Invariants
//! 1. One writer, or readers and at most one upgradable reader among them, hold the lock at a time. What a
//!    holder did happens before what a later one does that it excluded: every change of the word is a
//!    read-modify-write, so a Release lasts.
//! 2. Whoever leaves so that sleepers may go on wakes them after its last access to the word: its memory may be
//!    gone by then.
//! 3. While a writer or an upgradable reader sleeps, WRITERS_ASLEEP is set, or somebody is awake who sets it
//!    or wakes them: one that was woken and has not left yet (it takes the lock with WRITERS_ASLEEP set, or
//!    gives up and wakes all others), or a reader that insists (it wakes one when it has come in). The same for
//!    readers and READERS_ASLEEP, who are woken all at once.
//! 4. The lock is CLOSED only while a writer or an upgrading reader waits that is awake or will be woken: each
//!    closes it for itself, before it looks again and before it sleeps. Who gives up opens it again, and wakes all: others who still
//!    wait close it again. (WRITERS_ASLEEP is no proof that anybody is there to open it.)
//! 5. A lock that is free and of an earlier generation than the process is renewed before it is taken, and
//!    all sleepers are woken: those who are here say again what they said.
//! 6. A reader that is ready to wait may count itself first and look then: one instruction that cannot fail. If it
//!    should not have come in it was a visitor, and leaves as a reader does; it is one once, before it waits, so
//!    that writers are kept out by each for a moment. It has read nothing. Visitors are in first generations only:
//!    in a child one that the fork copied would be a reader who never leaves. In later generations there are none
//!    but such copies; those beside a writer go with it, and others look like readers of the parent that are gone.
//!    Nor are there any where processes share the lock, since one may die.
//! 7. CLOSED, READER_FIRST and SLEEPERS_FIRST are advice: whom they let in and keep out is fairness, no more. Where
//!    processes share the lock, who gave it may be dead. So nobody sleeps there for long without a look, and who
//!    has waited for a second minds no advice (`bounded_wait.rs`), and comes in without leaving any. One that lives, and still
//!    insists, gives it again.
//! 8. A writer that a fork left behind has the lock for good: blocking attempts panic, others fail at once, but for
//!    `adopt`. A gone upgradable reader becomes a gone reader: it has changed nothing, and the
//!    thread that forked may have borrowed the value from its guard.
//! 9. What leaves a lock that processes share came in the same process: not the copy of a guard in a forked child.

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
use crate::sync::profile;
use crate::sync::scope::Scope;
use crate::sys::futex;

/// See the module's text. All bytes 0 is a free one.
#[repr(transparent)]
pub(super) struct Raw<S: Scope> {
    pub(super) state: AtomicU64,
    scope: PhantomData<S>,
}

impl<S: Scope> Raw<S> {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Raw { state: AtomicU64::new(0), scope: PhantomData }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Raw { state: AtomicU64::new(0), scope: PhantomData }
    }

    /// The state. Relaxed: what is concluded from it is exchanged against it.
    #[inline(always)]
    pub(super) fn load(&self) -> State {
        State(self.state.load(Ordering::Relaxed))
    }

    /// From one state to another, if nobody was quicker.
    #[inline(always)]
    pub(super) fn change(&self, from: State, to: State, success: Ordering) -> Result<(), State> {
        match self.state.compare_exchange(from.0, to.0, success, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(now) => Err(State(now)),
        }
    }

    /// From whatever state to what `to` makes of it; the state before.
    #[inline]
    pub(super) fn change_any(&self, success: Ordering, to: impl Fn(State) -> State) -> State {
        let mut state = self.load();
        while let Err(now) = self.change(state, to(state), success) {
            state = now;
        }
        state
    }

    /// For a reader that waits if need be: whether it came in at once. It may have been a visitor (invariant 6).
    #[inline]
    pub(super) fn read_at_once(&self) -> bool {
        if !state::has_visitors::<S>() {
            return self.try_read();
        }
        // Without a look before: where this thread was the last to unlock, a load would wait until that is done.
        // Acquire: partner is the Release of a writer that left.
        let before = State(self.state.fetch_add(READER, Ordering::Acquire));
        before.is_open_in_first_generation() || self.visitor_leaves()
    }

    /// False.
    #[cold]
    fn visitor_leaves(&self) -> bool {
        self.unlock_read();
        false
    }

    /// For a reader, if no writer has it or waits for it.
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

    /// For a writer, which has this tag, if nobody has it.
    #[inline]
    pub(super) fn try_write(&self, tag: u32) -> bool {
        // Most likely it is free: then a look first is for nothing.
        let (free, taken) = State::free_and_taken::<S>(tag);
        // Acquire: partners are the Releases of whoever left.
        self.change(free, taken, Ordering::Acquire).is_ok() || self.try_write_cold()
    }

    #[cold]
    fn try_write_cold(&self) -> bool {
        self.try_begin(Kind::Writer)
    }

    /// For an upgradable reader, if no other one and no writer has it or waits for it.
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

    /// A reader leaves.
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
            // The last one does it, or the writer beside whom a visitor was.
            return;
        }
        profile::let_go(profile::Kind::Write, this);
        if before.has(UPGRADING) {
            // It is one of them; the kernel does not know which.
            half_word_wait::wake::<S>(this, Half::Writers, u32::MAX);
        } else if !before.has(UPGRADABLE) {
            // WRITERS_ASLEEP stays: who is woken takes the lock with it.
            half_word_wait::wake::<S>(this, Half::Writers, 1);
        }
    }

    /// A writer leaves that came with this tag. Nothing happens if it is that of another process.
    #[inline]
    pub(super) fn unlock_write_as(&self, tag: u32) {
        if Self::is_another_process(tag) {
            return;
        }
        // Most likely nobody has come meanwhile, so the state is as it was left.
        let (free, taken) = State::free_and_taken::<S>(tag);
        // Release: as in `unlock_write`.
        if self.change(taken, free, Ordering::Release).is_err() {
            self.unlock_write_cold();
        }
    }

    /// Whether this tag is that of another process. Of a private lock a child has a copy.
    #[inline(always)]
    fn is_another_process(tag: u32) -> bool {
        S::FUTEX == futex::Scope::Shared && tag != state::tag::<S>()
    }

    #[cold]
    fn unlock_write_cold(&self) {
        self.unlock_write();
    }

    /// A writer leaves.
    #[inline]
    pub(super) fn unlock_write(&self) {
        let state = self.load();
        if Self::is_another_process(state.holder()) {
            return;
        }
        let is_alone = !state.has(ASLEEP | READERS);
        // Release: partner is the Acquire of whoever comes next.
        if !is_alone || self.change(state, state.let_go(), Ordering::Release).is_err() {
            self.leave_cold(0);
        }
    }

    /// An upgradable reader leaves.
    #[inline]
    pub(super) fn unlock_upgradable(&self) {
        let state = self.load();
        // Release: as in `unlock_read`.
        if state.has(ASLEEP) || self.change(state, state.let_go(), Ordering::Release).is_err() {
            self.leave_cold(0);
        }
    }

    /// A writer becomes a reader.
    #[inline]
    pub(super) fn downgrade(&self) {
        self.leave_cold(READER);
    }

    /// An upgradable reader becomes a plain one.
    #[inline]
    pub(super) fn downgrade_upgradable(&self) {
        self.leave_cold(READER);
    }

    /// A writer becomes an upgradable reader.
    #[inline]
    pub(super) fn downgrade_to_upgradable(&self) {
        let this: *const AtomicU64 = &self.state;
        // Release: partner is the Acquire of a reader. Writers cannot go on.
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

    /// A writer or an upgradable reader leaves and wakes others, `READER` if it stays as a reader.
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
        // Release: partner is the Acquire of whoever comes next.
        let before = self.change_any(Ordering::Release, |state| {
            // A reader that insists lets writers sleep on; it wakes one when it has come in.
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

    /// The state, or what it is now if it was that of a free lock of an earlier generation (invariant 5).
    #[inline]
    pub(super) fn renew(&self, state: State) -> State {
        if state.is_free() && !state.is_current::<S>() { self.renew_cold(state) } else { state }
    }

    #[cold]
    fn renew_cold(&self, mut state: State) -> State {
        let this: *const AtomicU64 = &self.state;
        while state.is_free() && !state.is_current::<S>() {
            // Relaxed: nobody left. Whoever did before: a read-modify-write, so its Release lasts.
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

    /// Nobody has it, and nobody insists.
    #[cfg(test)]
    pub(super) fn is_quiet(&self) -> bool {
        let state = self.load();
        state.is_free() && !state.has(CLOSED | READER_FIRST | SLEEPERS_FIRST)
    }
}

#[cfg(all(test, loom))]
#[path = "raw_loom.rs"]
mod loom_tests;
