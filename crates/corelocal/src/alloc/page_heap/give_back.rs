//! The return of pages to the kernel, with back-off where the kernel refuses because memory is locked (`mlock(2)`,
//! `mlockall(2)`).
//!
//! The kernel refuses to take locked pages (`EINVAL`), and a program that locks its memory wants to keep it. So a
//! refused chunk is not tried again (`layout/bits.rs`: kept), and the more refusals follow each other, the fewer chunks
//! are tried: every one, then one of two, of four, and so on. A success, `trim` or memory pressure resets this.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys::Errno;
use crate::sys::memory::pages;

/// The back-off.
struct Asking {
    /// Refusals since the last success.
    refused: AtomicU32,
    /// Calls that still return without asking the kernel.
    skipped: AtomicU32,
}

static ASKING: Asking = Asking::new();
/// At least one of 2^N calls asks the kernel.
const MOST_SKIPPED: u32 = 20;

const R: Ordering = Ordering::Relaxed;

impl Asking {
    const fn new() -> Asking {
        Asking { refused: AtomicU32::new(0), skipped: AtomicU32::new(0) }
    }

    /// Runs `ask` unless backing off; returns whether the kernel took the pages. Two concurrent calls may count as
    /// one.
    fn is_taken(&self, ask: impl FnOnce() -> Result<(), Errno>) -> bool {
        let skipped = self.skipped.load(R);
        if skipped > 0 {
            self.skipped.store(skipped - 1, R);
            return false;
        }
        let result = ask();
        if result.is_ok() && self.refused.load(R) != 0 {
            self.refused.store(0, R);
        }
        if result == Err(Errno::EINVAL) {
            let refused = self.refused.load(R).min(MOST_SKIPPED);
            self.refused.store(refused + 1, R);
            self.skipped.store((1 << refused) - 1, R);
        }
        result.is_ok()
    }

    fn forget(&self) {
        self.refused.store(0, R);
        self.skipped.store(0, R);
    }
}

/// Gives the whole pages within a range back to the kernel; they read as 0 then. False if they stay as they are.
///
/// # Safety
/// - The memory belongs to the caller.
/// - Its content is not needed.
pub(in crate::alloc) unsafe fn give_back(at: *mut u8, len: usize) -> bool {
    // SAFETY: memory of the caller's whose content is not needed.
    ASKING.is_taken(|| unsafe { pages::give_back(at, len) })
}

/// Resets the back-off.
pub(in crate::alloc) fn forget() {
    ASKING.forget();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how often the kernel is asked in `calls` calls, if it always answers `answer`.
    fn asked(asking: &Asking, calls: u32, answer: Result<(), Errno>) -> u32 {
        let mut asked = 0;
        for _ in 0..calls {
            asking.is_taken(|| {
                asked += 1;
                answer
            });
        }
        asked
    }

    #[test]
    fn refusals_become_rare_and_one_success_ends_that() {
        let asking = Asking::new();
        assert_eq!(asked(&asking, 100, Ok(())), 100);
        assert_eq!(asked(&asking, 1 << 10, Err(Errno::EINVAL)), 11);
        asking.forget();
        assert_eq!(asked(&asking, 100, Ok(())), 100);
        // A few locked pages among many others.
        asked(&asking, 3, Err(Errno::EINVAL));
        assert!(asked(&asking, 100, Ok(())) > 90);
        // Other errors do not count as refusals.
        assert_eq!(asked(&asking, 100, Err(Errno::ENOMEM)), 100);
    }
}
