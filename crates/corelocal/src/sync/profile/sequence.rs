//! Something of several words that one thread at a time writes, and others read without making it wait.
//!
//! ```text
//!   who writes                            who reads, perhaps another process
//!   number: even -> odd, or goes away     number: even, or there is nothing
//!   the words                             the words
//!   number: even again                    the number again: as before, or there is nothing
//! ```
//!
//! # Invariants
//! 1. One thread at a time writes: the one that made the number odd. Who finds it odd does not wait for its turn,
//!    so a signal handler may come at any moment.
//! 2. What was read between two looks at the same even number was written by one writer, or by nobody.
//! 3. A writer that dies leaves the number odd, for ever: then there is nothing to read.

use crate::primitive::atomic::{AtomicU64, Ordering, fence};

/// The number. All bytes 0 is: nothing was written.
#[repr(transparent)]
pub(super) struct Sequence {
    number: AtomicU64,
}

/// The right to write; the end of it when dropped.
pub(super) struct Writing<'a> {
    number: &'a AtomicU64,
    begun: u64,
}

impl Sequence {
    #[cfg(all(test, loom))]
    pub(super) fn new() -> Self {
        Sequence { number: AtomicU64::new(0) }
    }

    /// Begins to write; nothing if somebody does.
    pub(super) fn write(&self) -> Option<Writing<'_>> {
        let before = self.number.load(Ordering::Relaxed);
        if before % 2 != 0 {
            return None;
        }
        // Acquire: partner is the Release of the writer before, in `drop`.
        let begun = before + 1;
        let change =
            self.number.compare_exchange(before, begun, Ordering::Acquire, Ordering::Relaxed);
        change.ok()?;
        // Release: partner is the Acquire fence in `read`. Who reads one of the words that follow sees the
        // number odd, or later.
        fence(Ordering::Release);
        Some(Writing { number: &self.number, begun })
    }

    /// What `read` reads, if nobody wrote meanwhile, and somebody did before.
    pub(super) fn read<T>(&self, read: impl FnOnce() -> T) -> Option<T> {
        // Acquire: partner is the Release in `drop`.
        let before = self.number.load(Ordering::Acquire);
        if before == 0 || before % 2 != 0 {
            return None;
        }
        let value = read();
        // Acquire: partner is the Release fence in `write`.
        fence(Ordering::Acquire);
        (self.number.load(Ordering::Relaxed) == before).then_some(value)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // Release: partners are the Acquires in `read` and `write`.
        self.number.store(self.begun + 1, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let sequence = Sequence { number: AtomicU64::new(0) };
        assert_eq!(sequence.read(|| 1), None);
        let writing = sequence.write().expect("nobody writes");
        assert!(sequence.write().is_none() && sequence.read(|| 1).is_none());
        drop(writing);
        assert_eq!(sequence.read(|| 1), Some(1));
        assert_eq!(sequence.read(|| drop(sequence.write())), None);
    }
}

#[cfg(all(test, loom))]
#[path = "sequence_loom.rs"]
mod loom_tests;
