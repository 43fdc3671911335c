//! Locks: some words that threads change themselves; the kernel is called only to sleep and to wake.
//!
//! Invariant: a guard is made only to be consumed by the library at once, or forgotten; the lock is held in between by the
//! thread that the C program says holds it.

use core::ffi::c_int;
use core::mem;

use corelocal::foreign::{lock_or_adopt, robust_guard, robust_orphaned, robust_recovered};
use corelocal::sync::{
    Condvar, Deadline, Private, RawMutex, RawRwLock, RobustError, RobustMutex, Shared,
};
use lock_api::{RawMutex as _, RawMutexTimed as _, RawRwLock as _, RawRwLockTimed as _};

use crate::clock::span;
use crate::object::{destroy, object, rust_object};

/// A mutex for the threads of one process.
///
/// Declare it as CORELOCAL_MUTEX_INIT or as zeros. It takes 8 bytes. It is fair enough that no thread starves, and spins
/// before it sleeps where the owner is running. It is not recursive, and must not be moved or freed while it is used.
///
/// lock, try_lock, lock_for and unlock may be called by any thread, not in signal handlers. The thread that locks unlocks.
/// Locking acquires what unlocking released.
///
/// In a child of fork a lock that another thread of the parent owned has an owner that is gone: lock takes it over and
/// returns -EOWNERDEAD, the others count it as owned. Kernels: all. Source: futex(2).
#[repr(C)]
pub struct corelocal_mutex {
    opaque: [u32; 2],
}
rust_object!(corelocal_mutex, RawMutex<Private>);

/// Locks, and sleeps until that is possible. Returns 0; or in a child of fork -EOWNERDEAD with the lock, if its owner is
/// gone: what it protects may be half changed. For ever if the calling thread owns it already.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_mutex_lock(mutex: *mut corelocal_mutex) -> c_int {
    // SAFETY: by the contract.
    let mutex = unsafe { object(mutex) };
    if mutex.try_lock() || lock_or_adopt(mutex) { 0 } else { -libc::EOWNERDEAD }
}

/// Locks if the mutex is free. Returns 0, or -EBUSY.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_mutex_try_lock(mutex: *mut corelocal_mutex) -> c_int {
    // SAFETY: by the contract.
    if unsafe { object(mutex) }.try_lock() { 0 } else { -libc::EBUSY }
}

/// Locks, if that is possible within so many nanoseconds; a negative number is no limit. Returns 0, or -ETIMEDOUT.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_mutex_lock_for(
    mutex: *mut corelocal_mutex,
    nanoseconds: i64,
) -> c_int {
    // SAFETY: by the contract.
    let mutex = unsafe { object(mutex) };
    if mutex.try_lock_for(span(nanoseconds).unwrap_or(FOR_EVER)) { 0 } else { -libc::ETIMEDOUT }
}

/// Longer than any machine runs.
const FOR_EVER: core::time::Duration = core::time::Duration::MAX;

/// Unlocks what the calling thread has locked.
///
/// # Safety
/// - See the crate's invariant 3. The calling thread owns the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_mutex_unlock(mutex: *mut corelocal_mutex) {
    // SAFETY: by the contract.
    unsafe { object(mutex).unlock() };
}

/// A condition variable for the threads of one process.
///
/// Declare it as CORELOCAL_CONDITION_INIT or as zeros. It takes 12 bytes. Use it with one mutex at a time. Its functions are
/// not for signal handlers.
#[repr(C)]
pub struct corelocal_condition {
    opaque: [u32; 3],
}
rust_object!(corelocal_condition, Condvar);

