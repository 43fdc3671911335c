//! Uncontended unlock without a locked instruction.
//!
//! A critical section checks that the queue is empty and then stores 0 to the word, which frees the lock. If the
//! thread is preempted between check and store, it restarts before the check. A waiter counts itself in the queue and
//! then has the kernel abort all running sections (`membarrier(2)`); any later section sees it counted:
//!
//! ```text
//!   owner                                    waiter
//!   is the queue empty?  ---+                counts itself in the queue
//!                           | section        fence: no thread is between check and store
//!   the word is free     ---+                WAITERS into the word, if that is still owned; sleeps
//! ```
//!
//! The fence interrupts other cpus for microseconds. FENCED in the queue records that there was one, and keeps the
//! queue from being empty ever again: a lock on which a thread has slept is unlocked by a compare-exchange from then
//! on, and its waiters need no fence.
//!
//! Invariants:
//! 1. A section stores only to the word of a lock that its thread owns, and only 0, and only if the queue was empty:
//!    no waiters and no guests, for which alone the flags exist.
//! 2. Mutual exclusion depends on neither the fence nor the queue. If the fence is refused (seccomp), the flags of a
//!    waiter that is about to sleep may be lost. FENCED then stays clear; the waiter wakes up when its patience ends,
//!    2 ms later, sets its flags again, and from then on checks once a second. In a child of `vfork` a section may
//!    run that the kernel does not know about. If it is interrupted between check and store for half a second or
//!    more, a waiter of the parent that it overtook may sleep until the next unlock that finds flags.

use super::word::Lock;
use crate::sync::machinery::scope::Scope;

#[cfg(loom)]
pub(super) use imp::time_passes;
pub(super) use imp::{fence, let_go, prepare};

#[cfg(not(loom))]
mod imp {
    use super::*;
    use crate::rseq;
    use crate::sys::{self, futex, membarrier};

    /// Unlocks if the queue is empty; false if a compare-exchange must do it.
    ///
    /// # Safety
    /// - The caller owns the lock.
    #[inline(always)]
    pub(in crate::sync::mutex) unsafe fn let_go<S: Scope>(lock: &Lock<S>) -> bool {
        // A waiter in another process cannot fence this one.
        if S::FUTEX != futex::Scope::Private {
            return false;
        }
        let (queue, word) = (lock.queue.as_ptr().cast_const(), lock.word.as_ptr());
        // Release of the word: as in `Lock::unlock`. SAFETY: both words are borrowed; the owner may clear the word
        // (1).
        unsafe { rseq::clear_if_clear(sys::rseq::area(), queue, word) }.is_straight()
    }

    /// Makes `let_go` usable in this thread, if possible; once in each thread.
    pub(in crate::sync::mutex) fn prepare() {
        // If the kernel refuses, compare-exchanges are used.
        let _ = sys::rseq::register_this_thread();
    }

    /// Aborts all running sections; false if that is refused.
    pub(in crate::sync::mutex) fn fence<S: Scope>(_: &Lock<S>) -> bool {
        !sys::rseq::any_registered() || membarrier::private_expedited_rseq().is_ok()
    }
}

/// Models a section as a mutex that is held during it and that the fence waits for: the kernel lets no thread see
/// half of a section.
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
            // Release: as in `Lock::unlock`. Loom lets a store come between the read and the write of a
            // read-modify-write. Where a waiter's flags are overwritten, that would undo what the waiter does later.
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

    /// Returns when all sections that were running have ended.
    pub(in crate::sync::mutex) fn time_passes() {
        drop(RUNNING.lock().unwrap());
    }
}
