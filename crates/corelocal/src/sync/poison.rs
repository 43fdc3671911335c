//! Poisoning, as std's locks have it: a value that remembers a panic during a change.
//!
//! It is a value that a lock protects, not a kind of lock, so it works with all locks.
//!
//! Invariant: the value is marked if a guard that gives `&mut` was dropped by a panic that began while the guard
//! existed.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};

/// A value behind a lock that remembers a panic during a change.
///
/// ```
/// use corelocal::sync::{Mutex, Poison};
///
/// let account = Mutex::new(Poison::new(100));
/// let panicked = std::thread::scope(|scope| {
///     let spoil = || {
///         let mut account = account.lock();
///         let mut balance = account.change().unwrap();
///         *balance -= 10;
///         std::panic::resume_unwind(Box::new("before the other account got it"));
///     };
///     scope.spawn(spoil).join()
/// });
/// assert!(panicked.is_err());
///
/// let mut account = account.lock();
/// assert!(account.get().is_err());
/// *account.change().unwrap_or_else(|poisoned| poisoned.into_inner()) += 10;
/// account.clear();
/// assert_eq!(account.get(), Ok(&100));
/// ```
#[derive(Debug, Default)]
#[repr(C)]
pub struct Poison<T: ?Sized> {
    is_poisoned: bool,
    value: T,
}

/// A panic interrupted a change: see [`Poison`]. Holds the requested access nevertheless.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Poisoned<A> {
    access: A,
}

/// Mutable access to the value of a [`Poison`]; a panic while it exists marks the value.
#[must_use = "it gives access to the value, and does nothing else"]
pub struct PoisonGuard<'a, T: ?Sized> {
    poison: &'a mut Poison<T>,
    was_panicking: bool,
}

/// Unwind-safe for every value, because a panic marks it.
impl<T: ?Sized> UnwindSafe for PoisonGuard<'_, T> {}
impl<T: ?Sized> RefUnwindSafe for PoisonGuard<'_, T> {}

impl<T> Poison<T> {
    /// Creates an unmarked value.
    pub const fn new(value: T) -> Self {
        Poison { is_poisoned: false, value }
    }

    /// Consumes it and returns the value.
    ///
    /// # Errors
    /// [`Poisoned`], with the value, if it is marked.
    pub fn into_inner(self) -> Result<T, Poisoned<T>> {
        checked(self.is_poisoned, self.value)
    }
}

impl<T: ?Sized> Poison<T> {
    /// Read access to the value.
    ///
    /// # Errors
    /// [`Poisoned`], with the value, if it is marked.
    pub fn get(&self) -> Result<&T, Poisoned<&T>> {
        checked(self.is_poisoned, &self.value)
    }

    /// Mutable access to the value, which is marked if a panic drops the guard.
    ///
    /// # Errors
    /// [`Poisoned`], with the value, if it is marked already.
    pub fn change(&mut self) -> Result<PoisonGuard<'_, T>, Poisoned<PoisonGuard<'_, T>>> {
        let is_poisoned = self.is_poisoned;
        let was_panicking = std::thread::panicking();
        checked(is_poisoned, PoisonGuard { poison: self, was_panicking })
    }

    /// Returns `true` if the value is marked.
    pub fn is_poisoned(&self) -> bool {
        self.is_poisoned
    }

    /// Removes the mark, after the value was repaired.
    pub fn clear(&mut self) {
        self.is_poisoned = false;
    }
}

fn checked<A>(is_poisoned: bool, access: A) -> Result<A, Poisoned<A>> {
    if is_poisoned { Err(Poisoned { access }) } else { Ok(access) }
}

impl<T> From<T> for Poison<T> {
    fn from(value: T) -> Self {
        Poison::new(value)
    }
}

impl<A> Poisoned<A> {
    /// Returns the requested access.
    pub fn into_inner(self) -> A {
        self.access
    }
}

impl<A> fmt::Debug for Poisoned<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poisoned").finish_non_exhaustive()
    }
}

impl<A> fmt::Display for Poisoned<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a thread panicked while it changed the value: repair it and clear the mark")
    }
}

impl<A> core::error::Error for Poisoned<A> {}

impl<T: ?Sized> Deref for PoisonGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.poison.value
    }
}

impl<T: ?Sized> DerefMut for PoisonGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.poison.value
    }
}

impl<T: ?Sized> Drop for PoisonGuard<'_, T> {
    fn drop(&mut self) {
        if !self.was_panicking && std::thread::panicking() {
            self.poison.is_poisoned = true;
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for PoisonGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::boxed::Box;
    use std::panic::{self, AssertUnwindSafe};

    fn panic_while(act: impl FnOnce()) {
        let unwound = panic::catch_unwind(AssertUnwindSafe(|| {
            act();
            panic::resume_unwind(Box::new(()));
        }));
        assert!(unwound.is_err());
    }

    #[test]
    fn a_panic_in_a_change_marks() {
        let mut poison = Poison::new(1);
        panic_while(|| *poison.change().unwrap() = 2);
        assert!(!poison.is_poisoned(), "the change was over");
        let unwound = panic::catch_unwind(AssertUnwindSafe(|| {
            let mut value = poison.change().unwrap();
            *value = 3;
            panic::resume_unwind(Box::new(()));
        }));
        assert!(unwound.is_err() && poison.is_poisoned());
        assert_eq!(poison.get().unwrap_err().into_inner(), &3);
        assert_eq!(*poison.change().unwrap_err().into_inner(), 3);
        poison.clear();
        assert_eq!(poison.into_inner(), Ok(3));
    }

    /// A destructor that changes the value during another panic does not mark it.
    #[test]
    fn a_change_during_a_panic_does_not_mark() {
        struct ChangesWhenDropped<'a>(&'a mut Poison<u32>);
        impl Drop for ChangesWhenDropped<'_> {
            fn drop(&mut self) {
                *self.0.change().unwrap() += 1;
            }
        }
        let mut poison = Poison::new(1);
        let unwound = panic::catch_unwind(AssertUnwindSafe(|| {
            let _changes = ChangesWhenDropped(&mut poison);
            panic::resume_unwind(Box::new(()));
        }));
        assert!(unwound.is_err());
        assert_eq!(poison.get(), Ok(&2));
    }
}
