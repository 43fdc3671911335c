//! Requeueing: moves the waiters of a condition variable to the queue of their lock, and records which lock that is.
//!
//! On another lock's queue a waiter would sleep until that lock happens to be unlocked, and its token would stay
//! there. So the first waiter records its lock, and a waiter that finds another lock recorded reports it.
//!
//! # Invariants
//! 1. The lock is recorded as its distance from the condition variable, which is the same in all processes that map
//!    both as parts of one object. Two locks have the same distance only if they are a multiple of 16 GiB apart.
//! 2. A waiter is counted before it looks here, and holds its lock meanwhile. Of two waiters with different locks,
//!    one finds the other's lock recorded, or the other one counted:
//!
//! ```text
//!   the first waiter (lock A)             another one (lock B)
//!   count: 0 -> 1
//!   records A
//!   reads the count again                 count: + 1
//!     2: reports                          finds A: reports
//! ```

use super::{AT_ONCE, Condvar, CondvarGuard, waiters};
use crate::primitive::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Relaxed},
};
use crate::sync::machinery::futex::Futex;
use crate::sync::machinery::scope::Scope;
use crate::sys::futex::Requeue;

/// The distance from a condition variable to a lock, in words.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Distance(u32);

impl Distance {
    /// Returns the distance between these addresses.
    fn new<C>(condvar: &C, lock: usize) -> Distance {
        let from = core::ptr::from_ref(condvar).addr();
        // The low 32 bits: see invariant 1.
        Distance((lock.wrapping_sub(from) / size_of::<u32>()) as u32)
    }
}

/// The lock of the waiters. All bytes 0 if no thread has waited yet.
#[repr(transparent)]
pub(super) struct WaitersLock {
    distance: AtomicU32,
}

impl WaitersLock {
    const_fn! {
        pub(super) const fn new() -> Self {
            WaitersLock { distance: AtomicU32::new(0) }
        }
    }

    /// Returns `true` if it is this lock.
    fn is(&self, lock: Distance) -> bool {
        // Relaxed: the count orders it (2); for a notifier the lock does, if it is this one.
        self.distance.load(Relaxed) == lock.0
    }

    /// Records this lock.
    fn set(&self, lock: Distance) {
        // Relaxed: as in `is`.
        self.distance.store(lock.0, Relaxed);
    }
}

impl<S: Scope> Condvar<S> {
    fn distance<G: CondvarGuard>(&self, guard: &G) -> Distance {
        Distance::new(self, guard.lock_address())
    }

    /// Counts a waiter that holds the lock of this guard. Sets AT_ONCE if others wait with another lock (2).
    pub(super) fn enter<G: CondvarGuard>(&self, guard: &G) {
        let lock = self.distance(guard);
        // AcqRel, here and below: partners are each other, in waiters with other locks.
        let before = self.state.fetch_add(1, AcqRel);
        if self.lock.is(lock) {
            return;
        }
        if waiters(before) == 0 {
            self.lock.set(lock);
            // An addition reads the latest count, whereas a load may read an earlier one.
            if waiters(self.state.fetch_add(0, AcqRel)) == 1 {
                return;
            }
        }
        self.state.fetch_or(AT_ONCE, Relaxed);
    }

    /// Moves up to `most` waiters to the queue of the held lock, or wakes them if it cannot take them.
    pub(super) fn hand_over<G: CondvarGuard>(&self, guard: &G, most: u32) {
        let mut left = most;
        if self.is_lock_of_all(guard) {
            guard.adopt(&mut |room, place| {
                // The kernel stores the two scopes under different keys.
                let Some(target) = place.of_scope::<S>() else { return 0 };
                let asked = most.min(room);
                let Some(moved) = self.requeue(asked, target) else { return 0 };
                // Fewer than requested: there are no more.
                left = if moved < asked { 0 } else { most - moved };
                if self.is_lock_of_all(guard) {
                    return moved;
                }
                // A waiter with another lock has come since, and may have been moved, too. It reported that before it
                // slept, and the kernel's lock of the queue orders the two.
                Futex::wake(target, u32::MAX);
                0
            });
        }
        if left > 0 {
            Futex::wake(&self.sequence, left);
        }
    }

    /// Returns `true` if all current sleepers wait with the lock of this guard, which is held.
    fn is_lock_of_all<G: CondvarGuard>(&self, guard: &G) -> bool {
        self.state.load(Relaxed) & AT_ONCE == 0 && self.lock.is(self.distance(guard))
    }

    /// Moves up to `most` waiters to another queue. Returns how many there were; `None` if the kernel or a filter
    /// refuses, and they stay.
    fn requeue(&self, most: u32, target: &Futex<S>) -> Option<u32> {
        loop {
            let sequence = self.sequence.load(Relaxed);
            match self.sequence.requeue(sequence, 0, most, target) {
                Ok(Requeue::Moved(count)) => return Some(count as u32),
                Ok(Requeue::Differed) => {}
                Err(_) => return None,
            }
        }
    }
}
