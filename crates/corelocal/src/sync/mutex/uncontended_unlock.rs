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
//! 2. Excluding each other depends on neither the fence nor the queue. Where the fence is refused (seccomp) the flags
//!    of a waiter that is just about to sleep may be lost: FENCED stays clear, the waiter wakes when its patience ends,
//!    2 ms later, says again that it waits, and looks once a second for as long as it does. In a child of `vfork`
//!    a section may run that the kernel does not know of. If it is interrupted between look and store, for half a
//!    second or more, a waiter of the parent that it overtook may sleep until the next unlock that finds flags.

use super::lock::Lock;
use crate::sync::scope::Scope;

#[cfg(loom)]
pub(super) use imp::time_passes;
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
    pub(in crate::sync::mutex) fn fence<S: Scope>(_: &Lock<S>) -> bool {
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
            // Release: as in `Lock::unlock`. Loom has it that a store may come between what a read-modify-write read and
            // what it wrote. Where a waiter's flags are overwritten, that would undo what it says later.
            match lock.refuses_fences {
                true => drop(lock.word.swap(0, Release)),
                false => lock.word.store(0, Release),
            }
        }
        is_empty
    }

    pub(in crate::sync::mutex) fn prepare() {}

    pub(in crate::sync::mutex) fn fence<S: Scope>(lock: &Lock<S>) -> bool {
        if lock.refuses_fences {
            return false;
        }
        drop(RUNNING.lock().unwrap());
        true
    }

    /// So long that all sections that were under way have ended.
    pub(in crate::sync::mutex) fn time_passes() {
        drop(RUNNING.lock().unwrap());
    }
}
