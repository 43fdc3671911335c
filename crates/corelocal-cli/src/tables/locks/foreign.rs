//! The locks of nsync and Abseil, for reading and writing, each with a condition variable: a safe interface, if the
//! build found the library, or the reason why it did not.
//!
//! Invariants:
//! - The object that the C and C++ beside this file make of a `Place` stays where it is, and is at most that large,
//!   which is asserted there.
//! - A writer has exclusive access to the value; readers read it. A guard's thread holds the lock.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use anyhow::anyhow;

/// Room for a lock and a condition variable.
#[repr(C, align(16))]
struct Place(UnsafeCell<[u64; 4]>);

type Function = unsafe extern "C" fn(*const Place);

/// What the C does with a place; each is a call of the library and nothing else.
#[cfg_attr(not(any(nsync, absl)), allow(dead_code, reason = "the library is missing"))]
pub struct Functions {
    init: Function,
    destroy: Function,
    lock: Function,
    unlock: Function,
    read: Function,
    unread: Function,
    wait: Function,
    notify_one: Function,
    notify_all: Function,
}

/// A library that may be there.
pub trait Library: Send + Sync + 'static {
    /// Its functions, or what to do to have them.
    const FUNCTIONS: Result<Functions, &'static str>;
}

/// nsync.
pub struct Nsync;

/// Abseil.
pub struct Absl;

#[cfg(any(nsync, absl))]
macro_rules! functions {
    ($init:ident, $destroy:ident, $lock:ident, $unlock:ident, $read:ident, $unread:ident, $wait:ident,
     $notify_one:ident, $notify_all:ident) => {{
        unsafe extern "C" {
            fn $init(at: *const Place);
            fn $destroy(at: *const Place);
            fn $lock(at: *const Place);
            fn $unlock(at: *const Place);
            fn $read(at: *const Place);
            fn $unread(at: *const Place);
            fn $wait(at: *const Place);
            fn $notify_one(at: *const Place);
            fn $notify_all(at: *const Place);
        }
        Functions {
            init: $init,
            destroy: $destroy,
            lock: $lock,
            unlock: $unlock,
            read: $read,
            unread: $unread,
            wait: $wait,
            notify_one: $notify_one,
            notify_all: $notify_all,
        }
    }};
}

impl Library for Nsync {
    #[cfg(nsync)]
    const FUNCTIONS: Result<Functions, &'static str> = Ok(functions!(
        corelocal_nsync_init,
        corelocal_nsync_destroy,
        corelocal_nsync_lock,
        corelocal_nsync_unlock,
        corelocal_nsync_read,
        corelocal_nsync_unread,
        corelocal_nsync_wait,
        corelocal_nsync_notify_one,
        corelocal_nsync_notify_all
    ));

    #[cfg(not(nsync))]
    const FUNCTIONS: Result<Functions, &'static str> = Err(
        "not installed: built where neither pkg-config nor the C compiler found nsync; install it \
         (libnsync-dev) and run `cargo clean -p corelocal-cli`",
    );
}

impl Library for Absl {
    #[cfg(absl)]
    const FUNCTIONS: Result<Functions, &'static str> = Ok(functions!(
        corelocal_absl_init,
        corelocal_absl_destroy,
        corelocal_absl_lock,
        corelocal_absl_unlock,
        corelocal_absl_read,
        corelocal_absl_unread,
        corelocal_absl_wait,
        corelocal_absl_notify_one,
        corelocal_absl_notify_all
    ));

    #[cfg(not(absl))]
    const FUNCTIONS: Result<Functions, &'static str> = Err(
        "not installed: built where pkg-config found no absl_synchronization, or without a C++ \
         compiler; install both (libabsl-dev, g++) and run `cargo clean -p corelocal-cli`",
    );
}

/// A value behind a lock of the library, with a condition variable.
pub struct Foreign<T, L: Library> {
    /// Does not move once it is initialised.
    behind: Box<Behind<T>>,
    library: PhantomData<L>,
}

#[repr(C)]
struct Behind<T> {
    place: Place,
    value: UnsafeCell<T>,
}

// SAFETY: the locks are made for it; a writer has exclusive access to the value (invariant 2).
unsafe impl<T: Send, L: Library> Send for Foreign<T, L> {}
// SAFETY: the locks are for use by several threads; readers only get shared references (invariant 2).
unsafe impl<T: Send + Sync, L: Library> Sync for Foreign<T, L> {}

