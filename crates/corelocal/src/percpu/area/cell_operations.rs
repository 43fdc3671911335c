//! One word of a cell, with the operations of every per-core word (`machinery/word_operations.rs`).
//!
//! Invariant: the index is below `WORDS`.

use core::fmt;

use super::{Cell, Words};
use crate::cid::{Busy, Cid, Revocable, SlotIndex};
use crate::percpu::Mismatch;
use crate::percpu::machinery::lazy_block::{Fallback, Owned};
use crate::percpu::machinery::word_operations::{self, EachWord};
use crate::percpu::shard::Shard;
use crate::primitive::atomic::AtomicU64;
use crate::rseq::{self, Ended, Exit, Index, Slots, Yielded};

/// One word of a [`Cell`]: see [`Cell::at`] and [`Cell::word`].
///
/// It is a `u64` for each core, which any thread changes atomically on its core. Uses and operations are those of a
/// [`Word`](crate::percpu::Word).
pub struct CellWord<'a, const WORDS: usize, I: SlotIndex = Cid> {
    cell: &'a Cell<'a, WORDS, I>,
    index: usize,
}

impl<const WORDS: usize, I: SlotIndex> Clone for CellWord<'_, WORDS, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<const WORDS: usize, I: SlotIndex> Copy for CellWord<'_, WORDS, I> {}

impl<'a, const WORDS: usize, I: SlotIndex> CellWord<'a, WORDS, I> {
    /// Returns the word at `index`, which is below `WORDS`.
    #[inline(always)]
    pub(super) fn new(cell: &'a Cell<'a, WORDS, I>, index: usize) -> Self {
        debug_assert!(index < WORDS);
        CellWord { cell, index }
    }

    #[inline(always)]
    fn offset(self) -> usize {
        self.index * size_of::<AtomicU64>()
    }

    /// Adds `n` to this core's word, wrapping.
    ///
    /// Constant time, wait-free but for a capped number of retries. Async-signal-safe.
    #[inline]
    pub fn add(self, n: u64) {
        let first = word_operations::once(self, self.add_section(n));
        if !first.is_done() {
            self.add_rest(n, first);
        }
    }

    #[inline(always)]
    fn add_section(self, n: u64) -> impl Fn(Index, &Slots) -> Exit {
        // SAFETY: as in `EachWord::add_fetch`.
        move |index, slots| unsafe { rseq::add_at(index, slots, self.offset(), n as i64) }
    }

    #[cold]
    #[inline(never)]
    fn add_rest(self, n: u64, first: Exit) {
        if let Err(fallback) = word_operations::rest(self, first, self.add_section(n)) {
            word_operations::add_fetch_cold(self, n, fallback);
        }
    }

    /// Adds `n` to this core's word, wrapping, and returns the sum.
    ///
    /// Like [`add`](CellWord::add).
    #[inline]
    pub fn add_fetch(self, n: u64) -> u64 {
        word_operations::add_fetch(self, n)
    }

    /// Does what [`add_fetch`](CellWord::add_fetch) does. Also returns the shard of the word.
    #[inline]
    pub fn add_fetch_at(self, n: u64) -> (Shard, u64) {
        word_operations::add_fetch_at(self, n)
    }

    /// Stores `n` in this core's word and returns the old value.
    ///
    /// Like [`add`](CellWord::add).
    #[inline]
    pub fn exchange(self, n: u64) -> u64 {
        word_operations::exchange(self, n)
    }

    /// Stores `n` in this core's word if it equals `expected`. Returns the shard of the word.
    ///
    /// Like [`add`](CellWord::add).
    ///
    /// # Errors
    /// [`Mismatch`]: the word is different.
    #[inline]
    pub fn store_if_equal(self, expected: u64, n: u64) -> Result<Shard, Mismatch> {
        word_operations::store_if_equal(self, expected, n)
    }

    /// Returns this core's word.
    ///
    /// It is a hint: the thread may be on another core by now, and the word may have changed. Async-signal-safe.
    #[inline]
    pub fn load(self) -> u64 {
        word_operations::load(self)
    }

    /// Replaces this core's word by `f` of it, unless that is `None`. Like
    /// [`Word::fetch_update`](crate::percpu::Word::fetch_update).
    ///
    /// # Errors
    /// The current word, if `f` returned `None`.
    pub fn fetch_update(self, f: impl FnMut(u64) -> Option<u64>) -> Result<u64, u64> {
        word_operations::fetch_update(self, f)
    }

    /// Returns the words of all shards that may have been used, with their shards.
    ///
    /// Words that were never changed are those of the image. Linear in the slots in use, each of which costs a cache
    /// miss.
    pub fn iter(self) -> impl Iterator<Item = (Shard, u64)> + use<'a, WORDS, I> {
        word_operations::iter(self)
    }

    /// Returns the sum of the words of all shards minus their initial values, wrapping. If the word was only added to,
    /// this is the total of the additions. Like [`iter`](CellWord::iter).
    ///
    /// ```
    /// use corelocal::percpu::Area;
    ///
    /// let area: Area<1> = Area::with_image([1000]);
    /// let cell = area.take()?;
    /// cell.at::<0>().add(3);
    /// assert_eq!(cell.at::<0>().added(), 3);
    /// # Ok::<(), corelocal::percpu::area::Error>(())
    /// ```
    pub fn added(self) -> u64 {
        let initial = self.initial();
        self.iter().fold(0, |sum, (_, word)| sum.wrapping_add(word.wrapping_sub(initial)))
    }
}

