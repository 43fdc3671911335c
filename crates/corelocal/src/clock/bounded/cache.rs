//! A cache of the clock's error bound that every thread reads with a few loads.
//!
//! # Data flow
//! ```text
//!   reader: number ──► words ──► clock ──► number unchanged? ──► the words are consistent (`sys/sequence.rs`)
//!   writer: try-lock ──► number odd ──► words ──► number even
//! ```
//!
//! No thread waits. A reader that meets a writer asks the kernel itself, at the price of a system call. So does a
//! signal handler that interrupts a writer of its own thread.
//!
//! # Invariants
//! 1. A writer holds the lock. A child takes it over from a thread that its fork left behind (`sys/forks.rs`),
//!    possibly with an odd sequence, after which it uses the next odd one.
//! 2. What a reader returns was written by one writer.
//! 3. The last word is meaningful by itself, so it can be read while the others cannot: while a thread writes, or
//!    after a fork left a writer behind. It is 0 only if the cache was never written.

use super::line;
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::sys::sequence::Sequence;
use crate::sys::try_lock::TryLock;

/// Words of what is kept: those of a line, and five of what was learnt, of which the first belongs to the
/// line too. So what most readers need is one cache line with the sequence number.
pub(in crate::clock) const WORDS: usize = line::WORDS + 5;
pub(in crate::clock) type Words = [u64; WORDS];

/// The cached words, with their sequence number: see the module's text.
#[repr(align(64))]
pub(in crate::clock) struct Cache {
    sequence: Sequence,
    words: [AtomicU64; WORDS],
    lock: TryLock,
}

impl Cache {
    #[cfg(not(loom))]
    pub(in crate::clock) const fn new() -> Cache {
        Cache {
            sequence: Sequence::new(),
            words: [const { AtomicU64::new(0) }; WORDS],
            lock: TryLock::new(),
        }
    }

    #[cfg(loom)]
    pub(in crate::clock) fn new() -> Cache {
        Cache {
            sequence: Sequence::new(),
            words: core::array::from_fn(|_| AtomicU64::new(0)),
            lock: TryLock::new(),
        }
    }

    /// Returns the cached words. `None` if there are none, or a thread is just writing.
    pub(in crate::clock) fn read(&self) -> Option<Words> {
        self.read_with(|| ()).1
    }

    /// Returns what `clock` says, and the first words of what is there, before and after.
    ///
    /// The clock comes after the words: a fence in it would keep the cpu from loading them meanwhile.
    #[inline(always)]
    pub(in crate::clock) fn read_with<const FIRST: usize, R>(
        &self,
        clock: impl FnOnce() -> R,
    ) -> (R, Option<[u64; FIRST]>) {
        const { assert!(FIRST <= WORDS) };
        let number = self.sequence.number();
        let words = core::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        let now = clock();
        (now, number.filter(|number| self.sequence.is_unchanged(*number)).map(|_| words))
    }

    /// Returns the last word, however torn the others are; 0 if nothing was ever written. (3)
    #[cfg(not(loom))]
    pub(in crate::clock) fn last_word(&self) -> u64 {
        // Relaxed: one word.
        self.words[WORDS - 1].load(Ordering::Relaxed)
    }

    /// Leaves it as a writer does that a fork left behind.
    #[cfg(all(test, not(loom)))]
    pub(in crate::clock) fn leave_odd(&self) {
        self.sequence.leave_odd();
    }

    /// Replaces what is there by what `learn` makes of it, and returns that; `None` if another is just doing
    /// it.
    pub(in crate::clock) fn update(
        &self,
        learn: impl FnOnce(Option<Words>) -> Words,
    ) -> Option<Words> {
        let _locked = self.lock.try_lock()?;
        // What a dead writer left in the middle is nothing, but for its last word. (1), (3)
        let words = learn(self.read());
        let _writing = self.sequence.write_locked();
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        Some(words)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let cache = Cache::new();
        assert_eq!(cache.read(), None);
        for number in 1..5 {
            let wrote = cache.update(|before| {
                assert_eq!(before, (number > 1).then_some([number - 1; WORDS]));
                assert_eq!(cache.update(|_| unreachable!()), None);
                [number; WORDS]
            });
            assert_eq!((wrote, cache.read()), (Some([number; WORDS]), Some([number; WORDS])));
        }
        // As a writer leaves it that a fork left behind.
        cache.leave_odd();
        assert_eq!(cache.read(), None);
        assert!(cache.update(|before| [u64::from(before.is_none()); WORDS]).is_some());
        assert_eq!(cache.read(), Some([1; WORDS]));
    }
}
