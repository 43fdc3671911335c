//! The slow paths of the read-write lock: waiting, giving up, and locks that a fork left behind.
//!
//! The invariants are those of `raw.rs`.

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

    /// The state with one of this kind in it. One that has slept sets WRITERS_ASLEEP for others (invariant 3).
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

    /// As `read_cold` without a deadline, but if there are 2^20 readers it waits until one leaves.
    ///
    /// For guards that lock again when they are dropped: after a caught panic they would exist without the lock.
    #[cold]
    #[cfg(all(feature = "lock_api", not(loom)))]
    pub(super) fn read_even_if_full(&self) {
        self.wait_to_read(None, || {
            // A reader that leaves does not wake readers.
            let pause = Deadline::after(core::time::Duration::from_millis(1));
            sleep::wait(&AtomicU32::new(0), 0, Some(pause), futex::Scope::Private);
        });
    }

    /// Calls `full` if there is no room for another reader, and checks the state again when it returns.
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

    /// Whether the writer or upgradable reader did not survive a fork.
    fn is_left_behind(state: State) -> bool {
        let is_held = state.has(WRITING | UPGRADABLE) && S::FUTEX == futex::Scope::Private;
        is_held && owner_tag::who::<TAG_BITS>(state.holder()) == Holder::Gone
    }

    /// Whether the writer did not survive a fork.
    pub(super) fn has_gone_writer(state: State) -> bool {
        state.has(WRITING) && Self::is_left_behind(state)
    }

    /// Whether the upgradable reader did not survive a fork.
    pub(super) fn has_gone_upgradable(state: State) -> bool {
        state.has(UPGRADABLE) && Self::is_left_behind(state)
    }

    /// Turns an upgradable reader that is gone into a plain reader that is gone; false if there is none.
    ///
    /// It has changed nothing: even an upgrade that it waited for had not begun. But the thread that called fork may
    /// have borrowed the value from its guard, so no writer may begin.
    #[cold]
    pub(super) fn demotes_upgradable(&self, state: State) -> bool {
        let is_there = Self::has_gone_upgradable(state);
        if is_there {
            self.replaces_gone(state, State::with_reader);
        }
        is_there
    }

    /// Takes the lock from a holder that is gone, if the state is unchanged, and sets it to what `what` returns.
    /// Returns whether it was unchanged.
    fn replaces_gone(&self, state: State, what: impl FnOnce(State) -> State) -> bool {
        let this: *const AtomicU64 = &self.state;
        let free =
            state.without_copied_visitors::<S>().let_go().without(READER_FIRST | SLEEPERS_FIRST);
        let freed = what(free.without(READERS_ASLEEP | WRITERS_ASLEEP));
        let freed = if freed.is_free() { State::renewed::<S>() } else { freed };
        // Acquire: of the fork, which copied all that the holder had done, and after which the child's threads were
        // started.
        let is_freed = self.change(state, freed, Ordering::Acquire).is_ok();
        if is_freed {
            Self::wake_everybody(this);
        }
        is_freed
    }

    /// Frees the lock if its writer is gone. Returns whether it was.
    #[cfg(all(feature = "lock_api", not(loom)))]
    pub(super) fn forget_writer(&self) -> bool {
        let mut state = self.load();
        while Self::has_gone_writer(state) {
            if self.replaces_gone(state, |free| free) {
                return true;
            }
            state = self.load();
        }
        false
    }

    /// Ends an attempt to take a lock whose writer is gone.
    #[cold]
    fn fails_or_panics(&self, deadline: Option<Deadline>, mut state: State) -> bool {
        if deadline.is_some() {
            return false;
        }
        // With this flag, an erroneous unlock by a `lock_api` guard that loses its lock to this panic takes the slow
        // path.
        while Self::has_gone_writer(state) {
            // Relaxed: it publishes nothing else.
            match self.change(state, state.with(READERS_ASLEEP), Ordering::Relaxed) {
                Ok(()) => break,
                Err(now) => state = now,
            }
        }
        panic!(
            "a thread that wrote to this read-write lock when the process was forked is not in the child, and may have \
             left the value half changed: in the child lock it by `write_checked` or `read_checked`, and `reset` the \
             value (of a `RawRwLock`: `forget_writer`)"
        )
    }

    /// Takes the lock from a writer that is gone, for a writer with this tag. Returns the former tag.
    pub(super) fn adopt(&self, tag: u32) -> Option<u32> {
        let mut state = self.load();
        while Self::has_gone_writer(state) {
            // Acquire: as in `replaces_gone`, or of `abandon`.
            match self.change(state, state.with_holder(tag), Ordering::Acquire) {
                Ok(()) => return Some(state.holder()),
                Err(now) => state = now,
            }
        }
        None
    }

    /// Unlocks as if the writer with the tag `gone` still had the lock. All waiters check the state again.
    pub(super) fn abandon(&self, gone: u32) {
        let this: *const AtomicU64 = &self.state;
        // Both halves change for a thread that is about to sleep: the lower half has the tag, and in the upper one
        // that thread has set WRITERS_ASLEEP, which stays clear while the writer is gone. Release: partner is the
        // Acquire in `adopt`.
        self.change_any(Ordering::Release, |state| {
            state.with_holder(gone).without(WRITERS_ASLEEP).with(READERS_ASLEEP)
        });
        Self::wake_everybody(this);
    }

    /// Whether the caller would wait for readers that may be gone, or for itself.
    ///
    /// Readers are anonymous. But there were some at the fork, and one thread of those is still here, the first of
    /// the process. If that thread waits, only readers that came after the fork can leave.
    fn waits_for_gone_readers(&self, kind: Kind, state: State) -> bool {
        kind == Kind::Writer
            && state.readers() > 0
            && S::FUTEX == futex::Scope::Private
            && !state.is_current::<S>()
            && owner_tag::is_first_thread()
    }

    /// For a writer that waited in vain without a deadline.
    #[cold]
    pub(super) fn panic_if_readers_are_gone(&self) {
        if self.waits_for_gone_readers(Kind::Writer, self.load()) {
            readers_are_gone();
        }
    }

    /// Removes readers from before the fork, which never leave.
    pub(super) fn forget_readers(&self) {
        let this: *const AtomicU64 = &self.state;
        let mut state = self.load();
        while state.readers() > 0 && !state.is_current::<S>() {
            let alone = state.without_readers().seen::<S>();
            // Acquire: as in `replaces_gone`.
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

#[cold]
#[inline(never)]
fn readers_are_gone() -> ! {
    panic!(
        "the lock is read, and was when this process was forked: by a thread that is not here, perhaps. If no thread of \
         this process has a read guard of it, call `forget_readers`"
    )
}
