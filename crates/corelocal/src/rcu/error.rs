//! What keeps a wait for a grace period from ending.

use core::fmt;

use crate::sys::Errno;

/// The reason why a grace period was not awaited. Nothing that waits for it may be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The deadline has passed while guards existed.
    TimedOut,
    /// The caller is a deferred function of this domain, for which the next grace period waits.
    InCallback,
    /// The calling thread has a guard, for which it would wait for ever.
    UnderGuard,
    /// The kernel refuses `membarrier(2)`, which it allowed when the domain was first used: a seccomp filter was
    /// installed since.
    Refused(Errno),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TimedOut => f.write_str("the time is up, and guards from before are still there"),
            Error::InCallback => f.write_str(
                "a deferred function cannot wait for a grace period of its own domain: use defer instead",
            ),
            Error::UnderGuard => f.write_str(
                "the thread has a guard, for which it would wait for ever: drop the guard before",
            ),
            Error::Refused(errno) => write!(
                f,
                "membarrier(2) is refused now ({errno}), though it was allowed before: allow it in the seccomp \
                 filter, or install the filter before the first use of RCU"
            ),
        }
    }
}

impl core::error::Error for Error {}
