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

/// [`map`], of memory that is read alone, until it is [opened](pages::open).
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

/// `munlock(at, len)`, see munlock(2).
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
mod tests {
    use super::*;
    use std::format;
    use std::string::String;

    /// Kilobytes that the kernel says in a line of the process's status.
    fn status(line: &str) -> u64 {
        let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let numbers = text.lines().filter(|found| found.starts_with(line));
        numbers.filter_map(|found| found.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    }

    /// What a child makes of it, which locks all that it maps.
    fn in_locked_child(test: &str, body: fn()) {
        const CHILD: &str = "CORELOCAL_TEST_LOCKED";
        if std::env::var_os(CHILD).is_none() {
            let program = std::env::current_exe().expect("a path of this test");
            let name = format!("sys::lazy_mapping::tests::{test}");
            let child = std::process::Command::new(program)
                .args([name.as_str(), "--exact", "--nocapture", "--test-threads=1"])
                .env(CHILD, "yes")
                .output()
                .expect("the test program starts");
            let said = String::from_utf8_lossy(&child.stderr);
            std::eprint!(
                "{}",
                said.lines()
                    .filter(|line| line.starts_with("skipped"))
                    .fold(String::new(), |all, line| all + line + "\n")
            );
            assert!(child.status.success(), "{said}");
            return;
        }
        // SAFETY: a number.
        if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
            std::eprintln!("skipped: sparse {test}: mlockall is refused");
            return;
        }
        body();
    }

    #[test]
    fn it_is_not_locked() {
        in_locked_child("it_is_not_locked", || {
            let (len, before) = (64 << 20, [status("VmLck:"), status("VmRSS:")]);
            let at = map(len).expect("address space");
            let after = [status("VmLck:"), status("VmRSS:")];
            assert!(
                after[0] < before[0] + 1024 && after[1] < before[1] + 4096,
                "{before:?} {after:?}"
            );
            // SAFETY: mapped just now, and used by this test only.
            unsafe {
                at.add(len - 1).write_volatile(7);
                assert_eq!((at.read_volatile(), at.add(len - 1).read_volatile()), (0, 7));
                pages::unmap(at, len);
            }
        });
    }

    #[test]
    fn it_is_zeros_to_the_end() {
        let len = 3 * page_size();
        let at = map(len).expect("address space");
        // SAFETY: mapped just now, and used by this test only.
        unsafe {
            assert!((0..len).all(|byte| at.add(byte).read() == 0));
            at.write_bytes(1, len);
            pages::unmap(at, len);
        }
    }
}
