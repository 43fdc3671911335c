//! Waiting for any of several words, `futex_waitv` (Linux 5.16, commit bf69bad38cf6).
//!
//! Invariant: a [`Waiter`] borrows its word, so that the kernel never looks at freed memory.

use super::{Deadline, Scope, address, deadline, scope_flag};
use crate::primitive::global::AtomicU32;
use crate::sys::errno::Errno;
use crate::sys::syscall::syscall;
use core::marker::PhantomData;

/// The most words one call can wait for (`FUTEX_WAITV_MAX`).
pub const MAX_WAITERS: usize = 128;

/// `FUTEX2_SIZE_U32`: the only size of word the kernel implements.
pub(super) const SIZE_U32: u32 = 2;

/// One word to wait for, laid out as the kernel's `struct futex_waitv`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Waiter<'a> {
    expected: u64,
    address: u64,
    flags: u32,
    reserved: u32,
    word: PhantomData<&'a AtomicU32>,
}

impl<'a> Waiter<'a> {
    /// Waits for `word` while it holds `expected`. Words of different scopes may be mixed.
    pub fn new(word: &'a AtomicU32, expected: u32, scope: Scope) -> Waiter<'a> {
        Waiter {
            expected: u64::from(expected),
            address: address(word) as u64,
            flags: SIZE_U32 | scope_flag(scope),
            reserved: 0,
            word: PhantomData,
        }
    }
}

/// The outcome of a wait for several words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeAny {
    /// The waiter with this index was woken; perhaps others too, and perhaps spuriously.
    Woken(usize),
    /// The wait did not begin: a word had another value.
    Differed,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler has run.
    Interrupted,
}

/// Calls `futex_waitv(waiters, len, 0, deadline, CLOCK_MONOTONIC)`, Linux 5.16, `kernel/futex/syscalls.c`.
///
/// Sleeps while every word holds the value its waiter expects, until one is woken or until
/// `deadline`.
///
/// ```
/// use core::sync::atomic::AtomicU32;
/// use corelocal::sys::futex::{Scope, vector};
///
/// let words = [AtomicU32::new(0), AtomicU32::new(1)];
/// let waiters = words.each_ref().map(|word| vector::Waiter::new(word, 0, Scope::Private));
/// match vector::wait_any(&waiters, None) {
///     Ok(outcome) => assert_eq!(outcome, vector::WakeAny::Differed),
///     Err(errno) => println!("no futex_waitv here: {errno}"),
/// }
/// ```
///
/// # Errors
/// `EINVAL` unless there are 1 to [`MAX_WAITERS`] waiters; `ENOMEM`; `ENOSYS` before Linux 5.16 or
/// under a seccomp filter.
#[doc(alias = "futex_waitv")]
pub fn wait_any(waiters: &[Waiter<'_>], deadline: Option<Deadline>) -> Result<WakeAny, Errno> {
    let timeout = deadline::pointer(&deadline) as usize;
    let clock = libc::CLOCK_MONOTONIC as usize;
    let args = [waiters.as_ptr() as usize, waiters.len(), 0, timeout, clock, 0];
    // SAFETY: the kernel reads the waiters, the words they borrow and the deadline, all of which
    // outlive the call.
    match unsafe { syscall(libc::SYS_futex_waitv, args) } {
        Ok(index) => Ok(WakeAny::Woken(index)),
        Err(Errno::EAGAIN) => Ok(WakeAny::Differed),
        Err(Errno::ETIMEDOUT) => Ok(WakeAny::TimedOut),
        Err(Errno::EINTR) => Ok(WakeAny::Interrupted),
        Err(errno) => Err(errno),
    }
}

/// Returns `true` if the kernel has the call: it then objects to an empty vector.
pub(super) fn is_available() -> bool {
    wait_any(&[], None) == Err(Errno::EINVAL)
}
