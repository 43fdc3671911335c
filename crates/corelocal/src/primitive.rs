//! The atomics every module uses, so that a model checker can replace them.
//!
//! `atomic` is `core`'s, or loom's under `--cfg loom`: for state whose interleavings a loom test
//! explores. `global` is always `core`'s: for process-wide words in statics (loom's atomics have
//! no const constructor), which are set from any number of threads to values that do not depend
//! on who comes first.

#[cfg(not(loom))]
pub(crate) mod atomic {
    pub(crate) use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};
}

#[cfg(loom)]
pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};
}

pub(crate) mod global {
    pub(crate) use core::sync::atomic::{
        AtomicIsize, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering,
    };
}
