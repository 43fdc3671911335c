//! A value made at first use, in memory that starts out as zeros.
//!
//! Slots are zeroed pages, but a `T` may be anything. Whoever comes first makes one and puts it in; the
//! value is made before the slot is claimed, so that an initialiser that panics, is slow or comes back
//! here leaves nothing behind.
//!
//! Invariants:
//! 1. `state` goes from EMPTY to a filler's tag to FULL, each once between two times of exclusive access;
//!    `value` is initialised exactly while it is FULL.
//! 2. The thread whose tag it is alone writes `value`, and nothing of the user's runs meanwhile. The tag of a thread
//!    that a fork left behind is as EMPTY.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;

use super::slot::{Kind, Zeroed};
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::owner_tag::{self, Holder};

const EMPTY: u32 = 0;
/// Of the tag that is above it.
const FILLING: u32 = 1;
const FULL: u32 = 2;
const TAG_SHIFT: u32 = 2;
const TAG_BITS: u32 = 32 - TAG_SHIFT;

/// The state while the calling thread fills a slot.
fn filling() -> u32 {
    owner_tag::tag::<TAG_BITS>() << TAG_SHIFT | FILLING
}

/// See the module's text.
pub(super) struct OnceSlot<T> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// What came of an attempt to fill a slot.
pub(super) enum Filled<'a, T> {
    /// The candidate is there now; what it was moved from holds none any more.
    Moved(&'a T),
    /// There was a value before.
    Before(&'a T),
    /// Another thread is putting one in.
    Busy,
}

// SAFETY: `&T` is given to any thread, and a value may be dropped by another than the one that made it.
unsafe impl<T: Send + Sync> Sync for OnceSlot<T> {}

/// As far as the value is, which is written once and stays until it is dropped.
impl<T: UnwindSafe + RefUnwindSafe> RefUnwindSafe for OnceSlot<T> {}

// SAFETY: EMPTY is 0, and an uninitialised value may be any bytes; it is the owner that drops values.
unsafe impl<T: Send + Sync + 'static> Zeroed for OnceSlot<T> {
    /// A value is reached without a section, whether the slot is frozen or not.
    const KIND: Kind = Kind::Fixed;

    #[cfg(loom)]
    fn zeroed() -> Self {
        OnceSlot::new()
    }
}

impl<T> OnceSlot<T> {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        OnceSlot { state: AtomicU32::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        OnceSlot { state: AtomicU32::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Whether there is a value; what `as_ptr` then points to is visible.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        // Acquire: partner is the Release in `publish`.
        self.state.load(Ordering::Acquire) == FULL
    }

    /// The value, if there is one.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<&T> {
        // SAFETY: invariant 1; nobody has it exclusively while `self` is borrowed, but by `as_ptr`,
        // whose user rules out this.
        self.is_full().then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Where the value is, for those who exclude others by their own means.
    #[inline(always)]
    pub(super) fn as_ptr(&self) -> *mut T {
        self.value.get().cast()
    }

    /// Moves the value at `candidate` in, if there is none. Async-signal-safe.
    ///
    /// By a pointer: each function that takes a `T` by value may have a copy of its own on the stack, and a `T`
    /// may be as long as a thread's stack is.
    ///
    /// # Safety
    /// `candidate` is valid for reads. Where the result is [`Filled::Moved`], the caller's is to be forgotten.
    pub(super) unsafe fn fill(&self, candidate: *const T) -> Filled<'_, T> {
        // Acquire on failure: partner is the Release in `publish`. Success orders nothing: the memory was
        // handed out zeroed, and ordered by whoever showed us the slot.
        let claim = |before| {
            self.state.compare_exchange(before, filling(), Ordering::Relaxed, Ordering::Acquire)
        };
        let is_left_behind = |state| {
            state % (1 << TAG_SHIFT) == FILLING
                && owner_tag::who::<TAG_BITS>(state >> TAG_SHIFT) == Holder::Gone
        };
        let claimed = match claim(EMPTY) {
            Err(state) if is_left_behind(state) => claim(state),
            claimed => claimed,
        };
        match claimed {
            Ok(_) => {
                // SAFETY: invariant 2, claimed just now; the caller's promise.
                unsafe {
                    candidate.copy_to_nonoverlapping(self.as_ptr(), 1);
                    self.publish();
                }
                // SAFETY: FULL now, invariant 1.
                Filled::Moved(unsafe { &*self.as_ptr() })
            }
            // SAFETY: likewise.
            Err(FULL) => Filled::Before(unsafe { &*self.as_ptr() }),
            Err(_filling) => Filled::Busy,
        }
    }

