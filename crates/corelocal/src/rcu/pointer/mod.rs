//! A pointer to the current version of some data.
//!
//! ```text
//!   rcu.rs     the pointer
//!   kinds.rs   what a version can be
//!   cache.rs   a copy of the current version that a thread keeps
//! ```

mod cache;
mod kinds;
mod rcu;

pub use cache::Cache;
pub use kinds::{NeverNull, Pointer, Shared};
pub use rcu::{NotCurrent, Rcu};
