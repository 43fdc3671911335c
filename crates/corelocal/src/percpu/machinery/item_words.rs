//! An item in the form of words that critical sections copy.
//!
//! Critical sections move 64-bit words and know no types. So an item is stored in the fewest words that hold it, at
//! least one, and goes in and out by value.
//!
//! # Invariants
//! 1. The size of [`Words`] is a multiple of 8, at least 8, and its alignment is 8 for every `T`. An array of them is
//!    an array of words.
//! 2. Words are copied as `MaybeUninit<u64>`, never as `u64`: padding and the bytes after a short item may be
//!    uninitialised, and a pointer keeps its provenance, which an integer would lose.
//! 3. An item is copied to and from its words, and never referred to in place. So its own alignment is irrelevant
//!    there.

use core::mem::{ManuallyDrop, MaybeUninit};

/// Room for one item. Whether it holds one is recorded elsewhere; it never drops the item.
#[repr(C, packed(8))]
pub(in crate::percpu) union Words<T> {
    item: ManuallyDrop<MaybeUninit<T>>,
    /// Determines size and alignment (invariant 1); never read.
    word: u64,
}

impl<T> Words<T> {
    /// The number of words of an item.
    pub(in crate::percpu) const COUNT: usize = {
        let size = size_of::<Self>();
        assert!(size >= 8 && size % 8 == 0 && align_of::<Self>() == 8);
        size / 8
    };

    pub(in crate::percpu) const fn uninit() -> Self {
        Words { item: ManuallyDrop::new(MaybeUninit::uninit()) }
    }

    #[inline(always)]
    pub(in crate::percpu) fn new(item: T) -> Self {
        let mut words = Self::uninit();
        // SAFETY: room for a `T`, written unaligned (invariant 3).
        unsafe { (&raw mut words).cast::<T>().write_unaligned(item) };
        words
    }

    /// Returns the item.
    ///
    /// # Safety
    /// - There is an item, and it is taken only once.
    #[inline(always)]
    pub(in crate::percpu) unsafe fn into_item(self) -> T {
        // SAFETY: the caller guarantees an item that is taken once; read unaligned (invariant 3).
        unsafe { (&raw const self).cast::<T>().read_unaligned() }
    }

    /// Returns the first word: the whole of an item of one word.
    #[inline(always)]
    pub(in crate::percpu) fn first(&self) -> MaybeUninit<u64> {
        // SAFETY: inside by invariant 1; read as invariant 2 says.
        unsafe { (&raw const *self).cast::<MaybeUninit<u64>>().read() }
    }

    /// Returns the address of the words.
    #[inline(always)]
    pub(in crate::percpu) fn as_ptr(&self) -> *const MaybeUninit<u64> {
        (&raw const *self).cast()
    }

    /// Makes the words of an item of one word.
    #[inline(always)]
    pub(in crate::percpu) fn from_first(word: MaybeUninit<u64>) -> Self {
        let mut words = Self::uninit();
        // SAFETY: as in `first`.
        unsafe { (&raw mut words).cast::<MaybeUninit<u64>>().write(word) };
        words
    }
}

/// Drops the items of an iterator. If one item's drop panics, the others are still dropped. A second panic ends the
/// process, as in every collection.
pub(in crate::percpu) struct DropAll<'a, I: Iterator>(pub(in crate::percpu) &'a mut I);

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
                // SAFETY: made of an item, taken once.
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
