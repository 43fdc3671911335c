//! What a slot may hold.

use crate::primitive::atomic::{AtomicI64, AtomicU64};

/// What a trim may do with a part that no core uses any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: only its container knows.
    Opaque,
    /// Each word is added to the first shared slot's, atomically, and becomes 0. Words are `AtomicI64`.
    Sums,
    /// Likewise, by the maximum.
    Maxima,
    /// If the first word is 0, nothing is in it, whatever the other words are.
    Counted,
    /// Nothing at all: its slots are those of cpus, not of ids that can be given others; or threads reach
    /// them without a section, so that freezing keeps nobody out.
    Fixed,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] =
        [Kind::Opaque, Kind::Sums, Kind::Maxima, Kind::Counted, Kind::Fixed];
}

/// Which blocks share regions: those that a trim treats alike, under the same slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) kind: Kind,
    /// Slots go by node (`cid/node.rs`). No page is shared with those that do not.
    pub(crate) by_node: bool,
}

impl Class {
    /// Every one, at its `number`.
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

/// Types whose value is valid when all its bytes are 0, which is how a core's part of an object
/// starts out, and needs no drop.
///
/// # Safety
/// All bytes 0 is a valid value; there is nothing to drop; the kind says the truth.
pub unsafe trait Zeroed: Sync + 'static {
    const KIND: Kind = Kind::Opaque;

    /// The value, for the model's heap.
    #[cfg(loom)]
    fn zeroed() -> Self;
}

// SAFETY: an integer; where it is not a sum, a type of its own wraps it.
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

// SAFETY: the elements are. What is true of the first word of each, Counted, is not of all of them.
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
