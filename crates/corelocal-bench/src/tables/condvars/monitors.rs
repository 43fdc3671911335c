//! Locks with their condition variables, as the tables of condition variables need them.

use std::ops::DerefMut;
use std::sync::PoisonError;
use std::time::Instant;

use corelocal::sync;

use crate::tables::locks::foreign::{Foreign, Library, Writes};

/// The state that the threads share, under the lock.
#[derive(Default)]
pub struct Scene {
    /// The number of turns that were given, or of notifications of all.
    pub turns: u64,
    /// The number of threads that wait for the next notification.
    pub waiting: usize,
    /// The number of times that a thread woke from one.
    pub awoken: u64,
    /// The time at which the last thread did.
    pub last: Option<Instant>,
}

/// A scene behind a lock with a condition variable.
pub trait Monitor: Sized + Send + Sync + 'static {
    /// The guard of the locked monitor.
    type Guard<'a>: DerefMut<Target = Scene>;

    /// # Errors
    /// There is nothing of this kind here.
    fn new() -> anyhow::Result<Self>;

    /// Locks.
    fn lock(&self) -> Self::Guard<'_>;

    /// Unlocks, waits to be notified, and locks again.
    fn wait<'a>(&'a self, guard: Self::Guard<'a>) -> Self::Guard<'a>;

    /// Notifies one that waits.
    fn notify_one(&self, guard: &Self::Guard<'_>);

    /// Notifies all that wait.
    fn notify_all(&self, guard: &Self::Guard<'_>);
}

/// A lock and a condition variable.
#[derive(Default)]
pub struct Both<M, C> {
    lock: M,
    condition: C,
}

/// std's.
pub type Std = Both<std::sync::Mutex<Scene>, std::sync::Condvar>;

impl Monitor for Std {
    type Guard<'a> = std::sync::MutexGuard<'a, Scene>;

    fn new() -> anyhow::Result<Self> {
        Ok(Self::default())
    }

    fn lock(&self) -> Self::Guard<'_> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&'a self, guard: Self::Guard<'a>) -> Self::Guard<'a> {
        self.condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_one(&self, _: &Self::Guard<'_>) {
        self.condition.notify_one();
    }

    fn notify_all(&self, _: &Self::Guard<'_>) {
        self.condition.notify_all();
    }
}

macro_rules! monitor {
    ($Lock:ty, $Condition:ty, $Guard:ident) => {
        impl Monitor for Both<$Lock, $Condition> {
            type Guard<'a> = $Guard<'a, Scene>;

            fn new() -> anyhow::Result<Self> {
                Ok(Self::default())
            }

            fn lock(&self) -> Self::Guard<'_> {
                self.lock.lock()
            }

            fn wait<'a>(&'a self, mut guard: Self::Guard<'a>) -> Self::Guard<'a> {
                self.condition.wait(&mut guard);
                guard
            }

            fn notify_one(&self, _: &Self::Guard<'_>) {
                self.condition.notify_one();
            }

            fn notify_all(&self, _: &Self::Guard<'_>) {
                self.condition.notify_all();
            }
        }
    };
}

type ParkingLotGuard<'a, T> = parking_lot::MutexGuard<'a, T>;
type UsyncGuard<'a, T> = usync::MutexGuard<'a, T>;
type Guard<'a, T> = sync::MutexGuard<'a, T>;

monitor!(parking_lot::Mutex<Scene>, parking_lot::Condvar, ParkingLotGuard);
monitor!(usync::Mutex<Scene>, usync::Condvar, UsyncGuard);
monitor!(sync::Mutex<Scene>, sync::Condvar, Guard);

/// corelocal's, with notifications that say that the lock is held.
pub struct ToldOfLock(Both<sync::Mutex<Scene>, sync::Condvar>);

impl Monitor for ToldOfLock {
    type Guard<'a> = Guard<'a, Scene>;

    fn new() -> anyhow::Result<Self> {
        Ok(Self(Both::default()))
    }

    fn lock(&self) -> Self::Guard<'_> {
        self.0.lock()
    }

    fn wait<'a>(&'a self, guard: Self::Guard<'a>) -> Self::Guard<'a> {
        self.0.wait(guard)
    }

    fn notify_one(&self, guard: &Self::Guard<'_>) {
        self.0.condition.notify_one_locked(guard);
    }

    fn notify_all(&self, guard: &Self::Guard<'_>) {
        self.0.condition.notify_all_locked(guard);
    }
}

impl Monitor for Both<sync::PiMutex<Scene>, sync::PiCondvar> {
    type Guard<'a> = sync::PiMutexGuard<'a, Scene>;

    fn new() -> anyhow::Result<Self> {
        Ok(Self::default())
    }

    fn lock(&self) -> Self::Guard<'_> {
        self.lock.lock().expect("a lock of these threads only")
    }

    fn wait<'a>(&'a self, guard: Self::Guard<'a>) -> Self::Guard<'a> {
        self.condition.wait(guard).expect("a lock of these threads only")
    }

    fn notify_one(&self, guard: &Self::Guard<'_>) {
        self.condition.notify_one(guard);
    }

    fn notify_all(&self, guard: &Self::Guard<'_>) {
        self.condition.notify_all(guard);
    }
}

impl<L: Library> Monitor for Foreign<Scene, L> {
    type Guard<'a> = Writes<'a, Scene, L>;

    fn new() -> anyhow::Result<Self> {
        Foreign::new(Scene::default())
    }

    fn lock(&self) -> Self::Guard<'_> {
        self.write()
    }

    fn wait<'a>(&'a self, mut guard: Self::Guard<'a>) -> Self::Guard<'a> {
        guard.wait();
        guard
    }

    fn notify_one(&self, guard: &Self::Guard<'_>) {
        guard.notify_one();
    }

    fn notify_all(&self, guard: &Self::Guard<'_>) {
        guard.notify_all();
    }
}
