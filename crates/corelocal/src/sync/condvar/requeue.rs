//! Moving the waiters of a condition variable to the queue of their lock, and knowing which lock that is.
//!
//! Moved to another lock's queue a waiter would sleep until that lock happens to be unlocked, and its token would stay
//! there. So the first waiter remembers its lock, and a waiter that finds another lock there reports it.
//!
//! # Invariants
//! 1. The lock is remembered as its distance from the condition variable, which is the same in all processes that map
//!    both as parts of one object. Two locks have the same distance only if they are a multiple of 16 GiB apart.
//! 2. A waiter is counted before it looks here, and holds its lock meanwhile. Of two waiters with different locks, one
//!    finds the other's lock here or the other one counted:
//!
//! ```text
//!   the first waiter (lock A)             another one (lock B)
//!   count: 0 -> 1
//!   the lock is A
//!   looks at the count again              count: + 1
//!     2: reports                          finds A: reports
//! ```

use super::{AT_ONCE, Condvar, CondvarGuard, waiters};
use crate::primitive::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Relaxed},
};
use crate::sync::futex::Futex;
use crate::sync::scope::Scope;
use crate::sys::futex::Requeue;

/// The distance from a condition variable to a lock, in words.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Distance(u32);

impl Distance {
    /// That between these addresses.
    fn new<C>(condvar: &C, lock: usize) -> Distance {
        let from = core::ptr::from_ref(condvar).addr();
        // The low 32 bits: see invariant 1.
        Distance((lock.wrapping_sub(from) / size_of::<u32>()) as u32)
    }
}

/// The lock of those who wait. All bytes 0 at first, when nobody has waited.
#[repr(transparent)]
pub(super) struct WaitersLock {
    distance: AtomicU32,
}

impl WaitersLock {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        WaitersLock { distance: AtomicU32::new(0) }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        WaitersLock { distance: AtomicU32::new(0) }
    }

    /// Whether it is this one.
    fn is(&self, lock: Distance) -> bool {
        // Relaxed: the count orders it (2); for a notifier, the lock does, if it is this one.
        self.distance.load(Relaxed) == lock.0
    }

    /// Remembers this one.
    fn set(&self, lock: Distance) {
        // Relaxed: as in `is`.
        self.distance.store(lock.0, Relaxed);
    }
}

impl<S: Scope> Condvar<S> {
    fn distance<G: CondvarGuard>(&self, guard: &G) -> Distance {
        Distance::new(self, guard.lock_address())
    }

    /// Counts a waiter, which holds the lock of this guard. AT_ONCE is set if others wait with another one (2).
    pub(super) fn enter<G: CondvarGuard>(&self, guard: &G) {
        let lock = self.distance(guard);
        // AcqRel, here and below: partners are each other, in waiters with other locks.
        let before = self.state.fetch_add(1, AcqRel);
        if self.lock.is(lock) {
            return;
        }
        if waiters(before) == 0 {
            self.lock.set(lock);
            // An addition sees the last count, where a load may see an earlier one.
            if waiters(self.state.fetch_add(0, AcqRel)) == 1 {
                return;
            }
        }
        self.state.fetch_or(AT_ONCE, Relaxed);
    }

    /// Moves up to so many waiters to the held lock, or wakes them, if it cannot have them.
    pub(super) fn hand_over<G: CondvarGuard>(&self, guard: &G, most: u32) {
        let mut left = most;
        if self.is_lock_of_all(guard) {
            guard.adopt(&mut |room, place| {
                // The kernel files the two kinds under different keys.
                let Some(target) = place.of_scope::<S>() else { return 0 };
                let asked = most.min(room);
                let Some(moved) = self.requeue(asked, target) else { return 0 };
                // Fewer than asked for: there are no more.
                left = if moved < asked { 0 } else { most - moved };
                if self.is_lock_of_all(guard) {
                    return moved;
                }
                // A waiter with another lock has come since, and may have been moved too. It said so before it slept,
                // and the kernel's lock of the queue orders the two.
                Futex::wake(target, u32::MAX);
                0
            });
        }
        if left > 0 {
            Futex::wake(&self.sequence, left);
        }
    }

    /// Whether all waiters that sleep now wait with the lock of this guard, which is held.
    fn is_lock_of_all<G: CondvarGuard>(&self, guard: &G) -> bool {
        self.state.load(Relaxed) & AT_ONCE == 0 && self.lock.is(self.distance(guard))
    }

    /// Moves up to so many waiters to another place; how many there were, or `None` if the kernel or a filter refuses
    /// it: then they sleep where they slept.
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
