//! Sleeping on one half of a 64-bit word.
//!
//! The program always changes the word as a whole. Only the kernel reads a half, when it compares. Under loom the
//! sleepers are in the list of `sys/sleep.rs`.
//!
//! Invariant: a call may return spuriously, so waiters check the word again.

use crate::primitive::atomic::AtomicU64;
use crate::sync::machinery::scope::Scope;
use crate::sys::futex::{Deadline, Wake};

/// Half of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    /// The lower half.
    Readers,
    /// The upper half.
    Writers,
}

impl Half {
    /// Returns the content of the half.
    fn of(self, word: u64) -> u32 {
        match self {
            Half::Readers => word as u32,
            Half::Writers => (word >> 32) as u32,
        }
    }
}

pub(super) use imp::{wait, wake};

#[cfg(not(loom))]
mod imp {
    use super::*;
    use crate::primitive::atomic::AtomicU32;
    use crate::sys::sleep;

    fn address(word: *const AtomicU64, half: Half) -> *const AtomicU32 {
        let is_second = (half == Half::Writers) == cfg!(target_endian = "little");
        word.cast::<AtomicU32>().wrapping_add(usize::from(is_second))
    }

    /// Sleeps while this half of the word is as in `expected`, until woken or until the deadline.
    #[cold]
    pub(in crate::sync::rwlock) fn wait<S: Scope>(
        word: &AtomicU64,
        half: Half,
        expected: u64,
        deadline: Option<Deadline>,
    ) -> Wake {
        // SAFETY: half of a borrowed word, sufficiently aligned. Only the kernel accesses it through this reference,
        // so accesses of different sizes do not mix in the program.
        let address = unsafe { &*address(word, half) };
        // A signal handler that runs ends the wait: it may have forked, and in the child the owner is gone.
        let deadline = deadline.or(Some(Deadline::NEVER));
        sleep::wait(address, half.of(expected), deadline, S::FUTEX)
    }

    /// Wakes up to `waiters` threads that sleep on this half. The word's memory may be gone already.
    #[cold]
    pub(in crate::sync::rwlock) fn wake<S: Scope>(
        word: *const AtomicU64,
        half: Half,
        waiters: u32,
    ) {
        sleep::wake(address(word, half), waiters, S::FUTEX);
    }
}

#[cfg(loom)]
mod imp {
    use super::*;
    use crate::sys::sleep;
    use loom::sync::atomic::Ordering;

    /// Returns a separate address for each half: loom's atomic is large enough.
    fn place(word: *const AtomicU64, half: Half) -> sleep::Place {
        word.cast::<u8>().wrapping_add(usize::from(half == Half::Writers)).cast()
    }

    pub(in crate::sync::rwlock) fn wait<S: Scope>(
        word: &AtomicU64,
        half: Half,
        expected: u64,
        deadline: Option<Deadline>,
    ) -> Wake {
        let is_expected = || half.of(word.load(Ordering::Relaxed)) == half.of(expected);
        sleep::wait_at(&[place(word, half)], is_expected, deadline)
            .map_or_else(|wake| wake, |_| Wake::Woken)
    }

    pub(in crate::sync::rwlock) fn wake<S: Scope>(
        word: *const AtomicU64,
        half: Half,
        waiters: u32,
    ) {
        sleep::wake_at(place(word, half), waiters);
    }
}
