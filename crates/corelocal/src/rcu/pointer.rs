//! A pointer to the current version of some data.
//!
//! ```text
//!   rcu.rs     the pointer
//!   kinds.rs   what a version can be
//!   lazy.rs    the same, whose first version is made at its first use
//!   cache.rs   a copy of the current version that a thread keeps
//! ```

mod cache;
mod kinds;
mod lazy;
mod rcu;

pub use cache::Cache;
pub use kinds::{NeverNull, Pointer, Shared};
pub use lazy::LazyRcu;
pub use rcu::{NotCurrent, Rcu};
