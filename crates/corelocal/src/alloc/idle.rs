//! One thread that sleeps until there is something to give back, at the cost of a fence for those who make
//! something dirty.
//!
//! # Invariants
//! 1. Who sleeps says so before the last look at what is dirty; who makes something dirty looks at that
//!    afterwards. So nobody sleeps while there is something to give back.
//! 2. One thread at a time sleeps here.

use crate::primitive::atomic::{AtomicU32, Ordering, fence};
use crate::sys::futex::{Deadline, Scope, Wake};
use crate::sys::sleep;

const AWAKE: u32 = 0;
const SLEEPS: u32 = 1;

/// The word that says whether somebody sleeps. All bytes 0 is one for whom nobody waits.
#[repr(transparent)]
pub(super) struct Sleeper {
    word: AtomicU32,
}

impl Sleeper {
    /// Sleeps until [`wake`](Self::wake) or the deadline, unless there is anything. May return early.
    pub(super) fn sleep_unless(
        &self,
        deadline: Option<Deadline>,
        is_anything: impl FnOnce() -> bool,
    ) {
        // Exchanges, not stores: loom knows the place of these alone among those of others.
        self.word.swap(SLEEPS, Ordering::Relaxed);
        // Partner: the fence in `wake`.
        //   sleeper: says that it sleeps, fence, sees nothing, sleeps
        //   other:   makes something, fence, sees the sleeper, wakes it
        fence(Ordering::SeqCst);
        if !is_anything() {
            let _: Wake = sleep::wait(&self.word, SLEEPS, deadline, Scope::Private);
        }
        self.word.swap(AWAKE, Ordering::Relaxed);
    }

    /// After something was made to give back: wakes the one that sleeps.
    #[inline]
    pub(super) fn wake(&self) {
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
#[path = "idle_loom.rs"]
mod loom_tests;
