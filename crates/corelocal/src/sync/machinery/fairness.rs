//! Fairness of mutexes, semaphores and events: a waiter lets others overtake it for [`PATIENCE`]. Then it marks the
//! word as STARVED, and newcomers let waiters go first, until such a waiter has what it waits for. How they do that
//! depends on what the word has room for:
//!
//! | | STARVED is in | newcomers |
//! |---|---|---|
//! | mutex | the word; its queue shows that a waiter is on its way | yield |
//! | semaphore, event | the word, which has no queue | sleep on it, for [`STEP_BACK`] at most |
//! | robust mutex | a word beside it (the gate): the kernel lays out a robust word | sleep on that one, as long |

use core::time::Duration;

use crate::sys::futex::Deadline;

/// The time for which a waiter lets others go first.
pub(in crate::sync) const PATIENCE: Duration = Duration::from_millis(2);
/// The time for which a newcomer lets a waiter go first. The waiter may have been killed, or left behind by a fork.
const STEP_BACK: Duration = Duration::from_millis(10);

/// The end of a waiter's patience.
#[derive(Clone, Copy)]
pub(in crate::sync) struct Patience(Deadline);

impl Patience {
    /// For a thread that begins to wait.
    pub(in crate::sync) fn begin() -> Patience {
        Patience(Deadline::after(PATIENCE))
    }

    /// Returns `true` if the thread has waited for long. Always true in a model.
    pub(in crate::sync) fn has_ended(self) -> bool {
        cfg!(loom) || self.0.has_come()
    }
}

/// Returns when a waiter that others have overtaken for long says so again, in case another thread took that back.
/// `None` in a model, where a thread with a deadline may wake at any time, which would hide a missed wake-up.
pub(in crate::sync) fn next_claim(deadline: Option<Deadline>) -> Option<Deadline> {
    if cfg!(loom) { None } else { Some(end_of_step_back(deadline)) }
}

/// Until when a newcomer lets a waiter go first.
pub(in crate::sync) fn end_of_step_back(deadline: Option<Deadline>) -> Deadline {
    let end = Deadline::after(STEP_BACK);
    deadline.map_or(end, |deadline| deadline.min(end))
}
