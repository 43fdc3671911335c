//! Some words that change together, which readers read without waiting.
//!
//! There are two copies. The version's lowest bit says which one is valid; a change writes the other one and then
//! raises the version. So a change that is interrupted, or that a fork left behind, is no change, and readers know
//! nothing of it.
//!
//! ```text
//! change                                     reader
//!   lock                                       first = version         (acquire)
//!   copy[version & 1] ──► next words           copy[first & 1]         (relaxed)
//!   fence(release)                             fence(acquire)
//!   copy[(version + 1) & 1]   (relaxed)        first == version        (relaxed)?
//!   version + 1               (release)
//! ```
//!
//! # Invariants
//! 1. A change holds the lock, and has seen the version that the change before it stored.
//! 2. The copy that the version names is not written to until another version is stored. A reader that read a word of a
//!    later change sees, behind its fence, the version before that change, which is another than its first one.

use crate::primitive::atomic::{AtomicU64, Ordering, fence};
use crate::sys::try_lock::TryLock;

/// Words that one writer changes, as a whole for each reader: see the module's text.
pub(in crate::clock) struct Latch<const WORDS: usize> {
    version: AtomicU64,
    copies: [[AtomicU64; WORDS]; 2],
    lock: TryLock,
}

impl<const WORDS: usize> Latch<WORDS> {
    pub(in crate::clock) const fn new(words: [u64; WORDS]) -> Latch<WORDS> {
        let mut copy = [const { AtomicU64::new(0) }; WORDS];
        let mut at = 0;
        while at < WORDS {
            copy[at] = AtomicU64::new(words[at]);
            at += 1;
        }
        let other = [const { AtomicU64::new(0) }; WORDS];
        Latch { version: AtomicU64::new(0), copies: [copy, other], lock: TryLock::new() }
    }

    /// Returns the words. Waits for nothing; begins again if two changes came in between. Async-signal-safe.
    pub(in crate::clock) fn read(&self) -> [u64; WORDS] {
        loop {
            // Acquire: partner is the Release store in `try_change`, whose words are then visible.
            let version = self.version.load(Ordering::Acquire);
            let words = self.copy(version);
            // Acquire: partner is the Release fence in `try_change`. (2)
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return words;
            }
        }
    }

    /// Replaces the words by what `next` makes of them. Waits for other changes.
    pub(in crate::clock) fn change(&self, next: impl Fn([u64; WORDS]) -> [u64; WORDS]) {
        while !self.try_change(&next) {
            // SAFETY: no preconditions.
            unsafe { libc::sched_yield() };
        }
    }

    /// Does what `change` does; false, and nothing is done, while there is another one.
    fn try_change(&self, next: impl Fn([u64; WORDS]) -> [u64; WORDS]) -> bool {
        let Some(_locked) = self.lock.try_lock() else { return false };
        // Relaxed: the lock orders it. (1)
        let version = self.version.load(Ordering::Relaxed);
        let words = next(self.copy(version));
        // Release: partner is the Acquire fence in `read`. (2)
        fence(Ordering::Release);
        let after = version.wrapping_add(1);
        for (word, value) in self.copies[after as usize & 1].iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        // Release: partner is the Acquire load in `read`.
        self.version.store(after, Ordering::Release);
        true
    }

    fn copy(&self, version: u64) -> [u64; WORDS] {
        let copy = &self.copies[version as usize & 1];
        core::array::from_fn(|at| copy[at].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_under_way_is_none() {
        let fall_back = Latch::new([1, 10]);
        fall_back.change(|[a, b]| {
            assert_eq!(fall_back.read(), [1, 10]);
            assert!(!fall_back.try_change(|_| unreachable!()));
            [a + 1, b + 10]
        });
        assert_eq!(fall_back.read(), [2, 20]);
        // As a change that a fork left behind.
        fall_back.copies[0][0].store(99, Ordering::Relaxed);
        assert_eq!(fall_back.read(), [2, 20]);
        fall_back.change(|[a, b]| [a + 1, b + 10]);
        assert_eq!(fall_back.read(), [3, 30]);
    }
}
