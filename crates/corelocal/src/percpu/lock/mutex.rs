//! The ordinary mutex of shared slots: one word, a futex behind it.
//!
//! Invariant: whoever moved the word from FREE has the mutex until it moves it back. AWAITED means that
//! somebody may sleep; the one that unlocks then wakes one, which takes the mutex as AWAITED again,
//! since others may still sleep. (Ulrich Drepper, "Futexes Are Tricky", mutex2.)

use crate::percpu::park;
use crate::primitive::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const AWAITED: u32 = 2;

/// See the module's text. All bytes 0 is an unlocked one.
pub(super) struct Mutex {
    state: AtomicU32,
}

impl Mutex {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Mutex { state: AtomicU32::new(FREE) }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Mutex { state: AtomicU32::new(FREE) }
    }

    pub(super) fn try_lock(&self) -> bool {
        // Acquire: partner is the Release in `unlock`.
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub(super) fn lock(&self) {
        if !self.try_lock() {
            self.lock_cold();
        }
    }

    #[cold]
    fn lock_cold(&self) {
        // Acquire: partner is the Release in `unlock`.
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            park::wait(&self.state, AWAITED, None);
        }
    }

    pub(super) fn unlock(&self) {
        // Release: partner is the Acquire of the next one that locks.
        if self.state.swap(FREE, Ordering::Release) == AWAITED {
            park::wake_one(&self.state);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::thread;
    use std::boxed::Box;

    /// Three threads take turns, and nobody sleeps for ever.
    fn explore(lock: fn(&Mutex), unlock: fn(&Mutex)) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            // Leaked: loom panics in the drop of its own, after a deadlock.
            let shared: &'static _ = Box::leak(Box::new((Mutex::new(), UnsafeCell::new(0))));
            let add = move |shared: &(Mutex, UnsafeCell<i32>)| {
                lock(&shared.0);
                // SAFETY: the mutex excludes others.
                shared.1.with_mut(|n| unsafe { *n += 1 });
                unlock(&shared.0);
            };
            let others: std::vec::Vec<_> =
                (0..2).map(|_| thread::spawn(move || add(shared))).collect();
            add(shared);
            for other in others {
                other.join().unwrap();
            }
            // SAFETY: alone again.
            assert_eq!(shared.1.with(|n| unsafe { *n }), 3);
        });
    }

    #[test]
    fn loom_mutex_excludes_and_wakes() {
        explore(Mutex::lock, Mutex::unlock);
    }

    /// Who locks next does not see what was done under the lock.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_catches_an_unlock_without_release() {
        explore(Mutex::lock, |mutex| {
            if mutex.state.swap(FREE, Ordering::Relaxed) == AWAITED {
                park::wake_one(&mutex.state);
            }
        });
    }

    /// Likewise.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_catches_a_lock_without_acquire() {
        explore(
            |mutex| {
                while mutex.state.swap(AWAITED, Ordering::Relaxed) != FREE {
                    park::wait(&mutex.state, AWAITED, None);
                }
            },
            Mutex::unlock,
        );
    }

    /// Two sleep; the one that is woken takes the mutex as if nobody slept any more, and wakes nobody.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_catches_a_sleeper_that_forgets_the_others() {
        explore(
            |mutex| {
                while !mutex.try_lock() {
                    let awaited = mutex.state.compare_exchange(
                        HELD,
                        AWAITED,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                    if awaited != Err(FREE) {
                        park::wait(&mutex.state, AWAITED, None);
                    }
                }
            },
            Mutex::unlock,
        );
    }

    /// Who unlocks does not say so.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_catches_an_unlock_that_wakes_nobody() {
        explore(Mutex::lock, |mutex| mutex.state.store(FREE, Ordering::Release));
    }
}
