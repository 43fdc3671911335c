//! Sums that every core adds to. Counters, gauges and histograms consist of them.
//!
//! # Data flow
//! `add` → critical section `add`, `increment` or `add_at` on the slot's word: no system call, no locked instruction,
//! no line that another core writes. Where critical sections are unavailable: one atomic add on a shared slot's word.
//! Without memory for slots: one atomic add on the sum's bias. Readers add up all three.
//!
//! # Invariants
//! 1. A sum's value is its bias plus its words in all slots, modulo 2^64. Every operation changes exactly one of
//!    these, once. A trim subtracts from one what it then adds to another.
//! 2. An exchange moves value from words to its caller by a compare-exchange of the bias alone. So the results of all
//!    exchanges, minus the values they put in, plus the current value equal the total of all additions.
//! 3. A reader never counts a value twice: it reads the shared slots, where trims move words to, before the slots,
//!    where they come from. During a move it reads again.
//!
//! If no negative value is added, a bias is minus an earlier total of the words. A thread that sees the bias sees
//! words with at least that total, unless a trim is moving them. So apart from trims the value it reads is at least
//! 0.

use core::array;

use super::blocking::Patience;
use super::in_transit::{self, Moment};
use super::lazy_block::{Fallback, Owned};
use super::slot::Zeroed;
use crate::cid::SlotIndex;
use crate::primitive::atomic::{AtomicI64, Ordering};
use crate::rseq::{self, Ended, Exit, Index, Slots};

/// The number of words in a cache line. Readers of many sums should read this many together.
pub(in crate::percpu) const LINE: usize = 8;

/// A core's shard of some sums, one word for each. (Public because sealed traits need it.)
///
/// # Safety
/// - `Self` is an array of such words, and `words` returns all of it.
#[doc(hidden)]
pub unsafe trait Words: Zeroed + Send {
    /// All zero.
    #[cfg(not(loom))]
    const ZERO: Self;

    fn words(&self) -> &[AtomicI64];
}

// SAFETY: it is an array of such words, all of which `words` returns.
unsafe impl<const N: usize> Words for [AtomicI64; N] {
    #[cfg(not(loom))]
    const ZERO: Self = [const { AtomicI64::new(0) }; N];

    fn words(&self) -> &[AtomicI64] {
        self
    }
}

/// Sums that every core adds to. The slots come first, for inline sections of C programs.
#[repr(C)]
pub(in crate::percpu) struct Sums<W: Words, I: SlotIndex> {
    slots: Owned<W, I>,
    bias: W,
}

/// One sum.
pub(in crate::percpu) type Sum<I> = Sums<[AtomicI64; 1], I>;

impl<W: Words, I: SlotIndex> Sums<W, I> {
    #[cfg(not(loom))]
    pub(in crate::percpu) const fn new() -> Self {
        Sums { slots: Owned::new(), bias: W::ZERO }
    }

    #[cfg(loom)]
    pub(in crate::percpu) fn new() -> Self {
        Sums { slots: Owned::new(), bias: W::zeroed() }
    }

    /// See [`Owned::base`].
    #[cfg(not(any(loom, miri)))]
    pub(in crate::percpu) fn base(&self) -> *const u8 {
        self.slots.base()
    }

    /// Returns the number of sums.
    pub(in crate::percpu) fn len(&self) -> usize {
        self.bias.words().len()
    }

    /// Adds `n` to the sum at `index`, wrapping.
    ///
    /// # Safety
    /// - `index` is below `len`.
    #[inline(always)]
    pub(in crate::percpu) unsafe fn add_at(&self, index: usize, n: i64) {
        // SAFETY: the slots of `self.slots`; the caller guarantees that `index` is below their number.
        let first = self.slots.run_once(unsafe { section_at(index, n) });
        if !first.is_done() {
            // SAFETY: the caller guarantees that `index` is below `len`.
            unsafe { self.add_at_cold(index, n, first) };
        }
    }

    /// The slow path of `add_at`, whose operands stay in registers until it is called.
    ///
    /// # Safety
    /// - `index` is below `len`.
    #[cold]
    #[inline(never)]
    unsafe fn add_at_cold(&self, index: usize, n: i64, first: Exit) {
        // SAFETY: the slots of `self.slots`; the caller guarantees that `index` is below their number.
        if let Err(fallback) = self.slots.run_cold(first, unsafe { section_at(index, n) }) {
            self.fall_back(index, n, fallback);
        }
    }

