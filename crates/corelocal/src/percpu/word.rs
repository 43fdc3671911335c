//! A word for each core, with the operations that other structures are built of.
//!
//! # Data's way
//! Each operation is one section on the slot's word. Where sections are unavailable: one atomic operation
//! on a shared slot's word, or on `inside` where there is no memory for slots.
//!
//! # Invariants
//! 1. An operation acts on exactly one part's word, as one step with respect to all others on that part.
//! 2. Under a slot, words are changed by sections, and by whoever has the slot frozen.

use core::fmt;
use core::sync::atomic::fence;

use super::owned::{Fallback, Owned};
use super::part::Part;
use super::remote::{self, Walk};
use crate::cid::{Busy, Cid, SlotIndex};
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::rseq::{self, Slots, Yielded};

/// A `u64` for each core, 0 at first, changed in one step by any thread on its core.
///
/// It is what [`AtomicU64`] is, without its price: no locked instruction,
/// no shared line. An operation acts on the word of the core the thread runs on at that moment, so two in
/// a row may act on different words. What can be built on that:
///
/// | to build | with |
/// |---|---|
/// | numbers no other core gives | [`add_fetch_at`](Word::add_fetch_at): unique with its [`Part`] |
/// | one spare object kept for each core | [`exchange`](Word::exchange) of its address |
/// | a token bucket, flags, packed state | [`fetch_update`](Word::fetch_update) |
/// | a list pushed to here, taken whole from afar | [`store_if_equal`](Word::store_if_equal), [`drain`](Word::drain) |
///
/// Taking single items from a list this way is unsound: between the load of an item's successor and the
/// store, the item may have been taken and put back (the ABA problem).
///
/// ```
/// use corelocal::percpu::{Part, Word};
///
/// static LAST: Word = Word::new();
///
/// // Distinct, whichever threads ask on whichever cores.
/// let id: (Part, u64) = LAST.add_fetch_at(1);
/// assert_ne!(LAST.add_fetch_at(1), id);
/// ```
///
/// # Threads without critical sections
/// Use the word of a shared part, with atomic instructions; all operations do there what they do
/// elsewhere. None can fail for want of anything: without memory for slots all threads use one word inside
/// the object.
///
/// # Where it may be used
/// As [`Counter`](super::Counter): in any thread, in signal handlers, during thread exit, in the child
/// after `fork`. The exception for `vfork` is the same.
///
/// # Memory
/// 24 bytes, and 8 bytes on each core that used it.
///
/// # Memory ordering
/// Every operation that stores releases, and every one that loads acquires: what a thread did before it
/// stored a word happens before what a thread does that then loads it.
///
/// # Drop
/// Words are numbers; what they may stand for is the owner's to take back with [`drain`](Word::drain).
pub struct Word<I: SlotIndex = Cid> {
    words: Owned<AtomicU64, I>,
    inside: AtomicU64,
}

/// The word was another than expected. Nothing was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch;

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the core's word is another than expected")
    }
}

impl core::error::Error for Mismatch {}

