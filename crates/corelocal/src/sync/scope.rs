//! Who shares an object, as a type: chosen when the object is made, and never mixed.
//!
//! Invariant: all operations on one word carry the same scope. The kernel files private and shared waiters
//! under different keys, and one never finds the other.

use crate::sys::futex;

/// Who may wait for an object: [`Private`] or [`Shared`].
pub trait Scope: sealed::Sealed + Send + Sync + 'static {
    #[doc(hidden)]
    const FUTEX: futex::Scope;
}

/// The threads of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Private {}

/// Any process that maps the object's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {}

impl Scope for Private {
    const FUTEX: futex::Scope = futex::Scope::Private;
}

impl Scope for Shared {
    const FUTEX: futex::Scope = futex::Scope::Shared;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Private {}
    impl Sealed for super::Shared {}
}
