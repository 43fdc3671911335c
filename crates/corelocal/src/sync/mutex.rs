//! Mutex: fast when uncontended, eventually fair when contended, and sound in forked children.
//!
//! `lock.rs` has the algorithm; this file adds the value.
//!
//! Invariant: a [`MutexGuard`] exists only while its thread holds the lock. The value is accessed only through a
//! guard, or through exclusive access to the whole mutex.

mod abort_on_unwind;
#[cfg(any(test, feature = "std"))]
mod arc;
mod guard;
mod lock;
mod owner;
mod uncontended_unlock;
mod unlock;
mod waiter;
mod word;

use core::cell::UnsafeCell;
use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;

use super::machinery::scope::{Private, Scope};
use crate::sys::forks::orphaned::Orphaned;
use crate::sys::futex::Deadline;

#[cfg(any(test, feature = "std"))]
pub use arc::ArcMutexGuard;
pub use guard::{MappedMutexGuard, MutexGuard};
pub(super) use word::{Lock, Taken};

/// A mutual exclusion lock that protects a value.
///
/// ```
/// use corelocal::sync::Mutex;
///
/// static NAMES: Mutex<[u32; 4]> = Mutex::new([0; 4]);
///
/// NAMES.lock()[2] = 7;
/// assert_eq!(*NAMES.lock(), [0, 0, 7, 0]);
/// ```
///
/// The size is that of the value plus 8 bytes, and all bytes 0 is an unlocked mutex. An uncontended lock is a
/// compare-exchange, an uncontended unlock a plain store in a critical section: it needs no locked instruction, which
/// saves nearly half of the cost of the pair. A thread that finds the mutex locked spins briefly and then sleeps. The
/// first thread to sleep calls membarrier(2), which may take milliseconds the first time in a process. From then on,
/// unlocking this mutex is a compare-exchange as well, as it always is where critical sections are unavailable
/// ([`crate::sys::Refusal`]) and for [`Shared`](super::Shared).
///
/// A thread that panics unlocks the mutex. For a value that remembers panics, see `sync::Poison` (feature `std`).
///
/// # Fairness
/// A free mutex goes to the thread that takes it first, most often one that is already running, which is what makes
/// it fast. A thread that has waited for two milliseconds gets the mutex next.
///
/// # Memory ordering
/// Everything a thread does before it unlocks happens before everything that a later holder does.
///
/// # Scope
/// A `Mutex<T>` is for the threads of one process. A `Mutex<T, Shared>` may lie in memory that several processes map,
/// at any address, if `T` may. It stays locked if the process that holds it dies.
///
/// # After fork
/// A forked child has one thread, the one that called fork.
/// - A mutex that this thread held is locked in the child until the guard is dropped there, too. Threads that the
///   child starts wait for that.
/// - A mutex that another thread of the parent held stays locked, since that thread may have been changing the value.
///   Blocking functions panic, fallible ones fail at once. [`lock_checked`](Mutex::lock_checked) takes the mutex
///   over: it returns [`Orphaned`], whose [`reset`](Orphaned::reset) replaces the value. So a multi-threaded program
///   that forks uses `lock_checked` in the child, or executes another program there.
/// - A `Mutex<T, Shared>` in shared memory is not affected: its owner continues in the parent. The copy of a guard in
///   the child unlocks nothing, and must not be used.
///
/// In case of doubt the owner counts as present, for example in a child made by `clone` without libc, or after the
/// first thread of the child has ended.
///
/// Parent and child are told apart by a page that fork wipes (Linux 4.14). If that is refused, such a mutex stays
/// locked.
///
/// # Deadlock
/// A thread that locks a mutex it already holds waits for ever.
#[repr(C)]
pub struct Mutex<T: ?Sized, S: Scope = Private> {
    lock: Lock<S>,
    value: UnsafeCell<T>,
}

// SAFETY: sending the mutex sends the value.
unsafe impl<T: ?Sized + Send, S: Scope> Send for Mutex<T, S> {}
// SAFETY: one thread at a time accesses the value (the module's invariant), as if it were sent there.
unsafe impl<T: ?Sized + Send, S: Scope> Sync for Mutex<T, S> {}

impl<T: ?Sized, S: Scope> UnwindSafe for Mutex<T, S> {}

impl<T: ?Sized, S: Scope> RefUnwindSafe for Mutex<T, S> {}

impl<T> Mutex<T> {
    const_fn! {
        /// Creates an unlocked mutex for the threads of this process.
        pub const fn new(value: T) -> Self {
            Mutex::with_scope(value)
        }
    }
}

