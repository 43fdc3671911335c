//! Many counters in one: sums (`machinery/sums.rs`) whose words lie side by side on each core.

use core::{array, fmt};

use super::machinery::sums::{LINE, Sums};
use crate::cid::{Cid, SlotIndex};
use crate::primitive::atomic::AtomicI64;

/// `N` counters that belong together, for example one for each kind of request, status or error.
///
/// Each of them is as cheap as a [`Counter`](super::Counter), apart from one compare for the index. On each core they
/// lie next to each other: eight in a cache line, on lines that no other core writes. A request that adds to several
/// of them touches one or two lines. As many `Counter`s made at different times would lie on different lines.
///
/// ```
/// use corelocal::percpu::CounterVec;
///
/// static BY_STATUS: CounterVec<600> = CounterVec::new();
///
/// BY_STATUS.add(200, 1)?;
/// BY_STATUS.add(404, 2)?;
/// assert_eq!(BY_STATUS.get(404)?, 2);
/// assert_eq!(BY_STATUS.sum(), 3);
/// assert!(BY_STATUS.add(600, 1).is_err());
/// # Ok::<(), corelocal::percpu::OutOfRange>(())
/// ```
///
/// The caller chooses the index, so every use of it may fail: with [`OutOfRange`], never with a panic.
///
/// # Where it may be used, memory ordering, vfork
/// Like [`Counter`](super::Counter).
///
/// # Memory
/// 16 + 8 `N` bytes, and on each core that used it 8 `N` bytes rounded up to a power of two. There the maximum is 1
/// MiB, so `N` is at most 131072 (more does not compile). Of many counters only the pages (512 counters) that a core
/// has touched are resident.
#[repr(C)]
pub struct CounterVec<const N: usize, I: SlotIndex = Cid> {
    sums: Sums<[AtomicI64; N], I>,
}

/// The index is not below the number of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// The index.
    pub index: usize,
    /// The number of counters.
    pub len: usize,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "there is no counter {}: they are numbered from 0 to below {}",
            self.index, self.len
        )
    }
}

impl core::error::Error for OutOfRange {}

impl<const N: usize, I: SlotIndex> CounterVec<N, I> {
    const_fn! {
        /// Creates counters of value 0.
        pub const fn new() -> Self {
            CounterVec { sums: Sums::new() }
        }
    }

