//! Access to slots from afar, and walks over all parts of an object.
//!
//! Invariant: a slot is frozen only while its content is looked at or taken, never while anything
//! waits. So two threads that freeze get past each other, and none can wait for itself.

use super::blocking::Patience;
use super::lazy_block::Owned;
use super::shard::Shard;
use super::slot::Zeroed;
use crate::cid::{self, Busy, Frozen, Revocable, SlotIndex};

/// Freezes a slot, waiting for another thread that has it frozen, within reason.
///
/// # Errors
/// As [`cid::freeze`]; [`Busy::Frozen`] only if another thread keeps it for long, or the calling one has it.
pub(super) fn freeze<I: Revocable>(slot: u32) -> Result<Frozen<I>, Busy> {
    let mut patience = Patience::new();
    loop {
        match cid::freeze_of(slot) {
            Err(Busy::Frozen) if !cid::is_frozen_here::<I>(slot) && patience.nap() => {}
            ended => return ended,
        }
    }
}

/// From each slot takes with `take`, the slot frozen, and then calls `f` on what was taken, the slot in use
/// again. Slots that are `idle` are passed over, and so are those that cannot be frozen.
///
/// # Errors
/// Why the first one could not be frozen.
pub(super) fn take_from_each<T: Zeroed, I: Revocable, R>(
    owned: &Owned<T, I>,
    idle: impl Fn(&T) -> bool,
    take: impl Fn(&T) -> R,
    mut f: impl FnMut(Shard, R),
) -> Result<(), Busy> {
    let mut result = Ok(());
    for (slot, content) in (0..).zip(owned.slots()).filter(|(_, content)| !idle(content)) {
        match freeze::<I>(slot).map(|_frozen| take(content)) {
            Ok(taken) => f(Shard::Slot(slot), taken),
            Err(busy) => result = result.and(Err(busy)),
        }
    }
    result
}

/// Where a walk over all parts of an object stands: slots, shared slots, then what is inside the object.
#[derive(Clone)]
pub(super) struct Walk {
    next: Option<Shard>,
}

impl Walk {
    pub(super) const fn new() -> Walk {
        Walk { next: Some(Shard::Slot(0)) }
    }

    /// The next part in use; `inside` comes last, if there is such a part.
    pub(super) fn next<'a, T: Zeroed, I: SlotIndex>(
        &mut self,
        owned: &Owned<T, I>,
        inside: impl Into<Option<&'a T>>,
    ) -> Option<(Shard, &'a T)> {
        let inside = inside.into();
        loop {
            let shard = self.next?;
            let (content, next) = match shard {
                Shard::Slot(slot) => match owned.slot(slot) {
                    Some(content) => (Some(content), Some(Shard::Slot(slot + 1))),
                    None => (None, Some(Shard::Shared(0))),
                },
                Shard::Shared(slot) => match owned.shared_slot(slot) {
                    Some(content) => (Some(content), Some(Shard::Shared(slot + 1))),
                    None => (None, Some(Shard::Inline)),
                },
                Shard::Inline => (inside, None),
            };
            self.next = next;
            if let Some(content) = content {
                return Some((shard, content));
            }
        }
    }
}
