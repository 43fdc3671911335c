//! Reentrant mutex: a lock, the thread that owns it, and a count.
//!
//! # Invariants
//! 1. A guard exists only while its thread owns the lock, and stays in that thread. `count` is the number of guards.
//! 2. `owner` and `era` name the owning thread, from after it took the lock until before it unlocks. Another thread
//!    may read any older value of them, which never names that other thread: a thread removes its name before it
//!    unlocks.
//! 3. The name is a number that no other thread ever has (`sys/thread/serial.rs`), not even one of a forked child. So
//!    in a child the thread that called fork owns what it did, and no other thread does. Where threads have no words
//!    of their own, the name is the thread pointer, which counts only in the process that wrote it, `era`. A thread
//!    that ends without dropping its guards leaves that name, and a later thread with the same thread pointer owns
//!    the lock in its place. That is sound: the value is `Send`, and references to a value that is not `Sync` ended
//!    with the first thread.
//! 4. While an [`Orphaned`] has the lock, the name is that of the thread that is gone, so no thread enters again.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::sync::atomic::compiler_fence;
use core::time::Duration;

use super::machinery::guard_traits::guard_traits;
use super::machinery::scope::Private;
use super::mutex::Lock;
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sys::forks::orphaned::{Orphaned, sealed};
use crate::sys::futex::Deadline;
use crate::sys::thread::serial;
use crate::sys::{arch, forks};

/// A mutex that its owner can lock again, any number of times. Guards therefore give shared access only.
///
/// ```
/// use std::cell::Cell;
///
/// use corelocal::sync::ReentrantMutex;
///
/// static CALLS: ReentrantMutex<Cell<u32>> = ReentrantMutex::new(Cell::new(0));
///
/// fn visit(depth: u32) {
///     let calls = CALLS.lock();
///     calls.set(calls.get() + 1);
///     if depth > 0 {
///         visit(depth - 1);
///     }
/// }
///
/// visit(3);
/// assert_eq!(CALLS.lock().get(), 4);
/// ```
///
/// The size is that of the value plus 24 bytes. The first lock and the last unlock cost as much as those of a
/// [`Mutex`](super::Mutex); those in between cost a few loads and a store. It is unlocked when the last guard is
/// dropped, whichever that is.
///
/// # Memory ordering
/// What a thread does before its last unlock happens before everything that a later owner does.
///
/// # After fork
/// As for [`Mutex`](super::Mutex#after-fork): what the thread that called fork owned, it owns in the child, and can
/// lock again there. What another thread of the parent owned stays locked: blocking functions panic, fallible ones
/// fail at once, and [`lock_checked`](Self::lock_checked) returns [`Orphaned`]. In case of doubt another thread
/// counts as the owner. On processors other than x86-64, aarch64 and riscv64 the thread that called fork cannot lock it
/// again in the child.
///
/// # Signal handlers
/// A handler that locks it waits for ever if it interrupted its own thread in the middle of locking or unlocking. It
/// must drop its guards before it returns.
pub struct ReentrantMutex<T: ?Sized> {
    lock: Lock<Private>,
    /// The owner's number; 0 if there is no owner.
    owner: AtomicU64,
    /// The process in which the owner wrote its name, if that is a thread pointer.
    era: AtomicU32,
    count: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: sending the mutex sends the value.
unsafe impl<T: ?Sized + Send> Send for ReentrantMutex<T> {}
// SAFETY: one thread at a time has references to the value (invariant 1), as if it were sent there.
unsafe impl<T: ?Sized + Send> Sync for ReentrantMutex<T> {}

// Only if the value is: unlike with an ordinary mutex, the owner may see what a panic left half done.
impl<T: ?Sized + UnwindSafe> UnwindSafe for ReentrantMutex<T> {}

impl<T: ?Sized + RefUnwindSafe> RefUnwindSafe for ReentrantMutex<T> {}

/// Shared access to the value of a locked [`ReentrantMutex`], until dropped, by the same thread.
#[must_use = "the mutex is unlocked at once if this is dropped"]
pub struct ReentrantMutexGuard<'a, T: ?Sized> {
    mutex: &'a ReentrantMutex<T>,
    /// Makes the guard !Send (invariant 1).
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared reference to the guard gives shared access to the value only.
unsafe impl<T: ?Sized + Sync> Sync for ReentrantMutexGuard<'_, T> {}

impl<T> ReentrantMutex<T> {
    /// Creates an unlocked mutex for the threads of this process.
    pub const fn new(value: T) -> Self {
        ReentrantMutex {
            lock: Lock::new(),
            owner: AtomicU64::new(0),
            era: AtomicU32::new(0),
            count: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Consumes the mutex and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> ReentrantMutex<T> {
    /// Locks the mutex: at once if the calling thread owns it, otherwise sleeps until that is possible.
    ///
    /// # Panics
    /// If the thread has 2^32 - 1 guards; and in a forked child, if another thread of the parent held the mutex at the
    /// [fork](#after-fork).
    #[inline]
    pub fn lock(&self) -> ReentrantMutexGuard<'_, T> {
        if self.is_owned_by_current_thread() {
            if !self.count_one_more() {
                too_often();
            }
            return self.guard();
        }
        self.lock.lock();
        self.first_guard()
    }

    /// Locks the mutex unless another thread owns it; `None` also if the thread has 2^32 - 1 guards.
    ///
    /// ```
    /// let mutex = corelocal::sync::ReentrantMutex::new(0);
    /// let held = mutex.lock();
    /// assert!(mutex.try_lock().is_some());
    /// std::thread::scope(|scope| scope.spawn(|| assert!(mutex.try_lock().is_none())).join().unwrap());
    /// # drop(held);
    /// ```
    #[inline]
    pub fn try_lock(&self) -> Option<ReentrantMutexGuard<'_, T>> {
        self.try_lock_by(|lock| lock.try_lock().is_some())
    }

    /// Does what [`try_lock`](Self::try_lock) does, for at most this time span; fails at once if the owner is gone.
    pub fn try_lock_for(&self, span: Duration) -> Option<ReentrantMutexGuard<'_, T>> {
        self.try_lock_by(|lock| lock.lock_for(span).is_some())
    }

