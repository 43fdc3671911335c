//! The scope of an object as a type: which threads may share it. Chosen when the object is made, and never mixed.
//!
//! Invariant: all operations on one word use the same scope. The kernel stores private and shared waiters under
//! different keys, and one kind never finds the other.

use core::panic::{RefUnwindSafe, UnwindSafe};

use crate::sys::{forks, futex};

/// Which threads may wait on an object: [`Private`] or [`Shared`].
pub trait Scope: sealed::Sealed + Send + Sync + UnwindSafe + RefUnwindSafe + 'static {
    #[doc(hidden)]
    const FUTEX: futex::Scope;
    /// A guard's record of the process in which it was made.
    #[doc(hidden)]
    type Stamp: Copy + core::fmt::Debug + Send + Sync + UnwindSafe + RefUnwindSafe + 'static;
    #[doc(hidden)]
    fn stamp() -> Self::Stamp;
    /// Does what `stamp` does, for a guard with this tag.
    #[doc(hidden)]
    fn stamp_of(tag: u32) -> Self::Stamp;
    /// False for the copy of a parent's guard in a forked child, if processes share the lock.
    #[doc(hidden)]
    fn is_of_this_process(stamp: Self::Stamp) -> bool;
}

/// The threads of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Private {}

/// All processes that map the object's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {}

impl Scope for Private {
    const FUTEX: futex::Scope = futex::Scope::Private;
    type Stamp = ();

    #[inline(always)]
    fn stamp() {}

    #[inline(always)]
    fn stamp_of(_: u32) {}

    /// A child has a copy of the lock as well.
    #[inline(always)]
    fn is_of_this_process((): ()) -> bool {
        true
    }
}

impl Scope for Shared {
    const FUTEX: futex::Scope = futex::Scope::Shared;
    type Stamp = u32;

    #[inline(always)]
    fn stamp() -> u32 {
        forks::process()
    }

    #[inline(always)]
    fn stamp_of(tag: u32) -> u32 {
        tag
    }

    #[inline(always)]
    fn is_of_this_process(stamp: u32) -> bool {
        stamp == forks::process()
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Private {}
    impl Sealed for super::Shared {}
}