    /// As [`fill`](Self::fill), waiting while another thread puts a value in, which is no more than a
    /// copy of it. Not for a signal handler, which would wait for the thread it interrupted.
    ///
    /// # Safety
    /// As [`fill`](Self::fill).
    pub(super) unsafe fn fill_patiently(&self, candidate: *const T) -> Filled<'_, T> {
        loop {
            // SAFETY: the caller's promise.
            match unsafe { self.fill(candidate) } {
                Filled::Busy => super::blocking::nap(Duration::from_micros(50)),
                filled => return filled,
            }
        }
    }

    /// Makes a value in place.
    ///
    /// # Safety
    /// There is none, and others are excluded.
    pub(super) unsafe fn make(&self, init: impl FnOnce() -> T) {
        // SAFETY: the caller's promise.
        unsafe {
            self.as_ptr().write(init());
            self.publish();
        }
    }

    /// Says that there is a value.
    ///
    /// # Safety
    /// `as_ptr` was written to by the one that may.
    unsafe fn publish(&self) {
        // Release: partner is the Acquire in `is_full` and `fill`.
        self.state.store(FULL, Ordering::Release);
    }

    /// Leaves it as it is while another thread puts a value in.
    #[cfg(all(test, not(loom)))]
    pub(super) fn claim(&self) {
        self.state.store(filling(), Ordering::Relaxed);
    }

    /// Takes the value out.
    ///
    /// # Safety
    /// The caller has exclusive access to the slot, and what others did to it is ordered before.
    pub(super) unsafe fn take(&self) -> Option<T> {
        if self.state.load(Ordering::Relaxed) != FULL {
            return None;
        }
        self.state.store(EMPTY, Ordering::Relaxed);
        // SAFETY: invariant 1; moved out once, since the state says so.
        Some(unsafe { self.as_ptr().read() })
    }

    /// Drops the value where it is, if there is one.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    pub(super) unsafe fn drop_in_place(&self) {
        if self.state.load(Ordering::Relaxed) == FULL {
            // First, for a drop that panics.
            self.state.store(EMPTY, Ordering::Relaxed);
            // SAFETY: invariant 1; dropped once, since the state says so.
            unsafe { self.as_ptr().drop_in_place() };
        }
    }
}

/// Calls `next`, which drops something, until it says that there is no more; on where a drop panics. (A second
/// panic aborts, as anywhere.)
pub(super) fn drop_each(next: impl FnMut() -> bool) {
    struct Rest<F: FnMut() -> bool>(F);
    impl<F: FnMut() -> bool> Drop for Rest<F> {
        fn drop(&mut self) {
            while (self.0)() {}
        }
    }
    let mut rest = Rest(next);
    while (rest.0)() {}
}

