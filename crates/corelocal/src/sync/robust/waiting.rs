//! Whether a robust mutex lends its waiters' priority to its owner, as a type.
//!
//! Invariant: all operations on one word wait in the same way. The kernel refuses to mix them.

use core::panic::{RefUnwindSafe, UnwindSafe};

use super::LockError;
use super::gate::Gate;
use super::word::{self, Taken};
use crate::primitive::atomic::AtomicU32;
use crate::sys::futex::{Deadline, Scope};
use crate::sys::thread::robust_list::Thread;

/// The way in which threads wait for a [`RobustMutex`](super::RobustMutex): [`Plain`] or [`Inherit`].
pub trait Waiting: protocol::Protocol + Send + Sync + UnwindSafe + RefUnwindSafe + 'static {}

/// Threads wait without priority inheritance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {}

/// Threads wait with priority inheritance: the owner runs with the highest priority among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherit {}

impl Waiting for Plain {}
#[cfg(not(loom))]
impl Waiting for Inherit {}

pub(in crate::sync) mod protocol {
    use super::*;

    /// The slow paths of a lock, whose entry is pending in the thread's robust list meanwhile.
    pub trait Protocol {
        /// Whether the kernel hands the lock over.
        const INHERITS: bool;

        fn take(
            word: &AtomicU32,
            gate: &Gate,
            me: Thread<'_>,
            deadline: Option<Deadline>,
            scope: Scope,
        ) -> Result<Taken, LockError>;

        fn try_take(word: &AtomicU32, me: Thread<'_>, scope: Scope) -> Result<Taken, LockError>;

        /// Lets the lock go, which the thread owns. Release. Afterwards the word may be gone.
        fn leave(word: &AtomicU32, me: Thread<'_>, scope: Scope);
    }
}

impl protocol::Protocol for Plain {
    const INHERITS: bool = false;

    fn take(
        word: &AtomicU32,
        gate: &Gate,
        me: Thread<'_>,
        deadline: Option<Deadline>,
        scope: Scope,
    ) -> Result<Taken, LockError> {
        word::take(word, gate, me, deadline, scope)
    }

    fn try_take(word: &AtomicU32, me: Thread<'_>, scope: Scope) -> Result<Taken, LockError> {
        word::try_take(word, me, scope)
    }

    #[inline(always)]
    fn leave(word: &AtomicU32, me: Thread<'_>, _: Scope) {
        word::leave(word, me);
    }
}
