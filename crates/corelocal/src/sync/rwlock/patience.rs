//! How a thread waits for a lock: it looks again a few times, then it sleeps, and after a while it insists.

use core::time::Duration;

use super::state::State;
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
    /// It has slept for as long as one does where others may die (`doze.rs`): advice may be a dead one's.
    pub(super) dozed: bool,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { spin: Spin::new(spin::BRIEF), ..Patience::none() }
    }

    /// Of one that does not wait.
    pub(super) fn none() -> Patience {
        Patience { spin: Spin::new(0), end: None, slept: false, insists: false, dozed: false }
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

    /// It is about to sleep.
    pub(super) fn sleeps(&mut self) {
        if self.end.is_none() && !cfg!(loom) {
            self.end = Some(Deadline::after(PATIENCE));
        }
    }

    /// It was overtaken for so long that it insists now; in a model, when it was overtaken once.
    pub(super) fn is_over(&self) -> bool {
        self.slept
            && !self.insists
            && (cfg!(loom) || self.end.is_some_and(|end| end <= Deadline::now()))
    }
}