/// Fills a slot by a value; the value that is there then, unless another thread is putting one in.
#[cfg(test)]
fn fill<T>(slot: &OnceSlot<T>, candidate: T) -> Option<&T> {
    // SAFETY: forgotten where it was moved.
    match unsafe { slot.fill(&raw const candidate) } {
        Filled::Moved(value) => {
            core::mem::forget(candidate);
            Some(value)
        }
        Filled::Before(value) => Some(value),
        Filled::Busy => None,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::string::String;

    #[test]
    fn the_first_value_stays() {
        let slot = OnceSlot::new();
        assert!(slot.get().is_none());
        assert_eq!(fill(&slot, String::from("first")).unwrap(), "first");
        assert_eq!(fill(&slot, String::from("second")).unwrap(), "first");
        // SAFETY: this thread's alone.
        assert_eq!(unsafe { slot.take() }.unwrap(), "first");
        // SAFETY: likewise.
        assert!(unsafe { slot.take() }.is_none());
        assert_eq!(fill(&slot, String::from("third")).unwrap(), "third");
        // SAFETY: likewise.
        unsafe { slot.drop_in_place() };
        assert!(slot.get().is_none());
        // SAFETY: likewise.
        unsafe { slot.make(|| String::from("fourth")) };
        assert_eq!(slot.get().unwrap(), "fourth");
        // SAFETY: likewise.
        unsafe { slot.drop_in_place() };
    }

    #[test]
    fn what_is_being_filled_is_left_alone() {
        let slot = OnceSlot::new();
        slot.claim();
        assert_eq!(fill(&slot, 7), None);
        assert!(slot.get().is_none());
        // SAFETY: this test stands for the one that fills.
        unsafe { slot.make(|| 8) };
        assert_eq!(fill(&slot, 7), Some(&8));
    }

    #[test]
    fn what_a_gone_thread_was_filling_is_empty() {
        let slot = OnceSlot::new();
        let gone = owner_tag::gone_tag::<TAG_BITS>() << TAG_SHIFT | FILLING;
        slot.state.store(gone, Ordering::Relaxed);
        assert!(slot.get().is_none());
        assert_eq!(fill(&slot, 7), Some(&7));
        assert_eq!(slot.get(), Some(&7));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// What the state says that there is, as loom sees it: the value itself it does not watch.
    struct Twin {
        slot: OnceSlot<u32>,
        value: loom::cell::UnsafeCell<u32>,
    }

    impl Twin {
        /// Two threads fill at once: whoever gets a value gets the same one, whole.
        fn explore(fill: fn(&Twin, u32) -> bool) {
            loom::model(move || {
                let value = loom::cell::UnsafeCell::new(0);
                let twin = Arc::new(Twin { slot: OnceSlot::new(), value });
                let other = twin.clone();
                let thread = thread::spawn(move || fill(&other, 1).then(|| other.get()));
                let mine = fill(&twin, 2).then(|| twin.get());
                let theirs = thread.join().unwrap();
                assert!(mine.is_some() || theirs.is_some());
                for seen in [mine, theirs].into_iter().flatten() {
                    assert_eq!(twin.get(), seen);
                }
            });
        }

        fn get(&self) -> u32 {
            // SAFETY: there is a value; loom checks it.
            self.value.with(|value| unsafe { *value })
        }

        /// What `fill` does, with one order and one state to be chosen.
        fn fill(&self, n: u32, filling: u32, order: Ordering) -> bool {
            let state = &self.slot.state;
            let (success, failure) = (Ordering::Relaxed, Ordering::Acquire);
            match state.compare_exchange(EMPTY, filling, success, failure) {
                Ok(_) => {
                    // SAFETY: ours by the exchange; loom checks it.
                    self.value.with_mut(|value| unsafe { *value = n });
                    state.store(FULL, order);
                    true
                }
                Err(now) => now == FULL,
            }
        }
    }

    #[test]
    fn loom_a_twin_without_a_fault_passes() {
        Twin::explore(|twin, n| twin.fill(n, FILLING, Ordering::Release));
    }

    /// Who finds a value does not see it.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_catches_a_value_stored_without_release() {
        Twin::explore(|twin, n| twin.fill(n, FILLING, Ordering::Relaxed));
    }

    /// A value is found that is still being put in.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_catches_a_value_found_too_soon() {
        Twin::explore(|twin, n| twin.fill(n, FULL, Ordering::Release));
    }

    /// A slot that seems empty meanwhile gets two.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_catches_two_that_fill() {
        Twin::explore(|twin, n| twin.fill(n, EMPTY, Ordering::Release));
    }

    /// The slot itself: whoever gets a value gets the same one.
    #[test]
    fn loom_fillers_agree() {
        loom::model(|| {
            let slot = Arc::new(OnceSlot::<(u32, u32)>::new());
            let other = slot.clone();
            let thread = thread::spawn(move || super::fill(&other, (1, 1)).copied());
            let mine = super::fill(&slot, (2, 2)).copied();
            let theirs = thread.join().unwrap();
            assert!(mine.is_some() || theirs.is_some());
            for seen in [mine, theirs].into_iter().flatten() {
                assert_eq!(slot.get(), Some(&seen));
                assert_eq!(seen.0, seen.1);
            }
        });
    }
}
