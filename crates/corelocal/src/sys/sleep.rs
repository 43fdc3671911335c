//! Sleeping until a word changes: a futex, or under loom a list of sleepers, so that a lost wake-up is a deadlock
//! that loom reports.
//!
//! A waiter cannot handle the errors that [`futex`](super::futex) reports. Where a filter refuses futexes, it checks
//! the word repeatedly and yields in between.
//!
//! Invariant: a call may return spuriously, so waiters check the word again.

use super::errno::Errno;
use super::futex::{Deadline, Requeue, Scope, Wake};
use crate::primitive::atomic::AtomicU32;

#[cfg(not(loom))]
pub(crate) use imp::nap;
#[cfg(loom)]
pub(crate) use imp::{Place, wait_at, wake_at};
pub(crate) use imp::{Waiter, requeue, wait, wait_any, wake};

#[cfg(not(loom))]
mod imp {
    use super::*;
    use crate::sys::futex;
    pub(crate) use crate::sys::futex::vector::{Waiter, wait_any};

    /// Sleeps while `word` holds `expected`, until woken or until the deadline.
    #[inline]
    pub(crate) fn wait(
        word: &AtomicU32,
        expected: u32,
        deadline: Option<Deadline>,
        scope: Scope,
    ) -> Wake {
        futex::wait(word, expected, deadline, scope).unwrap_or_else(|_| refused(deadline))
    }

    /// Sleeps for about this span, which the kernel makes 50 us or more: for a thread that waits for another one, which
    /// may not run. Unlike `sched_yield(2)` it lets threads of lower priority run, and is a call that filters for
    /// programs with locks allow.
    #[cold]
    pub(crate) fn nap(span: core::time::Duration) {
        wait(&AtomicU32::new(0), 0, Some(Deadline::after(span)), Scope::Private);
    }

    #[cold]
    fn refused(deadline: Option<Deadline>) -> Wake {
        // SAFETY: no preconditions.
        unsafe { libc::sched_yield() };
        match deadline {
            Some(deadline) if deadline.remaining().is_zero() => Wake::TimedOut,
            _ => Wake::Woken,
        }
    }

    /// Wakes up to `waiters` threads that sleep on the word, and returns their number. Only the word's address is
    /// used: its memory may be freed already.
    #[inline]
    pub(crate) fn wake(word: *const AtomicU32, waiters: u32, scope: Scope) -> usize {
        // Refused, there are only waiters that yield; gone, there are none.
        futex::wake(word, waiters, scope).unwrap_or(0)
    }

    /// Wakes, if `word` holds `expected`, up to `wake` of its waiters and lets up to `requeue` others wait for
    /// `target` instead. Where that is refused, waiters may sleep all the same: the caller wakes them.
    #[inline]
    pub(crate) fn requeue(
        word: &AtomicU32,
        expected: u32,
        wake: u32,
        requeue: u32,
        target: &AtomicU32,
        scope: Scope,
    ) -> Result<Requeue, Errno> {
        futex::requeue(word, expected, wake, requeue, target, scope)
    }
}

#[cfg(loom)]
mod imp {
    use super::*;
    use crate::sys::futex::vector::WakeAny;
    use loom::sync::Mutex;
    use loom::sync::atomic::Ordering;
    use loom::thread::{self, Thread, ThreadId};
    use std::vec::Vec;

    /// The address of a word or of a part of a word.
    pub(crate) type Place = *const ();

    /// A thread on one of the words it sleeps on. One that several words have woken before it ran has used
    /// up a wake-up of each, as in the kernel.
    struct Sleeper {
        word: Place,
        /// The index among the words that the thread waits for.
        at: usize,
        thread: Thread,
    }

    loom::lazy_static! {
        /// The sleepers, the longest first.
        static ref ASLEEP: Mutex<Vec<Sleeper>> = Mutex::new(Vec::new());
    }

