//! The sections where there are none: always unavailable, so that the cold path serves.

use crate::rseq::{Index, Outcome, Slots};

/// Section `add`.
///
/// # Safety
/// None is needed; the signature is that of the other architectures.
#[inline(always)]
pub(crate) unsafe fn add(_index: Index, _object: &Slots, _n: i64) -> Outcome {
    Outcome::Unavailable
}

/// Section `store_greater`.
///
/// # Safety
/// None is needed; the signature is that of the other architectures.
#[inline(always)]
pub(crate) unsafe fn store_greater(_index: Index, _object: &Slots, _n: i64) -> Outcome {
    Outcome::Unavailable
}
