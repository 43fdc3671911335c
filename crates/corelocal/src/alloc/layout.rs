//! The lowest floor: addresses, chunks and size classes, and what is known of each chunk.
//!
//! ```text
//!   address ── range.rs ──► chunk ── the map's byte ──► a class (class.rs), a large object, nothing
//!                             │
//!                             ├── words of bitmaps (bits.rs), in groups (chunk_metadata.rs)
//!                             ├── record of the span or large object that begins there (record.rs)
//!                             └── node (node_ranges.rs)
//! ```
//! Nothing here allocates an object or gives memory back: this floor makes address space and metadata, which stay.

pub(in crate::alloc) mod address_range;
pub(in crate::alloc) mod bits;
pub(in crate::alloc) mod chunk;
pub(in crate::alloc) mod chunk_metadata;
pub(in crate::alloc) mod class;
pub(in crate::alloc) mod division;
pub(in crate::alloc) mod header;
pub(in crate::alloc) mod node_ranges;
pub(in crate::alloc) mod range;
pub(in crate::alloc) mod record;
pub(in crate::alloc) mod remote;
pub(in crate::alloc) mod sleeper;
pub(in crate::alloc) mod stack;