impl<I: SlotIndex> Word<I> {
    /// Words of 0.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Word { words: Owned::new(), inside: AtomicU64::new(0) }
    }

    /// Words of 0.
    #[cfg(loom)]
    pub fn new() -> Self {
        Word { words: Owned::new(), inside: AtomicU64::new(0) }
    }

    /// Adds `n` to this core's word, wrapping, and returns the sum.
    ///
    /// Constant time, wait-free but for a capped number of retries. Async-signal-safe.
    #[inline]
    pub fn add_fetch(&self, n: u64) -> u64 {
        match self.add_fetch_section(n) {
            Ok((_, new)) => new,
            Err(fallback) => self.add_fetch_cold(n, fallback).1,
        }
    }

    /// As [`add_fetch`](Word::add_fetch), telling whose word it was.
    #[inline]
    pub fn add_fetch_at(&self, n: u64) -> (Part, u64) {
        match self.add_fetch_section(n) {
            Ok((exit, new)) => (self.words.part_at(exit.slot().cast()), new),
            Err(fallback) => self.add_fetch_cold(n, fallback),
        }
    }

    #[inline(always)]
    fn add_fetch_section(&self, n: u64) -> Result<Yielded, Fallback<AtomicU64>> {
        self.ordered(move |index, slots: &Slots| {
            // SAFETY: `run` gives slots of one word each, used by sections indexed by `I`.
            unsafe { rseq::add_fetch(index, slots, n) }
        })
    }

    #[cold]
    fn add_fetch_cold(&self, n: u64, fallback: Fallback<AtomicU64>) -> (Part, u64) {
        let (part, word) = self.other(fallback);
        // AcqRel: partners are all operations on this word, and `load`.
        (part, word.fetch_add(n, Ordering::AcqRel).wrapping_add(n))
    }

    /// Stores `n` to this core's word and returns what was there.
    ///
    /// Constant time, wait-free but for a capped number of retries. Async-signal-safe.
    ///
    /// ```
    /// use corelocal::percpu::Word;
    ///
    /// /// Keeps one buffer for each core.
    /// static SPARE: Word = Word::new();
    ///
    /// fn put(buffer: Box<[u8; 4096]>) {
    ///     drop_buffer(SPARE.exchange(Box::into_raw(buffer) as u64));
    /// }
    ///
    /// fn take() -> Box<[u8; 4096]> {
    ///     match SPARE.exchange(0) {
    ///         0 => Box::new([0; 4096]),
    ///         // SAFETY: made by `put`, taken once.
    ///         spare => unsafe { Box::from_raw(spare as *mut [u8; 4096]) },
    ///     }
    /// }
    ///
    /// fn drop_buffer(buffer: u64) {
    ///     if buffer != 0 {
    ///         // SAFETY: made by `put`, taken once.
    ///         drop(unsafe { Box::from_raw(buffer as *mut [u8; 4096]) });
    ///     }
    /// }
    ///
    /// put(take());
    /// SPARE.drain(|_, buffer| drop_buffer(buffer))?;
    /// # Ok::<(), corelocal::cid::Busy>(())
    /// ```
    #[inline]
    pub fn exchange(&self, n: u64) -> u64 {
        let section = move |index, slots: &Slots| {
            // SAFETY: `run` gives slots of one word each, used by sections indexed by `I`.
            unsafe { rseq::exchange(index, slots, n) }
        };
        match self.ordered(section) {
            Ok((_, old)) => old,
            Err(fallback) => self.exchange_cold(n, fallback),
        }
    }

    #[cold]
    fn exchange_cold(&self, n: u64, fallback: Fallback<AtomicU64>) -> u64 {
        // AcqRel: as in `add_fetch_cold`.
        self.other(fallback).1.swap(n, Ordering::AcqRel)
    }

    /// Stores `n` to this core's word if `expected` is there; tells whose word it was.
    ///
    /// Constant time, wait-free but for a capped number of retries. Async-signal-safe.
    ///
    /// # Errors
    /// [`Mismatch`]: something else is there. Often that is so because the thread is on another core than
    /// where it looked; see [`fetch_update`](Word::fetch_update) for the loop.
    #[inline]
    pub fn store_if_equal(&self, expected: u64, n: u64) -> Result<Part, Mismatch> {
        let section = move |index, slots: &Slots| {
            // SAFETY: `run` gives slots of one word each, used by sections indexed by `I`.
            unsafe { rseq::store_if_equal(index, slots, expected, n) }
        };
        match self.ordered(section) {
            Ok(exit) if exit.is_committed() => Ok(self.words.part_at(exit.slot().cast())),
            Ok(_) => Err(Mismatch),
            Err(fallback) => self.store_if_equal_cold(expected, n, fallback),
        }
    }

    #[cold]
    fn store_if_equal_cold(
        &self,
        expected: u64,
        n: u64,
        fallback: Fallback<AtomicU64>,
    ) -> Result<Part, Mismatch> {
        let (part, word) = self.other(fallback);
        // AcqRel, Acquire: as in `add_fetch_cold`.
        match word.compare_exchange(expected, n, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(part),
            Err(_) => Err(Mismatch),
        }
    }

    /// This core's word.
    ///
    /// A hint: the thread may be on another core by now, and the word changed. Async-signal-safe.
    #[inline]
    pub fn load(&self) -> u64 {
        // Acquire: partners are the Release of sections' stores (see `ordered`) and of atomics.
        self.words.near().unwrap_or(&self.inside).load(Ordering::Acquire)
    }

    /// Replaces this core's word by what `f` makes of it, unless that is `None`.
    ///
    /// `f` runs again as often as the word has changed, or the thread its core, before the store: it must
    /// depend on nothing but its argument. Then the outcome is that of one step. Lock-free.
    /// Async-signal-safe if `f` is.
    ///
    /// ```
    /// use corelocal::percpu::Word;
    ///
    /// static TOKENS: Word = Word::new();
    ///
    /// TOKENS.add_fetch(1);
    /// let spend = || TOKENS.fetch_update(|tokens| tokens.checked_sub(1)).is_ok();
    /// # if corelocal::cid::capacity() == 1 {
    /// assert!(spend());
    /// assert!(!spend());
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `f` wanted left as it is.
    pub fn fetch_update(&self, mut f: impl FnMut(u64) -> Option<u64>) -> Result<u64, u64> {
        loop {
            let old = self.load();
            let Some(new) = f(old) else { return Err(old) };
            if self.store_if_equal(old, new).is_ok() {
                return Ok(old);
            }
        }
    }

    /// The words of all parts that may have been used, with whose they are.
    ///
    /// A word that changes meanwhile is seen before or after the change. Words never used are 0. Linear in
    /// the slots in use, of which each costs a cache miss.
    ///
    /// ```
    /// use corelocal::percpu::Word;
    ///
    /// let given: Word = Word::new();
    /// given.add_fetch(3);
    /// assert_eq!(given.iter().map(|(_, word)| word).sum::<u64>(), 3);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (Part, u64)> {
        let mut walk = Walk::new();
        // Acquire: as in `load`.
        core::iter::from_fn(move || walk.next(&self.words, &self.inside))
            .map(|(part, word)| (part, word.load(Ordering::Acquire)))
    }

    /// Runs a section on this core's word, after what came before and before what comes after.
    #[inline(always)]
    fn ordered<E: rseq::Ended>(
        &self,
        section: impl Fn(rseq::Index, &Slots) -> E,
    ) -> Result<E, Fallback<AtomicU64>> {
        // Release, with the section's store: partner is the Acquire of whoever loads it; Acquire, with the
        // section's load: partner is the Release of whoever stored it. No instruction on x86-64.
        fence(Ordering::Release);
        let ended = self.words.run(section);
        fence(Ordering::Acquire);
        ended
    }

    /// The word that goes with a fallback.
    fn other(&self, fallback: Fallback<AtomicU64>) -> (Part, &AtomicU64) {
        match fallback {
            Fallback::Shared(word) => (self.words.part_at(word), word),
            Fallback::Unbound => (Part::Inline, &self.inside),
        }
    }
}

