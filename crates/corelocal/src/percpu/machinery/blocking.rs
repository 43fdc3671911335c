//! Blocking for `percpu`: sleeping on words of one process with an upper bound, and the two sides of an asymmetric
//! barrier.

use core::time::Duration;

use crate::primitive::atomic::AtomicU32;
use crate::sys::futex::{Deadline, Scope};
use crate::sys::sleep;

pub(in crate::percpu) use imp::nap;
pub(crate) use imp::{heavy_barrier, light_barrier};

/// Sleeps while `word` holds `expected`, for at most `most`. May return spuriously.
#[cold]
pub(in crate::percpu) fn wait(word: &AtomicU32, expected: u32, most: Option<Duration>) {
    sleep::wait(word, expected, most.map(Deadline::after), Scope::Private);
}

/// Wakes one thread that sleeps on the word.
#[cold]
pub(in crate::percpu) fn wake_one(word: &AtomicU32) {
    sleep::wake(word, 1, Scope::Private);
}

/// Wakes all threads that sleep on the word.
#[cold]
pub(in crate::percpu) fn wake_all(word: &AtomicU32) {
    sleep::wake(word, u32::MAX, Scope::Private);
}

/// A limited wait for another thread's work of microseconds. That thread may be preempted where there are many more
/// threads than cpus. The pauses double up to a maximum; in all they last 1.25 s.
pub(in crate::percpu) struct Patience {
    left: u32,
    pause: Duration,
}

impl Patience {
    const PAUSES: u32 = 256;
    const SHORTEST: Duration = Duration::from_micros(50);
    const LONGEST: Duration = Duration::from_millis(5);

    pub(in crate::percpu) const fn new() -> Patience {
        Patience { left: Self::PAUSES, pause: Self::SHORTEST }
    }

    /// Pauses. Returns false at once if the total is used up.
    #[cold]
    pub(in crate::percpu) fn nap(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        nap(self.pause);
        self.pause = Self::LONGEST.min(self.pause * 2);
        true
    }
}

#[cfg(not(loom))]
mod imp {
    pub(crate) use crate::sys::sleep::nap;
    use crate::sys::{Errno, membarrier};
    use core::sync::atomic::{Ordering, compiler_fence};

    /// The barrier between a store and a load of a fast path: it only stops the compiler from reordering them.
    /// Partner: [`heavy_barrier`].
    #[inline(always)]
    pub(crate) fn light_barrier() {
        compiler_fence(Ordering::SeqCst);
    }

    /// A full barrier in this thread and, at some moment during the call, in every other thread.
    #[cold]
    pub(crate) fn heavy_barrier() -> Result<(), Errno> {
        membarrier::private_expedited()
    }
}

#[cfg(loom)]
mod imp {
    use super::*;
    use crate::sys::Errno;
    use loom::sync::atomic::{Ordering, fence};

    pub(crate) fn nap(_span: Duration) {
        loom::thread::yield_now();
    }

    pub(crate) fn light_barrier() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy_barrier() -> Result<(), Errno> {
        fence(Ordering::SeqCst);
        Ok(())
    }
}
