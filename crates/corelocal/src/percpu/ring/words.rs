//! An item as the words that sections copy.
//!
//! Sections move 64-bit words and know no types. So an item is kept as the fewest words that hold it,
//! at least one, and goes in and out by value.
//!
//! # Invariants
//! 1. The size of [`Words`] is a multiple of 8, at least 8, and its alignment 8, whatever `T` is. An
//!    array of them is an array of words.
//! 2. Words are copied as `MaybeUninit<u64>`, never as `u64`: padding and what lies behind a short item
//!    may be uninitialised, and a pointer keeps its provenance.
//! 3. An item is copied to and from its words, never referred to in place: its own alignment does not
//!    matter there.

use core::mem::{ManuallyDrop, MaybeUninit};

/// Room for one item. Whether there is one is known elsewhere; nothing is dropped.
#[repr(C, packed(8))]
pub(in crate::percpu) union Words<T> {
    item: ManuallyDrop<MaybeUninit<T>>,
    /// For invariant 1; never read.
    word: u64,
}

impl<T> Words<T> {
    /// How many words an item takes.
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
        // SAFETY: room for a `T`; its alignment is not asked for (invariant 3).
        unsafe { (&raw mut words).cast::<T>().write_unaligned(item) };
        words
    }

    /// The item.
    ///
    /// # Safety
    /// There is one, and it is taken only once.
    #[inline(always)]
    pub(in crate::percpu) unsafe fn into_item(self) -> T {
        // SAFETY: the caller's promise; invariant 3.
        unsafe { (&raw const self).cast::<T>().read_unaligned() }
    }

    /// The first word: all of an item of one word.
    #[inline(always)]
    pub(in crate::percpu) fn first(&self) -> MaybeUninit<u64> {
        // SAFETY: inside by invariant 1; read as invariant 2 says.
        unsafe { (&raw const *self).cast::<MaybeUninit<u64>>().read() }
    }

    /// Where the words are.
    #[inline(always)]
    pub(in crate::percpu) fn as_ptr(&self) -> *const MaybeUninit<u64> {
        (&raw const *self).cast()
    }
}

/// Drops what an iterator yields. A panic in one item's drop does not keep the others; a second one
/// ends the process, as it does in every collection.
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
