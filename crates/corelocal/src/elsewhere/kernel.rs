//! A stand-in for the kernel: the few calls that the portable form needs, by std. All others are refused, as by a
//! kernel that does not know them, and the library falls back as it does there.
//!
//! # Invariants
//! 1. Each result is one that Linux could have returned.
//! 2. A waiter of a word is woken if the word is changed before the call that wakes: it looks at the word under the lock of
//!    its bucket, and a waker takes that lock.
//! 3. A mapping goes back to the allocator, whole, when all of its parts have been unmapped.

#![allow(non_upper_case_globals, reason = "names of Linux")]

use core::alloc::Layout;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};
use std::vec::Vec;

use super::names::*;

std::thread_local! {
    static ERRNO: Cell<c_int> = const { Cell::new(ENOSYS) };
    static NUMBER: u32 = {
        static LAST: AtomicU32 = AtomicU32::new(1);
        // Relaxed: numbers only have to differ.
        LAST.fetch_add(1, Ordering::Relaxed)
    };
}

/// Returns the error number of the calling thread.
pub fn __errno_location() -> *mut c_int {
    ERRNO.with(Cell::as_ptr)
}

/// Waiters of words whose addresses have the same remainder.
struct Bucket {
    lock: Mutex<()>,
    changed: Condvar,
}

fn bucket(address: usize) -> &'static Bucket {
    static BUCKETS: [Bucket; 64] =
        [const { Bucket { lock: Mutex::new(()), changed: Condvar::new() } }; 64];
    &BUCKETS[address / 4 % BUCKETS.len()]
}

/// Makes a call; an error is its negated number.
///
/// # Safety
/// - The conditions of [`crate::sys::syscall::syscall`] hold.
pub unsafe fn call(number: c_long, args: [usize; 6]) -> isize {
    let [a, b, c, d, _, _] = args;
    match number {
        SYS_mmap => map(b),
        // SAFETY: the caller gives up this part of a mapping.
        SYS_munmap => unsafe { unmap(a, b) },
        SYS_madvise if c == MADV_DONTNEED as usize => {
            // SAFETY: mapped memory of the caller's, whose content is not needed.
            unsafe { (a as *mut u8).write_bytes(0, b) };
            0
        }
        SYS_getpid => std::process::id() as isize,
        SYS_gettid => NUMBER.with(|number| *number as isize),
        SYS_futex => {
            let command = b as c_int & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
            match command {
                // SAFETY: the caller's word, and its deadline or null.
                FUTEX_WAIT_BITSET => unsafe { wait(a, c as u32, d as *const timespec) },
                FUTEX_WAKE => {
                    let bucket = bucket(a);
                    // Taken after the word was changed: see 2.
                    drop(bucket.lock.lock().unwrap_or_else(PoisonError::into_inner));
                    bucket.changed.notify_all();
                    0
                }
                _ => -(ENOSYS as isize),
            }
        }
        _ => -(ENOSYS as isize),
    }
}

/// The length of a page: the longest that systems have.
const PAGE: usize = 1 << 16;

/// A mapping that is not unmapped whole.
struct Mapping {
    at: usize,
    len: usize,
    /// The bytes of it that are still mapped.
    left: usize,
    /// The memory that the allocator returned, and the request.
    given: (usize, Layout),
}

static MAPPINGS: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());

fn map(len: usize) -> isize {
    // With room to begin at a page. Without a larger alignment, most allocators return zero pages and do not fill them.
    let layout = len.checked_add(PAGE).and_then(|len| Layout::from_size_align(len, 16).ok());
    let Some(layout) = layout.filter(|_| len > 0) else { return -(ENOMEM as isize) };
    // SAFETY: not of length 0.
    let given = unsafe { std::alloc::alloc_zeroed(layout) };
    if given.is_null() {
        return -(ENOMEM as isize);
    }
    let at = given.expose_provenance().next_multiple_of(PAGE);
    let mapping = Mapping { at, len, left: len, given: (given.expose_provenance(), layout) };
    MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner).push(mapping);
    at as isize
}

/// Unmaps a part of a mapping, or all of it.
///
/// # Safety
/// - The part is mapped, and not used any more.
unsafe fn unmap(at: usize, len: usize) -> isize {
    let mut mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let holds = |mapping: &Mapping| mapping.at <= at && at + len <= mapping.at + mapping.len;
    let Some(nth) = mappings.iter().position(holds) else { return -(EINVAL as isize) };
    let mapping = &mut mappings[nth];
    mapping.left = mapping.left.saturating_sub(len);
    if mapping.left == 0 {
        let (given, layout) = mappings.swap_remove(nth).given;
        // SAFETY: from the allocator, by this request; nothing of it is mapped any more (3).
        unsafe { std::alloc::dealloc(core::ptr::with_exposed_provenance_mut(given), layout) };
    }
    0
}

/// Waits while the word has this value, until the deadline on the monotonic clock.
///
/// # Safety
/// - A word that stays until this returns, and a deadline or null.
unsafe fn wait(address: usize, value: u32, deadline: *const timespec) -> isize {
    // SAFETY: the caller's.
    let word = unsafe { &*(address as *const AtomicU32) };
    // SAFETY: a time, or null.
    let deadline = unsafe { deadline.as_ref() };
    let bucket = bucket(address);
    let held = bucket.lock.lock().unwrap_or_else(PoisonError::into_inner);
    // Relaxed: the lock orders this with a waker's change (2).
    if word.load(Ordering::Relaxed) != value {
        return -(EAGAIN as isize);
    }
    let Some(deadline) = deadline else {
        drop(bucket.changed.wait(held));
        return 0;
    };
    let deadline = Duration::new(deadline.tv_sec as u64, deadline.tv_nsec as u32);
    let left = deadline.saturating_sub(since_start());
    if left.is_zero() {
        return -(ETIMEDOUT as isize);
    }
    // A wake-up for no reason is allowed.
    drop(bucket.changed.wait_timeout(held, left));
    0
}

/// Returns the monotonic clock: the time since it was read first.
fn since_start() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Stands for clock_gettime(2).
///
/// # Safety
/// - `time` is valid for writes.
pub unsafe fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let now = match clock {
        CLOCK_REALTIME | CLOCK_REALTIME_COARSE | CLOCK_TAI => {
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
        }
        _ => since_start(),
    };
    let now = timespec { tv_sec: now.as_secs() as i64, tv_nsec: i64::from(now.subsec_nanos()) };
    // SAFETY: the caller's.
    unsafe { time.write(now) };
    0
}

/// Stands for sched_yield(2).
///
/// # Safety
/// - None is needed.
pub unsafe fn sched_yield() -> c_int {
    std::thread::yield_now();
    0
}

/// Stands for getpid(2).
///
/// # Safety
/// - None is needed.
pub unsafe fn getpid() -> pid_t {
    std::process::id() as pid_t
}

/// Stands for pthread_self(3).
///
/// # Safety
/// - None is needed.
pub unsafe fn pthread_self() -> pthread_t {
    NUMBER.with(|number| *number as pthread_t)
}

/// Stands for abort(3).
///
/// # Safety
/// - None is needed.
pub unsafe fn abort() -> ! {
    std::process::abort()
}

/// Stands for sysconf(3): the length of a page.
///
/// # Safety
/// - None is needed.
pub unsafe fn sysconf(_: c_int) -> c_long {
    PAGE as c_long
}

#[cfg(test)]
mod tests;
