//! An upper bound on each sleep on an object that several processes share.
//!
//! A process may be killed at any instruction. The flags that it set while it waited stay set, and a wake-up that it
//! received or was about to send is lost. So a waiter on a shared object re-checks at least once in [`LONGEST`].

use core::time::Duration;

use crate::primitive::atomic::AtomicU32;
use crate::sys::futex::{Deadline, Scope, Wake};
use crate::sys::sleep;

/// The longest time between two checks of a shared word.
pub(in crate::sync) const LONGEST: Duration = Duration::from_secs(1);

/// Returns the latest time at which a new sleeper re-checks the word. `None` where no other process can die.
pub(in crate::sync) fn next_look(scope: Scope) -> Option<Deadline> {
    // Under loom a thread with a deadline may wake at any time, which would hide a missed wake-up.
    let is_needed = scope == Scope::Shared && !cfg!(loom);
    is_needed.then(|| Deadline::after(LONGEST))
}

/// Returns the same, or the deadline if it comes first. A thread that sleeps until a time that is not the deadline may
/// have missed a wake-up, and checks the word.
pub(in crate::sync) fn limit(deadline: Option<Deadline>, scope: Scope) -> Option<Deadline> {
    earlier(deadline, next_look(scope))
}

/// Returns the earlier of those that are set.
pub(in crate::sync) fn earlier(one: Option<Deadline>, other: Option<Deadline>) -> Option<Deadline> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Sleeps while the word holds `expected`, until woken or until the deadline. Returns within a second even if the
/// wake-up was lost, since the thread that should have sent it had changed the word.
pub(in crate::sync) fn wait(
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
