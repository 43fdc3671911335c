//! A sequence lock: one thread at a time writes several words, and readers take a consistent copy without blocking
//! it.
//!
//! ```text
//!   writer                                reader, possibly in another process
//!   number: even -> odd, or gives up      number: even, or gives up
//!   the words                             the words
//!   number: even again                    number again: unchanged, or gives up
//! ```
//!
//! # Invariants
//! 1. One thread at a time writes: the one that made the number odd. A second writer that finds it odd gives up
//!    instead of waiting. So a signal handler may interrupt at any instruction.
//! 2. Words that were read between two reads of the same even number come from one writer.
//! 3. A writer that dies leaves the number odd, and every later read fails.

use crate::primitive::atomic::{AtomicU64, Ordering, fence};

/// The sequence number. All bytes 0 means that no writer has written yet.
#[repr(transparent)]
pub(super) struct Sequence {
    number: AtomicU64,
}

/// The right to write. Ends when it is dropped.
pub(super) struct Writing<'a> {
    number: &'a AtomicU64,
    begun: u64,
}

impl Sequence {
    #[cfg(all(test, loom))]
    pub(super) fn new() -> Self {
        Sequence { number: AtomicU64::new(0) }
    }

    /// Begins to write. `None` if another writer is active.
    pub(super) fn write(&self) -> Option<Writing<'_>> {
        let before = self.number.load(Ordering::Relaxed);
        if before % 2 != 0 {
            return None;
        }
        // Acquire: partner is the Release of the previous writer, in `drop`.
        let begun = before + 1;
        let change =
            self.number.compare_exchange(before, begun, Ordering::Acquire, Ordering::Relaxed);
        change.ok()?;
        // Release: partner is the Acquire fence in `read`. A reader that sees one of the words that follow sees the
        // number odd, or a later number.
        fence(Ordering::Release);
        Some(Writing { number: &self.number, begun })
    }

    /// Returns the result of `read` if it is consistent. `None` if no writer has finished yet or one wrote meanwhile.
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
mod loom;
