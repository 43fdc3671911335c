//! Data structures with one slot per core.
//!
//! - Statistics: [`Counter`] is added to at nearly the cost of a private variable. [`Max`] and [`Min`] keep the
//!   largest and smallest value. [`CounterVec`] holds many counters, [`Gauge`] goes up and down, and [`Histogram`]
//!   records how often values occur.
//! - Building blocks: [`PerCpu`] is a value of any type for each core. [`Lock`] protects one by a lock that costs the
//!   core's own threads no atomic instruction. [`Word`] is a number with the operations of an atomic. [`area::Area`]
//!   allocates many cells of such words.
//! - Caches: [`Stack`] keeps items for the next thread on the core that needs one. [`Pool`] keeps objects that are
//!   expensive to make.
//! - Hand-over: [`Ring`] is a bounded buffer per core that any thread drains. [`Queue`] is unbounded, and its
//!   consumers may sleep.

#[cfg(not(loom))]
pub mod area;
#[cfg_attr(loom, path = "percpu/block_loom.rs")]
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
mod push_error;
mod queue;
#[cfg(not(loom))]
mod reader_counts;
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
#[cfg(not(loom))]
pub(crate) use blocking::{heavy_barrier, light_barrier};
pub use core_word::{Mismatch, Word};
pub use counter::Counter;
pub use counter_vec::{CounterVec, OutOfRange};
pub use gauge::{Gauge, InFlight};
pub use histogram::Histogram;
pub use lock::{Guard, Lock};
pub use max::{Max, Min};
pub use per_cpu::{IntoIter, Iter, IterMut, PerCpu, Unavailable};
pub use pool::{Pool, Pooled};
pub use push_error::PushError;
pub use queue::Queue;
#[cfg(not(loom))]
pub(crate) use reader_counts::{Group, ReaderCounts};
pub use ring::Ring;
pub use shard::Shard;
#[cfg(not(any(loom, miri)))]
pub(crate) use slot::{Kind, Zeroed};
pub use stack::{Batch, Stack};
#[cfg(not(loom))]
pub use trim::{Memory, memory, trim};
