//! Why a lock that records its owner was not acquired.
//!
//! Invariant: each variant stands for one of POSIX's error codes for mutexes, with the same meaning.

use core::fmt;

use crate::sys::Errno;

/// The reason why a lock was not acquired. The caller does not own it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockError {
    /// Another guard owns it (`EBUSY`; from the `try_` functions).
    Busy,
    /// The deadline has passed (`ETIMEDOUT`).
    TimedOut,
    /// The calling thread owns it already, or the owner waits for a lock of the calling thread (`EDEADLK`).
    Deadlock,
    /// Its owner no longer exists and left it locked: the thread has ended, or a fork left it behind (`ESRCH`).
    OwnerGone,
    /// An owner died, and the data was not made consistent (`ENOTRECOVERABLE`).
    NotRecoverable,
    /// The calling thread holds 2048 robust locks, which is as many as the kernel finds when a thread ends. The death
    /// of this thread would not be reported for further ones (`EAGAIN`). Robust mutexes of libc that the thread holds
    /// count too.
    TooManyHeld,
    /// The kernel or a seccomp filter refuses a system call that such a lock needs.
    Refused(Errno),
}

impl LockError {
    /// Returns the error code of `pthread_mutex_lock` and its variants for it.
    pub fn errno(self) -> Errno {
        match self {
            LockError::Busy => Errno::EBUSY,
            LockError::TimedOut => Errno::ETIMEDOUT,
            LockError::Deadlock => Errno::EDEADLK,
            LockError::OwnerGone => Errno::ESRCH,
            LockError::NotRecoverable => Errno(libc::ENOTRECOVERABLE),
            LockError::TooManyHeld => Errno::EAGAIN,
            LockError::Refused(errno) => errno,
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Busy => f.write_str("the lock is owned by another thread"),
            LockError::TimedOut => f.write_str("the lock was not free before the deadline"),
            LockError::Deadlock => f.write_str("the calling thread would wait for itself"),
            LockError::OwnerGone => {
                f.write_str("the owner of the lock has ended without unlocking it")
            }
            LockError::NotRecoverable => f.write_str(
                "the owner of the lock died, and its data was not made consistent again",
            ),
            LockError::TooManyHeld => f.write_str(
                "the calling thread holds 2048 robust locks, and the kernel would not find another one at its end: \
                 unlock one first",
            ),
            LockError::Refused(errno) => write!(f, "the kernel refuses such a lock: {errno}"),
        }
    }
}

impl core::error::Error for LockError {}

/// The outcome of locking a robust mutex, if it is not a plain guard.
pub enum RobustError<R, O> {
    /// The lock is acquired, but its last owner died with it. See [`Recovered`](super::Recovered).
    OwnerDied(R),
    /// The lock is acquired, but its last owner is a thread that a fork left behind. See
    /// [`Orphaned`](crate::sync::Orphaned).
    Orphaned(O),
    /// The lock is not acquired.
    Failed(LockError),
}

impl<R, O> RobustError<R, O> {
    /// Returns the error code of `pthread_mutex_lock` and its variants for it.
    pub fn errno(&self) -> Errno {
        match self {
            RobustError::OwnerDied(_) | RobustError::Orphaned(_) => Errno(libc::EOWNERDEAD),
            RobustError::Failed(error) => error.errno(),
        }
    }
}

impl<R, O> fmt::Debug for RobustError<R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RobustError::OwnerDied(_) => f.write_str("OwnerDied"),
            RobustError::Orphaned(_) => f.write_str("Orphaned"),
            RobustError::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}

impl<R, O> fmt::Display for RobustError<R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RobustError::OwnerDied(_) => f.write_str("the last owner of the lock died with it"),
            RobustError::Orphaned(_) => f.write_str(
                "the owner of the lock is a thread of the parent, which is not in this forked process: reset the data",
            ),
            RobustError::Failed(error) => error.fmt(f),
        }
    }
}

impl<R, O> core::error::Error for RobustError<R, O> {}
