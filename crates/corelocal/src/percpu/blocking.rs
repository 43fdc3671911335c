//! What percpu needs of [`crate::sys::sleep`]: the words of one process, and how long at most. And the two sides of
//! an asymmetric barrier.

use core::time::Duration;

use crate::primitive::atomic::AtomicU32;
use crate::sys::futex::{Deadline, Scope};
use crate::sys::sleep;

pub(super) use imp::{heavy_barrier, light_barrier, nap};

/// Sleeps while `word` holds `expected`, `most` at the longest; may wake for nothing.
#[cold]
pub(super) fn wait(word: &AtomicU32, expected: u32, most: Option<Duration>) {
    sleep::wait(word, expected, most.map(Deadline::after), Scope::Private);
}

/// Wakes one that waits for the word.
#[cold]
pub(super) fn wake_one(word: &AtomicU32) {
    sleep::wake(word, 1, Scope::Private);
}

/// Wakes all that wait for the word.
#[cold]
pub(super) fn wake_all(word: &AtomicU32) {
    sleep::wake(word, u32::MAX, Scope::Private);
}

/// How long to wait for what another thread does in microseconds: it may be preempted, where there are many
/// more threads than cpus. Pauses that double up to a longest one, for a second and a quarter in all.
pub(super) struct Patience {
    left: u32,
    pause: Duration,
}

impl Patience {
    const PAUSES: u32 = 256;
    const SHORTEST: Duration = Duration::from_micros(50);
    const LONGEST: Duration = Duration::from_millis(5);

    pub(super) const fn new() -> Patience {
        Patience { left: Self::PAUSES, pause: Self::SHORTEST }
    }

    /// Pauses; false, at once, when there was enough of it.
    #[cold]
    pub(super) fn nap(&mut self) -> bool {
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

    /// What a thread does between a store and a load that must not pass it: nothing but keep the
    /// compiler from it. Partner: [`heavy_barrier`].
    #[inline(always)]
    pub(crate) fn light_barrier() {
        compiler_fence(Ordering::SeqCst);
    }

    /// A full barrier in this thread and in every other, at some moment of the call.
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
