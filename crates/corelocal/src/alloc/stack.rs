//! A stack with a limit: what sections `pop_at`, `pop_counted_at` and `push_at` work on, and how it is used without
//! them.
//!
//! Invariants:
//! 1. The words lie where the sections look for them; the items follow.
//! 2. The first `count` items are there; the count changes last, so every state of a stack is one.
//! 3. `top` may be anything. It is what a pop expects to find: see DESIGN.md.
//! 4. `left_of_next` is of the stack that follows: how many of its objects those who count give out without a look,
//!    and one more. At 0 and 1 it is changed by compare-exchange, at more by sections alone, or as the stack is.

use core::sync::atomic::{AtomicU64, Ordering};

use super::class::MOST_ITEMS;

const R: Ordering = Ordering::Relaxed;

/// See the module's text.
#[repr(C)]
pub(super) struct Stack {
    top: AtomicU64,
    pub(super) limit: AtomicU64,
    pub(super) count: AtomicU64,
    items: [AtomicU64; MOST_ITEMS],
    pub(super) left_of_next: AtomicU64,
}

/// From one stack to the next.
pub(super) const STACK: usize = size_of::<Stack>();
const _: () =
    assert!(core::mem::offset_of!(Stack, limit) == 8 && core::mem::offset_of!(Stack, count) == 16);
const _: () = assert!(core::mem::offset_of!(Stack, items) == 24);
const _: () = assert!(core::mem::offset_of!(Stack, left_of_next) == STACK - 8);

/// Where the stack of a kind begins in a slot.
#[inline(always)]
pub(super) const fn at(kind: usize) -> usize {
    kind * STACK
}

/// The kind whose stack begins there.
#[inline(always)]
pub(super) const fn class_of(at: usize) -> usize {
    at / STACK
}

/// What lies before the count, for sections that know no limit.
pub(super) const BEFORE_COUNT: usize = 2 * size_of::<u64>();

impl Stack {
    /// Pops, where nobody else uses the stack.
    pub(super) fn pop(&self) -> Option<u64> {
        let left = self.count.load(R).checked_sub(1)?;
        let object = self.items.get(left as usize)?.load(R);
        self.count.store(left, R);
        Some(object)
    }

    /// Pushes, where nobody else uses the stack; whether there was room.
    pub(super) fn push(&self, object: u64, capacity: u64) -> bool {
        let count = self.count.load(R);
        match self.items.get(count as usize) {
            Some(item) if count < capacity => {
                item.store(object, R);
                // Release: partner is a fork, whose child may find no state but those of invariant 2.
                self.count.store(count + 1, Ordering::Release);
                true
            }
            _ => false,
        }
    }

    /// As if nobody had guessed what is on top: as after a batch.
    pub(super) fn forget_top(&self) {
        self.top.store(0, R);
    }

    /// What is on top, or seems to be; 0 for nothing.
    pub(super) fn top(&self) -> u64 {
        let count = self.count.load(R) as usize;
        count.checked_sub(1).and_then(|top| self.items.get(top)).map_or(0, |item| item.load(R))
    }
}
