//! Whether this process has one thread.
//!
//! glibc has a byte that says so, from 2.32 on, and clears it before it makes a second thread. It never sets it again,
//! and keeps it cleared in a child. So a process of which it is cleared may have one thread all the same: Linux tells,
//! by the links of a folder.

use crate::primitive::global::{AtomicU32, Ordering};
use crate::sys::arch;
use crate::sys::forks;

/// The known number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// One, and no other thread can make a second one meanwhile.
    One,
    /// One when the kernel was asked. Threads that libc does not know of are counted.
    OneNow,
    /// Several, or perhaps several.
    Several,
}

/// The generation of the process that is known to have had several threads; 0 if none is.
static SEVERAL: AtomicU32 = AtomicU32::new(0);

/// Returns how many threads this process has. Once several were found, it has several for good. One load, or one system
/// call for each call while the kernel finds one.
pub(crate) fn threads() -> Threads {
    let byte = arch::libc_single_threaded();
    // SAFETY: null, or libc's byte, which is written before another thread exists.
    if !byte.is_null() && unsafe { byte.read_volatile() } != 0 {
        return Threads::One;
    }
    let generation = forks::generation();
    if SEVERAL.load(Ordering::Relaxed) == generation {
        return Threads::Several;
    }
    if has_one() {
        return Threads::OneNow;
    }
    SEVERAL.store(generation, Ordering::Relaxed);
    Threads::Several
}

/// Calls `stat("/proc/self/task", &stat)`: two links for the folder, and one for each thread.
#[cfg(all(target_os = "linux", not(miri)))]
fn has_one() -> bool {
    const LINKS_OF_ONE: u64 = 3;
    let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a path that ends with 0, and a place for the result.
    if unsafe { libc::stat(c"/proc/self/task".as_ptr(), stat.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: written by the call.
    #[allow(clippy::useless_conversion, reason = "its length depends on the architecture")]
    let links = u64::from(unsafe { stat.assume_init() }.st_nlink);
    links == LINKS_OF_ONE
}

/// Not known.
#[cfg(not(all(target_os = "linux", not(miri))))]
fn has_one() -> bool {
    false
}
