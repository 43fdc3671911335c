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
mod core_word;
mod counter;
mod counter_vec;
mod gauge;
pub mod histogram;
mod lock;
mod machinery;
mod max;
mod once_slot;
mod per_cpu;
mod pool;
mod push_error;
mod queue;
mod remote;
mod ring;
mod shard;
mod stack;
#[cfg(not(loom))]
mod trim;

pub use crate::sys::forks::orphaned::{Orphaned, OrphanedGuard};
#[cfg(not(loom))]
pub use area::Area;
pub use core_word::Word;
pub use counter::Counter;
pub use counter_vec::{CounterVec, OutOfRange};
pub use gauge::{Gauge, InFlight};
pub use histogram::Histogram;
pub use lock::{Guard, Lock};
#[cfg(not(any(loom, miri)))]
pub(crate) use machinery::block::Block;
#[cfg(not(loom))]
pub(crate) use machinery::blocking::{heavy_barrier, light_barrier};
#[cfg(not(loom))]
pub(crate) use machinery::reader_counts::{Group, ReaderCounts};
#[cfg(not(any(loom, miri)))]
pub(crate) use machinery::slot::{Kind, Zeroed};
pub use machinery::word_operations::Mismatch;
pub use max::{Max, Min};
pub use per_cpu::{IntoIter, Iter, IterMut, PerCpu, Unavailable};
pub use pool::{Pool, Pooled};
pub use push_error::PushError;
pub use queue::Queue;
pub use ring::Ring;
pub use shard::Shard;
pub use stack::{Batch, Stack};
#[cfg(not(loom))]
pub use trim::{Memory, memory, trim};