/// Unlocks the mutex, sleeps until the condition is signalled or for so many nanoseconds, and locks the mutex again. A
/// negative number is no limit. It may return without either, so look whether what you wait for is there.
///
/// Returns 0, or -ETIMEDOUT once the time has passed. The mutex is locked in both cases.
///
/// # Safety
/// - See the crate's invariant 3. The calling thread owns the mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_condition_wait(
    condition: *mut corelocal_condition,
    mutex: *mut corelocal_mutex,
    nanoseconds: i64,
) -> c_int {
    // SAFETY: a mutex of `lock_api` without a value is its raw mutex: the cast is checked below.
    let mutex = unsafe { &*mutex.cast::<lock_api::Mutex<RawMutex, ()>>() };
    // SAFETY: by the contract the thread owns it, without a guard.
    let mut guard = unsafe { mutex.make_guard_unchecked() };
    // SAFETY: by the contract.
    let condition = unsafe { object(condition) };
    let has_timed_out = match span(nanoseconds) {
        None => {
            condition.wait(&mut guard);
            false
        }
        Some(span) => condition.wait_for(&mut guard, span).timed_out(),
    };
    mem::forget(guard);
    if has_timed_out { -libc::ETIMEDOUT } else { 0 }
}
const _: () = assert!(size_of::<lock_api::Mutex<RawMutex, ()>>() == size_of::<corelocal_mutex>());

/// Wakes one waiting thread, if there is one.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_condition_signal(condition: *mut corelocal_condition) {
    // SAFETY: by the contract.
    unsafe { object(condition) }.notify_one();
}

/// Wakes all waiting threads.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_condition_broadcast(condition: *mut corelocal_condition) {
    // SAFETY: by the contract.
    unsafe { object(condition) }.notify_all();
}

/// A read-write lock for the threads of one process: many readers, or one writer.
///
/// Declare it as CORELOCAL_RWLOCK_INIT or as zeros. It takes 8 bytes. A waiting writer comes before new readers, so a thread
/// that reads must not read again. At most 2^20 readers; a further one waits. Where its functions may be called is as for
/// corelocal_mutex.
///
/// In a child of fork a lock that other threads of the parent held stays held: to lock it returns -ESRCH. See
/// corelocal_rwlock_forget.
#[repr(C, align(8))]
pub struct corelocal_rwlock {
    opaque: [u32; 2],
}
rust_object!(corelocal_rwlock, RawRwLock);

/// Locks for reading, and sleeps until that is possible, at most for so many nanoseconds; a negative number is no limit, and
/// 0 does not sleep.
///
/// Returns 0, -EBUSY for 0 nanoseconds, -ETIMEDOUT, or -ESRCH.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_rwlock_read(
    lock: *mut corelocal_rwlock,
    nanoseconds: i64,
) -> c_int {
    // SAFETY: by the contract.
    let lock = unsafe { object(lock) };
    wait_for(nanoseconds, || lock.try_lock_shared(), |by| lock.try_lock_shared_until(by))
}

/// Does what corelocal_rwlock_read does, for writing.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_rwlock_write(
    lock: *mut corelocal_rwlock,
    nanoseconds: i64,
) -> c_int {
    // SAFETY: by the contract.
    let lock = unsafe { object(lock) };
    wait_for(nanoseconds, || lock.try_lock_exclusive(), |by| lock.try_lock_exclusive_until(by))
}

/// Locks at once or before a deadline. One that waited in vain before its deadline found a holder that is gone.
fn wait_for(
    nanoseconds: i64,
    at_once: impl Fn() -> bool,
    until: impl Fn(Deadline) -> bool,
) -> c_int {
    if at_once() {
        return 0;
    }
    if nanoseconds == 0 {
        return -libc::EBUSY;
    }
    let deadline = Deadline::after(span(nanoseconds).unwrap_or(FOR_EVER));
    match until(deadline) {
        true => 0,
        false if deadline <= Deadline::now() => -libc::ETIMEDOUT,
        false => -libc::ESRCH,
    }
}

/// Ends corelocal_rwlock_read.
///
/// # Safety
/// - See the crate's invariant 3. The calling thread reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_rwlock_read_unlock(lock: *mut corelocal_rwlock) {
    // SAFETY: by the contract.
    unsafe { object(lock).unlock_shared() };
}

/// Ends corelocal_rwlock_write.
///
/// # Safety
/// - See the crate's invariant 3. The calling thread writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_rwlock_write_unlock(lock: *mut corelocal_rwlock) {
    // SAFETY: by the contract.
    unsafe { object(lock).unlock_exclusive() };
}

/// In a child of fork: frees the lock of the readers, or the writer, that held it at the fork. What it protects may be half
/// changed if it was a writer. No thread of the child may hold it.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_rwlock_forget(lock: *mut corelocal_rwlock) {
    // SAFETY: by the contract no thread of this process holds it, and the program looks after its data.
    unsafe {
        let lock = object(lock);
        lock.forget_writer();
        lock.forget_readers();
    }
}