impl<T, L: Library> Foreign<T, L> {
    /// # Errors
    /// The library was not found.
    pub fn new(value: T) -> anyhow::Result<Self> {
        let functions = L::FUNCTIONS.map_err(|why| anyhow!(why))?;
        let behind =
            Box::new(Behind { place: Place(UnsafeCell::default()), value: UnsafeCell::new(value) });
        // SAFETY: large enough, and not moved from now on (invariant 1).
        unsafe { (functions.init)(&behind.place) };
        Ok(Foreign { behind, library: PhantomData })
    }

    #[inline(always)]
    fn functions() -> Functions {
        match L::FUNCTIONS {
            Ok(functions) => functions,
            Err(_) => unreachable!("the library is missing"),
        }
    }

    /// For writing.
    #[inline(always)]
    pub fn write(&self) -> Writes<'_, T, L> {
        // SAFETY: initialised, and not held by this thread.
        unsafe { (Self::functions().lock)(&self.behind.place) };
        Writes(self)
    }

    /// For reading.
    #[inline(always)]
    pub fn read(&self) -> Reads<'_, T, L> {
        // SAFETY: initialised, and not held by this thread.
        unsafe { (Self::functions().read)(&self.behind.place) };
        Reads(self)
    }
}

impl<T, L: Library> Drop for Foreign<T, L> {
    fn drop(&mut self) {
        // SAFETY: initialised, and no longer used.
        unsafe { (Self::functions().destroy)(&self.behind.place) };
    }
}

/// It is held for writing.
pub struct Writes<'a, T, L: Library>(&'a Foreign<T, L>);

impl<T, L: Library> Writes<'_, T, L> {
    /// Unlocks, waits to be notified, and locks again.
    pub fn wait(&mut self) {
        // SAFETY: this thread holds it, and borrows nothing of the value meanwhile.
        unsafe { (Foreign::<T, L>::functions().wait)(&self.0.behind.place) };
    }

    /// Notifies one that waits.
    pub fn notify_one(&self) {
        // SAFETY: initialised.
        unsafe { (Foreign::<T, L>::functions().notify_one)(&self.0.behind.place) };
    }

    /// Notifies all that wait.
    pub fn notify_all(&self) {
        // SAFETY: initialised.
        unsafe { (Foreign::<T, L>::functions().notify_all)(&self.0.behind.place) };
    }
}

impl<T, L: Library> Deref for Writes<'_, T, L> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: invariant 2.
        unsafe { &*self.0.behind.value.get() }
    }
}

impl<T, L: Library> DerefMut for Writes<'_, T, L> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: invariant 2.
        unsafe { &mut *self.0.behind.value.get() }
    }
}

impl<T, L: Library> Drop for Writes<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this thread holds it for writing.
        unsafe { (Foreign::<T, L>::functions().unlock)(&self.0.behind.place) };
    }
}

/// It is held for reading.
pub struct Reads<'a, T, L: Library>(&'a Foreign<T, L>);

impl<T, L: Library> Deref for Reads<'_, T, L> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: invariant 2.
        unsafe { &*self.0.behind.value.get() }
    }
}

impl<T, L: Library> Drop for Reads<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this thread holds it for reading.
        unsafe { (Foreign::<T, L>::functions().unread)(&self.0.behind.place) };
    }
}

/// Whether a row of this id has no library here, which is no fault of the table.
#[cfg(test)]
pub fn is_missing(row: &str) -> bool {
    match row {
        "nsync" => Nsync::FUNCTIONS.is_err(),
        "absl" => Absl::FUNCTIONS.is_err(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<L: Library>() {
        let Ok(lock) = Foreign::<u64, L>::new(1) else {
            let why = L::FUNCTIONS.err().expect("a reason");
            assert!(why.starts_with("not installed: "), "{why}");
            return;
        };
        let read = lock.read();
        // A second reader comes in, but not one of the same thread: they forbid that.
        let beside = std::thread::scope(|scope| scope.spawn(|| *lock.read()).join()).unwrap();
        assert_eq!(*read, beside);
        drop(read);
        std::thread::scope(|scope| {
            let mut held = lock.write();
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut number = lock.write();
                    *number += 1;
                    number.notify_all();
                });
            }
            while *held < 3 {
                held.wait();
            }
            held.notify_one();
            *held = 0;
        });
        assert_eq!(*lock.read(), 0);
    }

    #[test]
    fn locks_and_conditions() {
        check::<Nsync>();
        check::<Absl>();
    }
}
