//! A word for each core, from which other structures are built.
//!
//! # Data flow
//! The operations are those of every per-core word (`machinery/word_operations.rs`): a critical section on the slot's
//! word, or an atomic operation on a shared slot's word, or on `inside` if there is no memory for slots.

use core::fmt;

use super::machinery::lazy_block::{Fallback, Owned};
use super::machinery::word_operations::{self, EachWord, Mismatch};
use super::shard::Shard;
use crate::cid::{Busy, Cid, Revocable, SlotIndex};
use crate::primitive::atomic::AtomicU64;
use crate::rseq::{self, Exit, Index, Slots, Yielded};

/// A `u64` for each core, initially 0, which any thread changes atomically on its core.
///
/// It has the operations of an [`AtomicU64`] without locked instructions and shared cache lines. An operation acts on
/// the word of the core that the thread runs on at that moment, so two operations in a row may act on different
/// words. It can implement:
///
/// | to build | with |
/// |---|---|
/// | numbers that are unique in the process | [`add_fetch_at`](Word::add_fetch_at): unique with its [`Shard`] |
/// | one spare object kept for each core | [`exchange`](Word::exchange) of its address |
/// | a token bucket, flags, packed state | [`fetch_update`](Word::fetch_update) |
/// | a list pushed to by its core, and taken whole by others | [`store_if_equal`](Word::store_if_equal), [`drain`](Word::drain) |
///
/// Taking single items from a list this way is unsound: between the load of an item's successor and the store, the
/// item may have been taken and put back (the ABA problem).
///
/// ```
/// use corelocal::percpu::{Shard, Word};
///
/// static LAST: Word = Word::new();
///
/// // Distinct, whichever threads ask on whichever cores.
/// let id: (Shard, u64) = LAST.add_fetch_at(1);
/// assert_ne!(LAST.add_fetch_at(1), id);
/// ```
///
/// # Threads without critical sections
/// They use the word of a shared shard, with atomic instructions. All operations work the same way there. They never
/// fail for lack of resources: without memory for slots all threads use one word inside the object.
///
/// # Where it may be used
/// Like [`Counter`](super::Counter): in any thread, in signal handlers, during thread exit, and in the child after
/// `fork`. The exception for `vfork` is the same.
///
/// # Memory
/// 24 bytes, and 8 bytes on each core that used it.
///
/// # Memory ordering
/// Every operation that stores releases, and every one that loads acquires: what a thread did before it stored a word
/// happens before what another thread does after it loaded that word.
///
/// # Drop
/// Words are plain numbers. An owner that stores addresses in them must free them with [`drain`](Word::drain).
pub struct Word<I: SlotIndex = Cid> {
    words: Owned<AtomicU64, I>,
    inside: AtomicU64,
}

impl<I: SlotIndex> Word<I> {
    const_fn! {
        /// Creates words of 0.
        pub const fn new() -> Self {
            Word { words: Owned::new(), inside: AtomicU64::new(0) }
        }
    }

    /// Adds `n` to this core's word, wrapping, and returns the sum.
    ///
    /// Constant time; wait-free, with a bounded number of retries. Async-signal-safe.
    #[inline]
    pub fn add_fetch(&self, n: u64) -> u64 {
        word_operations::add_fetch(self, n)
    }

    /// Does what [`add_fetch`](Word::add_fetch) does. Also returns the shard of the word.
    #[inline]
    pub fn add_fetch_at(&self, n: u64) -> (Shard, u64) {
        word_operations::add_fetch_at(self, n)
    }

    /// Stores `n` in this core's word and returns the old value.
    ///
    /// Constant time; wait-free, with a bounded number of retries. Async-signal-safe.
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
        word_operations::exchange(self, n)
    }

    /// Stores `n` in this core's word if it equals `expected`. Returns the shard of the word.
    ///
    /// Constant time; wait-free, with a bounded number of retries. Async-signal-safe.
    ///
    /// # Errors
    /// [`Mismatch`]: the word is different. Often the thread has moved to another core since it read `expected`. For
    /// the loop see [`fetch_update`](Word::fetch_update).
    #[inline]
    pub fn store_if_equal(&self, expected: u64, n: u64) -> Result<Shard, Mismatch> {
        word_operations::store_if_equal(self, expected, n)
    }

    /// Returns this core's word.
    ///
    /// It is a hint: the thread may be on another core by now, and the word may have changed. Async-signal-safe.
    #[inline]
    pub fn load(&self) -> u64 {
        word_operations::load(self)
    }

    /// Replaces this core's word by `f` of it, unless that is `None`.
    ///
    /// `f` runs again whenever the word has changed, or the thread has moved to another core, before the store. So
    /// its result must depend on its argument only. Then the operation is atomic.
    ///
    /// The number of attempts is bounded. If the kernel aborts all of them, as under a debugger that single-steps, or
    /// the word changes before each, the operation acts on the word of a shared shard. There it is lock-free.
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
    /// The current word, if `f` returned `None`.
    pub fn fetch_update(&self, f: impl FnMut(u64) -> Option<u64>) -> Result<u64, u64> {
        word_operations::fetch_update(self, f)
    }

    /// Returns the words of all shards that may have been used, with their shards.
    ///
    /// A word that changes meanwhile is seen before or after the change. Words never used are 0. Linear in the slots
    /// in use, each of which costs a cache miss.
    ///
    /// ```
    /// use corelocal::percpu::Word;
    ///
    /// let given: Word = Word::new();
    /// given.add_fetch(3);
    /// assert_eq!(given.iter().map(|(_, word)| word).sum::<u64>(), 3);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (Shard, u64)> {
        word_operations::iter(self)
    }
}

