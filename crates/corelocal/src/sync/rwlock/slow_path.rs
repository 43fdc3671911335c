//! The slow paths of the read-write lock: waiting, giving up, and locks that a fork left behind.
//!
//! The invariants are those of `raw.rs`.

mod gone;

use super::half_word_wait::{self, Half};
use super::raw::Raw;
use super::state::{
    self, CLOSED, READER_FIRST, READERS_ASLEEP, SLEEPERS_FIRST, State, TAG_BITS, UPGRADABLE,
    UPGRADING, WRITERS_ASLEEP, WRITING,
};
use super::wait_policy::Patience;
#[cfg(all(feature = "lock_api", not(loom)))]
use crate::primitive::atomic::AtomicU32;
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::sync::machinery::bounded_wait;
use crate::sync::machinery::scope::Scope;
use crate::sync::profile::{self, Wait};
use crate::sys::futex::{self, Deadline, Wake};
#[cfg(all(feature = "lock_api", not(loom)))]
use crate::sys::sleep;
use crate::sys::thread::owner_tag::{self, Holder};
use gone::readers_are_gone;

/// Threads that wait on the upper half.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Writer,
    Upgradable,
}

impl Kind {
    pub(super) fn is_admitted(self, state: State, slept: bool) -> bool {
        match self {
            Kind::Writer => state.admits_writer(slept),
            Kind::Upgradable => state.admits_upgradable(slept),
        }
    }

    /// Returns the state with one of this kind in it. One that has slept sets WRITERS_ASLEEP for others (invariant 3).
    fn taken<S: Scope>(self, state: State, patience: &Patience) -> State {
        let taken = match self {
            Kind::Writer => state.with_writer(state::tag::<S>()),
            Kind::Upgradable => state.with_upgradable(state::tag::<S>()),
        };
        let taken = if patience.insists { taken.without(SLEEPERS_FIRST) } else { taken };
        if patience.slept { taken.with(WRITERS_ASLEEP) } else { taken }
    }
}

impl<S: Scope> Raw<S> {
    /// Waits to read; false at the deadline. If the writer is gone after a fork: panics, or returns false at once if
    /// there is a deadline. Panics if there are 2^20 readers.
    #[cold]
    pub(super) fn read_cold(&self, deadline: Option<Deadline>) -> bool {
        self.wait_to_read(deadline, || {
            panic!("a read-write lock has at most 2^20 readers at a time")
        })
    }

    /// Does what `read_cold` does, but if there are 2^20 readers it waits until one leaves.
    ///
    /// For guards that lock again when they are dropped: after a caught panic they would exist without the lock.
    #[cold]
    #[cfg(all(feature = "lock_api", not(loom)))]
    pub(super) fn read_even_if_full(&self, deadline: Option<Deadline>) -> bool {
        self.wait_to_read(deadline, || {
            // A reader that leaves does not wake readers.
            let pause = Deadline::after(core::time::Duration::from_millis(1));
            sleep::wait(&AtomicU32::new(0), 0, Some(pause), futex::Scope::Private);
        })
    }

    /// Calls `full` if there is no room for another reader, and checks the state again when it returns, unless the
    /// deadline has come.
    fn wait_to_read(&self, deadline: Option<Deadline>, full: impl Fn()) -> bool {
        let mut patience = Patience::new();
        let mut wait = Wait::begin(profile::Kind::Read, self);
        loop {
            let Err(state) = self.enter(&patience) else { return wait.end(true) };
            if self.demotes_upgradable(state) {
                continue;
            }
            if Self::has_gone_writer(state) {
                wait.end(false);
                return self.fails_or_panics(deadline, state);
            }
            let seen = state.seen::<S>();
            if seen.is_full() {
                full();
                if deadline.is_some_and(|deadline| deadline <= Deadline::now()) {
                    return wait.end(self.reader_gives_up(&patience));
                }
                continue;
            }
            if patience.look_again() {
                continue;
            }
            let insists = patience.is_over() && state.is_current::<S>() && !state.has(READER_FIRST);
            let said = seen.with(READERS_ASLEEP | if insists { READER_FIRST } else { 0 });
            // Relaxed: a woken thread checks the state again.
            if state != said && self.change(state, said, Ordering::Relaxed).is_err() {
                continue;
            }
            if insists {
                // A closed lock admits it now.
                patience.insists = true;
                continue;
            }
            wait.sleeps();
            let limit = patience.sleeps::<S>(deadline);
            match half_word_wait::wait::<S>(&self.state, Half::Readers, said.0, limit) {
                Wake::TimedOut if limit == deadline => {
                    return wait.end(self.reader_gives_up(&patience));
                }
                Wake::Woken => patience.slept = true,
                Wake::TimedOut | Wake::Differed | Wake::Interrupted => (),
            }
            patience.wakes();
        }
    }

