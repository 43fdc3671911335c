//! Mutual exclusion: fast when nobody waits, fair enough when many do, and never held by nobody after a fork.
//!
//! How it works is told in `lock.rs`; this file puts a value behind it.
//!
//! Invariant: a [`MutexGuard`] exists only while its thread holds the lock, and only through a guard, or
//! exclusive access to the whole mutex, is the value touched.

mod abort_on_unwind;
#[cfg(any(test, feature = "std"))]
mod arc;
mod guard;
mod lock;
mod owner;
mod uncontended_unlock;
mod waiter;

use core::cell::UnsafeCell;
use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::time::Duration;

use super::scope::{Private, Scope};
use crate::sys::futex::Deadline;
use crate::sys::orphaned::Orphaned;

#[cfg(any(test, feature = "std"))]
pub use arc::ArcMutexGuard;
pub use guard::{MappedMutexGuard, MutexGuard};
pub(super) use lock::{Lock, Taken};

/// A value that one thread at a time can use.
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
/// It is the value and 8 bytes, and all bytes 0 are an unlocked one. Locking one that nobody else wants is a
/// compare-exchange, unlocking it a plain store in a critical section: no locked instruction, which is nearly half
/// of what the pair would cost. A thread that finds it locked lets others run for a moment and looks again, and
/// then sleeps. The first one to sleep calls membarrier(2), which the first time in a process may take
/// milliseconds; and from then on unlocking this mutex is a
/// compare-exchange, too; so it is where critical sections are unavailable ([`crate::sys::Refusal`]), and for
/// [`Shared`](super::Shared).
///
/// A thread that panics unlocks it like any other; `sync::Poison` (feature `std`) is a value that remembers.
///
/// # Fairness
/// A free mutex goes to whoever takes it first: most often a thread that is running, which is what makes it
/// fast. A thread that has waited for two milliseconds is the next one.
///
/// # Memory ordering
/// What a thread did before it unlocked happens before whatever a thread does that locks later.
///
/// # Scope
/// A `Mutex<T>` is for the threads of one process. A `Mutex<T, Shared>` may lie in memory that several
/// processes map, at any address, if `T` may; it stays locked if its holder's process dies.
///
/// # After fork
/// A child has one thread, the one that forked.
/// - What that thread had locked stays locked in the child, until its guard is dropped there too. Threads that the child
///   starts wait for that.
/// - What another thread of the parent had locked stays locked too, since the value may be as any store of that thread
///   left it. Blocking functions panic, those that may fail do so at once.
///   [`lock_checked`](Mutex::lock_checked) takes such a mutex over: it returns [`Orphaned`], whose
///   [`reset`](Orphaned::reset) puts a new value in. So a program that forks with threads locks by `lock_checked` in the
///   child, or executes another program there.
/// - Nothing of this concerns a `Mutex<T, Shared>` in shared memory: its holder lives on in the parent. The copy of a
///   guard in the child unlocks nothing, and must not be used.
///
/// In doubt the mutex counts as held by a thread that is present, for example in a child by `clone` without libc, or if
/// the first thread of the child has ended.
///
/// The parent is told apart from the child with the help of a page that fork wipes (Linux 4.14); where that is
/// refused, such a mutex stays locked.
///
/// # Deadlock
/// A thread that locks a mutex it holds waits for ever.
#[repr(C)]
pub struct Mutex<T: ?Sized, S: Scope = Private> {
    lock: Lock<S>,
    value: UnsafeCell<T>,
}

// SAFETY: the value goes along.
unsafe impl<T: ?Sized + Send, S: Scope> Send for Mutex<T, S> {}
// SAFETY: one thread at a time has the value (the module's invariant), as if it was sent there.
unsafe impl<T: ?Sized + Send, S: Scope> Sync for Mutex<T, S> {}

impl<T: ?Sized, S: Scope> UnwindSafe for Mutex<T, S> {}

impl<T: ?Sized, S: Scope> RefUnwindSafe for Mutex<T, S> {}

impl<T> Mutex<T> {
    /// An unlocked one, for the threads of this process.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Mutex::with_scope(value)
    }

    /// An unlocked one, for the threads of this process.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Mutex::with_scope(value)
    }
}

impl<T, S: Scope> Mutex<T, S> {
    /// An unlocked one, for whom the type says.
    ///
    /// ```
    /// use corelocal::sync::{Mutex, Shared};
    ///
    /// let mutex: Mutex<u64, Shared> = Mutex::with_scope(3);
    /// assert_eq!(*mutex.lock(), 3);
    /// ```
    #[cfg(not(loom))]
    pub const fn with_scope(value: T) -> Self {
        Mutex { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    /// An unlocked one, for whom the type says.
    #[cfg(loom)]
    pub fn with_scope(value: T) -> Self {
        Mutex { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    /// The value, out of the mutex.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, S: Scope> Mutex<T, S> {
    /// Locks, asleep until it can.
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

    /// Locks if nobody else has it locked; does not wait, and so does not let those come first who have waited for
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

    /// Locks; `None` if it could not within this time, or at once if the holder was left behind by a
    /// [fork](Mutex#after-fork).
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

    /// Locks; `None` if it could not until the deadline, or at once if the holder was left behind by a
    /// [fork](Mutex#after-fork). A deadline that has passed makes it a [`try_lock`](Self::try_lock).
    #[inline]
    pub fn try_lock_until(&self, deadline: Deadline) -> Option<MutexGuard<'_, T, S>> {
        self.lock.lock_until(deadline).map(|taken| self.guard(taken))
    }

    /// As [`lock`](Self::lock), for a forked child: returns [`Orphaned`] if a thread that is gone holds the mutex.
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

    /// Whether a thread has it locked just now, be it one that a fork left behind.
    pub fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    /// The value: who has the mutex for itself need not lock it.
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
