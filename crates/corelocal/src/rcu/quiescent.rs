//! Readers that are known to be between two tasks: a guard that lasts, and is renewed when a grace period waits for it.
//!
//! Invariant: `seen` was read before the guard began. So a grace period that has begun since changes the progress, and
//! is noticed by the next call of [`quiescent`](QuiescentReader::quiescent). Within a task nothing but the compiler
//! sees a read.

use core::fmt;
use core::ops::Deref;
use core::panic::{RefUnwindSafe, UnwindSafe};

use super::domain::Domain;
use super::guard::Guard;

/// A reader for executors and event loops, which promise to call [`quiescent`](Self::quiescent) between tasks.
///
/// It stands for a guard wherever one is asked for. A read costs as much as a bare load, since there is no guard for
/// each; a call of `quiescent` is one load and a comparison while no grace period begins. The price is that a grace
/// period waits until each such thread has called it. Threads that sleep should do so inside
/// [`offline`](Self::offline).
///
/// ```
/// use corelocal::rcu::{self, Rcu};
///
/// let number = Rcu::new(Box::new(1));
/// let mut reader = rcu::quiescent_reader();
/// for task in 0..3 {
///     assert!(*number.load(&reader) <= task + 1);
///     reader.quiescent(); // nothing that was loaded is used after this
///     reader.offline(|| number.store(Box::new(task + 2)));
/// }
/// ```
///
/// What was loaded cannot be used after the end of its task:
///
/// ```compile_fail,E0502
/// use corelocal::rcu::{self, Rcu};
///
/// let number = Rcu::new(Box::new(1));
/// let mut reader = rcu::quiescent_reader();
/// let one = number.load(&reader);
/// reader.quiescent();
/// assert_eq!(*one, 1);
/// ```
///
/// Like a guard it belongs to its thread, and its thread does not wait at hard limits. Grace periods that wait for it
/// are reported like those that wait for a guard. The flavour of liburcu that works in this way is called qsbr.
pub struct QuiescentReader {
    guard: Guard,
    /// The domain's progress before the guard began.
    seen: u64,
}

impl QuiescentReader {
    fn new(domain: &'static Domain) -> QuiescentReader {
        let seen = domain.progress();
        QuiescentReader { guard: domain.read(), seen }
    }

    /// Tells that the thread uses nothing that it has loaded. Lock-free and async-signal-safe.
    #[inline(always)]
    pub fn quiescent(&mut self) {
        if self.guard.progress() != self.seen {
            self.renew();
        }
    }

    #[cold]
    #[inline(never)]
    fn renew(&mut self) {
        self.seen = self.guard.progress();
        self.guard.repin();
    }

    /// Calls `wait` without a guard, so that grace periods do not wait for this thread meanwhile.
    pub fn offline<R>(&mut self, wait: impl FnOnce() -> R) -> R {
        /// Begins the guard again when it is dropped, also during a panic.
        struct Again<'a>(&'a mut QuiescentReader);
        impl Drop for Again<'_> {
            fn drop(&mut self) {
                let domain = self.0.guard.domain();
                // SAFETY: the guard has ended below, and nothing has used it since.
                unsafe { core::ptr::write(self.0, QuiescentReader::new(domain)) };
            }
        }
        let again = Again(self);
        // SAFETY: nothing uses the guard until `Again` writes another one, which it does in any case.
        unsafe { core::ptr::drop_in_place(&raw mut again.0.guard) };
        wait()
    }
}

impl Domain {
    /// Returns a reader for a thread that promises to call [`QuiescentReader::quiescent`] between its tasks.
    #[must_use]
    pub fn quiescent_reader(&'static self) -> QuiescentReader {
        QuiescentReader::new(self)
    }
}

impl Deref for QuiescentReader {
    type Target = Guard;

    #[inline(always)]
    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl UnwindSafe for QuiescentReader {}
impl RefUnwindSafe for QuiescentReader {}

impl fmt::Debug for QuiescentReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuiescentReader").finish_non_exhaustive()
    }
}
