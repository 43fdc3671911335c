//! A hash map whose readers take no lock.
//!
//! ```text
//!   hash_map.rs   the type, and what reads
//!   change.rs     what changes one key
//!   resize.rs     when buckets move
//!   whole.rs      what is about all keys: iterators, clear, retain, conversions
//!   entries.rs    all entries, each once, and how they end
//!   table.rs      buckets, and how they move
//! ```

#[cfg(not(loom))]
mod change;
#[cfg(not(loom))]
mod entries;
#[cfg(not(loom))]
mod hash_map;
#[cfg(not(loom))]
mod resize;
#[cfg_attr(loom, allow(dead_code))]
mod table;
#[cfg(not(loom))]
mod whole;

#[cfg(not(loom))]
pub use change::{Compute, Occupied, Operation};
#[cfg(not(loom))]
pub use hash_map::RcuHashMap;
#[cfg(not(loom))]
pub use whole::{Iter, Keys, Values};
