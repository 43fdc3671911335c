//! Locks and other synchronisation primitives, built on futexes.
//!
//! Every type is one or two words that the threads change themselves; the kernel is called only to sleep and to wake.
//! The type says which threads may share an object: [`Private`], those of one process, or [`Shared`], those of all
//! processes that map it. Waiting on a private word is cheaper, since the kernel need not look up its page.
//!
//! Deadlines are points in time on the monotonic clock. Functions that end in `_for` take a time span, those that end
//! in `_until` a [`Deadline`], to which a [`clock::Instant`](crate::clock::Instant) converts. A wait that has nothing
//! else to return returns a [`WaitTimeoutResult`].

#[cfg(any(test, feature = "std"))]
mod arc_guard;
mod barrier;
mod condvar;
mod countdown;
mod event;
mod latch;
mod machinery;
mod mapped_guard;
mod mutex;
mod once;
mod parker;
#[cfg(not(loom))]
mod pi;
#[cfg(any(test, feature = "std"))]
mod poison;
pub mod profile;
#[cfg(all(feature = "lock_api", not(loom)))]
mod raw;
#[cfg(not(loom))]
mod reentrant;
mod robust;
mod rwlock;
mod semaphore;
#[cfg(not(loom))]
pub mod shared;
mod wait_many;

pub use crate::sys::forks::orphaned::{Orphaned, OrphanedGuard};
pub use crate::sys::futex::Deadline;
#[cfg(any(test, feature = "std"))]
pub use arc_guard::ArcGuard;
pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::Condvar;
pub use condvar::guard::{CondvarGuard, OwnedGuard};
pub use event::{AutoEvent, ManualEvent};
pub use latch::{Latch, Task, WaitGroup};
pub use machinery::scope::{Private, Scope, Shared};
pub use machinery::timeout::WaitTimeoutResult;
pub use mapped_guard::MappedGuard;
#[cfg(any(test, feature = "std"))]
pub use mutex::ArcMutexGuard;
pub use mutex::{MappedMutexGuard, Mutex, MutexGuard};
pub use once::lazy::LazyLock;
pub use once::lock::OnceLock;
pub use once::{Once, OnceState};
pub use parker::Parker;
#[cfg(not(loom))]
pub use pi::{PiCondvar, PiMutex, PiMutexGuard, RobustPiMutex};
#[cfg(any(test, feature = "std"))]
pub use poison::{Poison, PoisonGuard, Poisoned};
#[cfg(all(feature = "lock_api", not(loom)))]
pub use raw::RawMutex;
#[cfg(not(loom))]
pub use reentrant::{ReentrantMutex, ReentrantMutexGuard};
pub use robust::{
    Inherit, LockError, Plain, Recovered, RobustError, RobustMutex, RobustMutexGuard, Waiting,
};
#[cfg(all(feature = "lock_api", not(loom)))]
pub use rwlock::RawRwLock;
#[cfg(any(test, feature = "std"))]
pub use rwlock::{ArcRwLockReadGuard, ArcRwLockUpgradableGuard, ArcRwLockWriteGuard};
pub use rwlock::{
    MappedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockUpgradableGuard, RwLockWriteGuard,
};
#[cfg(any(test, feature = "std"))]
pub use semaphore::ArcPermit;
pub use semaphore::{Permit, Semaphore};
pub use wait_many::{
    MAX_WAITABLES, WaitError, Waitable, wait_all, wait_all_for, wait_all_until, wait_any,
    wait_any_for, wait_any_until,
};
