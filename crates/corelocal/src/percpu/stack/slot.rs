//! A core's shard of a stack, and the shard that threads without critical sections share.
//!
//! ```text
//!   count │ item item item … room │ lists
//!   ──────┴───────────────────────┴──────
//!   used by critical sections     used in shared slots, where `lists` says which places hold items
//! ```
//!
//! # Invariants
//! 1. In a slot of critical sections the first `count` words of `items` are the items, the top one last. `count` is a
//!    multiple of an item's words. The slot is accessed by critical sections, and by a thread that has frozen the
//!    slot or borrows the whole stack exclusively.
//! 2. In a shared slot a place belongs to the thread that took it from `lists`. `count` is never less than the words
//!    in full places.
//! 3. `count` and `items` lie where critical sections expect them.

use core::panic::{RefUnwindSafe, UnwindSafe};

use crate::percpu::machinery::item_words::Words;
use crate::percpu::machinery::slot::{Kind, Zeroed};
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::primitive::cell::UnsafeCell;

use super::lists::Lists;

/// A shard of a stack.
#[repr(C)]
pub(super) struct Slot<T, const CAPACITY: usize> {
    count: AtomicU64,
    items: [UnsafeCell<Words<T>>; CAPACITY],
    lists: Lists<CAPACITY>,
}

// SAFETY: an item goes in by value on one thread and comes out by value, once, on another, which `T: Send` allows.
// Invariants 1 and 2 say which thread may access a place.
unsafe impl<T: Send, const CAPACITY: usize> Sync for Slot<T, CAPACITY> {}

/// As far as the items are unwind-safe: they are moved in and out whole.
impl<T: UnwindSafe + RefUnwindSafe, const CAPACITY: usize> RefUnwindSafe for Slot<T, CAPACITY> {}

// SAFETY: 0 words, and empty lists; items are `MaybeUninit` and not dropped. A slot whose count is 0 has no items,
// and its lists are unused.
unsafe impl<T: Send + 'static, const CAPACITY: usize> Zeroed for Slot<T, CAPACITY> {
    const KIND: Kind = Kind::Counted;

    #[cfg(loom)]
    fn zeroed() -> Self {
        Slot {
            count: AtomicU64::new(0),
            items: core::array::from_fn(|_| UnsafeCell::new(Words::uninit())),
            lists: Lists::new(),
        }
    }
}

impl<T, const CAPACITY: usize> Slot<T, CAPACITY> {
    /// The number of words in a full slot.
    pub(super) const WORDS: u64 = {
        #[cfg(not(loom))]
        assert!(core::mem::offset_of!(Self, count) == 0 && core::mem::offset_of!(Self, items) == 8);
        (CAPACITY * Words::<T>::COUNT) as u64
    };

    /// Returns the approximate number of items.
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize / Words::<T>::COUNT
    }

    /// Takes the item on top out of a slot of critical sections.
    ///
    /// # Safety
    /// - It is such a slot.
    /// - The caller has it to itself: it has frozen the slot, or borrows the whole stack exclusively.
    pub(super) unsafe fn take(&self) -> Option<T> {
        // Relaxed: the caller's exclusive access is ordered after all earlier ones.
        let count = self.count.load(Ordering::Relaxed);
        let left = count.checked_sub(Words::<T>::COUNT as u64)?;
        let place = self.items.get(left as usize / Words::<T>::COUNT)?;
        // SAFETY: an item by invariant 1; the caller guarantees exclusive access.
        let item = unsafe { place.with(|words| words.read()).into_item() };
        // From here on the slot does not hold the item. Release: a trim that sees a count of 0 may wipe the places.
        self.count.store(left, Ordering::Release);
        Some(item)
    }

    /// Pushes an item onto a shared slot. Returns the item if there is no room.
    pub(super) fn push_shared(&self, item: Words<T>) -> Result<(), Words<T>> {
        let Some(place) = self.lists.claim() else { return Err(item) };
        let Some(words) = self.items.get(place) else { return Err(item) };
        // SAFETY: invariant 2.
        words.with_mut(|words| unsafe { words.write(item) });
        // Relaxed, before the item can be seen: no reader of `len` counts below 0.
        self.count.fetch_add(Words::<T>::COUNT as u64, Ordering::Relaxed);
        self.lists.publish(place);
        Ok(())
    }

    /// Takes the item on top of a shared slot.
    pub(super) fn pop_shared(&self) -> Option<Words<T>> {
        let place = self.lists.take()?;
        // SAFETY: it was published with an item, and this thread alone has taken it (invariant 2).
        let item = self.items.get(place)?.with(|words| unsafe { words.read() });
        self.lists.release(place);
        self.count.fetch_sub(Words::<T>::COUNT as u64, Ordering::Relaxed);
        Some(item)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    type Two = Slot<u64, 2>;

    fn push(slot: &Two, item: u64) {
        assert!(slot.push_shared(Words::new(item)).is_ok());
    }

    /// Returns the item, or 0.
    fn pop(slot: &Two) -> u64 {
        // SAFETY: it was pushed.
        slot.pop_shared().map_or(0, |words| unsafe { words.into_item() })
    }

    /// Interleavings with up to three preemptions. With more this takes hours.
    fn model(test: impl Fn() + Sync + Send + 'static) {
        crate::explore::within(3, test);
    }

    /// Both threads push and pop: each item comes out once and whole, and two places suffice.
    #[test]
    fn loom_shared_pushes_and_pops() {
        model(|| {
            let slot = Arc::new(Two::zeroed());
            let others = slot.clone();
            let other = thread::spawn(move || {
                push(&others, 1);
                pop(&others)
            });
            push(&slot, 2);
            assert_eq!(pop(&slot) + other.join().unwrap(), 3);
            assert_eq!((pop(&slot), slot.len()), (0, 0));
        });
    }

    /// A place is taken off and put on again between another thread's read of the head and its exchange.
    #[test]
    fn loom_shared_heads_that_look_the_same() {
        model(|| {
            let slot = Arc::new(Two::zeroed());
            push(&slot, 1);
            push(&slot, 2);
            let others = slot.clone();
            let other = thread::spawn(move || pop(&others));
            let first = pop(&slot);
            let second = pop(&slot);
            push(&slot, 4);
            let left = pop(&slot) + pop(&slot);
            assert_eq!(first + second + left + other.join().unwrap(), 7);
        });
    }
}
