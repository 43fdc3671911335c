//! What containers are made of: blocks of memory with a slot for each core, and operations on their words.
//!
//! ```text
//!   a container ──► lazy_block ──► block ──► region        memory, made at the first use
//!              └──► word_operations, sums, item_words      words of a slot, and sums over all slots
//! ```

#[cfg_attr(loom, path = "machinery/block_loom.rs")]
pub(in crate::percpu) mod block;
#[cfg(any(not(loom), test))]
pub(in crate::percpu) mod block_state;
pub(in crate::percpu) mod blocking;
pub(in crate::percpu) mod cursor;
pub(in crate::percpu) mod in_transit;
pub(in crate::percpu) mod item_words;
pub(in crate::percpu) mod lazy_block;
#[cfg(not(loom))]
pub(in crate::percpu) mod reader_counts;
#[cfg(not(loom))]
pub(in crate::percpu) mod region;
pub(in crate::percpu) mod slot;
pub(in crate::percpu) mod sums;
pub(in crate::percpu) mod word_operations;