    /// The number of counters, `N`.
    #[allow(
        clippy::len_without_is_empty,
        reason = "it has a length, as an array has, not contents"
    )]
    pub const fn len(&self) -> usize {
        N
    }

    /// Returns the base of its slots: see `machinery/lazy_block.rs`.
    #[cfg(all(target_os = "linux", not(any(loom, miri))))]
    pub(crate) fn base(&self) -> *const u8 {
        self.sums.base()
    }

    /// Adds `n`, wrapping, to the counter at `index`.
    ///
    /// Constant time, wait-free but for a capped number of retries. Async-signal-safe.
    ///
    /// # Errors
    /// [`OutOfRange`]; nothing was added.
    #[inline]
    pub fn add(&self, index: usize, n: i64) -> Result<(), OutOfRange> {
        if index >= N {
            return Err(OutOfRange { index, len: N });
        }
        // SAFETY: the index is below `N`, by `check`.
        unsafe { self.sums.add_at(index, n) };
        Ok(())
    }

    /// Subtracts `n`, wrapping. Like [`add`](CounterVec::add).
    ///
    /// # Errors
    /// As [`add`](CounterVec::add).
    #[inline]
    pub fn sub(&self, index: usize, n: i64) -> Result<(), OutOfRange> {
        self.add(index, n.wrapping_neg())
    }

    /// Returns the value of the counter at `index`. Like [`Counter::get`](super::Counter::get).
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn get(&self, index: usize) -> Result<i64, OutOfRange> {
        self.check(index).map(|()| self.sums.get(index))
    }

    /// Takes the value of the counter at `index`, leaving 0. Like [`Counter::take`](super::Counter::take).
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn take(&self, index: usize) -> Result<i64, OutOfRange> {
        self.check(index).map(|()| self.sums.exchange(index, 0))
    }

    /// Returns the values, in order. Each cache line of eight is read when the iterator reaches it.
    ///
    /// Linear in `N` times the slots in use. Async-signal-safe.
    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        (0..N).step_by(LINE).flat_map(|first| self.sums.read::<LINE>(first)).take(N)
    }

    /// Returns the values at about the same time. Each is exact, as [`get`](CounterVec::get) returns it. An addition
    /// made meanwhile may be included in one counter while a later one is missing from another.
    ///
    /// The array is on the stack: use [`iter`](CounterVec::iter) for a large `N`.
    pub fn snapshot(&self) -> [i64; N] {
        let mut values = self.iter();
        array::from_fn(|_| values.next().unwrap_or(0))
    }

    /// Takes all values, leaving zeros. Each is taken like [`take`](CounterVec::take) does, so none is lost or taken
    /// twice.
    pub fn take_all(&self) -> [i64; N] {
        let lines = (0..N).step_by(LINE);
        let mut values = lines.flat_map(|first| self.sums.take::<LINE>(first, |value| value != 0));
        array::from_fn(|_| values.next().unwrap_or(0))
    }

    /// Returns the sum of all values, wrapping. Linear in `N` times the slots in use.
    pub fn sum(&self) -> i64 {
        self.iter().fold(0, i64::wrapping_add)
    }

    fn check(&self, index: usize) -> Result<(), OutOfRange> {
        if index < N { Ok(()) } else { Err(OutOfRange { index, len: N }) }
    }
}

impl<const N: usize, I: SlotIndex> Default for CounterVec<N, I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize, I: SlotIndex> fmt::Debug for CounterVec<N, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CounterVec")?;
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn each_counts_for_itself() {
        let counters: CounterVec<11> = CounterVec::new();
        for index in 0..11 {
            counters.add(index, index as i64).unwrap();
        }
        counters.sub(10, 20).unwrap();
        assert_eq!(counters.snapshot(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -10]);
        assert_eq!((counters.sum(), counters.len()), (35, 11));
        assert_eq!(counters.take(7), Ok(7));
        assert_eq!(counters.get(7), Ok(0));
        assert_eq!(format!("{counters:?}"), "CounterVec[0, 1, 2, 3, 4, 5, 6, 0, 8, 9, -10]");
        assert_eq!(counters.take_all(), [0, 1, 2, 3, 4, 5, 6, 0, 8, 9, -10]);
        assert_eq!(counters.snapshot(), [0; 11]);
    }

    #[test]
    fn an_index_out_of_range_is_an_error() {
        let counters: CounterVec<3> = CounterVec::default();
        let error = OutOfRange { index: 3, len: 3 };
        assert_eq!(counters.add(3, 1), Err(error));
        assert_eq!(counters.sub(usize::MAX, 1), Err(OutOfRange { index: usize::MAX, len: 3 }));
        assert_eq!((counters.get(3), counters.take(3)), (Err(error), Err(error)));
        assert_eq!(counters.sum(), 0);
        assert_eq!(
            format!("{error}"),
            "there is no counter 3: they are numbered from 0 to below 3"
        );
        let none: CounterVec<0> = CounterVec::new();
        assert_eq!(none.add(0, 1), Err(OutOfRange { index: 0, len: 0 }));
        assert_eq!((none.snapshot(), none.sum()), ([], 0));
    }

    #[test]
    fn the_largest() {
        static COUNTERS: CounterVec<131_072> = CounterVec::new();
        for index in [0, 511, 512, 131_071] {
            COUNTERS.add(index, 1).unwrap();
            assert_eq!(COUNTERS.get(index), Ok(1));
        }
        assert_eq!(COUNTERS.sum(), 4);
    }
}
