//! Typed data with a slot for each core.
//!
//! [`Counter`] is a statistic that any thread adds to at nearly the cost of adding to a private
//! variable; [`Max`] keeps the largest value that any thread has seen.

#[cfg_attr(loom, path = "block_loom.rs")]
mod block;
mod counter;
mod max;
mod owned;
mod slot;

pub use counter::Counter;
pub use max::Max;
