//! How a thread waits for a lock: it looks again a few times, then it sleeps, and after a while it insists.

use core::time::Duration;

use super::state::State;
use crate::sync::bounded_wait;
use crate::sync::scope::Scope;
use crate::sync::spin::{self, Spin};
use crate::sys::futex::Deadline;

/// How long a thread sleeps and is overtaken before it insists.
const PATIENCE: Duration = Duration::from_micros(500);

/// What one thread has done so far to get the lock.
pub(super) struct Patience {
    spin: Spin,
    /// The end of it, once the thread was about to sleep.
    end: Option<Deadline>,
    /// It has slept, and perhaps was woken in place of another.
    pub(super) slept: bool,
    /// It has said that it comes first.
    pub(super) insists: bool,
    /// When advice counts no more for it, where others may die (`bounded_wait.rs`); known once it was about to sleep.
    look: Option<Deadline>,
    /// That time has come: advice may be a dead one's.
    pub(super) dozed: bool,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { spin: Spin::new(spin::BRIEF), ..Patience::none() }
    }

    /// Of one that does not wait.
    pub(super) fn none() -> Patience {
        let spin = Spin::new(0);
        Patience { spin, end: None, slept: false, insists: false, look: None, dozed: false }
    }

    /// The state with the advice in it that counts for this thread.
    #[inline]
    pub(super) fn advice_in(&self, state: State) -> State {
        if self.dozed { state.without_advice() } else { state }
    }

    /// Waits a little, if it is worth to look again before sleeping.
    pub(super) fn look_again(&mut self) -> bool {
        self.spin.again()
    }

    /// It is about to sleep: until when at most.
    pub(super) fn sleeps<S: Scope>(&mut self, deadline: Option<Deadline>) -> Option<Deadline> {
        if self.end.is_none() && !cfg!(loom) {
            self.end = Some(Deadline::after(PATIENCE));
        }
        // However often it wakes meanwhile, for whatever reason: the time is that of the whole wait.
        self.look = self.look.or_else(|| bounded_wait::next_look(S::FUTEX));
        bounded_wait::earlier(deadline, self.look)
    }

    /// It has slept.
    pub(super) fn wakes(&mut self) {
        if self.look.is_some_and(Deadline::has_come) {
            self.look = None;
            // It may have been woken in place of another.
            (self.slept, self.dozed) = (true, true);
        }
    }

    /// It was overtaken for so long that it insists now; in a model, when it was overtaken once. It does so again when
    /// somebody minded no advice.
    pub(super) fn is_over(&self) -> bool {
        self.slept && (cfg!(loom) || self.end.is_some_and(Deadline::has_come))
    }
}
