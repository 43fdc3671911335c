//! Sleeping on one half of a 64-bit word.
//!
//! The word changes as a whole, always: it is the kernel alone that looks at a half, when it compares. Under
//! loom the sleepers are in a list, as in `sys/sleep.rs`.
//!
//! Invariant: a call may always return for nothing, so whoever waits looks at the word again.

use crate::primitive::atomic::AtomicU64;
use crate::sync::scope::Scope;
use crate::sys::futex::{Deadline, Wake};

/// Which half.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    /// The lower one.
    Readers,
    /// The upper one.
    Writers,
}

impl Half {
    /// What the half holds.
    fn of(self, word: u64) -> u32 {
        match self {
            Half::Readers => word as u32,
            Half::Writers => (word >> 32) as u32,
        }
    }
}

pub(super) use imp::{wait, wake};

#[cfg(not(loom))]
mod imp {
    use super::*;
    use crate::primitive::atomic::AtomicU32;
    use crate::sys::sleep;

    fn address(word: *const AtomicU64, half: Half) -> *const AtomicU32 {
        let is_second = (half == Half::Writers) == cfg!(target_endian = "little");
        word.cast::<AtomicU32>().wrapping_add(usize::from(is_second))
    }

    /// Sleeps while this half of the word is as in `expected`, until woken or until the deadline.
    #[cold]
    pub(in crate::sync::rwlock) fn wait<S: Scope>(
        word: &AtomicU64,
        half: Half,
        expected: u64,
        deadline: Option<Deadline>,
    ) -> Wake {
        // SAFETY: half of a word that is borrowed, and aligned better than needed. Nobody accesses it through
        // this but the kernel, so accesses of two sizes do not meet in the program.
        let address = unsafe { &*address(word, half) };
        sleep::wait(address, half.of(expected), deadline, S::FUTEX)
    }

    /// Wakes up to `waiters` of those that sleep on this half. The word may be gone already.
    #[cold]
    pub(in crate::sync::rwlock) fn wake<S: Scope>(
        word: *const AtomicU64,
        half: Half,
        waiters: u32,
    ) {
        sleep::wake(address(word, half), waiters, S::FUTEX);
    }
}

#[cfg(loom)]
mod imp {
    use super::*;
    use loom::sync::Mutex;
    use loom::sync::atomic::Ordering;
    use loom::thread::{self, Thread, ThreadId};
    use std::vec::Vec;

    struct Sleeper {
        word: *const AtomicU64,
        half: Half,
        thread: Thread,
    }

    loom::lazy_static! {
        /// Who sleeps, the longest first.
        static ref ASLEEP: Mutex<Vec<Sleeper>> = Mutex::new(Vec::new());
    }

    fn place(asleep: &[Sleeper], id: ThreadId) -> Option<usize> {
        asleep.iter().position(|sleeper| sleeper.thread.id() == id)
    }

    /// One with a deadline wakes at any time: the model's clock stands at every time there is.
    pub(in crate::sync::rwlock) fn wait<S: Scope>(
        word: &AtomicU64,
        half: Half,
        expected: u64,
        deadline: Option<Deadline>,
    ) -> Wake {
        let me = thread::current();
        let mut asleep = ASLEEP.lock().unwrap();
        if half.of(word.load(Ordering::Relaxed)) != half.of(expected) {
            return Wake::Differed;
        }
        asleep.push(Sleeper { word, half, thread: me.clone() });
        drop(asleep);
        if deadline.is_some() {
            thread::yield_now();
            let mut asleep = ASLEEP.lock().unwrap();
            return match place(&asleep, me.id()) {
                Some(at) => {
                    asleep.remove(at);
                    Wake::TimedOut
                }
                None => Wake::Woken,
            };
        }
        // No guard is held while it sleeps: loom panics in the middle of it when all do.
        while place(&ASLEEP.lock().unwrap(), me.id()).is_some() {
            thread::park();
        }
        Wake::Woken
    }

    pub(in crate::sync::rwlock) fn wake<S: Scope>(
        word: *const AtomicU64,
        half: Half,
        waiters: u32,
    ) {
        let mut asleep = ASLEEP.lock().unwrap();
        for _ in 0..waiters {
            let first =
                asleep.iter().position(|it| core::ptr::eq(it.word, word) && it.half == half);
            let Some(first) = first else { return };
            asleep.remove(first).thread.unpark();
        }
    }
}
