//! Memory that a fork wipes: it is zero in the child.
//!
//! # Invariants
//! 1. References are valid for ever: the memory is never unmapped.
//! 2. Every fork wipes it (`MADV_WIPEONFORK`, Linux 4.14). A child of `vfork` shares it.

use crate::primitive::global::{AtomicPtr, Ordering};
use crate::sys::memory::pages;
use core::ptr;

/// A `T` in memory that every fork wipes, mapped at first use.
pub struct WipeOnFork<T: 'static> {
    at: AtomicPtr<T>,
    /// The value of `at` before that: null or a placeholder.
    first: *mut T,
}

// SAFETY: shared references to a `T` are all there is.
unsafe impl<T: Sync + 'static> Sync for WipeOnFork<T> {}
// SAFETY: as above.
unsafe impl<T: Sync + 'static> Send for WipeOnFork<T> {}

impl<T: Sync + 'static> WipeOnFork<T> {
    /// # Safety
    /// - A `T` may be all zero, however often others hold on to it while a fork makes it so in the child.
    pub const unsafe fn new() -> WipeOnFork<T> {
        const { assert!(align_of::<T>() <= 4096) };
        WipeOnFork { at: AtomicPtr::new(ptr::null_mut()), first: ptr::null_mut() }
    }

    /// Does what [`new`](Self::new) does, with what [`now`](Self::now) returns before the first `get`.
    ///
    /// # Safety
    /// - As [`new`](Self::new).
    pub const unsafe fn with_placeholder(placeholder: &'static T) -> WipeOnFork<T> {
        let first = ptr::from_ref(placeholder).cast_mut();
        WipeOnFork { at: AtomicPtr::new(first), first }
    }

    /// Returns the placeholder before the first `get`. Async-signal-safe; one load.
    ///
    /// # Safety
    /// - It was made [with a placeholder](Self::with_placeholder).
    #[inline(always)]
    pub unsafe fn now(&self) -> &'static T {
        // Acquire: partner is the Release in `map`.
        // SAFETY: the placeholder, which the caller guarantees, or mapped for good: see `known`.
        unsafe { &*self.at.load(Ordering::Acquire) }
    }

    /// Returns `None` before the first `get`. Async-signal-safe; one load.
    #[inline(always)]
    pub fn known(&self) -> Option<&'static T> {
        // Acquire: partner is the Release in `map`.
        let at = self.at.load(Ordering::Acquire);
        // SAFETY: null, or mapped there for good, all zero to begin with, which the promise of `new` allows.
        if ptr::eq(at, self.first) { None } else { unsafe { at.as_ref() } }
    }

    /// Returns `None` where the kernel has no memory, or none that it wipes. Async-signal-safe; one load, system calls
    /// at the first use.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        match self.known() {
            None => self.map(),
            known => known,
        }
    }

    /// Returns the same, but `fallback`, all zero, from now on where there is none: all callers get the same at any
    /// time, also once the kernel has memory again. A child finds the fallback as it is.
    #[inline]
    pub fn get_or(&self, fallback: &'static T) -> &'static T {
        self.get().unwrap_or_else(|| self.settle(fallback))
    }

    #[cold]
    fn settle(&self, fallback: &'static T) -> &'static T {
        let at = ptr::from_ref(fallback).cast_mut();
        // Release: partner is the Acquire in `known`. Acquire: as there, if another thread was faster.
        let settled =
            self.at.compare_exchange(self.first, at, Ordering::Release, Ordering::Acquire);
        match settled {
            Ok(_) => fallback,
            // SAFETY: as in `known`.
            Err(first) => unsafe { &*first },
        }
    }

    #[cold]
    fn map(&self) -> Option<&'static T> {
        let len = size_of::<T>();
        let at = pages::map(len)?;
        // SAFETY: just mapped, and all zero; it is meant to be so again.
        let is_wiped = unsafe { pages::advise(at, len, libc::MADV_WIPEONFORK) }.is_ok();
        // Release: partner is the Acquire in `known`.
        let is_ours = is_wiped
            && self
                .at
                .compare_exchange(self.first, at.cast(), Ordering::Release, Ordering::Relaxed)
                .is_ok();
        if !is_ours {
            // SAFETY: no other thread has seen it.
            unsafe { pages::unmap(at, len) };
        }
        self.known()
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;
    use std::vec::Vec;

    #[test]
    fn a_child_finds_zeros() {
        // SAFETY: zero is a number.
        static NUMBER: WipeOnFork<AtomicU32> = unsafe { WipeOnFork::new() };
        assert!(NUMBER.known().is_none());
        let number = NUMBER.get().expect("a page");
        number.store(7, Ordering::Relaxed);
        // SAFETY: the child loads a word and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let seen = number.load(Ordering::Relaxed) as i32;
            // SAFETY: ends the child.
            unsafe { libc::_exit(seen) };
        }
        let mut status = -1;
        // SAFETY: waits for the child just made; writes one number.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child saw {}", status >> 8);
        assert_eq!(number.load(Ordering::Relaxed), 7);
        assert!(ptr::eq(number, NUMBER.get().unwrap()));
    }

    #[test]
    fn what_is_settled_stays() {
        static FALLBACK: AtomicU32 = AtomicU32::new(0);
        // SAFETY: zero is a number.
        static REFUSED: WipeOnFork<AtomicU32> = unsafe { WipeOnFork::new() };
        assert!(ptr::eq(REFUSED.settle(&FALLBACK), &FALLBACK));
        assert!(ptr::eq(REFUSED.get_or(&FALLBACK), &FALLBACK));
        assert!(REFUSED.get().is_some_and(|it| ptr::eq(it, &FALLBACK)));
        // SAFETY: all bytes 0 is valid for an atomic.
        static MAPPED: WipeOnFork<AtomicU32> = unsafe { WipeOnFork::new() };
        let mapped = MAPPED.get_or(&FALLBACK);
        assert!(!ptr::eq(mapped, &FALLBACK));
        assert!(ptr::eq(MAPPED.settle(&FALLBACK), mapped));
    }

    #[test]
    fn all_get_the_same() {
        // SAFETY: zero is a number.
        static NUMBER: WipeOnFork<AtomicU32> = unsafe { WipeOnFork::new() };
        let places: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(|| ptr::from_ref(NUMBER.get().unwrap()) as usize))
            .collect();
        let places: Vec<_> = places.into_iter().map(|place| place.join().unwrap()).collect();
        assert!(places.iter().all(|place| *place == places[0]), "{places:x?}");
    }
}
