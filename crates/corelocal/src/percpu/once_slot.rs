//! A value made at first use, in memory that starts as zeros.
//!
//! Slots are zeroed pages, but a `T` may be anything. The first thread makes a value and puts it in. The value is
//! made before the slot is claimed. So an initialiser may panic, be slow, or use the same slot, without leaving a
//! trace.
//!
//! | state | meaning |
//! |---|---|
//! | EMPTY (0) | There is no value. |
//! | FILLING, tag | The thread with this tag (`sys/thread/owner_tag.rs`) is writing the value. If a fork left it behind: like EMPTY. |
//! | FULL | There is a value. |
//!
//! Invariants:
//! 1. `state` goes from EMPTY to FILLING to FULL, each once between two times of exclusive access. `value` is
//!    initialised exactly while it is FULL.
//! 2. Only the thread with the tag writes `value`, and no code of the caller runs meanwhile.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;

use super::machinery::slot::{Kind, Zeroed};
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::thread::owner_tag::{self, Holder};

const EMPTY: u32 = 0;
/// Marks a state whose upper bits are a tag.
const FILLING: u32 = 1;
const FULL: u32 = 2;
const TAG_SHIFT: u32 = 2;
const TAG_BITS: u32 = 32 - TAG_SHIFT;

/// Returns the state while the calling thread fills a slot.
fn filling() -> u32 {
    owner_tag::tag::<TAG_BITS>() << TAG_SHIFT | FILLING
}

/// A slot for a value that is made at first use.
pub(super) struct OnceSlot<T> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// The outcome of an attempt to fill a slot.
pub(super) enum Filled<'a, T> {
    /// The candidate was moved in; its old place holds no value any more.
    Moved(&'a T),
    /// There was a value before.
    Before(&'a T),
    /// Another thread is putting a value in.
    Busy,
}

// SAFETY: any thread may get `&T`, and the value may be dropped by another thread than the one that made it.
unsafe impl<T: Send + Sync> Sync for OnceSlot<T> {}

/// As far as the value is unwind-safe: it is written once and stays until it is dropped.
impl<T: UnwindSafe + RefUnwindSafe> RefUnwindSafe for OnceSlot<T> {}

// SAFETY: EMPTY is 0, and an uninitialised value may be any bytes; the slot's owner drops values.
unsafe impl<T: Send + Sync + 'static> Zeroed for OnceSlot<T> {
    /// A value is accessed without a critical section, whether the slot is frozen or not.
    const KIND: Kind = Kind::Fixed;

    #[cfg(loom)]
    fn zeroed() -> Self {
        OnceSlot::new()
    }
}

impl<T> OnceSlot<T> {
    const_fn! {
        pub(super) const fn new() -> Self {
            OnceSlot { state: AtomicU32::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
        }
    }

    /// Returns `true` if there is a value. If so, `as_ptr` points to it, and it is visible.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        // Acquire: partner is the Release in `publish`.
        self.state.load(Ordering::Acquire) == FULL
    }

    /// Returns the value, if there is one.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<&T> {
        // SAFETY: FULL, so the value is initialised (invariant 1). No thread has it exclusively while `self` is
        // borrowed, except through `as_ptr`, whose callers exclude this.
        self.is_full().then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Returns the address of the value, for callers that exclude other threads by their own means.
    #[inline(always)]
    pub(super) fn as_ptr(&self) -> *mut T {
        self.value.get().cast()
    }

