//! Robust mutexes with priority inheritance.
//!
//! Invariant: the entry in the owner's robust list says that the lock inherits, so that the kernel uses its own
//! records of waiters for the wake-up.

use super::word::{self as pi_word, Left};
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sync::machinery::scope::Private;
use crate::sync::robust::gate::Gate;
use crate::sync::robust::word::{self, Taken};
use crate::sync::robust::{Inherit, LockError, Protocol, RobustMutex};
use crate::sys::futex::{Deadline, Scope};
use crate::sys::thread::robust_list::Thread;

/// A [`RobustMutex`] with priority inheritance: the owner runs with the highest priority of all waiters, and its
/// death is reported to the next owner.
///
/// ```
/// use corelocal::sync::RobustPiMutex;
///
/// // SAFETY: a static is neither moved nor freed.
/// static COUNT: RobustPiMutex<u64> = unsafe { RobustPiMutex::with_scope(0) };
///
/// if let Ok(mut count) = COUNT.lock() {
///     *count += 1;
/// }
/// ```
pub type RobustPiMutex<T, S = Private> = RobustMutex<T, S, Inherit>;

impl Protocol for Inherit {
    const INHERITS: bool = true;

    fn take(
        word: &AtomicU32,
        _: &Gate,
        me: Thread<'_>,
        deadline: Option<Deadline>,
        scope: Scope,
    ) -> Result<Taken, LockError> {
        noted(word, pi_word::take(word, me.number, deadline, scope, Left::Take))
    }

    fn try_take(word: &AtomicU32, me: Thread<'_>, scope: Scope) -> Result<Taken, LockError> {
        noted(word, pi_word::try_take(word, me.number, scope, Left::Take))
    }

    #[inline(always)]
    fn leave(word: &AtomicU32, me: Thread<'_>, scope: Scope) {
        pi_word::leave(word, me.number, scope);
    }
}

/// The death has been reported. If this owner dies as well, the kernel sets the bit again.
fn noted(word: &AtomicU32, taken: Result<Taken, LockError>) -> Result<Taken, LockError> {
    if taken == Ok(Taken::FromTheDead) {
        // Relaxed: this thread is the word's owner; other threads only set the waiters bit.
        word.fetch_and(word::ALL_BUT_OWNER_DIED, Ordering::Relaxed);
    }
    taken
}