    /// Enters as a reader if possible; otherwise returns the state.
    pub(super) fn enter(&self, patience: &Patience) -> Result<(), State> {
        let this: *const AtomicU64 = &self.state;
        let mut state = self.load();
        loop {
            state = self.renew(state);
            let seen = patience.advice_in(state.seen::<S>());
            if !seen.admits_reader(patience.insists) {
                return Err(state);
            }
            let mut entered = seen.with_reader();
            if patience.insists {
                // Writers could not close the lock; one of them does now.
                entered = entered.without(READER_FIRST | WRITERS_ASLEEP);
            }
            // Acquire: partner is the Release of a writer that left.
            match self.change(state, entered, Ordering::Acquire) {
                Ok(()) => {
                    if patience.insists && seen.has(WRITERS_ASLEEP) {
                        half_word_wait::wake::<S>(this, Half::Writers, 1);
                    }
                    return Ok(());
                }
                Err(now) => state = now,
            }
        }
    }

    fn reader_gives_up(&self, patience: &Patience) -> bool {
        if self.enter(patience).is_ok() {
            return true;
        }
        if patience.insists {
            let this: *const AtomicU64 = &self.state;
            // Relaxed: this only allows writers to begin.
            let before = self.change_any(Ordering::Relaxed, |state| state.without(READER_FIRST));
            if before.has(WRITERS_ASLEEP) {
                // They could neither begin nor close the lock.
                half_word_wait::wake::<S>(this, Half::Writers, u32::MAX);
            }
        }
        false
    }

    /// Waits to lock as a writer or an upgradable reader; otherwise as `read_cold`.
    #[cold]
    pub(super) fn lock_cold(&self, kind: Kind, deadline: Option<Deadline>) -> bool {
        let mut patience = Patience::new();
        let mut wait = Wait::begin(profile::Kind::Write, self);
        loop {
            let Err(state) = self.begin(kind, &patience) else { return wait.end(true) };
            if self.demotes_upgradable(state) {
                continue;
            }
            if Self::has_gone_writer(state) {
                wait.end(false);
                return self.fails_or_panics(deadline, state);
            }
            let seen = state.seen::<S>();
            let has_no_end = deadline.is_none_or(|deadline| deadline == Deadline::NEVER);
            if has_no_end && self.waits_for_gone_readers(kind, state) {
                if deadline.is_none() {
                    readers_are_gone();
                }
                return wait.end(self.gives_up(kind, &mut patience));
            }
            if (kind == Kind::Writer && self.close(state, &patience)) || patience.look_again() {
                continue;
            }
            let mut said = seen.with(WRITERS_ASLEEP);
            let insists =
                patience.is_over() && state.is_current::<S>() && !state.has(SLEEPERS_FIRST);
            if insists {
                said = said.with(SLEEPERS_FIRST);
            }
            // Relaxed: a woken thread checks the state again.
            if state != said && self.change(state, said, Ordering::Relaxed).is_err() {
                continue;
            }
            patience.insists |= insists;
            wait.sleeps();
            let limit = patience.sleeps::<S>(deadline);
            match half_word_wait::wait::<S>(&self.state, Half::Writers, said.0, limit) {
                Wake::TimedOut if limit == deadline => {
                    return wait.end(self.gives_up(kind, &mut patience));
                }
                Wake::Woken => patience.slept = true,
                Wake::TimedOut | Wake::Differed | Wake::Interrupted => (),
            }
            patience.wakes();
        }
    }

    /// Closes the lock to new readers, while those inside leave. False if it is closed or cannot be.
    fn close(&self, state: State, patience: &Patience) -> bool {
        let advised = if patience.dozed { state.without(READER_FIRST) } else { state };
        let is_open = !advised.has(WRITING | READER_FIRST | CLOSED);
        if is_open && state.is_current::<S>() {
            // Relaxed: it publishes nothing else. If it fails, the caller checks the new state.
            let _ = self.change(state, advised.with(CLOSED), Ordering::Relaxed);
            return true;
        }
        false
    }