    /// Moves the value at `candidate` in, if there is none. Async-signal-safe.
    ///
    /// It takes a pointer because each function that takes a `T` by value may have a copy of its own on the stack,
    /// and a `T` may be as long as a thread's stack.
    ///
    /// # Safety
    /// - `candidate` is valid for reads.
    /// - If the result is [`Filled::Moved`], the caller forgets its value.
    pub(super) unsafe fn fill(&self, candidate: *const T) -> Filled<'_, T> {
        // Acquire on failure: partner is the Release in `publish`. Success orders nothing: the memory was zeroed, and
        // ordered by the code that gave this thread the slot.
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
                // SAFETY: this thread has just claimed the slot (invariant 2); the caller guarantees a valid
                // candidate.
                unsafe {
                    candidate.copy_to_nonoverlapping(self.as_ptr(), 1);
                    self.publish();
                }
                // SAFETY: FULL now, so the value is initialised (invariant 1).
                Filled::Moved(unsafe { &*self.as_ptr() })
            }
            // SAFETY: FULL, so the value is initialised (invariant 1).
            Err(FULL) => Filled::Before(unsafe { &*self.as_ptr() }),
            Err(_filling) => Filled::Busy,
        }
    }

    /// Does what [`fill`](Self::fill) does, but waits while another thread puts a value in, which takes as long as a
    /// copy of it. Not for signal handlers, which would wait for the thread they interrupted.
    ///
    /// # Safety
    /// - As [`fill`](Self::fill).
    pub(super) unsafe fn fill_patiently(&self, candidate: *const T) -> Filled<'_, T> {
        loop {
            // SAFETY: the caller keeps the conditions of `fill`.
            match unsafe { self.fill(candidate) } {
                Filled::Busy => super::machinery::blocking::nap(Duration::from_micros(50)),
                filled => return filled,
            }
        }
    }

    /// Makes a value in place.
    ///
    /// # Safety
    /// - There is no value, and other threads are excluded.
    pub(super) unsafe fn make(&self, init: impl FnOnce() -> T) {
        // SAFETY: the caller guarantees that there is no value, and excludes other threads.
        unsafe {
            self.as_ptr().write(init());
            self.publish();
        }
    }

    /// Marks the slot as full.
    ///
    /// # Safety
    /// - The value was written through `as_ptr` by the thread that may.
    unsafe fn publish(&self) {
        // Release: partner is the Acquire in `is_full` and `fill`.
        self.state.store(FULL, Ordering::Release);
    }

    /// Stays in the state in which another thread puts a value in.
    #[cfg(all(test, not(loom)))]
    pub(super) fn claim(&self) {
        self.state.store(filling(), Ordering::Relaxed);
    }

    /// Takes the value out.
    ///
    /// # Safety
    /// - The caller has exclusive access to the slot, which is ordered after all accesses by others.
    pub(super) unsafe fn take(&self) -> Option<T> {
        if self.state.load(Ordering::Relaxed) != FULL {
            return None;
        }
        self.state.store(EMPTY, Ordering::Relaxed);
        // SAFETY: FULL, so the value is initialised (invariant 1). It is moved out once, since the state is EMPTY
        // now.
        Some(unsafe { self.as_ptr().read() })
    }

    /// Drops the value in place, if there is one.
    ///
    /// # Safety
    /// - As [`take`](Self::take).
    pub(super) unsafe fn drop_in_place(&self) {
        if self.state.load(Ordering::Relaxed) == FULL {
            // First, in case the drop panics.
            self.state.store(EMPTY, Ordering::Relaxed);
            // SAFETY: the state was FULL, so the value is initialised (invariant 1). It is dropped once, since the
            // state is EMPTY now.
            unsafe { self.as_ptr().drop_in_place() };
        }
    }
}

/// Calls `next`, which drops something, until it returns false. Continues after a drop that panics. (A second panic
/// aborts, as usual.)
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

/// Fills a slot by a value. Returns the value that is there then, unless another thread is putting one in.
#[cfg(test)]
fn fill<T>(slot: &OnceSlot<T>, candidate: T) -> Option<&T> {
    // SAFETY: the candidate is forgotten if it was moved.
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
        // SAFETY: only this thread uses the slot.
        assert_eq!(unsafe { slot.take() }.unwrap(), "first");
        // SAFETY: only this thread uses the slot.
        assert!(unsafe { slot.take() }.is_none());
        assert_eq!(fill(&slot, String::from("third")).unwrap(), "third");
        // SAFETY: only this thread uses the slot.
        unsafe { slot.drop_in_place() };
        assert!(slot.get().is_none());
        // SAFETY: only this thread uses the slot, which is empty.
        unsafe { slot.make(|| String::from("fourth")) };
        assert_eq!(slot.get().unwrap(), "fourth");
        // SAFETY: only this thread uses the slot.
        unsafe { slot.drop_in_place() };
    }

    #[test]
    fn what_is_being_filled_is_left_alone() {
        let slot = OnceSlot::new();
        slot.claim();
        assert_eq!(fill(&slot, 7), None);
        assert!(slot.get().is_none());
        // SAFETY: this test takes the place of the filling thread.
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

    /// The slot's content under loom, which cannot watch the value itself.
    struct Twin {
        slot: OnceSlot<u32>,
        value: loom::cell::UnsafeCell<u32>,
    }

    impl Twin {
        /// Returns two threads fill at once: both get the same value, whole.
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

        /// Does what `fill` does, with this state and this order.
        fn fill(&self, n: u32, filling: u32, order: Ordering) -> bool {
            let state = &self.slot.state;
            let (success, failure) = (Ordering::Relaxed, Ordering::Acquire);
            match state.compare_exchange(EMPTY, filling, success, failure) {
                Ok(_) => {
                    // SAFETY: claimed by the exchange; loom checks it.
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

    /// A thread that finds a value does not see its content.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_catches_a_value_stored_without_release() {
        Twin::explore(|twin, n| twin.fill(n, FILLING, Ordering::Relaxed));
    }

    /// A value is found while it is being written.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_catches_a_value_found_too_soon() {
        Twin::explore(|twin, n| twin.fill(n, FULL, Ordering::Release));
    }

    /// A slot that seems empty meanwhile gets two values.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_catches_two_that_fill() {
        Twin::explore(|twin, n| twin.fill(n, EMPTY, Ordering::Release));
    }

    /// The slot itself: all threads get the same value.
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
