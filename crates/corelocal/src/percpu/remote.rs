//! Access to the slots of other cores, and walks over all shards of an object.
//!
//! Invariant: a slot is frozen only while its content is read or taken, never while a thread waits. So two threads
//! that freeze slots do not block each other, and a thread cannot wait for itself.

use super::machinery::blocking::Patience;
use super::machinery::lazy_block::Owned;
use super::machinery::slot::Zeroed;
use super::shard::Shard;
use crate::cid::{self, Busy, Frozen, Revocable, SlotIndex};

/// Freezes a slot. Waits for another thread that has it frozen, up to about a second.
///
/// # Errors
/// Those of [`cid::freeze`]. [`Busy::Frozen`] only if another thread keeps it frozen for long, or the calling thread
/// has it.
pub(super) fn freeze<I: Revocable>(slot: u32) -> Result<Frozen<I>, Busy> {
    let mut patience = Patience::new();
    loop {
        match cid::freeze_of(slot) {
            Err(Busy::Frozen) if !cid::is_frozen_here::<I>(slot) && patience.nap() => {}
            ended => return ended,
        }
    }
}

/// Takes data out of each slot with `take`, with the slot frozen, and then calls `f` on it, with the slot back in
/// use. Slots that are `idle`, or that cannot be frozen, are left out.
///
/// # Errors
/// The reason why the first slot could not be frozen.
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

/// The position of a walk over all shards of an object: slots, shared slots, then the one inside the object.
#[derive(Clone)]
pub(super) struct Walk {
    next: Option<Shard>,
}

impl Walk {
    pub(super) const fn new() -> Walk {
        Walk { next: Some(Shard::Slot(0)) }
    }

    /// Returns the next shard in use. The one inside the object comes last, if it exists.
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
