//! The mapping from values to buckets: log-linear, as in HDR histograms.
//!
//! With a precision of P bits, each value below 2^(P+1) has its own bucket. Every further octave, from a power of two
//! to the next, is divided into 2^P buckets of equal width. So a bucket is at most as wide as its lower end divided
//! by 2^P.
//!
//! ```text
//!   P = 2:   0 1 2 3 4 5 6 7 8-9 10-11 12-13 14-15 16-19 20-23 24-27 28-31 32-39 …
//! ```
//!
//! Let `shift` be the number of the octave above the exact ones, and 0 for these. Then a value's bucket is `shift *
//! 2^P + (value >> shift)`: one bit scan and no branch.
//!
//! # Invariants
//! 1. `index` is below `len` for every value, and does not decrease when the value grows.
//! 2. The buckets from 0 on cover all values without gap or overlap.

use crate::percpu::machinery::sums::Words;
use crate::primitive::atomic::AtomicI64;

/// A bucket and its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The smallest value in this bucket.
    pub low: u64,
    /// The largest value in this bucket.
    pub high: u64,
    /// The number of values recorded in it.
    pub count: u64,
}

impl Bucket {
    /// Returns the middle of the bucket, as an estimate of its values. The error is at most half the bucket's width.
    pub fn mid(&self) -> u64 {
        self.low + (self.high - self.low) / 2
    }

    pub(super) fn new<const P: u32>(index: usize, count: u64) -> Bucket {
        let (low, high) = bounds::<P>(index);
        Bucket { low, high, count }
    }
}

/// Returns the number of buckets.
pub(super) const fn len(precision: u32) -> usize {
    (65 - precision as usize) << precision
}

/// Returns the bucket of a value.
#[inline(always)]
pub(super) fn index<const P: u32>(value: u64) -> usize {
    // The bit set here puts the exact values into octave 0, and makes the scanned word nonzero.
    let shift = (value | 1 << P).ilog2() - P;
    ((shift as usize) << P) + (value >> shift) as usize
}

/// Returns the smallest and the largest value of a bucket below `len`.
pub(super) fn bounds<const P: u32>(index: usize) -> (u64, u64) {
    let shift = (index >> P).saturating_sub(1).min(63);
    let low = (index as u64).wrapping_sub((shift as u64) << P) << shift;
    (low, low | ((1 << shift) - 1))
}

/// A precision in bits, for [`Precision`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits<const PRECISION: u32> {}

/// The precisions that a histogram can have: [`Bits`] of 0 to 11. Beyond that a core's shard would exceed 1 MiB.
#[diagnostic::on_unimplemented(
    message = "a histogram's precision is 0 to 11 bits",
    note = "each bit halves the error and nearly doubles the memory; see `percpu::Histogram`"
)]
pub trait Precision: private::Sealed {}

pub(crate) mod private {
    use super::*;

    /// Arrays with the length of a precision: `[u64; len(P)]` cannot be written with a generic `P`.
    pub trait Sealed {
        #[doc(hidden)]
        type Words: Words;
        #[doc(hidden)]
        type Counts: AsRef<[u64]> + AsMut<[u64]> + Clone + Send + Sync + Unpin + 'static;
        #[doc(hidden)]
        const EMPTY: Self::Counts;
    }
}

macro_rules! precisions {
    ($($bits:literal)+) => {
        $(
            impl Precision for Bits<$bits> {}

            impl private::Sealed for Bits<$bits> {
                type Words = [AtomicI64; len($bits)];
                type Counts = [u64; len($bits)];
                const EMPTY: Self::Counts = [0; len($bits)];
            }
        )+
    };
}

precisions!(0 1 2 3 4 5 6 7 8 9 10 11);

#[cfg(all(test, not(loom)))]
mod tests;