/// From afar: for the slots of [`Cid`], which can be frozen.
impl Word {
    /// Calls `f` on the word of a certain slot (see [`crate::cid`]), which no thread uses meanwhile.
    ///
    /// Takes the slot away from its id ([`crate::cid::freeze`]): nobody waits, its threads get another slot.
    /// One `membarrier(2)`, so a microsecond or a few, and what `f` takes. If `f` panics the word stays as
    /// it was. Not for signal handlers.
    ///
    /// ```
    /// use corelocal::cid::Busy;
    /// use corelocal::percpu::{Part, Word};
    ///
    /// let bits: Word = Word::new();
    /// if let (Part::Slot(slot), _) = bits.add_fetch_at(0b100) {
    ///     let old = bits.with_frozen(slot, |word| std::mem::replace(word, 1))?;
    ///     assert_eq!(old, 0b100);
    /// }
    /// # Ok::<(), Busy>(())
    /// ```
    ///
    /// # Errors
    /// [`Busy::NoSlot`]: no thread has used the object yet, or no id had that slot. [`Busy::Frozen`]:
    /// somebody keeps the slot frozen, for longer than 50 ms. [`Busy::Fence`]: the kernel refuses the
    /// barrier.
    pub fn with_frozen<R>(&self, slot: u32, f: impl FnOnce(&mut u64) -> R) -> Result<R, Busy> {
        let word = self.words.slot(slot).ok_or(Busy::NoSlot)?;
        let _frozen = remote::freeze(slot)?;
        // Relaxed, both: the freeze orders them after the sections before, and before those to come.
        let mut value = word.load(Ordering::Relaxed);
        let result = f(&mut value);
        word.store(value, Ordering::Relaxed);
        Ok(result)
    }

    /// Takes the words of all parts, leaving 0, and calls `f` on each that was not 0.
    ///
    /// Whatever is stored meanwhile is either taken or stays: nothing is lost or seen twice. Linear in the
    /// slots in use; one `membarrier(2)` for each whose word is not 0. Not for signal handlers.
    ///
    /// # Errors
    /// Why the first slot that could not be frozen could not: see [`with_frozen`](Word::with_frozen). All
    /// others have been taken.
    pub fn drain(&self, mut f: impl FnMut(Part, u64)) -> Result<(), Busy> {
        // Relaxed: whoever sees 0 takes nothing.
        let idle = |word: &AtomicU64| word.load(Ordering::Relaxed) == 0;
        let take = |word: &AtomicU64| {
            // Relaxed, both: as in `with_frozen`.
            let value = word.load(Ordering::Relaxed);
            word.store(0, Ordering::Relaxed);
            value
        };
        let result = remote::take_from_each(&self.words, idle, take, |part, value| {
            if value != 0 {
                f(part, value);
            }
        });
        let shared =
            (0..).map(Part::Shared).zip(self.words.shared().map(|word| word as &AtomicU64));
        for (part, word) in shared.chain([(Part::Inline, &self.inside)]) {
            // AcqRel: as in `add_fetch_cold`.
            match word.swap(0, Ordering::AcqRel) {
                0 => {}
                value => f(part, value),
            }
        }
        result
    }
}

impl<I: SlotIndex> Default for Word<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: SlotIndex> fmt::Debug for Word<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().filter(|(_, word)| *word != 0)).finish()
    }
}

#[cfg(test)]
#[path = "word_tests.rs"]
mod tests;
