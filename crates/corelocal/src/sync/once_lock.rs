//! A value that is written once.
//!
//! # Invariants
//! 1. The value is initialised exactly while `once` is done.
//! 2. It is written by the holder of a sealed claim alone (`once.rs`, invariants 2 and 3), before anybody sees
//!    `once` done, and never again while the lock is shared.

use core::convert::Infallible;
use core::fmt;
use core::mem::MaybeUninit;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;

use super::once::{Begin, Once};
use crate::primitive::cell::UnsafeCell;
use crate::sys::futex::Deadline;

/// A value that is written once, and read without a lock: the value and 4 bytes.
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
/// What was done before the value was written happens before what follows a call that returns it.
///
/// An initialiser that panics leaves it empty, for the next one.
///
/// # After fork
/// As for [`Once`]: what another thread of the parent was about to write is not there, and the next initialiser
/// runs.
#[repr(C)]
pub struct OnceLock<T> {
    once: Once,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: `&T` is given to any thread, and a value may be dropped by another than the one that made it.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}

// SAFETY: it owns a `T`.
unsafe impl<T: Send> Send for OnceLock<T> {}

impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// An empty one.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        OnceLock { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// As above.
    #[cfg(loom)]
    pub fn new() -> Self {
        OnceLock { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The value, if it was written. Never waits; async-signal-safe.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: invariant 1.
        self.once.is_completed().then(|| unsafe { self.value_ref() })
    }

    /// The value, if it was written.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.once.is_completed_mut().then(|| {
            // SAFETY: invariant 1; `self` is exclusive.
            self.value.with_mut(|value| unsafe { (*value).assume_init_mut() })
        })
    }

    /// Writes the value, unless there is one: then it gives it back. Waits while somebody else initialises.
    ///
    /// # Errors
    /// The value, if there was one already.
    ///
    /// # Panics
    /// If called by an initialiser of this lock.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| match value.take() {
            Some(value) => value,
            // An initialiser runs once.
            None => unreachable!("an initialiser ran twice"),
        });
        value.map_or(Ok(()), Err)
    }

    /// The value, written by the initialiser if there is none. Waits while another one runs.
    ///
    /// # Panics
    /// If the initialiser does, or if it comes back here: that would wait for itself.
    #[inline]
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        match self.get_or_try_init(|| Ok::<T, Infallible>(init())) {
            Ok(value) => value,
        }
    }

    /// The same with an initialiser that may fail; then it is as if it had not run.
    ///
    /// # Errors
    /// The initialiser's.
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

    /// The value, once another thread has written it; waits until then.
    ///
    /// An initialiser that panics or fails writes nothing, so this waits for the next one.
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
    /// If called by an initialiser of this lock; and in a forked child, if another thread of the parent was running one
    /// at the [fork](#after-fork): no thread would end it. There [`get_or_init`](Self::get_or_init) brings another.
    #[inline]
    pub fn wait(&self) -> &T {
        self.once.wait();
        // SAFETY: invariant 1.
        unsafe { self.value_ref() }
    }

    /// The value, if another thread writes it within the time span. Nothing at once if the thread that was writing it
    /// was left behind by a [fork](#after-fork).
    ///
    /// # Panics
    /// If called by an initialiser of this lock.
    #[inline]
    pub fn wait_for(&self, span: Duration) -> Option<&T> {
        // SAFETY: invariant 1.
        (!self.once.wait_for(span).timed_out()).then(|| unsafe { self.value_ref() })
    }

    /// The value, if another thread writes it before the deadline; nothing as told at [`wait_for`](Self::wait_for).
    ///
    /// # Panics
    /// If called by an initialiser of this lock.
    #[inline]
    pub fn wait_until(&self, deadline: Deadline) -> Option<&T> {
        // SAFETY: invariant 1.
        (!self.once.wait_until(deadline).timed_out()).then(|| unsafe { self.value_ref() })
    }

    #[cold]
    fn init_cold<E>(&self, init: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let mut make = Make::With(init);
        loop {
            let Begin::Run(claim) = self.once.begin() else {
                // SAFETY: invariant 1.
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
                // SAFETY: invariant 2.
                self.value.with_mut(|place| unsafe { (*place).write(value) });
                claim.finish();
                // SAFETY: invariant 1.
                return Ok(unsafe { self.value_ref() });
            }
            // Taken over. Whoever did so writes another value, or is cut short.
            make = Make::Made(value);
        }
    }

    /// # Safety
    /// The value is initialised.
    #[inline(always)]
    unsafe fn value_ref(&self) -> &T {
        // SAFETY: the caller's promise; it is not written while `self` is shared (invariant 2).
        self.value.with(|value| unsafe { (*value).assume_init_ref() })
    }

    /// Takes the value out; the lock is as new.
    pub fn take(&mut self) -> Option<T> {
        if !self.once.is_completed_mut() {
            return None;
        }
        self.once = Once::new();
        // SAFETY: invariant 1 held, and the lock is empty now: this is the only one left.
        Some(self.value.with(|value| unsafe { (*value).assume_init_read() }))
    }

    /// The value, if it was written.
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }
}

/// How an initialiser gets its value.
enum Make<T, F> {
    With(F),
    Made(T),
}

impl<T> Drop for OnceLock<T> {
    #[inline]
    fn drop(&mut self) {
        if core::mem::needs_drop::<T>() && self.once.is_completed_mut() {
            // SAFETY: invariant 1; nobody comes after.
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
