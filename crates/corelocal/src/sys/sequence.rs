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
//! 1. One thread at a time writes: the one that made the number odd ([`Sequence::write`]), or the one that has the lock
//!    of its caller ([`Sequence::write_locked`]). A number is written to in one of the two ways only. `write` gives up
//!    instead of waiting if it finds the number odd, so a signal handler may interrupt at any instruction.
//! 2. Words that were read between two reads of the same even number come from one writer.
//! 3. A writer that dies leaves the number odd, and every read fails until another one has written under the lock.

use crate::primitive::atomic::{AtomicU64, Ordering, fence};

/// The sequence number. All bytes 0 means that no writer has written yet.
#[repr(transparent)]
pub(crate) struct Sequence {
    number: AtomicU64,
}

/// The right to write. Ends when it is dropped.
pub(crate) struct Writing<'a> {
    number: &'a AtomicU64,
    begun: u64,
}

impl Sequence {
    const_fn! {
        /// Creates the number of words that were never written.
        pub(crate) const fn new() -> Self {
            Sequence { number: AtomicU64::new(0) }
        }
    }

    /// Begins to write. `None` if another writer is active.
    pub(crate) fn write(&self) -> Option<Writing<'_>> {
        let before = self.number.load(Ordering::Relaxed);
        if before % 2 != 0 {
            return None;
        }
        // Acquire: partner is the Release of the previous writer, in `drop`.
        let begun = before + 1;
        let change =
            self.number.compare_exchange(before, begun, Ordering::Acquire, Ordering::Relaxed);
        change.ok()?;
        Some(self.begun(begun))
    }

    /// Begins to write, for callers that exclude each other by a lock. Replaces a writer that a fork left behind.
    pub(crate) fn write_locked(&self) -> Writing<'_> {
        // Relaxed: the lock orders writers.
        let before = self.number.load(Ordering::Relaxed);
        // After an odd number comes the next odd one.
        let begun = before.wrapping_add(1 + before % 2);
        self.number.store(begun, Ordering::Relaxed);
        self.begun(begun)
    }

    fn begun(&self, begun: u64) -> Writing<'_> {
        // Release: partner is the Acquire fence in `is_unchanged`. A reader that sees one of the words that follow sees
        // the number odd, or a later number.
        fence(Ordering::Release);
        Writing { number: &self.number, begun }
    }

    /// Returns the number before the words are read. `None` if no writer has finished yet or one is active.
    #[inline(always)]
    pub(crate) fn number(&self) -> Option<u64> {
        // Acquire: partner is the Release in `drop`.
        let number = self.number.load(Ordering::Acquire);
        (number != 0 && number % 2 == 0).then_some(number)
    }

    /// Returns `true` if no writer has begun since [`number`](Self::number) returned this number: all words that were
    /// read meanwhile come from one writer.
    #[inline(always)]
    pub(crate) fn is_unchanged(&self, number: u64) -> bool {
        // Acquire: partner is the Release fence in `begun`.
        fence(Ordering::Acquire);
        self.number.load(Ordering::Relaxed) == number
    }

    /// Returns the result of `read` if it is consistent. `None` if no writer has finished yet or one wrote meanwhile.
    pub(crate) fn read<T>(&self, read: impl FnOnce() -> T) -> Option<T> {
        let before = self.number()?;
        let value = read();
        self.is_unchanged(before).then_some(value)
    }

    /// Leaves the number as a writer does that a fork left behind.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn leave_odd(&self) {
        self.number.fetch_or(1, Ordering::Relaxed);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // Release: partners are the Acquires in `number` and `write`. Wrapping, since another process may have written
        // any number.
        self.number.store(self.begun.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let sequence = Sequence::new();
        assert_eq!(sequence.read(|| 1), None);
        let writing = sequence.write().expect("nobody writes");
        assert!(sequence.write().is_none() && sequence.read(|| 1).is_none());
        drop(writing);
        assert_eq!(sequence.read(|| 1), Some(1));
        assert_eq!(sequence.read(|| drop(sequence.write())), None);
    }

    /// In a page that processes share.
    #[test]
    fn another_process_may_have_written_any_number() {
        for number in [0, u64::MAX - 1, u64::MAX] {
            let sequence = Sequence { number: AtomicU64::new(number) };
            assert_eq!(sequence.write().is_none(), number % 2 == 1);
            drop(sequence.write_locked());
        }
    }

    #[test]
    fn a_gone_writer_is_replaced() {
        for odd in [3, u64::MAX] {
            let sequence = Sequence { number: AtomicU64::new(odd) };
            assert!(sequence.write().is_none() && sequence.read(|| 1).is_none());
            drop(sequence.write_locked());
            assert_eq!(sequence.read(|| 1), Some(1));
            assert_ne!(sequence.number.load(Ordering::Relaxed), odd.wrapping_add(1));
        }
    }
}

#[cfg(all(test, loom))]
mod loom;
