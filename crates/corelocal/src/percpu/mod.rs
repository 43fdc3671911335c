//! Typed data with a slot for each core.
//!
//! [`Counter`] is a statistic that any thread adds to at nearly the cost of adding to a private
//! variable; [`Max`] keeps the largest value that any thread has seen. [`CounterVec`] is many counters,
//! [`Gauge`] goes up and down, [`Histogram`] tells which values occur how often.
//!
//! To build with: [`PerCpu`] is a value of any type for each core, [`Lock`] one behind a lock that costs
//! the core's own threads no atomic instruction, [`Word`] a number with the operations of an atomic, and
//! [`area::Area`] gives out many cells of such words.
//!
//! To keep things in: [`Stack`] holds items for whoever needs one next on this core, [`Pool`] objects that
//! are dear to make.
//!
//! To hand things on: [`Ring`] is a bounded buffer of each core that anybody empties, [`Queue`] one without
//! bounds whose consumers may sleep.

#[cfg(not(loom))]
pub mod area;
#[cfg_attr(loom, path = "block_loom.rs")]
mod block;
#[cfg(any(not(loom), test))]
mod block_state;
mod blocking;
mod core_word;
mod counter;
mod counter_vec;
mod cursor;
mod gauge;
pub mod histogram;
mod in_transit;
mod item_words;
mod lazy_block;
mod lock;
mod max;
mod once_slot;
mod per_cpu;
mod pool;
mod queue;
#[cfg(not(loom))]
mod region;
mod remote;
mod ring;
mod shard;
mod slot;
mod stack;
mod sums;
#[cfg(not(loom))]
mod trim;
mod word_operations;

pub use crate::sys::orphaned::{Orphaned, OrphanedGuard};
#[cfg(not(loom))]
pub use area::Area;
#[cfg(not(any(loom, miri)))]
pub(crate) use block::Block;
pub use core_word::{Mismatch, Word};
pub use counter::Counter;
pub use counter_vec::{CounterVec, OutOfRange};
pub use gauge::{Gauge, InFlight};
pub use histogram::Histogram;
pub use lock::{Guard, Lock};
pub use max::{Max, Min};
pub use per_cpu::{IntoIter, Iter, IterMut, PerCpu, Unavailable};
pub use pool::{Pool, Pooled};
pub use queue::Queue;
pub use ring::Ring;
pub use shard::Shard;
#[cfg(not(any(loom, miri)))]
pub(crate) use slot::{Kind, Zeroed};
pub use stack::{Batch, Stack};
#[cfg(not(loom))]
pub use trim::{Memory, memory, trim};
