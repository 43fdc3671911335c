//! The locks for memory that several processes map: the types of `sync` with scope [`Shared`], under names of their
//! own so that both modules can be imported whole.
//!
//! Invariant: all types here have scope [`Shared`], and may lie in a [`SharedBox`](super::SharedBox).

use super::safe::{SharedSafe, layout};
use crate::sync;
use crate::sync::machinery::scope::Shared;
use crate::sync::robust::Plain;

/// A [`Mutex`](sync::Mutex) of all processes that map it.
///
/// If its owner's process dies it stays locked: see [`SharedRobustMutex`].
pub type SharedMutex<T> = sync::Mutex<T, Shared>;

/// A [`RwLock`](sync::RwLock) of all processes that map it.
///
/// If the process of an owner dies, the lock stays locked. If a waiting process dies, other threads may be kept out
/// for up to one second.
pub type SharedRwLock<T> = sync::RwLock<T, Shared>;

/// A [`Condvar`](sync::Condvar) of all processes that map it.
pub type SharedCondvar = sync::Condvar<Shared>;

/// A [`Semaphore`](sync::Semaphore) of all processes that map it.
///
/// A process that dies keeps its permits. If a waiting process dies, other waiters may be delayed by up to one
/// second.
pub type SharedSemaphore = sync::Semaphore<Shared>;

/// A [`Barrier`](sync::Barrier) of all processes that map it.
pub type SharedBarrier = sync::Barrier<Shared>;

/// An [`AutoEvent`](sync::AutoEvent) of all processes that map it.
pub type SharedAutoEvent = sync::AutoEvent<Shared>;

/// A [`ManualEvent`](sync::ManualEvent) of all processes that map it.
pub type SharedManualEvent = sync::ManualEvent<Shared>;

/// A [`Parker`](sync::Parker) of all processes that map it.
pub type SharedParker = sync::Parker<Shared>;

/// A [`Latch`](sync::Latch) of all processes that map it.
pub type SharedLatch = sync::Latch<Shared>;

/// A [`WaitGroup`](sync::WaitGroup) of all processes that map it.
pub type SharedWaitGroup = sync::WaitGroup<Shared>;

/// A [`RobustMutex`](sync::RobustMutex) of all processes that map it. If its owner dies, the next owner learns of it.
pub type SharedRobustMutex<T, W = Plain> = sync::RobustMutex<T, Shared, W>;

/// A [`PiMutex`](sync::PiMutex) of all processes that map it.
pub type SharedPiMutex<T> = sync::PiMutex<T, Shared>;

/// A [`RobustPiMutex`](sync::RobustPiMutex) of all processes that map it.
pub type SharedRobustPiMutex<T> = sync::RobustPiMutex<T, Shared>;

/// A [`PiCondvar`](sync::PiCondvar) of all processes that map it.
pub type SharedPiCondvar = sync::PiCondvar<Shared>;

// SAFETY: `repr(C)`, two words and the data.
unsafe impl<T: SharedSafe> SharedSafe for SharedMutex<T> {
    const LAYOUT: u64 = layout("Mutex 1", &[T::LAYOUT]);
}

// SAFETY: `repr(C)`, one word and the data.
unsafe impl<T: SharedSafe> SharedSafe for SharedRwLock<T> {
    const LAYOUT: u64 = layout("RwLock 1", &[T::LAYOUT]);
}

macro_rules! shared_safe {
    ($($type:ty = $name:literal,)*) => {
        $(
            // SAFETY: `repr(C)` or `repr(transparent)`, words that any process may change.
            unsafe impl SharedSafe for $type {
                const LAYOUT: u64 = layout($name, &[]);
            }
        )*
    };
}

shared_safe! {
    SharedCondvar = "Condvar 2",
    SharedSemaphore = "Semaphore 1",
    SharedBarrier = "Barrier 2",
    SharedAutoEvent = "AutoEvent 1",
    SharedManualEvent = "ManualEvent 1",
    SharedParker = "Parker 1",
    SharedLatch = "Latch 1",
    SharedWaitGroup = "WaitGroup 1",
}
