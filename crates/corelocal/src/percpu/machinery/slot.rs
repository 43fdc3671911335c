//! Types that a slot may hold.

use crate::primitive::atomic::{AtomicI64, AtomicU64};

/// Tells what a trim may do with a shard that no core uses any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: only its container can interpret it.
    Opaque,
    /// Each word is added to the first shared slot's, atomically, and becomes 0. Words are `AtomicI64`.
    Sums,
    /// The same, with the maximum in place of the sum.
    Maxima,
    /// If the first word is 0 the shard is empty, whatever the other words are.
    Counted,
    /// Nothing: its slots are those of cpus, which cannot be reassigned; or threads access them without a critical
    /// section, so that freezing does not exclude them.
    Fixed,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] =
        [Kind::Opaque, Kind::Sums, Kind::Maxima, Kind::Counted, Kind::Fixed];
}

/// The blocks that share regions: those that a trim treats alike, under the same slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) kind: Kind,
    /// Slots go by node (`cid/node.rs`). Blocks of both kinds never share a page.
    pub(crate) by_node: bool,
}

impl Class {
    /// Returns all classes, in the order of their `number`.
    pub(crate) fn all() -> impl Iterator<Item = Class> {
        let of_kinds = |by_node| Kind::ALL.into_iter().map(move |kind| Class { kind, by_node });
        [false, true].into_iter().flat_map(of_kinds)
    }

    pub(crate) const COUNT: usize = 2 * Kind::ALL.len();

    /// Below `COUNT`.
    pub(crate) fn number(self) -> usize {
        self.kind as usize + if self.by_node { Kind::ALL.len() } else { 0 }
    }
}

/// Types for which all bytes 0 is a valid value, as a core's shard of an object starts, and which need no drop.
///
/// # Safety
/// - All bytes 0 is a valid value.
/// - The type needs no drop.
/// - `KIND` is true of it.
pub unsafe trait Zeroed: Sync + 'static {
    const KIND: Kind = Kind::Opaque;

    /// Returns the zero value, for the loom model's heap.
    #[cfg(loom)]
    fn zeroed() -> Self;
}

// SAFETY: an integer; types with other semantics than a sum wrap it.
unsafe impl Zeroed for AtomicI64 {
    const KIND: Kind = Kind::Sums;

    #[cfg(loom)]
    fn zeroed() -> Self {
        AtomicI64::new(0)
    }
}

// SAFETY: an integer.
unsafe impl Zeroed for AtomicU64 {
    #[cfg(loom)]
    fn zeroed() -> Self {
        AtomicU64::new(0)
    }
}

// SAFETY: the elements are `Zeroed`. Counted, which is about the first word of one element, does not carry over.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {
    const KIND: Kind = match T::KIND {
        Kind::Sums => Kind::Sums,
        Kind::Maxima => Kind::Maxima,
        Kind::Opaque | Kind::Counted | Kind::Fixed => Kind::Opaque,
    };

    #[cfg(loom)]
    fn zeroed() -> Self {
        core::array::from_fn(|_| T::zeroed())
    }
}
