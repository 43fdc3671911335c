//! Sleeping until a word changes: a futex, or under loom a list of those who sleep, so that a lost wake-up
//! is a deadlock that loom reports. And the two sides of an asymmetric barrier.

use core::time::Duration;

pub(super) use imp::{heavy_barrier, light_barrier, nap, wait, wake_all, wake_one};

#[cfg(not(loom))]
mod imp {
    use super::*;
    use crate::primitive::atomic::AtomicU32;
    use crate::sys::futex::{self, Deadline, Scope};
    use crate::sys::{Errno, membarrier};
    use core::sync::atomic::{Ordering, compiler_fence};

    /// Sleeps while `word` holds `expected`, `most` at the longest; may wake for nothing.
    #[cold]
    pub(crate) fn wait(word: &AtomicU32, expected: u32, most: Option<Duration>) {
        let deadline = most.map(Deadline::after);
        if futex::wait(word, expected, deadline, Scope::Private).is_err() {
            // Futexes are refused. Others must run for the word to change.
            // SAFETY: no preconditions.
            unsafe { libc::sched_yield() };
        }
    }

    /// Wakes one that waits for the word.
    #[cold]
    pub(crate) fn wake_one(word: &AtomicU32) {
        // Refused, there are only waiters that yield.
        let _ = futex::wake(word, 1, Scope::Private);
    }

    /// Wakes all that wait for the word.
    #[cold]
    pub(crate) fn wake_all(word: &AtomicU32) {
        // As in `wake_one`.
        let _ = futex::wake_all(word, Scope::Private);
    }

    /// Lets others run for about so long.
    #[cold]
    pub(crate) fn nap(span: Duration) {
        wait(&AtomicU32::new(0), 0, Some(span));
    }

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
    use loom::sync::Mutex;
    use loom::sync::atomic::{AtomicU32, Ordering, fence};
    use loom::thread::{self, Thread, ThreadId};
    use std::vec::Vec;

    loom::lazy_static! {
        /// Who sleeps on which word, the longest first.
        static ref ASLEEP: Mutex<Vec<(*const AtomicU32, Thread)>> = Mutex::new(Vec::new());
    }

    pub(crate) fn wait(word: &AtomicU32, expected: u32, _most: Option<Duration>) {
        let me = thread::current();
        let is_asleep = |id: ThreadId| ASLEEP.lock().unwrap().iter().any(|(_, it)| it.id() == id);
        let mut asleep = ASLEEP.lock().unwrap();
        if word.load(Ordering::Relaxed) != expected {
            return;
        }
        asleep.push((word, me.clone()));
        drop(asleep);
        // No guard is held while it sleeps: loom panics in the middle of it when all do.
        while is_asleep(me.id()) {
            thread::park();
        }
    }

    pub(crate) fn wake_one(word: &AtomicU32) {
        wake(word, 1);
    }

    pub(crate) fn wake_all(word: &AtomicU32) {
        wake(word, usize::MAX);
    }

    fn wake(word: &AtomicU32, most: usize) {
        let mut asleep = ASLEEP.lock().unwrap();
        for _ in 0..most {
            let Some(first) = asleep.iter().position(|(at, _)| core::ptr::eq(*at, word)) else {
                return;
            };
            asleep.remove(first).1.unpark();
        }
    }

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
