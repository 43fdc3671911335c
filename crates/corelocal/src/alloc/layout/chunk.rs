//! Chunks, the unit in which memory is mapped and claimed: their length, and how many belong together.

/// The size of a chunk in bytes.
pub(in crate::alloc) const CHUNK: usize = 1 << CHUNK_SHIFT;
pub(super) const CHUNK_SHIFT: u32 = 16;
/// The maximum length of the range: 1 TiB.
pub(super) const RANGE_SHIFT: u32 = 40;
pub(in crate::alloc) const MOST_CHUNKS: usize = 1 << (RANGE_SHIFT - CHUNK_SHIFT);
/// The alignment of the range.
pub(in crate::alloc) const HUGE_PAGE: usize = 2 << 20;
/// Chunks in a huge page.
pub(in crate::alloc) const IN_A_HUGE_PAGE: usize = HUGE_PAGE / CHUNK;
/// Chunks in a group of metadata: their map bytes fill a page.
pub(in crate::alloc) const IN_A_GROUP: usize = 4096;
