//! What may be used on both sides of `catch_unwind`: as with std's types of the same names.

use std::cell::Cell;
use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};

use corelocal::sync::{
    AutoEvent, Barrier, Condvar, Latch, LazyLock, ManualEvent, MappedMutexGuard,
    MappedRwLockWriteGuard, Mutex, MutexGuard, Once, OnceLock, OnceState, Orphaned, Parker,
    PiCondvar, PiMutex, PiMutexGuard, Private, Recovered, ReentrantMutex, RobustMutex,
    RobustMutexGuard, RobustPiMutex, RwLock, RwLockReadGuard, RwLockUpgradableGuard,
    RwLockWriteGuard, Scope, Semaphore, Shared, Task, WaitGroup,
};

fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}

/// Locks and guards, whatever the value: a panic unlocks, and `Poison` is a value that remembers it.
fn locks<T: 'static, S: Scope>() {
    is_unwind_safe::<Mutex<T, S>>();
    is_unwind_safe::<MutexGuard<'static, T, S>>();
    is_unwind_safe::<MappedMutexGuard<'static, T, S>>();
    is_unwind_safe::<Orphaned<MutexGuard<'static, T, S>>>();
    is_unwind_safe::<RwLock<T, S>>();
    is_unwind_safe::<RwLockReadGuard<'static, T, S>>();
    is_unwind_safe::<RwLockWriteGuard<'static, T, S>>();
    is_unwind_safe::<MappedRwLockWriteGuard<'static, T, S>>();
    is_unwind_safe::<RwLockUpgradableGuard<'static, T, S>>();
    is_unwind_safe::<Orphaned<RwLockWriteGuard<'static, T, S>>>();
    is_unwind_safe::<RobustMutex<T, S>>();
    is_unwind_safe::<RobustMutexGuard<'static, T, S>>();
    is_unwind_safe::<Recovered<'static, T, S>>();
    is_unwind_safe::<RobustPiMutex<T, S>>();
    is_unwind_safe::<PiMutex<T, S>>();
    is_unwind_safe::<PiMutexGuard<'static, T, S>>();
}

#[cfg(feature = "std")]
fn locks_in_an_arc<T, S: Scope>() {
    use corelocal::sync::{
        ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableGuard, ArcRwLockWriteGuard,
    };
    is_unwind_safe::<ArcMutexGuard<T, S>>();
    is_unwind_safe::<ArcRwLockReadGuard<T, S>>();
    is_unwind_safe::<ArcRwLockWriteGuard<T, S>>();
    is_unwind_safe::<ArcRwLockUpgradableGuard<T, S>>();
}

#[cfg(feature = "lock_api")]
fn raw_locks<S: Scope>() {
    is_unwind_safe::<corelocal::sync::RawMutex<S>>();
    is_unwind_safe::<corelocal::sync::RawRwLock<S>>();
}

fn without_values<S: Scope>() {
    is_unwind_safe::<Condvar<S>>();
    is_unwind_safe::<PiCondvar<S>>();
    is_unwind_safe::<Semaphore<S>>();
    is_unwind_safe::<Barrier<S>>();
    is_unwind_safe::<Latch<S>>();
    is_unwind_safe::<WaitGroup<S>>();
    is_unwind_safe::<Task<'static, S>>();
    is_unwind_safe::<AutoEvent<S>>();
    is_unwind_safe::<ManualEvent<S>>();
    is_unwind_safe::<Parker<S>>();
}

/// Values that are written once, and those behind a lock that its owner can take again: as far as the value is, since a
/// thread sees it without waiting for the end of what a panic cut short.
fn written_once<T: UnwindSafe + RefUnwindSafe>() {
    is_unwind_safe::<OnceLock<T>>();
    is_unwind_safe::<LazyLock<T>>();
    is_unwind_safe::<LazyLock<T, T>>();
    is_unwind_safe::<ReentrantMutex<T>>();
    fn moved<T: UnwindSafe>() {
        fn is_unwind_safe<T: UnwindSafe>() {}
        is_unwind_safe::<OnceLock<T>>();
        is_unwind_safe::<LazyLock<T>>();
    }
    moved::<Cell<u8>>();
}

/// It compiles.
#[test]
fn they_are_unwind_safe() {
    locks::<Cell<u8>, Private>();
    locks::<&mut u8, Shared>();
    #[cfg(feature = "std")]
    locks_in_an_arc::<Cell<&mut u8>, Private>();
    #[cfg(feature = "lock_api")]
    raw_locks::<Private>();
    without_values::<Private>();
    without_values::<Shared>();
    written_once::<u8>();
    is_unwind_safe::<Once>();
    is_unwind_safe::<OnceState>();
}

/// What it is for: no `AssertUnwindSafe`.
#[test]
fn a_panic_is_caught_where_locks_are_used() {
    let (mutex, lock, once) = (Mutex::new(Cell::new(1)), RwLock::new(1), Once::new());
    let changed = Condvar::new();
    let caught = catch_unwind(|| {
        let guard = mutex.lock();
        *lock.write() += 1;
        guard.set(2);
        changed.notify_all();
        once.call_once(|| std::panic::resume_unwind(Box::new(())));
    });
    assert!(caught.is_err() && !once.is_completed());
    assert_eq!((mutex.lock().get(), *lock.read()), (2, 2));
    let guard = mutex.lock();
    assert!(catch_unwind(|| guard.set(3)).is_ok());
    assert_eq!(guard.get(), 3);
}
