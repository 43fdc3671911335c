//! Counts of readers that begin and end, for RCU: each core counts in words of its own.
//!
//! A reader may begin on one core and end on another, so only sums over all cores mean anything: the number of readers
//! inside is the sum of the begins minus the sum of the ends.
//!
//! # Invariants
//! 1. Every begin and every end adds 1 to exactly one word. Words only grow, and nothing moves them: their kind is
//!    opaque to trims. So a sum misses no addition that happens before it, and includes none twice.
//! 2. A thread that can run no critical section, or has no memory for slots, adds to a shared or to an inline word by
//!    an atomic. Both kinds of words are part of the sums.

use super::lazy_block::{Fallback, Owned};
use super::slot::{Kind, Zeroed};
use crate::cid::Cid;
use crate::primitive::atomic::{AtomicI64, Ordering};
use crate::rseq::{self, Ended, Exit};

/// Readers are counted in so many groups, each with a word for begins and one for ends.
const GROUPS: usize = 8;
const WORD: usize = size_of::<AtomicI64>();

/// A group of readers, as the offset of its counts.
#[derive(Clone, Copy)]
pub(crate) struct Group(usize);

impl Group {
    /// The distance of the counts of two groups.
    pub(crate) const LEN: usize = 2 * WORD;

    /// The number of groups.
    pub(crate) const COUNT: usize = GROUPS;

    /// Returns the group whose counts are at this offset.
    ///
    /// # Safety
    /// - It is a multiple of [`LEN`](Self::LEN), and below `COUNT` times that.
    #[inline(always)]
    pub(crate) unsafe fn at(offset: usize) -> Group {
        debug_assert!(offset % Self::LEN == 0 && offset < GROUPS * Self::LEN);
        Group(offset)
    }

    #[cfg(test)]
    fn nth(nth: usize) -> Group {
        assert!(nth < GROUPS);
        Group(nth * Self::LEN)
    }
}

/// Pairs of begins and ends, one for each group.
struct Words([AtomicI64; 2 * GROUPS]);

// SAFETY: an array of integers, of which all bytes 0 is valid, and which need no drop. Opaque, so that no trim moves
// a word (1).
unsafe impl Zeroed for Words {
    const KIND: Kind = Kind::Opaque;
}

/// The counts of all readers of a domain. All bytes 0 is a valid value: no counts.
#[repr(C)]
pub(crate) struct ReaderCounts {
    slots: Owned<Words, Cid>,
    inline: Words,
}

impl ReaderCounts {
    pub(crate) const fn new() -> ReaderCounts {
        let inline = Words([const { AtomicI64::new(0) }; 2 * GROUPS]);
        ReaderCounts { slots: Owned::new(), inline }
    }

    /// Counts a reader that begins.
    #[inline(always)]
    pub(crate) fn begin(&self, group: Group) {
        self.add(group.0);
    }

    /// Counts a reader that ends. It may be another thread's.
    #[inline(always)]
    pub(crate) fn end(&self, group: Group) {
        self.add(group.0 + WORD);
    }

    /// Counts a reader that begins by an atomic, whether critical sections can run or not.
    #[cold]
    pub(crate) fn begin_atomically(&self, group: Group) {
        self.add_atomically(group.0);
    }

    /// Counts a reader that ends by an atomic.
    #[cold]
    pub(crate) fn end_atomically(&self, group: Group) {
        self.add_atomically(group.0 + WORD);
    }

    /// Returns the readers of a group that have begun. Includes every begin that happens before the call.
    pub(crate) fn begun(&self, group: Group) -> i64 {
        self.sum(group.0)
    }

    /// Returns the readers of a group that have ended. Includes only ends that have happened.
    pub(crate) fn ended(&self, group: Group) -> i64 {
        self.sum(group.0 + WORD)
    }

    #[inline(always)]
    fn add(&self, offset: usize) {
        // SAFETY: the slots of `self.slots`, used by sections of one kind of id; `offset` is that of a word in them.
        let section = |ids, slots: &_| unsafe { rseq::increment_at(ids, slots, offset) };
        let first = self.slots.run_once(section);
        if !first.is_done() {
            self.add_cold(offset, first);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_cold(&self, offset: usize, first: Exit) {
        // SAFETY: as in `add`.
        let section = move |ids, slots: &_| unsafe { rseq::increment_at(ids, slots, offset) };
        match self.slots.run_cold(first, section) {
            Ok(_) => {}
            Err(Fallback::Shared(shared)) => Self::add_to(shared, offset),
            Err(Fallback::Unbound) => Self::add_to(&self.inline, offset),
        }
    }

    fn add_atomically(&self, offset: usize) {
        Self::add_to(self.slots.share().unwrap_or(&self.inline), offset);
    }

    fn add_to(words: &Words, offset: usize) {
        if let Some(word) = words.0.get(offset / WORD) {
            // Relaxed: the order of a reader's accesses is up to the caller's barriers.
            word.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn sum(&self, offset: usize) -> i64 {
        // Relaxed: the caller's barriers order the sums with each other and with the readers' accesses.
        let word =
            |words: &Words| words.0.get(offset / WORD).map_or(0, |it| it.load(Ordering::Relaxed));
        let cores = self.slots.slots().chain(self.slots.shared()).map(word);
        cores.fold(word(&self.inline), i64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn groups_are_counted_apart() {
        let counts = ReaderCounts::new();
        for nth in 0..GROUPS {
            let group = Group::nth(nth);
            (0..=nth).for_each(|_| counts.begin(group));
            counts.begin_atomically(group);
            counts.end(group);
        }
        counts.end_atomically(Group::nth(3));
        let groups = || (0..GROUPS).map(Group::nth);
        let begun: Vec<i64> = groups().map(|group| counts.begun(group)).collect();
        let ended: Vec<i64> = groups().map(|group| counts.ended(group)).collect();
        assert_eq!(begun, [2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(ended, [1, 1, 1, 2, 1, 1, 1, 1]);
    }

    /// Without memory for slots.
    #[test]
    fn the_inline_words_count() {
        let counts = ReaderCounts::new();
        ReaderCounts::add_to(&counts.inline, 2 * Group::LEN);
        counts.begin(Group::nth(2));
        assert_eq!((counts.begun(Group::nth(2)), counts.ended(Group::nth(2))), (2, 0));
    }
}
