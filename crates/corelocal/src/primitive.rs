//! The atomics that every module uses, so that a model checker can replace them.
//!
//! `atomic` is `core`'s, or loom's under `--cfg loom`: for state whose interleavings a loom test explores. `cell` is
//! replaced in the same way, and loom checks it for races. `global` is always `core`'s: for process-wide words in
//! statics (loom's atomics have no const constructor), which any number of threads set to values that do not depend
//! on their order.

/// Declares a constructor that is `const`, except under loom.
macro_rules! const_fn {
    ($(#[$attribute:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$attribute])*
        $vis const fn $($rest)*

        #[cfg(loom)]
        $(#[$attribute])*
        $vis fn $($rest)*
    };
}

#[cfg(not(loom))]
pub(crate) mod atomic {
    /// Of the malloc alone.
    #[cfg(not(miri))]
    pub(crate) use core::sync::atomic::AtomicU8;
    pub(crate) use core::sync::atomic::{
        AtomicI64, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
    };
}

#[cfg(loom)]
pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{
        AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
    };
}

#[cfg(not(loom))]
pub(crate) mod cell {
    /// `core`'s, with loom's methods.
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// Creates a cell with a value in it.
        #[inline(always)]
        pub(crate) const fn new(value: T) -> Self {
            UnsafeCell(core::cell::UnsafeCell::new(value))
        }

        /// Reads through the pointer.
        #[inline(always)]
        pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// Writes through the pointer.
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

#[cfg(loom)]
pub(crate) mod cell {
    pub(crate) use loom::cell::UnsafeCell;
}

pub(crate) mod global {
    #[cfg(all(feature = "std", not(loom)))]
    pub(crate) use core::sync::atomic::AtomicI64;
    pub(crate) use core::sync::atomic::{
        AtomicIsize, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}
