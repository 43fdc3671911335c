//! The locks and their kin for memory that several processes map: by the names they have in `sync`, with the
//! scope that is right there.
//!
//! Invariant: all that is named here has scope [`Shared`], and may lie in a [`SharedBox`](super::SharedBox).

use super::safe::{SharedSafe, layout};
use crate::sync;
use crate::sync::robust::Plain;
use crate::sync::scope::Shared;

/// A [`Mutex`](sync::Mutex) of all processes that map it.
///
/// If its holder's process dies it stays locked: see [`RobustMutex`].
pub type Mutex<T> = sync::Mutex<T, Shared>;

/// A [`RwLock`](sync::RwLock) of all processes that map it.
///
/// If a holder's process dies it stays locked. A waiter's that dies keeps others out for a second, and those that do
/// not wait for as long, until one has.
pub type RwLock<T> = sync::RwLock<T, Shared>;

/// A [`Condvar`](sync::Condvar) of all processes that map it.
pub type Condvar = sync::Condvar<Shared>;

/// A [`Semaphore`](sync::Semaphore) of all processes that map it.
///
/// A process that dies keeps the permits that it took. A waiter's that dies may delay others by a second.
pub type Semaphore = sync::Semaphore<Shared>;

/// A [`Barrier`](sync::Barrier) of all processes that map it.
pub type Barrier = sync::Barrier<Shared>;

/// An [`AutoEvent`](sync::AutoEvent) of all processes that map it.
pub type AutoEvent = sync::AutoEvent<Shared>;

/// A [`ManualEvent`](sync::ManualEvent) of all processes that map it.
pub type ManualEvent = sync::ManualEvent<Shared>;

/// A [`Parker`](sync::Parker) of all processes that map it.
pub type Parker = sync::Parker<Shared>;

/// A [`Latch`](sync::Latch) of all processes that map it.
pub type Latch = sync::Latch<Shared>;

/// A [`WaitGroup`](sync::WaitGroup) of all processes that map it.
pub type WaitGroup = sync::WaitGroup<Shared>;

/// A [`RobustMutex`](sync::RobustMutex) of all processes that map it: whoever locks it after its owner died is
/// told.
pub type RobustMutex<T, W = Plain> = sync::RobustMutex<T, Shared, W>;

/// A [`PiMutex`](sync::PiMutex) of all processes that map it.
pub type PiMutex<T> = sync::PiMutex<T, Shared>;

/// A [`RobustPiMutex`](sync::RobustPiMutex) of all processes that map it.
pub type RobustPiMutex<T> = sync::RobustPiMutex<T, Shared>;

/// A [`PiCondvar`](sync::PiCondvar) of all processes that map it.
pub type PiCondvar = sync::PiCondvar<Shared>;

// SAFETY: `repr(C)`, two words and the data.
unsafe impl<T: SharedSafe> SharedSafe for Mutex<T> {
    const LAYOUT: u64 = layout("Mutex 1", &[T::LAYOUT]);
}

// SAFETY: `repr(C)`, one word and the data.
unsafe impl<T: SharedSafe> SharedSafe for RwLock<T> {
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
    Condvar = "Condvar 2",
    Semaphore = "Semaphore 1",
    Barrier = "Barrier 2",
    AutoEvent = "AutoEvent 1",
    ManualEvent = "ManualEvent 1",
    Parker = "Parker 1",
    Latch = "Latch 1",
    WaitGroup = "WaitGroup 1",
}
