//! How long a thread that waits lets others overtake it, and how long a thread that comes new lets it go first: what
//! semaphores, events and robust mutexes share.

use core::time::Duration;

use crate::sys::futex::Deadline;

/// How long a waiter lets others go first, as that of a `Mutex` does (`mutex/waiter.rs`).
const PATIENCE: Duration = Duration::from_millis(2);
/// How long a thread that comes new lets a waiter go first, which may have been killed or left behind by a fork.
const STEP_BACK: Duration = Duration::from_millis(10);

/// The end of a waiter's patience.
#[derive(Clone, Copy)]
pub(super) struct Patience(Deadline);

impl Patience {
    /// Of a thread that begins to wait.
    pub(super) fn begin() -> Patience {
        Patience(Deadline::after(PATIENCE))
    }

    /// Whether the thread has waited for long. In a model it always has.
    pub(super) fn has_ended(self) -> bool {
        cfg!(loom) || self.0.has_come()
    }
}

/// Until when a thread that comes new lets a waiter go first.
pub(super) fn end_of_step_back(deadline: Option<Deadline>) -> Deadline {
    let end = Deadline::after(STEP_BACK);
    deadline.map_or(end, |deadline| deadline.min(end))
}
