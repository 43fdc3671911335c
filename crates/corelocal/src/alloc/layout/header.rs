//! The header of the range: what is known of the whole of it.
//!
//! Invariant: all bytes 0 is a valid header.

use core::sync::atomic::{AtomicU64, AtomicUsize};

use super::chunk::{IN_A_GROUP, MOST_CHUNKS};
use super::division::MOST_NODES;
use super::sleeper::Sleeper;
use crate::sys::memory::page_size::LONGEST_PAGE;

/// The largest page size of the architecture: mappings begin and end with a page.
pub(in crate::alloc) const PAGE: usize = LONGEST_PAGE;
/// Bytes from the header's start to the first chunk.
pub(in crate::alloc) const HEADER: usize = MOST_CHUNKS + PAGE;
/// The number of chunks that the map covers at first.
pub(in crate::alloc) const FIRST: usize = if PAGE > IN_A_GROUP { PAGE } else { IN_A_GROUP };
const _: () = assert!(size_of::<Header>() <= PAGE);

/// State of the whole range.
#[repr(C)]
pub(in crate::alloc) struct Header {
    /// Tells a debugger that this is a header (`inspect.rs`).
    pub(in crate::alloc) mark: AtomicU64,
    /// Number of chunks.
    pub(in crate::alloc) chunks: AtomicUsize,
    /// 1 if the kernel has reserved the range.
    pub(in crate::alloc) is_reserved: AtomicUsize,
    /// Mapped chunks.
    pub(in crate::alloc) opened: AtomicUsize,
    /// The division among nodes, once it is decided.
    pub(in crate::alloc) division: AtomicUsize,
    pub(in crate::alloc) stripes: [Stripe; MOST_NODES],
    /// Chunks that are dirty and free.
    pub(in crate::alloc) dirty: AtomicUsize,
    /// Chunks of large objects.
    pub(in crate::alloc) large_chunks: AtomicUsize,
    /// The number of those that objects have in reserve, to grow into.
    pub(in crate::alloc) reserve_chunks: AtomicUsize,
    pub(in crate::alloc) large_objects: AtomicUsize,
    /// Bytes given back to the kernel so far.
    pub(in crate::alloc) released: AtomicUsize,
    /// Chunks that were mapped when the kernel refused to map more; 0: it has not (`page_heap/release.rs`).
    pub(in crate::alloc) refused_at: AtomicUsize,
    /// For each node, the chunks up to the highest one ever used; summed.
    pub(in crate::alloc) high: AtomicUsize,
    /// The chunks of spans that lost objects since the last check, or that were not idle then
    /// (`central/thinned.rs`).
    pub(in crate::alloc) thinned: AtomicUsize,
    /// The thread that sleeps until there is memory to give back.
    pub(in crate::alloc) sleeper: Sleeper,
    /// Huge pages made and still whole (`page_heap/huge.rs`), all ever made, and refusals.
    pub(in crate::alloc) huge: AtomicUsize,
    pub(in crate::alloc) huge_ever: AtomicUsize,
    pub(in crate::alloc) huge_refused: AtomicUsize,
    /// Huge pages examined since one was made or memory grew.
    pub(in crate::alloc) huge_in_vain: AtomicUsize,
    /// The huge page at which the next scan begins, and `high` at the last scan.
    pub(in crate::alloc) next_huge: AtomicUsize,
    pub(in crate::alloc) high_seen: AtomicUsize,
    /// Bytes that the kernel refused to place on their node.
    pub(in crate::alloc) displaced: AtomicUsize,
    /// Where a debugger finds the rest (`inspect.rs`).
    pub(in crate::alloc) directory: AtomicUsize,
}

/// State of a stripe. All bytes 0 is an unused one.
#[repr(C)]
pub(in crate::alloc) struct Stripe {
    /// Chunks of the stripe below this one have metadata groups.
    pub(in crate::alloc) known: AtomicUsize,
    /// The highest chunk that was ever used, plus one.
    pub(super) high: AtomicUsize,
    /// Search hints of `page_heap/search.rs`: where to begin to look for runs of up to 2^n chunks.
    pub(in crate::alloc) first: [AtomicUsize; 8],
}
