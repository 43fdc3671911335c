//! An item as the words that sections copy.
//!
//! Sections move 64-bit words and know no types. So an item is kept as the fewest words that hold it,
//! at least one, and goes in and out by value.
//!
//! # Invariants
//! 1. The size of [`Words`] is a multiple of 8, at least 8, and its alignment 8, whatever `T` is. An
//!    array of them is an array of words.
//! 2. Words are copied as `MaybeUninit<u64>`, never as `u64`: padding and what lies behind a short item
//!    may be uninitialised, and a pointer keeps its provenance, which an integer would lose.
//! 3. An item is copied to and from its words, never referred to in place: its own alignment does not
//!    matter there.

use core::mem::{ManuallyDrop, MaybeUninit};

/// Room for one item. Whether there is one is known elsewhere; nothing is dropped.
#[repr(C, packed(8))]
pub(super) union Words<T> {
    item: ManuallyDrop<MaybeUninit<T>>,
    /// For invariant 1; never read.
    word: u64,
}

impl<T> Words<T> {
    /// How many words an item takes.
    pub(super) const COUNT: usize = {
        let size = size_of::<Self>();
        assert!(size >= 8 && size % 8 == 0 && align_of::<Self>() == 8);
        size / 8
    };

    pub(super) const fn uninit() -> Self {
        Words { item: ManuallyDrop::new(MaybeUninit::uninit()) }
    }

    #[inline(always)]
    pub(super) fn new(item: T) -> Self {
        let mut words = Self::uninit();
        // SAFETY: room for a `T`; its alignment is not asked for (invariant 3).
        unsafe { (&raw mut words).cast::<T>().write_unaligned(item) };
        words
    }

    /// The item.
    ///
    /// # Safety
    /// There is one, and it is taken only once.
    #[inline(always)]
    pub(super) unsafe fn into_item(self) -> T {
        // SAFETY: the caller's promise; invariant 3.
        unsafe { (&raw const self).cast::<T>().read_unaligned() }
    }

    /// The first word: all of an item of one word.
    #[inline(always)]
    pub(super) fn first(&self) -> MaybeUninit<u64> {
        // SAFETY: inside by invariant 1; read as invariant 2 says.
        unsafe { (&raw const *self).cast::<MaybeUninit<u64>>().read() }
    }

    /// Where the words are.
    #[inline(always)]
    pub(super) fn as_ptr(&self) -> *const MaybeUninit<u64> {
        (&raw const *self).cast()
    }

    /// The words of an item of one word.
    #[inline(always)]
    pub(super) fn from_first(word: MaybeUninit<u64>) -> Self {
        let mut words = Self::uninit();
        // SAFETY: as in `first`.
        unsafe { (&raw mut words).cast::<MaybeUninit<u64>>().write(word) };
        words
    }
}

/// Drops what an iterator yields. A panic in one item's drop does not keep the others; a second one
/// ends the process, as it does in every collection.
pub(super) struct DropAll<'a, I: Iterator>(pub(super) &'a mut I);

impl<I: Iterator> Drop for DropAll<'_, I> {
    fn drop(&mut self) {
        while let Some(item) = self.0.next() {
            let rest = DropAll(self.0);
            drop(item);
            core::mem::forget(rest);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::boxed::Box;
    use std::string::String;

    #[repr(align(64))]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Line(u8);

    #[repr(align(64))]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Nothing;

    #[test]
    fn sizes_are_words() {
        assert_eq!(Words::<()>::COUNT, 1);
        assert_eq!(Words::<u8>::COUNT, 1);
        assert_eq!(Words::<Box<u8>>::COUNT, 1);
        assert_eq!(Words::<[u8; 9]>::COUNT, 2);
        assert_eq!(Words::<u128>::COUNT, 2);
        assert_eq!(Words::<Line>::COUNT, 8);
        assert_eq!(Words::<Nothing>::COUNT, 1);
    }

    #[test]
    fn an_item_comes_back() {
        fn there_and_back<T: Clone + PartialEq + core::fmt::Debug>(item: T) {
            // SAFETY: made of an item, taken once.
            assert_eq!(unsafe { Words::new(item.clone()).into_item() }, item);
            if Words::<T>::COUNT == 1 {
                let word = Words::new(item.clone()).first();
                // SAFETY: likewise.
                assert_eq!(unsafe { Words::<T>::from_first(word).into_item() }, item);
            }
        }
        there_and_back(());
        there_and_back((3u8, 500u16));
        there_and_back(Box::new(7));
        there_and_back(String::from("more than one word"));
        there_and_back(Line(9));
        there_and_back(Nothing);
        there_and_back(Some(&5));
    }
}
