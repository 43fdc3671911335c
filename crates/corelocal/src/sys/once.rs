//! A value made at most once, readable from signal handlers and from inside malloc.
//!
//! `std::sync::OnceLock` blocks threads that come second, so a signal handler that interrupts the first one would
//! wait for itself. Here no thread waits: each makes a candidate in fresh pages from the kernel, one compare-exchange
//! chooses, and the others free theirs.
//!
//! Invariants:
//! - The pointer changes from null to its final value once; the value is never unmapped.
//! - A candidate that was not chosen was never visible to other threads.

use crate::primitive::atomic::{AtomicPtr, Ordering};

/// A value that is made once, in memory of its own: see the module's text.
pub(crate) struct OnceMap<T: 'static> {
    value: AtomicPtr<T>,
}

impl<T: Sync> OnceMap<T> {
    const_fn! {
        pub(crate) const fn new() -> Self {
            OnceMap { value: AtomicPtr::new(core::ptr::null_mut()) }
        }
    }

    /// Returns the value, if it exists.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // Acquire: partner is the Release in `get_or_try_init`; the value's contents are visible.
        let value = self.value.load(Ordering::Acquire);
        // SAFETY: non-null only after `get_or_try_init` published an initialised `T` that is never
        // freed; shared access is what `T: Sync` allows.
        unsafe { value.as_ref() }
    }

    /// Returns the value, made by `init` if it does not exist. `None` if there is no memory for it.
    ///
    /// `init` may run on several threads at once, and its result may be dropped unused.
    #[cold]
    pub(crate) fn get_or_try_init(&self, init: impl FnOnce() -> T) -> Option<&'static T> {
        if let Some(value) = self.get() {
            return Some(value);
        }
        let candidate = alloc_value(init)?;
        // Release on success: partner is the Acquire in `get`. Acquire on failure: the winner's
        // value is about to be read.
        match self.value.compare_exchange(
            core::ptr::null_mut(),
            candidate,
            Ordering::Release,
            Ordering::Acquire,
        ) {
            // SAFETY: `candidate` is initialised and, being published, never freed.
            Ok(_) => Some(unsafe { &*candidate }),
            Err(winner) => {
                // SAFETY: no other thread has seen `candidate`.
                unsafe { free_value(candidate) };
                // SAFETY: non-null, published by the winner, never freed.
                Some(unsafe { &*winner })
            }
        }
    }
}

#[cfg(not(loom))]
fn alloc_value<T>(init: impl FnOnce() -> T) -> Option<*mut T> {
    const { assert!(align_of::<T>() <= 4096) };
    let at = super::memory::pages::map(size_of::<T>().max(1))?.cast::<T>();
    // SAFETY: fresh pages of sufficient size and alignment that only this thread knows.
    unsafe { at.write(init()) };
    Some(at)
}

/// # Safety
/// - `at` comes from `alloc_value`, and no reference to it is left.
#[cfg(not(loom))]
unsafe fn free_value<T>(at: *mut T) {
    // SAFETY: initialised by `alloc_value`, mapped with the same length, no references left.
    unsafe {
        at.drop_in_place();
        super::memory::pages::unmap(at.cast(), size_of::<T>().max(1));
    }
}

#[cfg(loom)]
fn alloc_value<T>(init: impl FnOnce() -> T) -> Option<*mut T> {
    Some(std::boxed::Box::into_raw(std::boxed::Box::new(init())))
}

/// # Safety
/// - `at` comes from `alloc_value`, and no reference to it is left.
#[cfg(loom)]
unsafe fn free_value<T>(at: *mut T) {
    // SAFETY: made by `Box::into_raw` in `alloc_value`, no references left.
    drop(unsafe { std::boxed::Box::from_raw(at) });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_value_for_all_racers() {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        static ONCE: OnceMap<usize> = OnceMap::new();
        assert!(ONCE.get().is_none());
        let seen: std::vec::Vec<usize> = std::thread::scope(|scope| {
            let racers: std::vec::Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let init = || MADE.fetch_add(1, Ordering::Relaxed);
                        *ONCE.get_or_try_init(init).expect("a page of memory")
                    })
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().expect("racer")).collect()
        });
        assert!(seen.iter().all(|value| *value == seen[0]), "{seen:?}");
        assert_eq!(ONCE.get(), Some(&seen[0]));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    /// Two threads make the value at once: both must see the same, fully written one.
    #[test]
    fn loom_racing_makers_agree() {
        loom::model(|| {
            let once = loom::sync::Arc::new(OnceMap::<(u32, u32)>::new());
            let other = once.clone();
            let racer = loom::thread::spawn(move || *other.get_or_try_init(|| (1, 1)).unwrap());
            let mine = *once.get_or_try_init(|| (2, 2)).unwrap();
            let theirs = racer.join().unwrap();
            assert_eq!(mine, theirs);
            assert_eq!(mine.0, mine.1);
        });
    }
}