impl<T, S: Scope> Mutex<T, S> {
    const_fn! {
        /// Creates an unlocked mutex of the scope that the type names.
        ///
        /// ```
        /// use corelocal::sync::{Mutex, Shared};
        ///
        /// let mutex: Mutex<u64, Shared> = Mutex::with_scope(3);
        /// assert_eq!(*mutex.lock(), 3);
        /// ```
        pub const fn with_scope(value: T) -> Self {
            Mutex { lock: Lock::new(), value: UnsafeCell::new(value) }
        }
    }

    /// Consumes the mutex and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, S: Scope> Mutex<T, S> {
    /// Locks the mutex, and sleeps until that is possible.
    ///
    /// # Panics
    /// In a forked child, if another thread of the parent held the mutex at the [fork](Mutex#after-fork).
    ///
    /// ```
    /// let mutex = corelocal::sync::Mutex::new(String::from("a"));
    /// mutex.lock().push('b');
    /// assert_eq!(*mutex.lock(), "ab");
    /// ```
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T, S> {
        self.guard(self.lock.lock())
    }

    /// Locks the mutex if it is free. Does not wait, and does not give precedence to threads that have waited for
    /// long.
    ///
    /// ```
    /// let mutex = corelocal::sync::Mutex::new(0);
    /// let held = mutex.lock();
    /// assert!(mutex.try_lock().is_none());
    /// drop(held);
    /// assert!(mutex.try_lock().is_some());
    /// ```
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, S>> {
        self.lock.try_lock().map(|taken| self.guard(taken))
    }

    /// Locks the mutex; `None` if that was not possible within this time, or at once if the owner is [gone after a
    /// fork](Mutex#after-fork).
    ///
    /// ```
    /// # use core::time::Duration;
    /// let mutex = corelocal::sync::Mutex::new(0);
    /// let held = mutex.lock();
    /// assert!(mutex.try_lock_for(Duration::from_millis(1)).is_none());
    /// ```
    #[inline]
    pub fn try_lock_for(&self, span: Duration) -> Option<MutexGuard<'_, T, S>> {
        self.lock.lock_for(span).map(|taken| self.guard(taken))
    }

    /// Locks the mutex; `None` if that was not possible before the deadline, or at once if the owner is [gone after a
    /// fork](Mutex#after-fork). With a deadline that has passed, as [`try_lock`](Self::try_lock).
    #[inline]
    pub fn try_lock_until(&self, deadline: Deadline) -> Option<MutexGuard<'_, T, S>> {
        self.lock.lock_until(deadline).map(|taken| self.guard(taken))
    }

    /// Does what [`lock`](Self::lock) does, for a forked child: returns [`Orphaned`] if the owner is gone.
    ///
    /// ```
    /// let mutex = corelocal::sync::Mutex::new(vec![1, 2]);
    /// let guard = mutex.lock_checked().unwrap_or_else(|orphaned| orphaned.reset(Vec::new()));
    /// assert_eq!(*guard, [1, 2]);
    /// ```
    ///
    /// # Errors
    /// [`Orphaned`] in a forked child, if another thread of the parent held the mutex at the fork.
    #[allow(clippy::type_complexity, reason = "a guard, or what may become one")]
    pub fn lock_checked(&self) -> Result<MutexGuard<'_, T, S>, Orphaned<MutexGuard<'_, T, S>>> {
        match self.lock.lock_or_adopt() {
            Ok(taken) => Ok(self.guard(taken)),
            Err((taken, gone)) => Err(Orphaned::new(self.guard(taken), gone.into())),
        }
    }

    /// Returns `true` if the mutex is locked at the moment, including by an owner that is gone after a fork.
    pub fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    /// Returns the value. Exclusive access to the mutex makes locking unnecessary.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline(always)]
    fn guard(&self, taken: Taken) -> MutexGuard<'_, T, S> {
        MutexGuard::new(self, taken)
    }
}

impl<T: Default, S: Scope> Default for Mutex<T, S> {
    fn default() -> Self {
        Mutex::with_scope(T::default())
    }
}

impl<T, S: Scope> From<T> for Mutex<T, S> {
    fn from(value: T) -> Self {
        Mutex::with_scope(value)
    }
}

impl<T: ?Sized + fmt::Debug, S: Scope> fmt::Debug for Mutex<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut mutex = f.debug_struct("Mutex");
        match self.try_lock() {
            Some(guard) => mutex.field("value", &&*guard),
            None => mutex.field("value", &format_args!("<locked>")),
        };
        mutex.finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
