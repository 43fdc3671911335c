//! How long a thread sleeps at most where processes share what it waits for.
//!
//! A process may be killed at any instruction. What it said while it waited stays said, and a wake-up that the kernel
//! gives to a thread that dies goes with it. So nobody sleeps there for longer than [`LONGEST`] without a look.

use core::time::Duration;

use crate::sys::futex::{Deadline, Scope};

/// See the module's text.
const LONGEST: Duration = Duration::from_secs(1);

/// When to look again at the latest; the deadline itself, where nobody's death is to be feared. Who sleeps until then
/// and finds it is not the deadline has dozed: it may have been meant to wake.
pub(super) fn limit(deadline: Option<Deadline>, scope: Scope) -> Option<Deadline> {
    // In a model one with a deadline may wake at any time, and no wake-up would ever be missed.
    if cfg!(loom) || scope == Scope::Private {
        return deadline;
    }
    let look = Deadline::after(LONGEST);
    Some(deadline.map_or(look, |deadline| deadline.min(look)))
}
