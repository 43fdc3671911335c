//! The slow paths of the lock: waiting for it, giving up, and what a fork left behind.
//!
//! The invariants are those of `raw.rs`.

use super::halves::{self, Half};
use super::patience::Patience;
use super::raw::Raw;
use super::state::{
    self, CLOSED, READER_FIRST, READERS_ASLEEP, RECOVERED, SLEEPERS_FIRST, State, TAG_BITS,
    UPGRADABLE, UPGRADING, WRITERS_ASLEEP, WRITING,
};
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::sync::doze;
use crate::sync::holder::{self, Holder};
use crate::sync::profile::{self, Wait};
use crate::sync::scope::Scope;
use crate::sys::futex::{self, Deadline, Wake};

/// Those who wait for the upper half.
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

    /// The state with one of this kind in it. One that has slept says that others may (invariant 3).
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
    /// For a reader; false at the deadline.
    #[cold]
    pub(super) fn read_cold(&self, deadline: Option<Deadline>) -> bool {
        let mut patience = Patience::new();
        let mut wait = Wait::begin(profile::Kind::Read, self);
        loop {
            let Err(state) = self.enter(&patience) else { return wait.end(true) };
            if self.recover(state) {
                continue;
            }
            let seen = state.seen::<S>();
            assert!(!seen.is_full(), "a read-write lock has at most 2^20 readers at a time");
            if patience.look_again() {
                continue;
            }
            let insists = patience.is_over() && state.is_current::<S>() && !state.has(READER_FIRST);
            let said = seen.with(READERS_ASLEEP | if insists { READER_FIRST } else { 0 });
            // Relaxed: who is woken looks again.
            if state != said && self.change(state, said, Ordering::Relaxed).is_err() {
                continue;
            }
            if insists {
                // A closed lock is open to it now.
                patience.insists = true;
                continue;
            }
            wait.sleeps();
            let limit = patience.sleeps::<S>(deadline);
            match halves::wait::<S>(&self.state, Half::Readers, said.0, limit) {
                Wake::TimedOut if limit == deadline => {
                    return wait.end(self.reader_gives_up(&patience));
                }
                Wake::Woken => patience.slept = true,
                Wake::TimedOut | Wake::Differed | Wake::Interrupted => (),
            }
            patience.wakes();
        }
    }

    /// For a reader, if that is possible now; else what the state is.
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
                // Writers could not close it; one of them does now.
                entered = entered.without(READER_FIRST | WRITERS_ASLEEP);
            }
            // Acquire: partner is the Release of a writer that left.
            match self.change(state, entered, Ordering::Acquire) {
                Ok(()) => {
                    if patience.insists && seen.has(WRITERS_ASLEEP) {
                        halves::wake::<S>(this, Half::Writers, 1);
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
            // Relaxed: nothing is told but that writers may begin.
            let before = self.change_any(Ordering::Relaxed, |state| state.without(READER_FIRST));
            if before.has(WRITERS_ASLEEP) {
                // They could neither begin nor close it.
                halves::wake::<S>(this, Half::Writers, u32::MAX);
            }
        }
        false
    }

    /// For a writer or an upgradable reader; false at the deadline.
    #[cold]
    pub(super) fn lock_cold(&self, kind: Kind, deadline: Option<Deadline>) -> bool {
        let mut patience = Patience::new();
        let mut wait = Wait::begin(profile::Kind::Write, self);
        loop {
            let Err(state) = self.begin(kind, &patience) else { return wait.end(true) };
            if self.recover(state) {
                continue;
            }
            let seen = state.seen::<S>();
            assert!(
                deadline.is_some() || !self.waits_for_gone_readers(kind, state),
                "the lock is read by a thread that a fork left behind, or by this one"
            );
            if (kind == Kind::Writer && self.close(state, &patience)) || patience.look_again() {
                continue;
            }
            let mut said = seen.with(WRITERS_ASLEEP);
            let insists =
                patience.is_over() && state.is_current::<S>() && !state.has(SLEEPERS_FIRST);
            if insists {
                said = said.with(SLEEPERS_FIRST);
            }
            // Relaxed: who is woken looks again.
            if state != said && self.change(state, said, Ordering::Relaxed).is_err() {
                continue;
            }
            patience.insists |= insists;
            wait.sleeps();
            let limit = patience.sleeps::<S>(deadline);
            match halves::wait::<S>(&self.state, Half::Writers, said.0, limit) {
                Wake::TimedOut if limit == deadline => {
                    return wait.end(self.gives_up(kind, &mut patience));
                }
                Wake::Woken => patience.slept = true,
                Wake::TimedOut | Wake::Differed | Wake::Interrupted => (),
            }
            patience.wakes();
        }
    }

    /// Keeps out readers that come from here on; those inside leave. False if nothing is to be done for that.
    fn close(&self, state: State, patience: &Patience) -> bool {
        let advised = if patience.dozed { state.without(READER_FIRST) } else { state };
        let is_open = !advised.has(WRITING | READER_FIRST | CLOSED);
        if is_open && state.is_current::<S>() {
            // Relaxed: it tells nothing else. Should it fail, the caller looks at what it is now.
            let _ = self.change(state, advised.with(CLOSED), Ordering::Relaxed);
            return true;
        }
        false
    }

    /// For a writer or an upgradable reader, if that is possible now; else what the state is.
    pub(super) fn begin(&self, kind: Kind, patience: &Patience) -> Result<(), State> {
        let mut state = self.load();
        loop {
            state = self.renew(state);
            let seen = patience.advice_in(state.seen::<S>());
            if !kind.is_admitted(seen, patience.slept) {
                return Err(state);
            }
            // Acquire: partners are the Releases of whoever left.
            match self.change(state, kind.taken::<S>(seen, patience), Ordering::Acquire) {
                Ok(()) => return Ok(()),
                Err(now) => state = now,
            }
        }
    }

    fn gives_up(&self, kind: Kind, patience: &mut Patience) -> bool {
        // It may have been woken in place of another.
        patience.slept = true;
        if self.begin(kind, patience).is_ok() {
            return true;
        }
        let this: *const AtomicU64 = &self.state;
        let mine = if patience.insists { SLEEPERS_FIRST } else { 0 };
        // Relaxed: nothing is told but that others may go on.
        let before = self.change_any(Ordering::Relaxed, |state| {
            state.without(CLOSED | WRITERS_ASLEEP | READERS_ASLEEP | mine)
        });
        // Invariants 3 and 4. Readers that cannot come in say again that they sleep.
        halves::wake::<S>(this, Half::Writers, u32::MAX);
        if before.has(READERS_ASLEEP) {
            halves::wake::<S>(this, Half::Readers, u32::MAX);
        }
        false
    }

    /// An upgradable reader becomes a writer, if nobody else reads.
    #[inline]
    pub(super) fn try_upgrade(&self) -> bool {
        self.begin_upgrade().is_ok()
    }

    fn begin_upgrade(&self) -> Result<(), State> {
        let mut state = self.load();
        while state.readers() == 0 {
            // Acquire: partners are the Releases of the readers that left.
            match self.change(state, state.upgraded(), Ordering::Acquire) {
                Ok(()) => return Ok(()),
                Err(now) => state = now,
            }
        }
        Err(state)
    }

    /// An upgradable reader becomes a writer, once nobody else reads; false at the deadline, and it is what it
    /// was.
    #[cold]
    pub(super) fn upgrade_cold(&self, deadline: Option<Deadline>) -> bool {
        let mut patience = Patience::new();
        let mut wait = Wait::begin(profile::Kind::Write, self);
        while let Err(state) = self.begin_upgrade() {
            assert!(
                deadline.is_some() || !self.waits_for_gone_readers(Kind::Writer, state),
                "the lock is read by a thread that a fork left behind, or by this one"
            );
            if patience.look_again() {
                continue;
            }
            let closed = if state.is_current::<S>() { CLOSED } else { 0 };
            let said = state.seen::<S>().with(UPGRADING | closed);
            // Relaxed: who is woken looks again.
            if state != said && self.change(state, said, Ordering::Relaxed).is_err() {
                continue;
            }
            wait.sleeps();
            let limit = doze::limit(deadline, S::FUTEX);
            let wake = halves::wait::<S>(&self.state, Half::Writers, said.0, limit);
            if wake == Wake::TimedOut && limit == deadline {
                return wait.end(self.try_upgrade() || self.stays_upgradable());
            }
        }
        wait.end(true)
    }

    /// Opens the lock again; false.
    fn stays_upgradable(&self) -> bool {
        let this: *const AtomicU64 = &self.state;
        // Relaxed: nothing is told but that readers may come in.
        let before = self.change_any(Ordering::Relaxed, |state| {
            state.without(UPGRADING | CLOSED | READERS_ASLEEP | WRITERS_ASLEEP)
        });
        // Invariants 3 and 4. Writers may have been woken by the last reader, and close the lock again.
        if before.has(READERS_ASLEEP) {
            halves::wake::<S>(this, Half::Readers, u32::MAX);
        }
        if before.has(WRITERS_ASLEEP) {
            halves::wake::<S>(this, Half::Writers, u32::MAX);
        }
        false
    }

    /// A writer or an upgradable reader has it that a fork left behind.
    pub(super) fn is_left_behind(state: State) -> bool {
        let is_held = state.has(WRITING | UPGRADABLE) && S::FUTEX == futex::Scope::Private;
        is_held && holder::who::<TAG_BITS>(state.holder()) == Holder::Gone
    }

    /// Takes the lock from a writer or an upgradable reader that a fork left behind, and makes it nobody's.
    #[cold]
    pub(super) fn recover(&self, state: State) -> bool {
        if !Self::is_left_behind(state) {
            return false;
        }
        let this: *const AtomicU64 = &self.state;
        // A gone upgradable reader has changed nothing. If it was upgrading it had not begun.
        let sign = if state.has(WRITING) { RECOVERED } else { 0 };
        let free =
            state.without_copied_visitors::<S>().let_go().without(READER_FIRST | SLEEPERS_FIRST);
        let recovered = free.without(READERS_ASLEEP | WRITERS_ASLEEP).with(sign);
        let recovered = if recovered.is_free() { recovered.renewed::<S>() } else { recovered };
        // Acquire: of the fork, which copied all that the holder had done; threads of the child were started
        // after it.
        if self.change(state, recovered, Ordering::Acquire).is_ok() {
            Self::wake_everybody(this);
        }
        true
    }

    /// Whether the caller waits for readers that are gone for certain, or for itself.
    ///
    /// Readers leave no name. But there were some at the fork, and of those threads one is here: the first of
    /// the process. If that one waits, nobody is left who could let go.
    fn waits_for_gone_readers(&self, kind: Kind, state: State) -> bool {
        kind == Kind::Writer
            && state.readers() > 0
            && S::FUTEX == futex::Scope::Private
            && !state.is_current::<S>()
            && holder::is_first_thread()
    }

    /// Forgets readers of before the fork, who never leave.
    pub(super) fn forget_readers(&self) {
        let this: *const AtomicU64 = &self.state;
        let mut state = self.load();
        while state.readers() > 0 && !state.is_current::<S>() {
            let alone = state.without_readers().seen::<S>();
            // Acquire: as in `recover`.
            match self.change(state, alone, Ordering::Acquire) {
                Ok(()) => {
                    self.renew(alone);
                    return Self::wake_everybody(this);
                }
                Err(now) => state = now,
            }
        }
    }
}
