//! Which part of a per-core object something is.

/// A part of a per-core object: what one core uses, or what threads without critical sections share.
///
/// The parts of one object are distinct, so a value that is unique within its part and this name
/// together are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shard {
    /// Under the slot of this number (see [`crate::cid`]), below [`crate::cid::capacity_of`].
    Slot(u32),
    /// Shared by threads without a registration, and by whoever finds no other part at the moment.
    Shared(u32),
    /// Inside the object itself: where the kernel gives no memory for slots.
    Inline,
}
