//! The fast and slow paths of each stack operation.
//!
//! The fast path is one critical section and one compare. The rest is a function of its own, out of line, which gets
//! operands and results in registers: shared with the fast path they would live in memory. A section that did not
//! commit has no result, so the slow path continues from its exit alone.

use core::mem::MaybeUninit;

use super::Stack;
use super::batch::Batch;
use super::slot::Slot;
use crate::cid::SlotIndex;
use crate::percpu::machinery::item_words::Words;
use crate::percpu::machinery::lazy_block::Fallback;
use crate::rseq::{self, Ended, Exit, Index, Popped, Slots, Yielded};

/// Returns the number of words of this many items.
#[inline(always)]
fn words_of<T>(items: usize) -> u64 {
    (items * Words::<T>::COUNT) as u64
}

/// Returns the number of items in this many words.
#[inline(always)]
fn items_of<T>(words: u64) -> usize {
    words as usize / Words::<T>::COUNT
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> Stack<T, CAPACITY, I> {
    /// Continues after `run_once` did not commit.
    #[inline(always)]
    fn settle<E: Ended>(
        &self,
        first: E,
        section: impl Fn(Index, &Slots) -> E,
    ) -> Result<E, Fallback<Slot<T, CAPACITY>>> {
        if first.is_done() { Ok(first) } else { self.slots.run_cold(first, section) }
    }

    /// Pushes an item of one word, in a register.
    #[inline(always)]
    pub(super) fn push_word(&self, item: T) -> Result<(), T> {
        let word = Words::new(item).first();
        let ended = self.slots.run_once(push_word::<T, CAPACITY>(word));
        if ended.is_straight() { Ok(()) } else { self.push_word_cold(ended, word) }
    }

    #[cold]
    #[inline(never)]
    fn push_word_cold(&self, first: Exit, word: MaybeUninit<u64>) -> Result<(), T> {
        let rest = match self.settle(first, push_word::<T, CAPACITY>(word)) {
            Ok(ended) if ended.is_committed() => return Ok(()),
            Ok(_) => Words::from_first(word),
            Err(fallback) => match push_shared(fallback, Words::from_first(word)) {
                Ok(()) => return Ok(()),
                Err(rest) => rest,
            },
        };
        // SAFETY: made of the item, which is still there.
        Err(unsafe { rest.into_item() })
    }

    #[inline(always)]
    pub(super) fn pop_word(&self) -> Option<T> {
        let (exit, word) = self.slots.run_once(pop_word);
        if exit.is_straight() {
            // SAFETY: by the slot's invariant 1 it is an item, and the section popped it once.
            return Some(unsafe { Words::from_first(word).into_item() });
        }
        self.pop_word_cold(exit)
    }

    #[cold]
    #[inline(never)]
    fn pop_word_cold(&self, first: Exit) -> Option<T> {
        match self.settle((first, MaybeUninit::uninit()), pop_word) {
            Ok((exit, word)) if exit.is_committed() => {
                // SAFETY: as in `pop_word`.
                Some(unsafe { Words::from_first(word).into_item() })
            }
            Ok(_) => self.pop_shared(None),
            Err(Fallback::Shared(slot)) => self.pop_shared(Some(slot)),
            Err(Fallback::Unbound) => None,
        }
    }

    /// Pushes an item of several words, through the caller's stack frame.
    #[inline(always)]
    pub(super) fn push_words(&self, item: T) -> Result<(), T> {
        let words = Words::new(item);
        let section = push_some::<T, CAPACITY>((&raw const words).cast(), words_of::<T>(1));
        let (exit, _) = self.slots.run_once(section);
        if exit.is_straight() {
            return Ok(());
        }
        let rest = match self.settle((exit, 0), section) {
            Ok((exit, _)) if exit.is_committed() => return Ok(()),
            Ok(_) => words,
            Err(fallback) => match push_shared(fallback, words) {
                Ok(()) => return Ok(()),
                Err(rest) => rest,
            },
        };
        // SAFETY: made of the item, which is still there.
        Err(unsafe { rest.into_item() })
    }

    #[inline(always)]
    pub(super) fn pop_words(&self) -> Option<T> {
        let mut words = Words::uninit();
        let section = pop_some((&raw mut words).cast(), words_of::<T>(1));
        let (exit, _) = self.slots.run_once(section);
        if !exit.is_straight() {
            match self.settle((exit, 0), section) {
                Ok((exit, _)) if exit.is_committed() => {}
                Ok(_) => return self.pop_shared(None),
                Err(Fallback::Shared(slot)) => return self.pop_shared(Some(slot)),
                Err(Fallback::Unbound) => return None,
            }
        }
        // SAFETY: by the slot's invariant 1 the section wrote one whole item, popped once.
        Some(unsafe { words.into_item() })
    }

    #[inline(always)]
    pub(super) fn push_batch<const N: usize>(&self, batch: &mut Batch<T, N>) -> usize {
        let section = push_some::<T, CAPACITY>(batch.items(), words_of::<T>(batch.len()));
        let (exit, n) = self.slots.run_once(section);
        if exit.is_straight() {
            // SAFETY: the section moved the first ones.
            return unsafe { batch.moved(items_of::<T>(n)) };
        }
        match self.settle((exit, 0), section) {
            // SAFETY: the section moved the first `n` words.
            Ok((exit, n)) if exit.is_committed() => unsafe { batch.moved(items_of::<T>(n)) },
            Ok(_) | Err(Fallback::Unbound) => 0,
            Err(Fallback::Shared(slot)) => push_batch_shared(slot, batch),
        }
    }

    /// `most` is at most the batch's free room.
    #[inline(always)]
    pub(super) fn pop_batch<const N: usize>(&self, most: usize, batch: &mut Batch<T, N>) -> usize {
        let section = pop_some(batch.spare(), words_of::<T>(most));
        let (exit, n) = self.slots.run_once(section);
        if exit.is_straight() {
            // SAFETY: the section wrote this many items, at most as many as fit.
            return unsafe { batch.added(items_of::<T>(n)) };
        }
        match self.settle((exit, 0), section) {
            // SAFETY: the section wrote this many items, at most as many as fit.
            Ok((exit, n)) if exit.is_committed() => unsafe { batch.added(items_of::<T>(n)) },
            Ok(_) => self.pop_batch_shared(None, most, batch),
            Err(Fallback::Shared(slot)) => self.pop_batch_shared(Some(slot), most, batch),
            Err(Fallback::Unbound) => 0,
        }
    }

    /// Takes the top item of this shared slot, or of any shared slot.
    #[cold]
    pub(super) fn pop_shared(&self, first: Option<&'static Slot<T, CAPACITY>>) -> Option<T> {
        let words = first.into_iter().chain(self.slots.shared()).find_map(Slot::pop_shared)?;
        // SAFETY: it was pushed.
        Some(unsafe { words.into_item() })
    }

    #[cold]
    pub(super) fn pop_batch_shared<const N: usize>(
        &self,
        first: Option<&'static Slot<T, CAPACITY>>,
        most: usize,
        batch: &mut Batch<T, N>,
    ) -> usize {
        let before = batch.len();
        for _ in 0..most {
            let Some(item) = self.pop_shared(first) else { break };
            // There is room for `most`.
            let _ = batch.push(item);
        }
        batch.reverse_from(before);
        batch.len() - before
    }
}

#[cold]
pub(super) fn push_shared<T: Send + 'static, const CAPACITY: usize>(
    fallback: Fallback<Slot<T, CAPACITY>>,
    item: Words<T>,
) -> Result<(), Words<T>> {
    match fallback {
        Fallback::Shared(slot) => slot.push_shared(item),
        Fallback::Unbound => Err(item),
    }
}