    /// Does what [`try_lock`](Self::try_lock) does, until the deadline; fails at once if the owner is gone.
    pub fn try_lock_until(&self, deadline: Deadline) -> Option<ReentrantMutexGuard<'_, T>> {
        self.try_lock_by(|lock| lock.lock_until(deadline).is_some())
    }

    #[inline(always)]
    fn try_lock_by(
        &self,
        take: impl FnOnce(&Lock<Private>) -> bool,
    ) -> Option<ReentrantMutexGuard<'_, T>> {
        if self.is_owned_by_current_thread() {
            return self.count_one_more().then(|| self.guard());
        }
        take(&self.lock).then(|| self.first_guard())
    }

    /// Does what [`lock`](Self::lock) does, for a forked child: returns [`Orphaned`] if the owner is gone.
    ///
    /// # Errors
    /// [`Orphaned`] in a forked child, if another thread of the parent held the mutex at the fork.
    ///
    /// # Panics
    /// If the thread has 2^32 - 1 guards.
    #[allow(clippy::type_complexity, reason = "a guard, or what may become one")]
    pub fn lock_checked(
        &self,
    ) -> Result<ReentrantMutexGuard<'_, T>, Orphaned<ReentrantMutexGuard<'_, T>>> {
        if self.is_owned_by_current_thread() {
            return Ok(self.lock());
        }
        match self.lock.lock_or_adopt() {
            Ok(_) => Ok(self.first_guard()),
            Err((_, gone)) => Err(Orphaned::new(self.guard(), gone.into())),
        }
    }

    /// Returns `true` if the mutex is locked at the moment, including by an owner that is gone after a fork.
    pub fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    /// Returns `true` if the calling thread owns the mutex.
    #[inline]
    pub fn is_owned_by_current_thread(&self) -> bool {
        let (owner, era) = this_thread();
        // Relaxed: what another thread wrote never names this one (2), and this thread sees its own writes.
        self.owner.load(Ordering::Relaxed) == owner && self.era.load(Ordering::Relaxed) == era
    }

    /// Returns the value. Exclusive access to the mutex makes locking unnecessary.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Returns the guard for a lock that the calling thread has just taken.
    #[inline(always)]
    fn first_guard(&self) -> ReentrantMutexGuard<'_, T> {
        self.begin();
        self.guard()
    }

    /// Makes the calling thread, which holds the lock, the owner with a count of one.
    #[inline(always)]
    fn begin(&self) {
        let (owner, era) = this_thread();
        // Relaxed: read by this thread.
        self.era.store(era, Ordering::Relaxed);
        self.count.store(1, Ordering::Relaxed);
        // A signal handler finds the name only together with the count. Partner: the loads in that handler.
        compiler_fence(Ordering::Release);
        self.owner.store(owner, Ordering::Relaxed);
    }

    /// Increments the count; false if it is at its maximum. The calling thread is the owner.
    #[inline(always)]
    fn count_one_more(&self) -> bool {
        // Relaxed: only the owner changes it.
        let more = self.count.load(Ordering::Relaxed).checked_add(1);
        more.is_some_and(|count| {
            self.count.store(count, Ordering::Relaxed);
            true
        })
    }

    #[inline(always)]
    fn guard(&self) -> ReentrantMutexGuard<'_, T> {
        ReentrantMutexGuard { mutex: self, stays: PhantomData }
    }
}

/// Returns the name of the calling thread (3).
#[inline(always)]
fn this_thread() -> (u64, u32) {
    match serial::current() {
        Some(serial) => (serial, 0),
        None => (arch::thread_pointer().addr() as u64, era()),
    }
}

