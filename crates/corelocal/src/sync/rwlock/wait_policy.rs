//! How a thread waits for a read-write lock: it spins a few times, then sleeps, and after a while insists on being
//! next.

use core::time::Duration;

use super::state::State;
use crate::sync::machinery::bounded_wait;
use crate::sync::machinery::scope::Scope;
use crate::sync::machinery::spin::{self, Spin};
use crate::sys::futex::Deadline;

/// The time for which a thread lets others overtake it before it insists.
const PATIENCE: Duration = Duration::from_micros(500);

/// The progress of one wait.
pub(super) struct Patience {
    spin: Spin,
    /// The end of its patience; set when it first sleeps.
    end: Option<Deadline>,
    /// Whether it has slept. It may have been woken in place of another thread.
    pub(super) slept: bool,
    /// Whether it has announced that it comes next.
    pub(super) insists: bool,
    /// The time at which it begins to ignore advice, if other processes may die (`machinery/bounded_wait.rs`); set when
    /// it first sleeps.
    look: Option<Deadline>,
    /// Whether the time to check again has come: the thread that set the advice may be dead.
    pub(super) dozed: bool,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { spin: Spin::new(spin::BRIEF), ..Patience::none() }
    }

    /// For a thread that does not wait.
    pub(super) fn none() -> Patience {
        let spin = Spin::new(0);
        Patience { spin, end: None, slept: false, insists: false, look: None, dozed: false }
    }

    /// Returns the state with only the advice that counts for this thread.
    #[inline]
    pub(super) fn advice_in(&self, state: State) -> State {
        if self.dozed { state.without_advice() } else { state }
    }

    /// Spins once; false if it is time to sleep.
    pub(super) fn look_again(&mut self) -> bool {
        self.spin.again()
    }

    /// To be called before sleeping; returns when to wake up at the latest.
    pub(super) fn sleeps<S: Scope>(&mut self, deadline: Option<Deadline>) -> Option<Deadline> {
        if self.end.is_none() && !cfg!(loom) {
            self.end = Some(Deadline::after(PATIENCE));
        }
        // One time limit for the whole wait, however often the thread wakes up meanwhile.
        self.look = self.look.or_else(|| bounded_wait::next_look(S::FUTEX));
        bounded_wait::earlier(deadline, self.look)
    }

    /// Notes, after a sleep, whether the time to check again has come.
    pub(super) fn wakes(&mut self) {
        if self.look.is_some_and(Deadline::has_come) {
            self.look = None;
            // It may have been woken in place of another thread.
            (self.slept, self.dozed) = (true, true);
        }
    }

    /// Returns `true` if it has been overtaken for so long that it insists; in a model, after it was overtaken once. It
    /// insists again when another thread ignored advice.
    pub(super) fn is_over(&self) -> bool {
        self.slept && (cfg!(loom) || self.end.is_some_and(Deadline::has_come))
    }
}
