//! Futexes: sleep until a word changes, in every form Linux has.
//!
//! The plain operations are here, priority inheritance in [`pi`], waiting for several words in
//! [`vector`], the newer one-call-per-operation interface in [`futex2`]. Deadlines are always
//! absolute and on `CLOCK_MONOTONIC`, so that a wait repeated after a signal ends on time.
//!
//! Outcomes are words, never numbers: a changed value, a timeout and a signal are ordinary and have
//! a variant each; [`Errno`] is left for what a caller cannot expect.
//!
//! Invariants:
//! 1. Waiter and waker of a word use the same [`Scope`]: the kernel files private and shared waiters
//!    under different keys, and one never finds the other.
//! 2. Within one process `Scope::Private` means the same flag from the first call to the last (see
//!    `private_flag`).
//!
//! Manual pages: futex(2), FUTEX_WAIT_BITSET(2const), FUTEX_CMP_REQUEUE(2const). Private futexes
//! came with Linux 2.6.22 (commit 34f01cc1f512).

mod deadline;
pub mod futex2;
pub mod pi;
pub mod vector;

pub use deadline::Deadline;

use super::errno::Errno;
use super::syscall::syscall;
use crate::primitive::global::{AtomicU32, Ordering};
use core::ptr;

/// The threads that may wait for a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The threads of this process. The kernel keys waiters by address alone, which is cheaper: it
    /// need not look up the page.
    Private,
    /// Any process that maps the word. Needed also for the words of a robust list, since the kernel
    /// wakes shared waiters only when an owner dies.
    Shared,
}

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The thread was woken, perhaps spuriously: check the word again.
    Woken,
    /// The wait did not begin: the word had another value.
    Differed,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler has run.
    Interrupted,
}

impl Wake {
    fn from_result(result: Result<usize, Errno>) -> Result<Wake, Errno> {
        match result {
            Ok(_) => Ok(Wake::Woken),
            Err(Errno::EAGAIN) => Ok(Wake::Differed),
            Err(Errno::ETIMEDOUT) => Ok(Wake::TimedOut),
            Err(Errno::EINTR) => Ok(Wake::Interrupted),
            Err(errno) => Err(errno),
        }
    }
}

/// The outcome of a requeue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// This many waiters were woken or moved.
    Moved(usize),
    /// The thread did not sleep: the word had another value.
    Differed,
}

impl Requeue {
    fn from_result(result: Result<usize, Errno>) -> Result<Requeue, Errno> {
        match result {
            Ok(waiters) => Ok(Requeue::Moved(waiters)),
            Err(Errno::EAGAIN) => Ok(Requeue::Differed),
            Err(errno) => Err(errno),
        }
    }
}

/// Calls `futex(word, FUTEX_WAIT_BITSET, expected, deadline, NULL, ANY)`, see futex(2).
///
/// Sleeps while `word` holds `expected`, until woken or until `deadline`.
///
/// The comparison and the falling asleep are one step with respect to [`wake`]: a waker that has
/// changed the word before it called `wake` is never missed.
///
/// ```
/// use core::sync::atomic::AtomicU32;
/// use core::time::Duration;
/// use corelocal::sys::futex::{Deadline, Scope, Wake, wait};
///
/// let word = AtomicU32::new(1);
/// assert_eq!(wait(&word, 0, None, Scope::Private), Ok(Wake::Differed));
/// let soon = Deadline::after(Duration::from_millis(1));
/// assert_eq!(wait(&word, 1, Some(soon), Scope::Private), Ok(Wake::TimedOut));
/// ```
///
/// # Errors
/// `ENOSYS` or `EPERM` under a seccomp filter that refuses futexes; nothing else occurs.
#[doc(alias("FUTEX_WAIT", "FUTEX_WAIT_BITSET"))]
#[inline]
pub fn wait(
    word: &AtomicU32,
    expected: u32,
    deadline: Option<Deadline>,
    scope: Scope,
) -> Result<Wake, Errno> {
    let timeout = deadline::pointer(&deadline);
    let any = libc::FUTEX_BITSET_MATCH_ANY as u32;
    // SAFETY: the kernel reads the word, which is borrowed, and the deadline, which outlives the
    // call.
    Wake::from_result(unsafe {
        futex(libc::FUTEX_WAIT_BITSET, scope, address(word), expected, timeout as usize, 0, any)
    })
}

/// Calls `futex(word, FUTEX_WAKE, waiters)`, see futex(2).
///
/// Wakes up to `waiters` threads that wait for `word`, and returns their number.
///
/// The word is not accessed: its memory may be freed, for example that of a lock after it was unlocked. A private
/// wake then finds no waiter, and a shared one may return `EFAULT`. At worst a thread that waits at the same address
/// for another object wakes spuriously.
///
/// # Errors
/// - `EFAULT` if the memory of a shared futex is gone.
/// - `EINVAL` if a thread waits for the word as a priority-inheritance lock.
/// - `ENOSYS` or `EPERM` under a seccomp filter that refuses futexes.
#[doc(alias = "FUTEX_WAKE")]
#[inline]
pub fn wake(word: *const AtomicU32, waiters: u32, scope: Scope) -> Result<usize, Errno> {
    // The kernel's count is signed.
    let waiters = waiters.min(i32::MAX as u32);
    if waiters == 0 {
        // The kernel would wake one.
        return Ok(0);
    }
    // SAFETY: FUTEX_WAKE uses the address as a key and accesses no memory of ours.
    unsafe { futex(libc::FUTEX_WAKE, scope, word as usize, waiters, 0, 0, 0) }
}