#[cold]
pub(super) fn push_batch_shared<T: Send + 'static, const CAPACITY: usize, const N: usize>(
    slot: &Slot<T, CAPACITY>,
    batch: &mut Batch<T, N>,
) -> usize {
    let before = batch.len();
    batch.reverse_from(0);
    while let Some(words) = batch.pop_words() {
        if let Err(words) = slot.push_shared(words) {
            batch.push_words(words);
            break;
        }
    }
    batch.reverse_from(0);
    before - batch.len()
}

/// Returns the critical section `push` of a one-word item.
#[inline(always)]
fn push_word<T: Send + 'static, const CAPACITY: usize>(
    word: MaybeUninit<u64>,
) -> impl Fn(Index, &Slots) -> Exit + Copy {
    move |index, slots| {
        // SAFETY: `Owned` gives slots of one kind of id, which hold `WORDS` words behind their count.
        unsafe { rseq::push(index, slots, word, Slot::<T, CAPACITY>::WORDS) }
    }
}

/// Runs the critical section `pop`.
#[inline(always)]
fn pop_word(index: Index, slots: &Slots) -> Popped {
    // SAFETY: as in `push_word`.
    unsafe { rseq::pop(index, slots) }
}

/// Returns the critical section `push_some` of the items at `from`.
#[inline(always)]
fn push_some<T: Send + 'static, const CAPACITY: usize>(
    from: *const MaybeUninit<u64>,
    most: u64,
) -> impl Fn(Index, &Slots) -> Yielded + Copy {
    move |index, slots| {
        // SAFETY: as in `push_word`; the caller's items are at `from`.
        unsafe { rseq::push_some(index, slots, from, most, Slot::<T, CAPACITY>::WORDS) }
    }
}

/// Returns the critical section `pop_some` to `to`.
#[inline(always)]
fn pop_some(to: *mut MaybeUninit<u64>, most: u64) -> impl Fn(Index, &Slots) -> Yielded + Copy {
    move |index, slots| {
        // SAFETY: as in `push_word`; the caller has room for `most` words at `to`.
        unsafe { rseq::pop_some(index, slots, to, most) }
    }
}
