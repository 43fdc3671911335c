//! A fixed-size buffer of items that are moved to or from a stack together, without a heap.
//!
//! # Invariant
//! The first `len` places hold items.

use core::fmt;
use core::mem::MaybeUninit;

use crate::percpu::PushError;
use crate::percpu::machinery::item_words::{DropAll, Words};

/// Up to `N` items, the last of which is the top. They are pushed on or popped off a [`Stack`](super::Stack) in one
/// critical section.
///
/// The batch is a plain value, usually on the caller's stack, and does not allocate. It is an iterator from the top
/// down. Remaining items are dropped with it.
///
/// ```
/// use corelocal::percpu::{Batch, PushError};
///
/// let mut batch: Batch<_, 4> = Batch::new();
/// assert_eq!(batch.fill(1..), 4);
/// assert_eq!(batch.push(5), Err(PushError(5)));
/// assert_eq!(batch.pop(), Some(4));
/// assert!(batch.eq([3, 2, 1]));
/// ```
pub struct Batch<T, const N: usize> {
    len: usize,
    places: [Words<T>; N],
}

impl<T, const N: usize> Batch<T, N> {
    /// Creates an empty batch.
    pub const fn new() -> Self {
        Batch { len: 0, places: [const { Words::uninit() }; N] }
    }

    /// Puts an item on top.
    ///
    /// # Errors
    /// Returns the item if the batch is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), PushError<T>> {
        let Some(place) = self.places.get_mut(self.len) else { return Err(PushError(item)) };
        *place = Words::new(item);
        self.len += 1;
        Ok(())
    }

    /// Takes the item on top.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.pop_words().map(|words| {
            // SAFETY: by the invariant the place held an item. It no longer does.
            unsafe { words.into_item() }
        })
    }

    /// Puts items on top until the batch is full. Returns their number. Takes no further items from the iterator.
    pub fn fill(&mut self, items: impl IntoIterator<Item = T>) -> usize {
        let room = self.room();
        for item in items.into_iter().take(room) {
            // There is room.
            let _ = self.push(item);
        }
        room - self.room()
    }

    /// Returns the number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the batch is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns `true` if the batch is full.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len == N
    }

    /// Returns the number of items that still fit.
    #[inline]
    pub(super) fn room(&self) -> usize {
        N - self.len
    }

    /// Puts an item back on top after `pop_words`.
    pub(super) fn push_words(&mut self, words: Words<T>) {
        if let Some(place) = self.places.get_mut(self.len) {
            *place = words;
            self.len += 1;
        }
    }

    #[inline]
    pub(super) fn pop_words(&mut self) -> Option<Words<T>> {
        let last = self.len.checked_sub(1)?;
        let place = self.places.get_mut(last)?;
        self.len = last;
        Some(core::mem::replace(place, Words::uninit()))
    }

    /// Returns the address of the items.
    #[inline]
    pub(super) fn items(&self) -> *const MaybeUninit<u64> {
        self.places.as_ptr().cast()
    }

    /// Returns the address where `room` more items go.
    #[inline]
    pub(super) fn spare(&mut self) -> *mut MaybeUninit<u64> {
        self.places.as_mut_ptr().wrapping_add(self.len).cast()
    }

    /// Counts items that were written to `spare`. Returns their number.
    ///
    /// # Safety
    /// - This many items were written there, and they fit.
    #[inline]
    pub(super) unsafe fn added(&mut self, items: usize) -> usize {
        debug_assert!(items <= self.room());
        self.len += items;
        items
    }

    /// Forgets the first items, which were moved elsewhere. Returns their number.
    ///
    /// # Safety
    /// - The batch has this many items, and they now belong to their new place.
    #[inline]
    pub(super) unsafe fn moved(&mut self, items: usize) -> usize {
        debug_assert!(items <= self.len);
        self.len -= items;
        if self.len > 0 {
            let first = self.places.as_mut_ptr();
            // SAFETY: `items + len` places from `first` on are inside the array.
            unsafe { first.copy_from(first.add(items), self.len) };
        }
        items
    }

    /// Reverses the order of the items from `first` on.
    pub(super) fn reverse_from(&mut self, first: usize) {
        if let Some(places) = self.places.get_mut(first..self.len) {
            places.reverse();
        }
    }
}

impl<T, const N: usize> Iterator for Batch<T, N> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.pop()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl<T, const N: usize> ExactSizeIterator for Batch<T, N> {}
impl<T, const N: usize> core::iter::FusedIterator for Batch<T, N> {}

impl<T, const N: usize> Drop for Batch<T, N> {
    fn drop(&mut self) {
        if core::mem::needs_drop::<T>() {
            drop(DropAll(self));
        }
    }
}

impl<T, const N: usize> Default for Batch<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> fmt::Debug for Batch<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len).field("capacity", &N).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::format;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;
    use std::vec::Vec;

    #[test]
    fn last_in_first_out() {
        let mut batch: Batch<[u8; 3], 3> = Batch::default();
        assert!(batch.is_empty() && batch.pop().is_none());
        assert_eq!(batch.fill((0..9).map(|n| [n; 3])), 3);
        assert!(batch.is_full());
        assert_eq!(batch.fill([[7; 3]]), 0);
        assert_eq!(format!("{batch:?}"), "Batch { len: 3, capacity: 3 }");
        // SAFETY: an item of the batch, of a type that is `Copy`.
        assert_eq!(unsafe { batch.moved(1) }, 1);
        assert_eq!(batch.len(), 2);
        batch.reverse_from(0);
        assert_eq!(batch.collect::<Vec<_>>(), [[1; 3], [2; 3]]);
    }

    #[test]
    fn what_is_left_is_dropped_once() {
        let item = Rc::new(());
        let mut batch: Batch<Rc<()>, 8> = Batch::new();
        batch.fill(std::iter::repeat_n(item.clone(), 5));
        drop(batch.pop());
        assert_eq!(Rc::strong_count(&item), 5);
        drop(batch);
        assert_eq!(Rc::strong_count(&item), 1);
    }

    #[test]
    fn a_panic_in_a_drop_does_not_keep_the_others() {
        struct Bomb<'a>(&'a core::cell::Cell<u32>, bool);
        impl Drop for Bomb<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
                assert!(!self.1, "a bomb");
            }
        }
        let dropped = core::cell::Cell::new(0);
        let mut batch: Batch<Bomb<'_>, 5> = Batch::new();
        batch.fill((0..5).map(|n| Bomb(&dropped, n == 3)));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(batch))).is_err());
        assert_eq!(dropped.get(), 5);
    }
}