/// Wakes every thread that waits for `word`; says how many. See [`wake`].
///
/// # Errors
/// As for [`wake`].
#[inline]
pub fn wake_all(word: *const AtomicU32, scope: Scope) -> Result<usize, Errno> {
    wake(word, u32::MAX, scope)
}

/// Calls `futex(word, FUTEX_CMP_REQUEUE, wake, requeue, target, expected)`, see futex(2).
///
/// If `word` holds `expected`, wakes up to `wake` of its waiters and requeues up to
/// `requeue` others to `target`, without running them.
///
/// A condition variable moves its waiters to the mutex this way.
///
/// A waiter that was requeued may come back: the kernel sometimes wakes one by mistake (if its last wait ended before
/// its wake-up came), and lets it begin again with its original address and value. So `word` should hold another
/// value by then, or callers must not rely on the waiter being at `target`. Source: `__futex_wait` in
/// `kernel/futex/waitwake.c`.
///
/// # Errors
/// - `EINVAL` if a thread waits for a word as a priority-inheritance lock.
/// - `ENOSYS` or `EPERM` under a seccomp filter that refuses futexes.
#[doc(alias = "FUTEX_CMP_REQUEUE")]
#[inline]
pub fn requeue(
    word: &AtomicU32,
    expected: u32,
    wake: u32,
    requeue: u32,
    target: &AtomicU32,
    scope: Scope,
) -> Result<Requeue, Errno> {
    let wake = wake.min(i32::MAX as u32);
    let requeue = requeue.min(i32::MAX as u32) as usize;
    // SAFETY: the kernel reads `word`, which is borrowed; `target` is a key only.
    Requeue::from_result(unsafe {
        let (word, target) = (address(word), address(target));
        futex(libc::FUTEX_CMP_REQUEUE, scope, word, wake, requeue, target, expected)
    })
}

/// Returns the futex system call. `word`, `second_word` and, depending on the operation, `fourth` are
/// addresses.
///
/// # Safety
/// - Addresses must be valid for what `operation` does with them, for as long as it may sleep.
#[inline(always)]
unsafe fn futex(
    operation: libc::c_int,
    scope: Scope,
    word: usize,
    value: u32,
    fourth: usize,
    second_word: usize,
    third_value: u32,
) -> Result<usize, Errno> {
    let operation = operation as u32 | scope_flag(scope);
    let args =
        [word, operation as usize, value as usize, fourth, second_word, third_value as usize];
    // SAFETY: the caller vouches for the addresses.
    unsafe { syscall(libc::SYS_futex, args) }
}

fn address(word: &AtomicU32) -> usize {
    ptr::from_ref(word) as usize
}

/// Returns the bit that carries a scope into an operation: the same one in `futex`, `futex_waitv` and the
/// futex2 calls.
#[inline(always)]
fn scope_flag(scope: Scope) -> u32 {
    match scope {
        Scope::Private => private_flag(),
        Scope::Shared => 0,
    }
}

const UNDECIDED: u32 = u32::MAX;
const PRIVATE: u32 = libc::FUTEX_PRIVATE_FLAG as u32;

/// Returns `FUTEX_PRIVATE_FLAG`, or 0 where the kernel or a filter does not support it (ENOSYS).
///
/// The obvious fallback, repeating a refused call without the flag, loses wake-ups:
///
/// ```text
/// waiter                                  waker
/// wait(PRIVATE) sleeps under the private key
///                                         a filter is installed that refuses PRIVATE
///                                         wake(PRIVATE) = ENOSYS
///                                         wake(shared) = 0: no waiter under the shared key
/// sleeps for ever
/// ```
///
/// So it is decided once per process, by a wake without waiters that precedes the first private operation and
/// therefore every private waiter. The first result that is stored is that of all threads: two threads that probe at
/// once, with a filter installed between their probes, must agree. Calls that are refused later report their error.
#[inline(always)]
fn private_flag() -> u32 {
    // Relaxed: the value is all there is, nothing is published with it. Its partner is the exchange
    // in `decide_private_flag`.
    match PRIVATE_FLAG.load(Ordering::Relaxed) {
        UNDECIDED => decide_private_flag(),
        flag => flag,
    }
}

static PRIVATE_FLAG: AtomicU32 = AtomicU32::new(UNDECIDED);

#[cold]
fn decide_private_flag() -> u32 {
    let nobody = AtomicU32::new(0);
    let operation = libc::FUTEX_WAKE as u32 | PRIVATE;
    let args = [address(&nobody), operation as usize, 1, 0, 0, 0];
    // SAFETY: FUTEX_WAKE uses the address as a key and accesses no memory of ours.
    let probe = unsafe { syscall(libc::SYS_futex, args) };
    let flag = if probe == Err(Errno::ENOSYS) { 0 } else { PRIVATE };
    // Relaxed: see `private_flag`.
    match PRIVATE_FLAG.compare_exchange(UNDECIDED, flag, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => flag,
        Err(decided) => decided,
    }
}

/// The features of this kernel beyond the operations of Linux 2.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Features {
    /// Private futexes (Linux 2.6.22). Without them [`Scope::Private`] is carried out as shared.
    pub private: bool,
    /// Priority-inheritance locks with monotonic deadlines, `FUTEX_LOCK_PI2` (Linux 5.14).
    pub lock_pi2: bool,
    /// [`vector::wait_any`], `futex_waitv` (Linux 5.16).
    pub waitv: bool,
    /// The calls of [`futex2`] (Linux 6.7).
    pub futex2: bool,
}

/// Probes the kernel's [`Features`] with at most four system calls. Wakes no thread.
pub fn features() -> Features {
    Features {
        private: private_flag() != 0,
        lock_pi2: pi::has_lock_pi2(),
        waitv: vector::is_available(),
        futex2: futex2::is_available(),
    }
}
