//! A wait for idle memory: one thread sleeps until there is memory to give back. A thread that frees memory pays a
//! fence.
//!
//! # Invariants
//! 1. The sleeper announces itself before its last check for idle memory, and a thread that frees memory checks for a
//!    sleeper afterwards. So the sleeper never sleeps while there is memory to give back.
//! 2. At most one thread sleeps here.

use crate::primitive::atomic::{AtomicU32, Ordering, fence};
use crate::sys::futex::{Deadline, Scope, Wake};
use crate::sys::sleep;

const AWAKE: u32 = 0;
const SLEEPS: u32 = 1;

/// The word that says whether a thread sleeps. All bytes 0 is a valid one without a sleeper.
#[repr(transparent)]
pub(in crate::alloc) struct Sleeper {
    word: AtomicU32,
}

impl Sleeper {
    /// Sleeps until [`wake`](Self::wake) or the deadline, unless `is_anything` returns true. May return early.
    pub(in crate::alloc) fn sleep_unless(
        &self,
        deadline: Option<Deadline>,
        is_anything: impl FnOnce() -> bool,
    ) {
        // Exchanges, not stores: loom orders only these among other threads' accesses.
        self.word.swap(SLEEPS, Ordering::Relaxed);
        // Partner: the fence in `wake`.
        //   sleeper: announces itself, fence, sees no idle memory, sleeps
        //   other:   frees memory, fence, sees the sleeper, wakes it
        fence(Ordering::SeqCst);
        if !is_anything() {
            let _: Wake = sleep::wait(&self.word, SLEEPS, deadline, Scope::Private);
        }
        self.word.swap(AWAKE, Ordering::Relaxed);
    }

    /// Wakes the sleeper, if there is one. Called after memory became idle.
    #[inline]
    pub(in crate::alloc) fn wake(&self) {
        // Partner: the fence in `sleep_unless`.
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::Relaxed) != AWAKE {
            self.wake_cold();
        }
    }

    #[cold]
    fn wake_cold(&self) {
        if self.word.swap(AWAKE, Ordering::Relaxed) != AWAKE {
            sleep::wake(&self.word, 1, Scope::Private);
        }
    }
}

#[cfg(all(test, loom))]
mod loom;
