//! Mappings of which most is never touched, in a process whose memory is locked as it is mapped.
//!
//! `mlockall(MCL_FUTURE)` makes the kernel fill a new mapping with pages at once, and counts all of it against
//! `RLIMIT_MEMLOCK`: of a mapping with a part for every core that is megabytes, for the kilobytes that are used. So
//! such a mapping begins as one page, which is unlocked, and grows from there: what grows has the properties of what
//! was there.
//!
//! # Invariant
//! A sparse mapping is never locked by the flags of the process. A later `mlockall(MCL_CURRENT)` locks it all: then it
//! is what the program asked for.
//!
//! Sources: `mm/mremap.c` (a mapping grows by its own flags, not by those of the process), `mm/madvise.c` (a locked
//! mapping refuses `MADV_DONTNEED`).

use super::page_size::page_size;
use super::pages::{self, call};

/// Maps `len` bytes as [`pages::map`] does, but never locked.
pub(crate) fn map(len: usize) -> Option<*mut u8> {
    map_as(pages::map, len)
}

/// Does what [`map`] does, of memory that is read alone, until it is [opened](pages::open).
#[cfg(not(any(loom, miri)))]
pub(crate) fn map_readable(len: usize) -> Option<*mut u8> {
    map_as(pages::map_readable, len)
}

fn map_as(map: fn(usize) -> Option<*mut u8>, len: usize) -> Option<*mut u8> {
    let page = page_size();
    let first = map(page)?;
    unlock(first, page);
    let flags = libc::MREMAP_MAYMOVE as usize;
    // SAFETY: the mapping just made, which no other thread knows.
    match unsafe { call(libc::SYS_mremap, [first as usize, page, len, flags, 0, 0]) } {
        Ok(at) => {
            let at = at as *mut u8;
            // SAFETY: the mapping, which is all ours.
            unsafe { pages::forbid_huge_pages(at, len) };
            Some(at)
        }
        Err(_) => {
            // SAFETY: no other thread has seen it.
            unsafe { pages::unmap(first, page) };
            // A filter may know no `mremap`; without memory this fails as well.
            map(len)
        }
    }
}

/// Calls `munlock(at, len)`, see munlock(2).
///
/// Unlocks pages that were never written to, if they are locked. The call that unlocks is made only where it is
/// needed, since a seccomp filter may end a process over a call that it does not know.
#[doc(alias = "munlock")]
fn unlock(at: *mut u8, len: usize) {
    // SAFETY: the caller's, and all zero.
    if unsafe { pages::advise(at, len, libc::MADV_DONTNEED) }.is_err() {
        // SAFETY: changes no contents.
        let _ = unsafe { call(libc::SYS_munlock, [at as usize, len, 0, 0, 0, 0]) };
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