/// Eras from this one on are process ids; smaller ones are fork generations.
const FIRST_PROCESS: u32 = 1 << 31;

/// Returns a number that tells this process from its ancestors.
#[cold]
fn era() -> u32 {
    if forks::are_told_apart() {
        return forks::generation();
    }
    // SAFETY: no preconditions.
    let process = unsafe { libc::getpid() };
    process as u32 | FIRST_PROCESS
}

guard_traits!(shared [T: ?Sized] ReentrantMutexGuard<'_, T>, -> T, |this| this.mutex.value.get());

impl<T: ?Sized> Drop for ReentrantMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let mutex = self.mutex;
        // Relaxed: as in `count_one_more`.
        let left = mutex.count.load(Ordering::Relaxed) - 1;
        if left > 0 {
            mutex.count.store(left, Ordering::Relaxed);
            return;
        }
        // The count stays 1: a signal handler that finds the name here takes another guard and drops it, which must
        // not be the last one. Relaxed: before the unlock, which releases it (2).
        mutex.owner.store(0, Ordering::Relaxed);
        // A handler that comes from here on finds a held lock without a name. Partner: its loads.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: this was the last guard of the owner (1).
        unsafe { mutex.lock.unlock() };
    }
}

impl<T: ?Sized> sealed::OrphanedGuard for ReentrantMutexGuard<'_, T> {
    type Value = T;

    fn value(&self) -> *mut T {
        self.mutex.value.get()
    }

    unsafe fn keep(&self) {
        self.mutex.begin();
    }

    unsafe fn abandon(&self, gone: u64) {
        // SAFETY: the guard holds the lock, and is neither used nor dropped after this.
        unsafe { self.mutex.lock.abandon(gone as u32) };
    }
}

#[cold]
#[inline(never)]
fn too_often() -> ! {
    panic!(
        "a thread has 2^32 - 1 guards of a reentrant mutex, and can have no more: drop guards, and forget none"
    );
}

impl<T: Default> Default for ReentrantMutex<T> {
    fn default() -> Self {
        ReentrantMutex::new(T::default())
    }
}

impl<T> From<T> for ReentrantMutex<T> {
    fn from(value: T) -> Self {
        ReentrantMutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for ReentrantMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut mutex = f.debug_struct("ReentrantMutex");
        match self.try_lock() {
            Some(guard) => mutex.field("value", &&*guard),
            None => mutex.field("value", &format_args!("<locked>")),
        };
        mutex.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_count_at_its_end_is_reported() {
        let mutex = ReentrantMutex::new(());
        let first = mutex.lock();
        mutex.count.store(u32::MAX - 1, Ordering::Relaxed);
        let last = mutex.try_lock().expect("one more");
        assert!(mutex.try_lock().is_none() && mutex.try_lock_for(Duration::ZERO).is_none());
        let refused = catch_unwind(AssertUnwindSafe(|| drop(mutex.lock()))).unwrap_err();
        let says = refused.downcast_ref::<&str>().unwrap();
        assert!(says.contains("reentrant mutex"), "{says}");
        assert_eq!(mutex.count.load(Ordering::Relaxed), u32::MAX);
        drop(last);
        mutex.count.store(1, Ordering::Relaxed);
        drop(first);
        assert!(mutex.lock.is_at_rest() && !mutex.is_owned_by_current_thread());
    }

    /// A signal handler that comes while the last guard is dropped takes one more guard, and drops it.
    #[test]
    fn a_handler_in_the_midst_of_the_last_drop_unlocks_nothing() {
        let mutex = ReentrantMutex::new(());
        let guard = mutex.lock();
        // The state that `drop` leaves until it removes the name.
        drop(mutex.try_lock().expect("the owner"));
        assert!(mutex.is_owned_by_current_thread() && mutex.is_locked());
        mutex.owner.store(0, Ordering::Relaxed);
        assert!(mutex.try_lock().is_none() && mutex.is_locked());
        mutex.begin();
        drop(guard);
        assert!(mutex.lock.is_at_rest() && mutex.count.load(Ordering::Relaxed) == 1);
        drop(mutex.lock());
        assert!(mutex.lock.is_at_rest());
    }

    #[test]
    fn a_name_of_another_process_is_not_believed() {
        let mutex = ReentrantMutex::new(());
        let guard = mutex.lock();
        assert!(mutex.is_owned_by_current_thread());
        let known = mutex.era.load(Ordering::Relaxed);
        for era in [known + 1, FIRST_PROCESS | 1] {
            mutex.era.store(era, Ordering::Relaxed);
            assert!(!mutex.is_owned_by_current_thread() && mutex.try_lock().is_none());
        }
        mutex.era.store(known, Ordering::Relaxed);
        drop(guard);
        assert!(mutex.lock.is_at_rest());
    }
}
