//! The record of a span or large object.
//!
//! Invariant: all bytes 0 is a valid record.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Metadata of the span or large object that begins at a chunk. Undefined for other chunks.
#[repr(C)]
pub(in crate::alloc) struct Record {
    /// Allocated objects of the span: in use by the program or in caches.
    pub(in crate::alloc) out: AtomicU32,
    /// Neighbours on the class's list: their chunk plus one; 0 for none.
    pub(in crate::alloc) next: AtomicU32,
    pub(in crate::alloc) prev: AtomicU32,
    /// The number of the list that the span is on plus one; 0 for none.
    pub(in crate::alloc) list: AtomicU32,
    /// All words of `bits` before this one are full.
    pub(in crate::alloc) hint: AtomicU32,
    /// Chunks of a large object.
    pub(in crate::alloc) chunks: AtomicU32,
    /// Usable bytes of a large object; for spans see [`refused`](Record::refused).
    pub(in crate::alloc) len: AtomicU64,
    /// One bit for each part of a span that the kernel has taken back and that has not been allocated from since
    /// (`central/thinning.rs`).
    pub(in crate::alloc) clean: AtomicU64,
    /// `out` at the last check.
    pub(in crate::alloc) out_seen: AtomicU32,
    /// The number of spans that have begun at this chunk.
    pub(in crate::alloc) generation: AtomicU32,
    /// The sample that a large object belongs to: its number plus one, 0 for none (`profile/`).
    pub(in crate::alloc) sample: AtomicU32,
    /// The next span on the deferred list, and the parts of this span whose objects are on it
    /// (`central/deferred_spans.rs`).
    pub(in crate::alloc) next_returned: AtomicU32,
    pub(in crate::alloc) returned: AtomicU64,
    /// One bit for each object, set if the object is allocated.
    pub(in crate::alloc) bits: [AtomicU64; 64],
}

impl Record {
    /// Returns one bit for each part of a span that the kernel refused to take back and that has not been allocated
    /// from since (`central/thinning.rs`).
    pub(in crate::alloc) fn refused(&self) -> &AtomicU64 {
        // Spans do not use the length.
        &self.len
    }
}