/// Access from other cores, for slots that can be frozen.
impl<I: Revocable> Word<I> {
    /// Calls `f` on the word of this slot (see [`crate::cid`]). No thread uses the word meanwhile.
    ///
    /// The slot is taken away from its id ([`crate::cid::freeze`]); the threads of that id get another slot and do
    /// not wait. It costs one `membarrier(2)`, of one or a few microseconds, and the time of `f`. If `f` panics the
    /// word stays as it was. Not for signal handlers.
    ///
    /// ```
    /// use corelocal::cid::Busy;
    /// use corelocal::percpu::{Shard, Word};
    ///
    /// let bits: Word = Word::new();
    /// if let (Shard::Slot(slot), _) = bits.add_fetch_at(0b100) {
    ///     let old = bits.with_frozen(slot, |word| std::mem::replace(word, 1))?;
    ///     assert_eq!(old, 0b100);
    /// }
    /// # Ok::<(), Busy>(())
    /// ```
    ///
    /// # Errors
    /// - [`Busy::NoSlot`]: no thread has used the object yet, or no id has had that slot.
    /// - [`Busy::Frozen`]: another thread has kept the slot frozen for longer than a second.
    /// - [`Busy::Fence`]: the kernel refuses the barrier.
    pub fn with_frozen<R>(&self, slot: u32, f: impl FnOnce(&mut u64) -> R) -> Result<R, Busy> {
        word_operations::with_frozen(self, slot, f)
    }

    /// Takes the words of all shards, leaving 0, and calls `f` on each that was not 0.
    ///
    /// A value that is stored meanwhile is either taken or stays: none is lost or seen twice. Linear in the slots in
    /// use; one `membarrier(2)` for each whose word is not 0. Not for signal handlers.
    ///
    /// # Errors
    /// The reason why the first slot could not be frozen: see [`with_frozen`](Word::with_frozen). All others have
    /// been taken.
    pub fn drain(&self, f: impl FnMut(Shard, u64)) -> Result<(), Busy> {
        word_operations::drain(self, f)
    }
}

impl<'a, I: SlotIndex> EachWord<'a> for &'a Word<I> {
    type Index = I;
    type Content = AtomicU64;

    #[inline(always)]
    fn initial(self) -> u64 {
        0
    }

    #[inline(always)]
    fn owned(self) -> &'a Owned<AtomicU64, I> {
        &self.words
    }

    #[inline(always)]
    fn word(self, content: &AtomicU64) -> &AtomicU64 {
        content
    }

    #[inline(always)]
    fn inside(self) -> Option<&'a AtomicU64> {
        Some(&self.inside)
    }

    fn other(self, fallback: Fallback<AtomicU64>) -> (Shard, &'a AtomicU64) {
        match fallback {
            Fallback::Shared(word) => (self.words.part_at(word), word),
            Fallback::Unbound => (Shard::Inline, &self.inside),
        }
    }

    #[inline(always)]
    unsafe fn add_fetch(self, index: Index, slots: &Slots, n: u64) -> Yielded {
        // SAFETY: run by `words`, whose slots hold one word each, used by sections indexed by `I`.
        unsafe { rseq::add_fetch(index, slots, n) }
    }

    #[inline(always)]
    unsafe fn exchange(self, index: Index, slots: &Slots, n: u64) -> Yielded {
        // SAFETY: as in `add_fetch`.
        unsafe { rseq::exchange(index, slots, n) }
    }

    #[inline(always)]
    unsafe fn store_if_equal(self, index: Index, slots: &Slots, expected: u64, n: u64) -> Exit {
        // SAFETY: as in `add_fetch`.
        unsafe { rseq::store_if_equal(index, slots, expected, n) }
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
mod tests;
