//! Typed data with a slot for each core.
//!
//! [`Counter`] is a statistic that any thread adds to at nearly the cost of adding to a private
//! variable; [`Max`] keeps the largest value that any thread has seen.

mod counter;
mod max;
mod owned;
#[cfg_attr(loom, path = "region_loom.rs")]
mod region;

pub use counter::Counter;
pub use max::Max;

use crate::primitive::atomic::AtomicI64;

/// What a cell has in each slot: two words that never meet.
///
/// A section's store and an atomic read-modify-write do not exclude each other, so each has a word
/// of its own, and readers combine them.
#[repr(C, align(16))]
pub(crate) struct Words {
    /// Written by sections of the slot's id alone.
    pub(crate) local: AtomicI64,
    /// Written by atomic read-modify-writes alone.
    pub(crate) shared: AtomicI64,
}

#[cfg(loom)]
impl Words {
    fn new() -> Words {
        Words { local: AtomicI64::new(0), shared: AtomicI64::new(0) }
    }
}
