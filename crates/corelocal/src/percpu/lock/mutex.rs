//! The ordinary mutex of shared slots: one word, with a futex.
//!
//! | word | meaning |
//! |---|---|
//! | FREE (0) | Unlocked. |
//! | HELD, tag | The thread with this tag (bits 2 to 31, `sys/thread/owner_tag.rs`) holds it, and no thread sleeps. |
//! | HELD, AWAITED, tag | The same, and threads may be sleeping: the unlock wakes one. |
//!
//! # Invariants
//! 1. A thread that changed the word from FREE has the mutex until it changes it back.
//! 2. A woken thread takes the mutex with AWAITED set, since others may still sleep. (Ulrich Drepper, "Futexes Are
//!    Tricky", mutex2.)
//! 3. By the tag a forked child recognises that the owner does not exist in it. Then the mutex stays held until a
//!    thread takes it over.

use crate::percpu::machinery::blocking;
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::thread::owner_tag::{self, Holder};

const FREE: u32 = 0;
const HELD: u32 = 1;
const AWAITED: u32 = 2;
const TAG_SHIFT: u32 = 2;
const TAG_BITS: u32 = 32 - TAG_SHIFT;

/// The mutex of a shared slot. All bytes 0 is an unlocked one.
pub(super) struct Mutex {
    state: AtomicU32,
}

/// The word of a mutex whose owner was left behind by a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone(u32);

impl Gone {
    pub(super) fn number(self) -> u64 {
        self.0.into()
    }

    pub(super) fn of_number(number: u64) -> Gone {
        Gone(number as u32)
    }
}

/// The word while the calling thread has the mutex and no thread sleeps.
fn held() -> u32 {
    owner_tag::tag::<TAG_BITS>() << TAG_SHIFT | HELD
}

fn is_gone(state: u32) -> bool {
    state != FREE && owner_tag::who::<TAG_BITS>(state >> TAG_SHIFT) == Holder::Gone
}

impl Mutex {
    const_fn! {
        pub(super) const fn new() -> Self {
            Mutex { state: AtomicU32::new(FREE) }
        }
    }

    pub(super) fn try_lock(&self) -> bool {
        // Acquire: partner is the Release in `unlock`.
        self.state.compare_exchange(FREE, held(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Locks. `Err` if the owner does not exist in this process.
    pub(super) fn lock(&self) -> Result<(), Gone> {
        if self.try_lock() { Ok(()) } else { self.lock_cold() }
    }

    #[cold]
    fn lock_cold(&self) -> Result<(), Gone> {
        loop {
            // Acquire: partner is the Release in `unlock`.
            let (mine, success) = (held() | AWAITED, Ordering::Acquire);
            let Err(seen) = self.state.compare_exchange(FREE, mine, success, Ordering::Relaxed)
            else {
                return Ok(());
            };
            if is_gone(seen) {
                return Err(Gone(seen));
            }
            let awaited = seen | AWAITED;
            // Relaxed: this only announces a sleeper. The exchange above takes the mutex, and has the Acquire.
            let relaxed = Ordering::Relaxed;
            if awaited == seen
                || self.state.compare_exchange(seen, awaited, relaxed, relaxed).is_ok()
            {
                blocking::wait(&self.state, awaited, None);
            }
        }
    }

    /// Takes the mutex over from a gone owner. False if another thread was faster.
    #[cold]
    pub(super) fn adopt(&self, Gone(seen): Gone) -> bool {
        // Threads that sleep in this process check again once it is unlocked. Acquire: of the fork, which copied all
        // that the owner had done, or of `abandon`.
        let mine = held() | AWAITED;
        self.state.compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Locks, taking over from a gone owner: the protected operations are safe to repeat wherever that owner was.
    pub(super) fn lock_anyway(&self) {
        while let Err(gone) = self.lock() {
            if self.adopt(gone) {
                return;
            }
        }
    }

    /// Does what [`lock_anyway`](Self::lock_anyway) does, unless a thread of this process has the mutex.
    pub(super) fn try_lock_anyway(&self) -> bool {
        // Relaxed: `adopt` compares it, with Acquire.
        let seen = self.state.load(Ordering::Relaxed);
        self.try_lock() || is_gone(seen) && self.adopt(Gone(seen))
    }

    /// Gives the mutex back to the gone owner that it was taken from.
    pub(super) fn abandon(&self, Gone(state): Gone) {
        // Release: partner is the Acquire in `adopt`.
        if self.state.swap(state & !AWAITED, Ordering::Release) & AWAITED != 0 {
            // The woken threads find that the owner is gone.
            blocking::wake_all(&self.state);
        }
    }

    pub(super) fn unlock(&self) {
        // Release: partner is the Acquire of the next one that locks.
        if self.state.swap(FREE, Ordering::Release) & AWAITED != 0 {
            blocking::wake_one(&self.state);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::thread;
    use std::boxed::Box;

    /// Three threads take turns, and each wakes up in the end.
    fn explore(lock: fn(&Mutex), unlock: fn(&Mutex)) {
        crate::explore::within(3, move || {
            // Leaked: loom panics in its own drop after a deadlock.
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
            // SAFETY: the other threads have been joined.
            assert_eq!(shared.1.with(|n| unsafe { *n }), 3);
        });
    }

    fn lock(mutex: &Mutex) {
        mutex.lock().expect("nobody forks");
    }

    #[test]
    fn loom_mutex_excludes_and_wakes() {
        explore(lock, Mutex::unlock);
    }

    /// The next owner does not see what was done under the lock.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_catches_an_unlock_without_release() {
        explore(lock, |mutex| {
            if mutex.state.swap(FREE, Ordering::Relaxed) & AWAITED != 0 {
                blocking::wake_one(&mutex.state);
            }
        });
    }

    /// The same, on the locking side.
    #[test]
    #[should_panic(expected = "Causality violation")]
    fn loom_catches_a_lock_without_acquire() {
        explore(
            |mutex| {
                // In a model a swap suffices, since all models' threads have the same tag.
                let awaited = held() | AWAITED;
                while mutex.state.swap(awaited, Ordering::Relaxed) != FREE {
                    blocking::wait(&mutex.state, awaited, None);
                }
            },
            Mutex::unlock,
        );
    }

    /// Two threads sleep. The one that is woken takes the mutex without AWAITED, and does not wake the other one.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_catches_a_sleeper_that_forgets_the_others() {
        explore(
            |mutex| {
                while !mutex.try_lock() {
                    let (relaxed, awaited) = (Ordering::Relaxed, held() | AWAITED);
                    let marked = mutex.state.compare_exchange(held(), awaited, relaxed, relaxed);
                    if marked != Err(FREE) {
                        blocking::wait(&mutex.state, awaited, None);
                    }
                }
            },
            Mutex::unlock,
        );
    }

    /// The unlock does not wake a sleeper.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_catches_an_unlock_that_wakes_nobody() {
        explore(lock, |mutex| mutex.state.store(FREE, Ordering::Release));
    }
}
