//! A cell that is written at most once and then read without a lock.
//!
//! # Invariants
//! 1. The value is initialised exactly while `once` is done.
//! 2. Only the owner of a sealed claim writes the value (`once.rs`, invariants 2 and 3), before `once` is done. It is
//!    never written again while the lock is shared.

use core::convert::Infallible;
use core::fmt;
use core::mem::MaybeUninit;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;

use super::{Begin, Once};
use crate::primitive::cell::UnsafeCell;
use crate::sys::futex::Deadline;

/// A cell that is written at most once, and read without a lock. Its size is that of the value and 4 bytes.
///
/// ```
/// use corelocal::sync::OnceLock;
///
/// static NAME: OnceLock<String> = OnceLock::new();
///
/// assert!(NAME.get().is_none());
/// assert_eq!(NAME.get_or_init(|| "first".into()), "first");
/// assert_eq!(NAME.set("second".into()), Err("second".into()));
/// ```
///
/// What happened before the value was written happens before a call that returns it.
///
/// If an initialiser panics the cell stays empty, and the next initialiser runs.
///
/// # After fork
/// As for [`Once`]: a value that another thread of the parent was about to write does not exist in the child, and the
/// next initialiser runs.
#[repr(C)]
pub struct OnceLock<T> {
    once: Once,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: all threads may get `&T`, and the value may be dropped by another thread than the one that made it.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}

// SAFETY: it owns a `T`, which is `Send`.
unsafe impl<T: Send> Send for OnceLock<T> {}

impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    const_fn! {
        /// Creates an empty cell.
        pub const fn new() -> Self {
            OnceLock { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
        }
    }

    /// Returns the value if it was written. Never waits; async-signal-safe.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: `once` is done, so the value is initialised (invariant 1).
        self.once.is_completed().then(|| unsafe { self.value_ref() })
    }

    /// Returns the value if it was written.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.once.is_completed_mut().then(|| {
            // SAFETY: `once` is done, so the value is initialised (invariant 1), and `self` is borrowed exclusively.
            self.value.with_mut(|value| unsafe { (*value).assume_init_mut() })
        })
    }

    /// Writes the value if the cell is empty. Waits while another thread initialises it.
    ///
    /// # Errors
    /// Returns the value back if the cell is not empty.
    ///
    /// # Panics
    /// If called by an initialiser of this lock.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| match value.take() {
            Some(value) => value,
            // The initialiser runs at most once.
            None => unreachable!("an initialiser ran twice"),
        });
        value.map_or(Ok(()), Err)
    }

    /// Returns the value. If the cell is empty, the initialiser writes it first. Waits while another thread
    /// initialises it.
    ///
    /// # Panics
    /// If the initialiser panics, or initialises the same cell: that would wait for itself.
    #[inline]
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        match self.get_or_try_init(|| Ok::<T, Infallible>(init())) {
            Ok(value) => value,
        }
    }

    /// Does what [`get_or_init`](Self::get_or_init) does, with an initialiser that may fail. If it fails the cell stays
    /// empty.
    ///
    /// # Errors
    /// Those of the initialiser.
    ///
    /// # Panics
    /// As [`get_or_init`](Self::get_or_init).
    #[inline]
    pub fn get_or_try_init<E>(&self, init: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        match self.get() {
            Some(value) => Ok(value),
            None => self.init_cold(init),
        }
    }

    /// Waits until another thread has written the value, and returns it.
    ///
    /// After an initialiser that panics or fails it keeps waiting for the next one.
    ///
    /// ```
    /// use corelocal::sync::OnceLock;
    ///
    /// static ADDRESS: OnceLock<String> = OnceLock::new();
    ///
    /// let server = std::thread::spawn(|| ADDRESS.set("[::1]:80".into()));
    /// assert_eq!(ADDRESS.wait(), "[::1]:80");
    /// # server.join().unwrap().unwrap();
    /// ```
    ///
    /// # Panics
    /// - If called by an initialiser of this cell.
    /// - In a forked child, if another thread of the parent was running an initialiser at the [fork](#after-fork): it
    ///   would never complete. [`get_or_init`](Self::get_or_init) runs one in that case.
    #[inline]
    pub fn wait(&self) -> &T {
        self.once.wait();
        // SAFETY: `wait` returned, so `once` is done and the value is initialised (invariant 1).
        unsafe { self.value_ref() }
    }

    /// Does what [`wait`](Self::wait) does, with a time limit. `None` at once if a [fork](#after-fork) left the
    /// initialising thread behind.
    ///
    /// # Panics
    /// If called by an initialiser of this lock.
    #[inline]
    pub fn wait_for(&self, span: Duration) -> Option<&T> {
        // SAFETY: it did not time out, so `once` is done and the value is initialised (invariant 1).
        (!self.once.wait_for(span).timed_out()).then(|| unsafe { self.value_ref() })
    }

    /// Does what [`wait`](Self::wait) does, with a deadline. `None` at once in the case that
    /// [`wait_for`](Self::wait_for) names.
    ///
    /// # Panics
    /// If called by an initialiser of this lock.
    #[inline]
    pub fn wait_until(&self, deadline: Deadline) -> Option<&T> {
        // SAFETY: it did not time out, so `once` is done and the value is initialised (invariant 1).
        (!self.once.wait_until(deadline).timed_out()).then(|| unsafe { self.value_ref() })
    }

    #[cold]
    fn init_cold<E>(&self, init: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let mut make = Make::With(init);
        loop {
            let Begin::Run(claim) = self.once.begin() else {
                // SAFETY: `once` is done, so the value is initialised (invariant 1).
                return Ok(unsafe { self.value_ref() });
            };
            let value = match make {
                Make::Made(value) => value,
                Make::With(init) => match init() {
                    Ok(value) => value,
                    Err(error) => {
                        claim.give_back();
                        return Err(error);
                    }
                },
            };
            if claim.seal() {
                // SAFETY: the claim is sealed, so this thread alone accesses the value (invariant 2).
                self.value.with_mut(|place| unsafe { (*place).write(value) });
                claim.finish();
                // SAFETY: `once` is done, so the value is initialised (invariant 1).
                return Ok(unsafe { self.value_ref() });
            }
            // The run was taken over. The thread that did so writes another value, or its run is cut short.
            make = Make::Made(value);
        }
    }

    /// # Safety
    /// - The value is initialised.
    #[inline(always)]
    unsafe fn value_ref(&self) -> &T {
        // SAFETY: the caller guarantees that the value is initialised, and it is not written while shared (invariant
        // 2).
        self.value.with(|value| unsafe { (*value).assume_init_ref() })
    }

    /// Takes the value out and leaves the cell empty.
    pub fn take(&mut self) -> Option<T> {
        if !self.once.is_completed_mut() {
            return None;
        }
        self.once = Once::new();
        // SAFETY: the value was initialised (invariant 1). The cell is empty now, so this is the only copy.
        Some(self.value.with(|value| unsafe { (*value).assume_init_read() }))
    }

    /// Returns the value if it was written.
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }
}

/// The source of an initialiser's value.
enum Make<T, F> {
    With(F),
    Made(T),
}

impl<T> Drop for OnceLock<T> {
    #[inline]
    fn drop(&mut self) {
        if core::mem::needs_drop::<T>() && self.once.is_completed_mut() {
            // SAFETY: `once` is done, so the value is initialised (invariant 1). It is not used after the drop.
            self.value.with_mut(|value| unsafe { (*value).assume_init_drop() });
        }
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        OnceLock::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        let lock = OnceLock::new();
        match lock.set(value) {
            Ok(()) => lock,
            Err(_) => unreachable!("a new lock is empty"),
        }
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> Self {
        self.get().map_or_else(OnceLock::new, |value| OnceLock::from(value.clone()))
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("OnceLock");
        match self.get() {
            Some(value) => tuple.field(value).finish(),
            None => tuple.field(&format_args!("<empty>")).finish(),
        }
    }
}
