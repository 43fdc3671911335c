//! The newer interface, one system call per operation: `futex_wake`, `futex_wait` and
//! `futex_requeue` (Linux 6.7, commits 9f6c532f59b2, cb8c4312afca and 0f4b5f972216).
//!
//! It does what the operations in the parent module do, on the same keys, so that both may be mixed
//! on one word; its flags leave room for words of other sizes and for NUMA. Nothing falls back:
//! `ENOSYS` is the caller's to see, or ask [`features`](super::features) first.
//!
//! Invariant: words are 32 bits, the only size the kernel implements.

use super::vector::{SIZE_U32, Waiter};
use super::{Deadline, Requeue, Scope, Wake, address, deadline, scope_flag};
use crate::primitive::global::AtomicU32;
use crate::sys::errno::Errno;
use crate::sys::syscall::syscall;

// The same on every architecture that came after the common table, x86-64 and aarch64 included.
const SYS_FUTEX_WAKE: libc::c_long = 454;
const SYS_FUTEX_WAIT: libc::c_long = 455;
const SYS_FUTEX_REQUEUE: libc::c_long = 456;

/// The mask of all bits: a waker wakes waiters whose mask shares a bit with its own.
const ANY: usize = u32::MAX as usize;

/// Calls `futex_wait(word, expected, ANY, flags, timeout, CLOCK_MONOTONIC)`, Linux 6.7, `kernel/futex/syscalls.c`.
///
/// [`futex::wait`](super::wait()) by way of `futex_wait`.
///
/// # Errors
/// `ENOSYS` before Linux 6.7 or under a seccomp filter.
#[doc(alias = "futex_wait")]
#[inline]
pub fn wait(
    word: &AtomicU32,
    expected: u32,
    deadline: Option<Deadline>,
    scope: Scope,
) -> Result<Wake, Errno> {
    let args = [
        address(word),
        expected as usize,
        ANY,
        (SIZE_U32 | scope_flag(scope)) as usize,
        deadline::pointer(&deadline) as usize,
        libc::CLOCK_MONOTONIC as usize,
    ];
    // SAFETY: the kernel reads the word, which is borrowed, and the deadline, which outlives the
    // call.
    Wake::from_result(unsafe { syscall(SYS_FUTEX_WAIT, args) })
}

/// Calls `futex_wake(word, ANY, waiters, flags)`, Linux 6.7, `kernel/futex/syscalls.c`.
///
/// [`futex::wake`](super::wake()) by way of `futex_wake`.
///
/// # Errors
/// `ENOSYS` before Linux 6.7 or under a seccomp filter; else as for [`futex::wake`](super::wake()).
#[doc(alias = "futex_wake")]
#[inline]
pub fn wake(word: *const AtomicU32, waiters: u32, scope: Scope) -> Result<usize, Errno> {
    let waiters = waiters.min(i32::MAX as u32) as usize;
    let flags = (SIZE_U32 | scope_flag(scope)) as usize;
    // SAFETY: futex_wake uses the address as a key and accesses no memory of ours.
    unsafe { syscall(SYS_FUTEX_WAKE, [word as usize, ANY, waiters, flags, 0, 0]) }
}

/// Calls `futex_requeue(words, 0, wake, requeue)`, Linux 6.7, `kernel/futex/syscalls.c`.
///
/// [`futex::requeue`](super::requeue()) by way of `futex_requeue`.
///
/// The call has flags for each word, but newer kernels refuse two words of different scopes, and
/// so does this function's signature.
///
/// # Errors
/// `ENOSYS` before Linux 6.7 or under a seccomp filter; else as for
/// [`futex::requeue`](super::requeue()).
#[doc(alias = "futex_requeue")]
pub fn requeue(
    word: &AtomicU32,
    expected: u32,
    wake: u32,
    requeue: u32,
    target: &AtomicU32,
    scope: Scope,
) -> Result<Requeue, Errno> {
    // The expected value of the target is not looked at.
    let words = [Waiter::new(word, expected, scope), Waiter::new(target, 0, scope)];
    let wake = wake.min(i32::MAX as u32) as usize;
    let requeue = requeue.min(i32::MAX as u32) as usize;
    // SAFETY: the kernel reads the two waiters, which outlive the call, and the first one's word,
    // which is borrowed.
    Requeue::from_result(unsafe {
        syscall(SYS_FUTEX_REQUEUE, [words.as_ptr() as usize, 0, wake, requeue, 0, 0])
    })
}

/// Returns `true` if the kernel has the calls: it then objects to flags it does not know. The three came in
/// one release.
pub(super) fn is_available() -> bool {
    let unknown_flags = u32::MAX as usize;
    // SAFETY: the kernel refuses the flags before it looks at the address.
    let result = unsafe { syscall(SYS_FUTEX_WAKE, [0, ANY, 1, unknown_flags, 0, 0]) };
    result == Err(Errno::EINVAL)
}