/// Access from other cores, for slots that can be frozen.
impl<const WORDS: usize, I: Revocable> CellWord<'_, WORDS, I> {
    /// Calls `f` on the word of this slot, which no thread uses meanwhile. Like
    /// [`Word::with_frozen`](crate::percpu::Word::with_frozen).
    ///
    /// # Errors
    /// As [`Word::with_frozen`](crate::percpu::Word::with_frozen).
    pub fn with_frozen<R>(self, slot: u32, f: impl FnOnce(&mut u64) -> R) -> Result<R, Busy> {
        word_operations::with_frozen(self, slot, f)
    }

    /// Takes the words of all shards, leaving the image's word, and calls `f` on each that was different. Like
    /// [`Word::drain`](crate::percpu::Word::drain).
    ///
    /// # Errors
    /// As [`Word::drain`](crate::percpu::Word::drain).
    pub fn drain(self, f: impl FnMut(Shard, u64)) -> Result<(), Busy> {
        word_operations::drain(self, f)
    }
}

impl<'a, const WORDS: usize, I: SlotIndex> EachWord<'a> for CellWord<'a, WORDS, I> {
    type Index = I;
    type Content = Words<WORDS>;

    #[inline(always)]
    fn initial(self) -> u64 {
        // SAFETY: the index is below `WORDS` (the module's invariant).
        unsafe { *self.cell.image().get_unchecked(self.index) }
    }

    #[inline(always)]
    fn owned(self) -> &'a Owned<Words<WORDS>, I> {
        self.cell.words()
    }

    #[inline(always)]
    fn word(self, content: &Words<WORDS>) -> &AtomicU64 {
        // SAFETY: the index is below `WORDS` (the module's invariant).
        unsafe { content.get_unchecked(self.index) }
    }

    #[inline(always)]
    fn inside(self) -> Option<&'a Words<WORDS>> {
        None
    }

    fn other(self, fallback: Fallback<Words<WORDS>>) -> (Shard, &'a AtomicU64) {
        let words = match fallback {
            Fallback::Shared(words) => words,
            // A cell has its block from the beginning, so this does not happen.
            Fallback::Unbound => self.cell.first_shared(),
        };
        (self.cell.words().part_at(words), self.word(words))
    }

    #[inline(always)]
    unsafe fn add_fetch(self, index: Index, slots: &Slots, n: u64) -> Yielded {
        // SAFETY: run on the cell's slots, which sections indexed by `I` use, and which contain the word (the
        // module's invariant).
        unsafe { rseq::add_fetch_at(index, slots, self.offset(), n) }
    }

    #[inline(always)]
    unsafe fn exchange(self, index: Index, slots: &Slots, n: u64) -> Yielded {
        // SAFETY: as in `add_fetch`.
        unsafe { rseq::exchange_at(index, slots, self.offset(), n) }
    }

    #[inline(always)]
    unsafe fn store_if_equal(self, index: Index, slots: &Slots, expected: u64, n: u64) -> Exit {
        // SAFETY: as in `add_fetch`.
        unsafe { rseq::store_if_equal_at(index, slots, self.offset(), expected, n) }
    }
}

/// The shards whose word differs from the image.
impl<const WORDS: usize, I: SlotIndex> fmt::Debug for CellWord<'_, WORDS, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let initial = self.initial();
        f.debug_map().entries(self.iter().filter(|(_, word)| *word != initial)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::percpu::Area;

    /// What threads without a slot do.
    #[test]
    fn shared_parts_do_the_same() {
        let area: Area<3> = Area::with_image([1, 2, 3]);
        let cell = area.take().unwrap();
        let word = cell.at::<2>();
        let shared = || Fallback::Shared(cell.words().share().expect("memory"));
        let (shard, distance) = word_operations::add_fetch_cold(word, 5, shared());
        assert!(matches!(shard, Shard::Shared(_)));
        assert_eq!(distance, 5);
        assert!(word.iter().any(|seen| seen == (shard, 8)));
        assert_eq!(word_operations::store_if_equal_cold(word, 4, 6, shared()), Err(Mismatch));
        assert_eq!(word_operations::store_if_equal_cold(word, 5, 6, shared()), Ok(shard));
        assert_eq!(word_operations::exchange_cold(word, 7, shared()), 6);
        assert!(cell.iter().any(|seen| seen == (shard, [1, 2, 10])));
        let mut taken = std::vec::Vec::new();
        cell.drain(|shard, words| taken.push((shard, words))).unwrap();
        assert_eq!(taken, [(shard, [1, 2, 10])]);
        word_operations::add_fetch_cold(word, 1, Fallback::Unbound);
        assert_eq!(word.added(), 1);
    }
}