/// The last owner died, and the data is not yet consistent.
const DIED: u32 = 1;
/// The last owner was left behind by a fork, and the data is not yet consistent.
const LEFT_BEHIND: u32 = 2;

/// A mutex for the threads of all processes that map it, which tells the next owner if one died with it.
///
/// Declare it as CORELOCAL_ROBUST_MUTEX_INIT or as zeros, in memory that stays mapped while a thread owns it. It takes 48
/// bytes. A thread can hold 2048 of them. All processes are in one pid namespace, with one kind of libc. Not for signal
/// handlers. The copy of a lock in a child of fork is the parent's.
///
/// Kernels: all. Source: set_robust_list(2), pthread_mutexattr_setrobust(3).
#[repr(C)]
pub struct corelocal_robust_mutex {
    opaque: [u64; 6],
}
/// The number says what is to be made consistent.
type Robust = RobustMutex<u32, Shared>;
rust_object!(corelocal_robust_mutex, Robust);

/// Locks, and sleeps until that is possible, at most for so many nanoseconds; a negative number is no limit, and 0 does not
/// sleep.
///
/// Returns 0. -EOWNERDEAD with the lock: the last owner died with it; make the data consistent, and call
/// corelocal_robust_mutex_consistent before unlock. Without the lock: -EBUSY, -ETIMEDOUT, -EDEADLK if the calling thread
/// owns it, -ENOTRECOVERABLE after an unlock of inconsistent data, -EAGAIN for more than 2048 locks, or the error of a
/// refused set_robust_list(2).
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_robust_mutex_lock(
    mutex: *mut corelocal_robust_mutex,
    nanoseconds: i64,
) -> c_int {
    // SAFETY: by the contract.
    let mutex = unsafe { object(mutex) };
    let taken = match span(nanoseconds) {
        None => mutex.lock(),
        Some(core::time::Duration::ZERO) => mutex.try_lock(),
        Some(span) => mutex.try_lock_for(span),
    };
    match taken {
        Ok(guard) => mem::forget(guard),
        Err(RobustError::OwnerDied(mut recovered)) => {
            *recovered = DIED;
            mem::forget(recovered);
            return -libc::EOWNERDEAD;
        }
        Err(RobustError::Orphaned(orphaned)) => {
            mem::forget(orphaned.reset(LEFT_BEHIND));
            return -libc::EOWNERDEAD;
        }
        Err(RobustError::Failed(error)) => return -error.errno().0,
    }
    0
}

/// Says that the data is consistent again, after -EOWNERDEAD. Returns 0, or -EINVAL if it was not inconsistent.
///
/// # Safety
/// - See the crate's invariant 3. The calling thread owns the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_robust_mutex_consistent(
    mutex: *mut corelocal_robust_mutex,
) -> c_int {
    // SAFETY: by the contract.
    let mut guard = unsafe { robust_guard(object(mutex)) };
    let was = mem::replace(&mut *guard, 0);
    mem::forget(guard);
    if was == 0 { -libc::EINVAL } else { 0 }
}

/// Unlocks what the calling thread has locked. If the data is not consistent the mutex is unusable from now on.
///
/// # Safety
/// - See the crate's invariant 3. The calling thread owns the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_robust_mutex_unlock(mutex: *mut corelocal_robust_mutex) {
    // SAFETY: by the contract.
    let mutex = unsafe { object(mutex) };
    // SAFETY: the thread owns it, and each guard is the only one.
    unsafe {
        let guard = robust_guard(mutex);
        let was = *guard;
        mem::forget(guard);
        match was {
            0 => drop(robust_guard(mutex)),
            LEFT_BEHIND => drop(robust_orphaned(mutex)),
            _ => drop(robust_recovered(mutex)),
        }
    }
}

/// Ends a robust mutex that no thread owns; its memory may be unmapped then.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_robust_mutex_destroy(mutex: *mut corelocal_robust_mutex) {
    // SAFETY: by the contract.
    unsafe { destroy(mutex) };
}
