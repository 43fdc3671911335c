//! The condition variable of libc, and its mutex.
//!
//! Invariants:
//! - The memory of both does not move: they are used where they were made.
//! - The owner of the lock has exclusive access to the scene.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use super::monitors::{Monitor, Scene};

/// libc's mutex and condition variable: see the file's text.
pub struct Pthread(Box<Behind>);

struct Behind {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    condition: UnsafeCell<libc::pthread_cond_t>,
    scene: UnsafeCell<Scene>,
}

// SAFETY: lock and condition variable are made for it; the scene is its owner's alone (invariant 2).
unsafe impl Send for Pthread {}
// SAFETY: the lock and the condition variable are for use by several threads; only the lock's owner accesses the
// scene (invariant 2).
unsafe impl Sync for Pthread {}

impl Monitor for Pthread {
    type Guard<'a> = Held<'a>;

    fn new() -> anyhow::Result<Self> {
        Ok(Self(Box::new(Behind {
            lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            condition: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
            scene: UnsafeCell::default(),
        })))
    }

    fn lock(&self) -> Held<'_> {
        // SAFETY: initialised, at a fixed address (invariant 1), and not held by this thread.
        unsafe { libc::pthread_mutex_lock(self.0.lock.get()) };
        Held(&self.0)
    }

    fn wait<'a>(&'a self, guard: Held<'a>) -> Held<'a> {
        // SAFETY: initialised; this thread holds the lock, and holds it again afterwards.
        unsafe { libc::pthread_cond_wait(self.0.condition.get(), self.0.lock.get()) };
        guard
    }

    fn notify_one(&self, _: &Held<'_>) {
        // SAFETY: initialised.
        unsafe { libc::pthread_cond_signal(self.0.condition.get()) };
    }

    fn notify_all(&self, _: &Held<'_>) {
        // SAFETY: initialised.
        unsafe { libc::pthread_cond_broadcast(self.0.condition.get()) };
    }
}

impl Drop for Pthread {
    fn drop(&mut self) {
        // SAFETY: they are no longer used.
        unsafe {
            libc::pthread_cond_destroy(self.0.condition.get());
            libc::pthread_mutex_destroy(self.0.lock.get());
        }
    }
}

/// The lock is held.
pub struct Held<'a>(&'a Behind);

impl Deref for Held<'_> {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        // SAFETY: invariant 2.
        unsafe { &*self.0.scene.get() }
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Scene {
        // SAFETY: invariant 2.
        unsafe { &mut *self.0.scene.get() }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread holds it.
        unsafe { libc::pthread_mutex_unlock(self.0.lock.get()) };
    }
}