    /// One word to wait for, as the kernel's.
    #[derive(Clone, Copy)]
    pub(crate) struct Waiter<'a> {
        word: &'a AtomicU32,
        expected: u32,
    }

    impl<'a> Waiter<'a> {
        pub(crate) fn new(word: &'a AtomicU32, expected: u32, _scope: Scope) -> Self {
            Waiter { word, expected }
        }
    }

    /// Returns which of its so many words has woken the thread.
    fn woken(asleep: &[Sleeper], id: ThreadId, words: usize) -> Option<usize> {
        let sleeps_on = |at: usize| asleep.iter().any(|it| it.thread.id() == id && it.at == at);
        (0..words).find(|&at| !sleeps_on(at))
    }

    /// Sleeps if `is_expected`, at all of the places; which of them has woken the thread, or why none has. One
    /// with a deadline wakes at any time: the model's clock stands at every time there is.
    pub(crate) fn wait_at(
        places: &[Place],
        is_expected: impl Fn() -> bool,
        deadline: Option<Deadline>,
    ) -> Result<usize, Wake> {
        let me = thread::current();
        let mut asleep = ASLEEP.lock().unwrap();
        if !is_expected() {
            return Err(Wake::Differed);
        }
        let sleepers = places.iter().enumerate();
        asleep.extend(sleepers.map(|(at, &word)| Sleeper { word, at, thread: me.clone() }));
        drop(asleep);
        if deadline.is_some() {
            thread::yield_now();
        }
        loop {
            let mut asleep = ASLEEP.lock().unwrap();
            let woken = woken(&asleep, me.id(), places.len());
            if woken.is_some() || deadline.is_some() {
                asleep.retain(|it| it.thread.id() != me.id());
                return woken.ok_or(Wake::TimedOut);
            }
            // No guard is held while it sleeps: loom panics in the middle of it when all do.
            drop(asleep);
            thread::park();
        }
    }

    pub(crate) fn wake_at(place: Place, waiters: u32) -> usize {
        wake_first(&mut ASLEEP.lock().unwrap(), place, waiters)
    }

    /// Waits as the kernel's call.
    pub(crate) fn wait_any(
        waiters: &[Waiter<'_>],
        deadline: Option<Deadline>,
    ) -> Result<WakeAny, Errno> {
        let places: Vec<Place> = waiters.iter().map(|it| place(it.word)).collect();
        let are_expected =
            || waiters.iter().all(|it| it.word.load(Ordering::Relaxed) == it.expected);
        Ok(match wait_at(&places, are_expected, deadline) {
            Ok(at) => WakeAny::Woken(at),
            Err(Wake::TimedOut) => WakeAny::TimedOut,
            Err(_) => WakeAny::Differed,
        })
    }

    pub(crate) fn wait(
        word: &AtomicU32,
        expected: u32,
        deadline: Option<Deadline>,
        _scope: Scope,
    ) -> Wake {
        let is_expected = || word.load(Ordering::Relaxed) == expected;
        wait_at(&[place(word)], is_expected, deadline).map_or_else(|wake| wake, |_| Wake::Woken)
    }

    pub(crate) fn wake(word: *const AtomicU32, waiters: u32, _scope: Scope) -> usize {
        wake_at(place(word), waiters)
    }

    fn place(word: *const AtomicU32) -> Place {
        word.cast()
    }

    pub(crate) fn requeue(
        word: &AtomicU32,
        expected: u32,
        wake: u32,
        requeue: u32,
        target: &AtomicU32,
        _scope: Scope,
    ) -> Result<Requeue, Errno> {
        let mut asleep = ASLEEP.lock().unwrap();
        if word.load(Ordering::Relaxed) != expected {
            return Ok(Requeue::Differed);
        }
        let woken = wake_first(&mut asleep, place(word), wake);
        let mut moved = 0;
        // To the end of the list: after those that already wait for the target.
        while moved < requeue as usize {
            let Some(at) = asleep.iter().position(|it| it.word == place(word)) else { break };
            let mut sleeper = asleep.remove(at);
            sleeper.word = place(target);
            asleep.push(sleeper);
            moved += 1;
        }
        Ok(Requeue::Moved(woken + moved))
    }

    fn wake_first(asleep: &mut Vec<Sleeper>, word: Place, most: u32) -> usize {
        for woken in 0..most as usize {
            let Some(first) = asleep.iter().position(|it| it.word == word) else {
                return woken;
            };
            asleep.remove(first).thread.unpark();
        }
        most as usize
    }
}