    /// Locks as a writer or an upgradable reader if possible; otherwise returns the state.
    pub(super) fn begin(&self, kind: Kind, patience: &Patience) -> Result<(), State> {
        let mut state = self.load();
        loop {
            state = self.renew(state);
            let seen = patience.advice_in(state.seen::<S>());
            if !kind.is_admitted(seen, patience.slept) {
                return Err(state);
            }
            // Acquire: partners are the Releases of holders that left.
            match self.change(state, kind.taken::<S>(seen, patience), Ordering::Acquire) {
                Ok(()) => return Ok(()),
                Err(now) => state = now,
            }
        }
    }

    fn gives_up(&self, kind: Kind, patience: &mut Patience) -> bool {
        // It may have been woken in place of another thread.
        patience.slept = true;
        if self.begin(kind, patience).is_ok() {
            return true;
        }
        let this: *const AtomicU64 = &self.state;
        let mine = if patience.insists { SLEEPERS_FIRST } else { 0 };
        // Relaxed: this only allows others to continue.
        let before = self.change_any(Ordering::Relaxed, |state| {
            state.without(CLOSED | WRITERS_ASLEEP | READERS_ASLEEP | mine)
        });
        // Invariants 3 and 4. Readers that cannot enter set their flag again.
        half_word_wait::wake::<S>(this, Half::Writers, u32::MAX);
        if before.has(READERS_ASLEEP) {
            half_word_wait::wake::<S>(this, Half::Readers, u32::MAX);
        }
        false
    }

    /// Turns the upgradable reader into a writer, if there is no other reader.
    #[inline]
    pub(super) fn try_upgrade(&self) -> bool {
        self.begin_upgrade().is_ok()
    }

    fn begin_upgrade(&self) -> Result<(), State> {
        let mut state = self.load();
        while state.readers() == 0 {
            // Acquire: partners are the Releases of readers that left.
            match self.change(state, state.upgraded(), Ordering::Acquire) {
                Ok(()) => return Ok(()),
                Err(now) => state = now,
            }
        }
        Err(state)
    }

    /// Turns the upgradable reader into a writer once there is no other reader. At the deadline returns false, and it
    /// is still upgradable.
    #[cold]
    pub(super) fn upgrade_cold(&self, deadline: Option<Deadline>) -> bool {
        let mut patience = Patience::new();
        let mut wait = Wait::begin(profile::Kind::Write, self);
        while let Err(state) = self.begin_upgrade() {
            if deadline.is_none() && self.waits_for_gone_readers(Kind::Writer, state) {
                readers_are_gone();
            }
            if patience.look_again() {
                continue;
            }
            let closed = if state.is_current::<S>() { CLOSED } else { 0 };
            let said = state.seen::<S>().with(UPGRADING | closed);
            // Relaxed: a woken thread checks the state again.
            if state != said && self.change(state, said, Ordering::Relaxed).is_err() {
                continue;
            }
            wait.sleeps();
            let limit = bounded_wait::limit(deadline, S::FUTEX);
            let wake = half_word_wait::wait::<S>(&self.state, Half::Writers, said.0, limit);
            if wake == Wake::TimedOut && limit == deadline {
                return wait.end(self.try_upgrade() || self.stays_upgradable());
            }
        }
        wait.end(true)
    }

    /// Opens the lock again, and returns false.
    fn stays_upgradable(&self) -> bool {
        let this: *const AtomicU64 = &self.state;
        // Relaxed: this only allows readers to enter.
        let before = self.change_any(Ordering::Relaxed, |state| {
            state.without(UPGRADING | CLOSED | READERS_ASLEEP | WRITERS_ASLEEP)
        });
        // Invariants 3 and 4. Writers that the last reader has woken close the lock again.
        if before.has(READERS_ASLEEP) {
            half_word_wait::wake::<S>(this, Half::Readers, u32::MAX);
        }
        if before.has(WRITERS_ASLEEP) {
            half_word_wait::wake::<S>(this, Half::Writers, u32::MAX);
        }
        false
    }
}
