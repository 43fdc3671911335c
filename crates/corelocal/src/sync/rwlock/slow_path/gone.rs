//! Locks whose owners a fork left behind.

use super::*;

impl<S: Scope> Raw<S> {
    /// Returns `true` if the writer or upgradable reader did not survive a fork.
    pub(in crate::sync::rwlock) fn is_left_behind(state: State) -> bool {
        let is_held = state.has(WRITING | UPGRADABLE) && S::FUTEX == futex::Scope::Private;
        is_held && owner_tag::who::<TAG_BITS>(state.holder()) == Holder::Gone
    }

    /// Returns `true` if the writer did not survive a fork.
    pub(in crate::sync::rwlock) fn has_gone_writer(state: State) -> bool {
        state.has(WRITING) && Self::is_left_behind(state)
    }

    /// Returns `true` if the upgradable reader did not survive a fork.
    pub(in crate::sync::rwlock) fn has_gone_upgradable(state: State) -> bool {
        state.has(UPGRADABLE) && Self::is_left_behind(state)
    }

    /// Turns an upgradable reader that is gone into a plain reader that is gone; false if there is none.
    ///
    /// It has changed nothing: even an upgrade that it waited for had not begun. But the thread that called fork may
    /// have borrowed the value from its guard, so no writer may begin.
    #[cold]
    pub(in crate::sync::rwlock) fn demotes_upgradable(&self, state: State) -> bool {
        let is_there = Self::has_gone_upgradable(state);
        if is_there {
            self.replaces_gone(state, State::with_reader);
        }
        is_there
    }

    /// Takes the lock from a holder that is gone, if the state is unchanged, and sets it to what `what` returns.
    /// Returns whether it was unchanged.
    pub(in crate::sync::rwlock) fn replaces_gone(
        &self,
        state: State,
        what: impl FnOnce(State) -> State,
    ) -> bool {
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
    pub(in crate::sync::rwlock) fn forget_writer(&self) -> bool {
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
    pub(in crate::sync::rwlock) fn fails_or_panics(
        &self,
        deadline: Option<Deadline>,
        mut state: State,
    ) -> bool {
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
    pub(in crate::sync::rwlock) fn adopt(&self, tag: u32) -> Option<u32> {
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
    pub(in crate::sync::rwlock) fn abandon(&self, gone: u32) {
        let this: *const AtomicU64 = &self.state;
        // Both halves change for a thread that is about to sleep: the lower half has the tag, and in the upper one
        // that thread has set WRITERS_ASLEEP, which stays clear while the writer is gone. Release: partner is the
        // Acquire in `adopt`.
        self.change_any(Ordering::Release, |state| {
            state.with_holder(gone).without(WRITERS_ASLEEP).with(READERS_ASLEEP)
        });
        Self::wake_everybody(this);
    }

    /// Returns `true` if the caller would wait for readers that may be gone, or for itself.
    ///
    /// Readers are anonymous. But there were some at the fork, and one thread of those is still here, the first of
    /// the process. If that thread waits, only readers that came after the fork can leave.
    pub(in crate::sync::rwlock) fn waits_for_gone_readers(&self, kind: Kind, state: State) -> bool {
        kind == Kind::Writer
            && state.readers() > 0
            && S::FUTEX == futex::Scope::Private
            && !state.is_current::<S>()
            && owner_tag::is_first_thread()
    }

    /// For a writer that waited in vain without a deadline.
    #[cold]
    pub(in crate::sync::rwlock) fn panic_if_readers_are_gone(&self) {
        if self.waits_for_gone_readers(Kind::Writer, self.load()) {
            readers_are_gone();
        }
    }

    /// Removes readers from before the fork, which never leave.
    pub(in crate::sync::rwlock) fn forget_readers(&self) {
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
pub(super) fn readers_are_gone() -> ! {
    panic!(
        "the lock is read, and was when this process was forked: by a thread that is not here, perhaps. If no thread of \
         this process has a read guard of it, call `forget_readers`"
    )
}