    fn fall_back(&self, index: usize, n: i64, fallback: Fallback<W>) {
        let words = match fallback {
            Fallback::Shared(shared) => shared.words(),
            Fallback::Unbound => self.bias.words(),
        };
        if let Some(word) = words.get(index) {
            word.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Returns the value of the sum at `index`. 0 if there is no such sum.
    pub(in crate::percpu) fn get(&self, index: usize) -> i64 {
        let [value] = self.read(index);
        value
    }

    /// Returns the values of `K` sums from `first` on. 0 for sums that do not exist.
    ///
    /// Each includes the additions that happen before the call.
    pub(in crate::percpu) fn read<const K: usize>(&self, first: usize) -> [i64; K] {
        // If an exchange comes in between, words and bias do not match. Then read again, a bounded number of times,
        // and accept the last result.
        let mut bias: [i64; K] = self.biases(first);
        let mut total: [i64; K] = self.totals(first);
        for _ in 0..rseq::MAX_ATTEMPTS {
            let again = self.biases(first);
            if again == bias {
                break;
            }
            bias = again;
            total = self.totals(first);
        }
        array::from_fn(|k| total[k].wrapping_add(bias[k]))
    }

    /// Sets the value of the sum at `index`, and returns the old one.
    ///
    /// A concurrent addition is either part of the result or added to the new value. Lock-free.
    pub(in crate::percpu) fn exchange(&self, index: usize, value: i64) -> i64 {
        let [old] = self.exchange_if(index, value, |_| true);
        old
    }

    /// Takes the values of `K` sums from `first` on, each on its own, leaving 0. Sums that are not `wanted` stay, and
    /// their result is 0.
    pub(in crate::percpu) fn take<const K: usize>(
        &self,
        first: usize,
        wanted: impl Fn(i64) -> bool,
    ) -> [i64; K] {
        self.exchange_if(first, 0, wanted)
    }

    fn exchange_if<const K: usize>(
        &self,
        first: usize,
        value: i64,
        wanted: impl Fn(i64) -> bool,
    ) -> [i64; K] {
        let bias: [i64; K] = self.biases(first);
        let total: [i64; K] = self.totals(first);
        array::from_fn(|k| {
            let (mut bias, mut total) = (bias[k], total[k]);
            loop {
                let old = total.wrapping_add(bias);
                if !wanted(old) {
                    return 0;
                }
                if self.replace_bias(first + k, bias, value.wrapping_sub(total)) {
                    return old;
                }
                // There was another exchange in between.
                [bias] = self.biases(first + k);
                [total] = self.totals(first + k);
            }
        })
    }

    fn replace_bias(&self, index: usize, old: i64, new: i64) -> bool {
        let Some(bias) = self.bias.words().get(index) else { return true };
        // Release: partner is the Acquire in `biases`. A thread that sees this bias adds up words that are at least
        // as new as those read here.
        bias.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Returns the biases of `K` sums.
    fn biases<const K: usize>(&self, first: usize) -> [i64; K] {
        // Acquire: partner is the Release in `replace_bias`. Additions to a bias are read-modify-writes, and so part
        // of its release sequence.
        let word = |k: usize| self.bias.words().get(first + k);
        array::from_fn(|k| word(k).map_or(0, |word| word.load(Ordering::Acquire)))
    }

    /// Returns the totals of the words in all slots, for `K` sums.
    fn totals<const K: usize>(&self, first: usize) -> [i64; K] {
        let before = Moment::now();
        let totals = self.add_up(first);
        if before.is_still() && Moment::now() == before {
            return totals;
        }
        self.totals_in_peace(first)
    }

    /// `totals` without a concurrent move: between two moves, or after a trim.
    #[cold]
    #[inline(never)]
    fn totals_in_peace<const K: usize>(&self, first: usize) -> [i64; K] {
        let (mut attempts, mut patience) = (rseq::MAX_ATTEMPTS, Patience::new());
        loop {
            let before = Moment::now();
            let totals = self.add_up(first);
            if before.is_still() && Moment::now() == before {
                return totals;
            }
            attempts = attempts.saturating_sub(1);
            // A signal handler does not wait for the move that it interrupted, and no thread waits for ever.
            if in_transit::is_here() || attempts == 0 && !patience.nap() {
                return totals;
            }
        }
    }

    /// Slot by slot, since the same line of successive slots falls into the same set of a cache.
    fn add_up<const K: usize>(&self, first: usize) -> [i64; K] {
        let mut totals = [0i64; K];
        // The order: invariant 3.
        for shard in self.slots.shared().chain(self.slots.slots()) {
            for (total, word) in totals.iter_mut().zip(shard.words().iter().skip(first)) {
                // Acquire: partner is the Release of a trim. A thread that sees a moved word sees the slot that it
                // came from without it, and another moment.
                *total = total.wrapping_add(word.load(Ordering::Acquire));
            }
        }
        totals
    }
}

/// Returns the critical section `add_at` on the word of the sum at `index`.
///
/// # Safety
/// - It is run by an `Owned` with more than `index` words.
#[inline(always)]
unsafe fn section_at(index: usize, n: i64) -> impl Fn(Index, &Slots) -> Exit {
    // SAFETY: `Owned` gives its slots, used by sections of one kind of id; the caller guarantees that `index` is in
    // range.
    move |ids, slots| unsafe { rseq::add_at(ids, slots, index * size_of::<AtomicI64>(), n) }
}

/// Returns the critical section `add` on the word of the first sum.
///
/// # Safety
/// - It is run by an `Owned` with at least one word.
#[inline(always)]
unsafe fn section(n: i64) -> impl Fn(Index, &Slots) -> Exit {
    // SAFETY: as in `section_at`.
    move |ids, slots| unsafe { rseq::add(ids, slots, n) }
}

impl<I: SlotIndex> Sum<I> {
    /// Adds `n`, wrapping.
    #[inline(always)]
    pub(in crate::percpu) fn add(&self, n: i64) {
        // SAFETY: the slots of `self.slots`, which hold one word each.
        let first = self.slots.run_once(unsafe { section(n) });
        if !first.is_done() {
            self.add_cold(n, first);
        }
    }

    /// Does what `add(1)` does, by a section that has the 1 in an instruction.
    #[inline(always)]
    pub(in crate::percpu) fn increment(&self) {
        // SAFETY: the slots of `self.slots`, which hold one word each, used by sections of one kind of id.
        let first = self.slots.run_once(|ids, slots| unsafe { rseq::increment(ids, slots) });
        if !first.is_done() {
            self.add_cold(1, first);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_cold(&self, n: i64, first: Exit) {
        // SAFETY: the slots of `self.slots`, which hold one word each.
        if let Err(fallback) = self.slots.run_cold(first, unsafe { section(n) }) {
            self.fall_back(0, n, fallback);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cid::Cid;

    /// What an unregistered thread does, next to registered ones.
    #[test]
    fn shared_slots_count() {
        let sum: Sum<Cid> = Sum::new();
        sum.add(2);
        let words = sum.slots.share().expect("memory");
        sum.fall_back(0, 40, Fallback::Shared(words));
        assert_eq!(sum.get(0), 42);
        assert_eq!((sum.exchange(0, 7), sum.get(0)), (42, 7));
    }

    /// What a sum without memory does.
    #[test]
    fn the_bias_counts() {
        let sum: Sum<Cid> = Sum::new();
        sum.fall_back(0, 40, Fallback::Unbound);
        sum.add(2);
        assert_eq!(sum.exchange(0, 0), 42);
        assert_eq!(sum.get(0), 0);
    }

    #[test]
    fn sums_do_not_touch_each_other() {
        let sums: Sums<[AtomicI64; 11], Cid> = Sums::new();
        for index in 0..11 {
            // SAFETY: below 11.
            unsafe { sums.add_at(index, 1 << index) };
        }
        let words = sums.slots.share().expect("memory");
        sums.fall_back(3, 1000, Fallback::Shared(words));
        sums.fall_back(4, 1000, Fallback::Unbound);
        assert_eq!(sums.read(0), [1, 2, 4, 1008, 1016]);
        // There are no sums past the end.
        assert_eq!(sums.read(9), [512, 1024, 0]);
        assert_eq!(sums.take::<LINE>(8, |_| true), [256, 512, 1024, 0, 0, 0, 0, 0]);
        assert_eq!(sums.take::<LINE>(0, |value| value != 2), [1, 0, 4, 1008, 1016, 32, 64, 128]);
        assert_eq!(sums.read::<11>(0), [0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        sums.fall_back(11, 1, Fallback::Unbound);
        assert_eq!((sums.exchange(11, 5), sums.get(11)), (0, 0));
    }
}

#[cfg(all(test, loom))]
mod loom;
