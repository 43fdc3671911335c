//! Identifies a shard of a per-core object.

/// A shard of a per-core object: the data of one core, or the data that threads without critical sections share.
///
/// The shards of one object are distinct. So a value that is unique within its shard, together with the shard, is
/// unique in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shard {
    /// The slot with this number (see [`crate::cid`]), below [`crate::cid::capacity_of`].
    Slot(u32),
    /// Shared by threads without an rseq registration, and by threads that find no other shard available.
    Shared(u32),
    /// Inside the object itself, for when the kernel provides no memory for slots.
    Inline,
}
