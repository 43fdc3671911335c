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
    use loom::sync::Arc;
    use loom::thread;

    /// Three threads take turns, and nobody sleeps for ever.
    #[test]
    fn loom_mutex_excludes_and_wakes() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new((Mutex::new(), UnsafeCell::new(0)));
            let add = |shared: &(Mutex, UnsafeCell<i32>)| {
                shared.0.lock();
                // SAFETY: the mutex excludes others.
                shared.1.with_mut(|n| unsafe { *n += 1 });
                shared.0.unlock();
            };
            let others: std::vec::Vec<_> = (0..2)
                .map(|_| {
                    let shared = shared.clone();
                    thread::spawn(move || add(&shared))
                })
                .collect();
            add(&shared);
            for other in others {
                other.join().unwrap();
            }
            // SAFETY: alone again.
            assert_eq!(shared.1.with(|n| unsafe { *n }), 3);
        });
    }
}
