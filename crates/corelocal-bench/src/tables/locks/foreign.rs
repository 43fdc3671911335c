//! The locks of nsync and Abseil, for reading and writing, each with a condition variable: a safe interface, if this machine
//! has the library, or the reason why it does not.
//!
//! Invariants:
//! - The object that the C and C++ beside this file make of a `Place` stays where it is, and is at most that large,
//!   which is asserted there.
//! - A writer has exclusive access to the value; readers read it. A guard's thread holds the lock.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::tables::object::{Loaded, Source, once};

/// Room for a lock and a condition variable.
#[repr(C, align(16))]
struct Place(UnsafeCell<[u64; 4]>);

type Function = unsafe extern "C" fn(*const Place);

/// The C functions of a lock, each of which is one call of the library.
#[derive(Clone, Copy)]
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

impl Functions {
    /// Compiles and loads them; their names have this prefix.
    fn load(source: &Source, prefix: &str) -> anyhow::Result<Functions> {
        let object = source.load()?;
        let function = |name: &str| -> anyhow::Result<Function> {
            let symbol = object.symbol(&format!("corelocal_{prefix}_{name}"))?;
            // SAFETY: the sources beside this file define functions of this type.
            Ok(unsafe { std::mem::transmute::<*mut std::ffi::c_void, Function>(symbol) })
        };
        Ok(Functions {
            init: function("init")?,
            destroy: function("destroy")?,
            lock: function("lock")?,
            unlock: function("unlock")?,
            read: function("read")?,
            unread: function("unread")?,
            wait: function("wait")?,
            notify_one: function("notify_one")?,
            notify_all: function("notify_all")?,
        })
    }
}

/// A library that may be there.
pub trait Library: Send + Sync + 'static {
    /// Returns its functions.
    ///
    /// # Errors
    /// What to do to have them.
    fn functions() -> anyhow::Result<Functions>;
}

/// nsync.
pub struct Nsync;

/// Abseil.
pub struct Absl;

impl Library for Nsync {
    fn functions() -> anyhow::Result<Functions> {
        static LOADED: Loaded<Functions> = Loaded::new();
        let source = Source {
            files: &[("nsync.c", include_str!("nsync.c"))],
            flags: &["-lnsync"],
            packages: "libnsync-dev",
        };
        once(&LOADED, || Functions::load(&source, "nsync"))
    }
}

impl Library for Absl {
    fn functions() -> anyhow::Result<Functions> {
        static LOADED: Loaded<Functions> = Loaded::new();
        let source = Source {
            files: &[("absl.cc", include_str!("absl.cc"))],
            flags: &["-std=c++17", "-labsl_synchronization", "-labsl_time", "-labsl_base"],
            packages: "libabsl-dev and g++",
        };
        once(&LOADED, || Functions::load(&source, "absl"))
    }
}

/// A value behind a lock of the library, with a condition variable.
pub struct Foreign<T, L: Library> {
    /// Does not move once it is initialised.
    behind: Box<Behind<T>>,
    functions: Functions,
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
        let functions = L::functions()?;
        let behind =
            Box::new(Behind { place: Place(UnsafeCell::default()), value: UnsafeCell::new(value) });
        // SAFETY: large enough, and not moved from now on (invariant 1).
        unsafe { (functions.init)(&behind.place) };
        Ok(Foreign { behind, functions, library: PhantomData })
    }

    /// For writing.
    #[inline(always)]
    pub fn write(&self) -> Writes<'_, T, L> {
        // SAFETY: initialised, and not held by this thread.
        unsafe { (self.functions.lock)(&self.behind.place) };
        Writes(self)
    }

    /// For reading.
    #[inline(always)]
    pub fn read(&self) -> Reads<'_, T, L> {
        // SAFETY: initialised, and not held by this thread.
        unsafe { (self.functions.read)(&self.behind.place) };
        Reads(self)
    }
}

impl<T, L: Library> Drop for Foreign<T, L> {
    fn drop(&mut self) {
        // SAFETY: initialised, and no longer used.
        unsafe { (self.functions.destroy)(&self.behind.place) };
    }
}

/// The guard of a lock that is held for writing.
pub struct Writes<'a, T, L: Library>(&'a Foreign<T, L>);

impl<T, L: Library> Writes<'_, T, L> {
    /// Unlocks, waits to be notified, and locks again.
    pub fn wait(&mut self) {
        // SAFETY: this thread holds it, and borrows nothing of the value meanwhile.
        unsafe { (self.0.functions.wait)(&self.0.behind.place) };
    }

    /// Notifies one that waits.
    pub fn notify_one(&self) {
        // SAFETY: initialised.
        unsafe { (self.0.functions.notify_one)(&self.0.behind.place) };
    }

    /// Notifies all that wait.
    pub fn notify_all(&self) {
        // SAFETY: initialised.
        unsafe { (self.0.functions.notify_all)(&self.0.behind.place) };
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
        unsafe { (self.0.functions.unlock)(&self.0.behind.place) };
    }
}

/// The guard of a lock that is held for reading.
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
        unsafe { (self.0.functions.unread)(&self.0.behind.place) };
    }
}

/// Returns `true` if a row of this id has no library here, which is no fault of the table.
#[cfg(test)]
pub fn is_missing(row: &str) -> bool {
    match row {
        "nsync" => Nsync::functions().is_err(),
        "absl" => Absl::functions().is_err(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<L: Library>() {
        let Ok(lock) = Foreign::<u64, L>::new(1) else {
            let why = L::functions().err().expect("a reason").to_string();
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
