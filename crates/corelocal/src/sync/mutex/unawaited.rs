//! Letting go of a lock that nobody waits for, without a locked instruction.
//!
//! A critical section looks whether the queue is empty, and if so stores 0 to the word: the lock is free. A thread
//! that is taken off its cpu between the two is sent back to before the look. So a waiter counts itself in the
//! queue and then has the kernel end all sections (`membarrier(2)`); whatever begins later finds it there:
//!
//! ```text
//!   holder                                   waiter
//!   is the queue empty?  ---+                counts itself in the queue
//!                           | section        fence: nobody is between look and store
//!   the word is free     ---+                WAITERS into the word, if that is still held; sleeps
//! ```
//!
//! The fence interrupts other cpus, for microseconds. FENCED in the queue says that there was one, and keeps the
//! queue from being empty ever again: a lock for which a thread has slept is unlocked by an exchange from then
//! on, and its waiters need no fence.
//!
//! Invariants:
//! 1. A section stores to the word of a lock that its thread holds, and nothing but 0 where the queue was empty:
//!    no waiters and no guests, for whom alone the flags are there.
//! 2. Excluding each other depends on neither the fence nor the queue. Where the fence is refused (seccomp), or
//!    a child of `vfork` runs a section that the kernel does not know of, the flags of one who is just about to
//!    sleep may be lost: it wakes when its patience ends, 2 ms later, and says again that it waits.

use super::lock::Lock;
use crate::sync::scope::Scope;

pub(super) use imp::{fence, let_go, prepare};

#[cfg(not(loom))]
mod imp {
    use super::*;
    use crate::rseq;
    use crate::sys::{self, futex, membarrier};

    /// Lets go of a lock if its queue is empty; false if an exchange is to do it.
    ///
    /// # Safety
    /// The caller holds it.
    #[inline(always)]
    pub(in crate::sync::mutex) unsafe fn let_go<S: Scope>(lock: &Lock<S>) -> bool {
        // Who waits in another process is not fenced.
        if S::FUTEX != futex::Scope::Private {
            return false;
        }
        let (queue, word) = (lock.queue.as_ptr().cast_const(), lock.word.as_ptr());
        // Release of the word: as in `Lock::unlock`.
        // SAFETY: both are borrowed; the word is the holder's to clear (1).
        unsafe { rseq::clear_if_clear(sys::rseq::area(), queue, word) }.is_straight()
    }

    /// Sees to it that `let_go` works in this thread, if that can be; once in each.
    pub(in crate::sync::mutex) fn prepare() {
        // Refused, exchanges do it.
        let _ = sys::rseq::register_this_thread();
    }

    /// Ends all sections; false if that is refused.
    pub(in crate::sync::mutex) fn fence() -> bool {
        !sys::rseq::any_registered() || membarrier::private_expedited_rseq().is_ok()
    }
}

/// A section is a mutex held meanwhile, which the fence waits for: the kernel lets nobody see half of one.
#[cfg(loom)]
mod imp {
    use super::*;
    use crate::primitive::atomic::Ordering::{Relaxed, Release};
    use loom::sync::Mutex;

    loom::lazy_static! {
        static ref RUNNING: Mutex<()> = Mutex::new(());
    }

    pub(in crate::sync::mutex) unsafe fn let_go<S: Scope>(lock: &Lock<S>) -> bool {
        if !lock.has_sections {
            return false;
        }
        let _running = RUNNING.lock().unwrap();
        let is_empty = lock.queue.load(Relaxed) == 0;
        if is_empty {
            // Release: as in `Lock::unlock`.
            lock.word.store(0, Release);
        }
        is_empty
    }

    pub(in crate::sync::mutex) fn prepare() {}

    pub(in crate::sync::mutex) fn fence() -> bool {
        drop(RUNNING.lock().unwrap());
        true
    }
}
