//! A bounded stack in a core's slot: the data of the sections `pop_at`, `pop_counted_at` and `push_at`, and the same
//! operations without sections.
//!
//! Invariants:
//! 1. The fields are at the offsets that the sections use; the items follow them.
//! 2. The first `count` items are valid. `count` is stored last, so the stack is valid after each store.
//! 3. `top` is a guess of the top item, and may be wrong. A pop compares it with the item that it finds
//!    (docs/design/malloc.md).
//! 4. `left_of_next` belongs to the next stack: one more than the number of its objects that may be popped without
//!    being counted (`debug/instrumented.rs`). Values 0 and 1 change by compare-exchange only; larger values change only in
//!    sections, or under the rules for the stack itself.

use core::sync::atomic::{AtomicU64, Ordering};

/// The capacity of a core's stack.
pub(in crate::alloc) const MOST_ITEMS: usize = 1028;

const R: Ordering = Ordering::Relaxed;

/// See the [module](self).
#[repr(C)]
pub(in crate::alloc) struct Stack {
    top: AtomicU64,
    pub(in crate::alloc) limit: AtomicU64,
    pub(in crate::alloc) count: AtomicU64,
    items: [AtomicU64; MOST_ITEMS],
    pub(in crate::alloc) left_of_next: AtomicU64,
}

/// Distance in bytes between two stacks of a slot.
pub(in crate::alloc) const STACK: usize = size_of::<Stack>();
const _: () =
    assert!(core::mem::offset_of!(Stack, limit) == 8 && core::mem::offset_of!(Stack, count) == 16);
const _: () = assert!(core::mem::offset_of!(Stack, items) == 24);
const _: () = assert!(core::mem::offset_of!(Stack, left_of_next) == STACK - 8);

/// Returns the offset of a class's stack in a slot.
#[inline(always)]
pub(in crate::alloc) const fn at(kind: usize) -> usize {
    kind * STACK
}

/// Returns the class whose stack is at this offset.
#[inline(always)]
pub(in crate::alloc) const fn class_of(at: usize) -> usize {
    at / STACK
}

/// Offset of `count`, for sections that work on a stack without a limit.
pub(in crate::alloc) const BEFORE_COUNT: usize = 2 * size_of::<u64>();

impl Stack {
    /// Pops an item. No other thread may use the stack.
    pub(in crate::alloc) fn pop(&self) -> Option<u64> {
        let left = self.count.load(R).checked_sub(1)?;
        let object = self.items.get(left as usize)?.load(R);
        self.count.store(left, R);
        Some(object)
    }

    /// Pushes an item if there is room, and returns whether there was. No other thread may use the stack.
    pub(in crate::alloc) fn push(&self, object: u64, capacity: u64) -> bool {
        let count = self.count.load(R);
        match self.items.get(count as usize) {
            Some(item) if count < capacity => {
                item.store(object, R);
                // Release: partner is a fork. A child that copies the stack sees the item if it sees the count (2).
                self.count.store(count + 1, Ordering::Release);
                true
            }
            _ => false,
        }
    }

    /// Clears the guess of the top item, as a batch operation does.
    pub(in crate::alloc) fn forget_top(&self) {
        self.top.store(0, R);
    }

    /// Returns the top item, or 0 if the stack seems empty. Racy: other threads may use the stack.
    pub(in crate::alloc) fn top(&self) -> u64 {
        let count = self.count.load(R) as usize;
        count.checked_sub(1).and_then(|top| self.items.get(top)).map_or(0, |item| item.load(R))
    }
}
