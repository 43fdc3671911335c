//! How long a thread sleeps at most where processes share what it waits for.
//!
//! A process may be killed at any instruction. What it said while it waited stays said, and a wake-up that it was about
//! to give, or that the kernel gave to it, goes with it. So nobody sleeps there for longer than [`LONGEST`] without a
//! look.

use core::time::Duration;

use crate::primitive::atomic::AtomicU32;
use crate::sys::futex::{Deadline, Scope, Wake};
use crate::sys::sleep;

/// See the module's text.
pub(super) const LONGEST: Duration = Duration::from_secs(1);

/// When who begins to sleep now looks again at the latest; nothing where nobody's death is to be feared.
pub(super) fn next_look(scope: Scope) -> Option<Deadline> {
    // In a model one with a deadline may wake at any time, and no wake-up would ever be missed.
    let is_needed = scope == Scope::Shared && !cfg!(loom);
    is_needed.then(|| Deadline::after(LONGEST))
}

/// The same, or the deadline, if that comes first. Who sleeps until then and finds it is not the deadline has dozed:
/// it may have been meant to wake.
pub(super) fn limit(deadline: Option<Deadline>, scope: Scope) -> Option<Deadline> {
    earlier(deadline, next_look(scope))
}

/// The earlier one of those that there are.
pub(super) fn earlier(one: Option<Deadline>, other: Option<Deadline>) -> Option<Deadline> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Sleeps while the word holds `expected`, until woken or until the deadline. Who is not woken finds another word
/// within a second, for who was to wake it made it another one.
pub(super) fn wait(
    word: &AtomicU32,
    expected: u32,
    deadline: Option<Deadline>,
    scope: Scope,
) -> Wake {
    loop {
        let limit = limit(deadline, scope);
        match sleep::wait(word, expected, limit, scope) {
            Wake::TimedOut if limit != deadline => {}
            outcome => return outcome,
        }
    }
}
