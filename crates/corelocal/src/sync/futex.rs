//! A word to wait for, with its scope.

use core::marker::PhantomData;
use core::ops::Deref;

use super::bounded_wait;
use super::scope::Scope;
use crate::primitive::atomic::AtomicU32;
use crate::sys::Errno;
use crate::sys::futex::{Deadline, Requeue, Wake};
use crate::sys::sleep;

/// An atomic word that threads can sleep on. Waits return for nothing at times: look again.
#[repr(transparent)]
pub(super) struct Futex<S: Scope> {
    word: AtomicU32,
    scope: PhantomData<S>,
}

impl<S: Scope> Futex<S> {
    #[cfg(not(loom))]
    pub(super) const fn new(value: u32) -> Self {
        Futex { word: AtomicU32::new(value), scope: PhantomData }
    }

    #[cfg(loom)]
    pub(super) fn new(value: u32) -> Self {
        Futex { word: AtomicU32::new(value), scope: PhantomData }
    }

    /// Sleeps while the word holds `expected`, until woken or until the deadline. Where processes share it another word
    /// is noticed within a second, whoever died (`bounded_wait.rs`).
    #[inline]
    pub(super) fn wait(&self, expected: u32, deadline: Option<Deadline>) -> Wake {
        bounded_wait::wait(&self.word, expected, deadline, S::FUTEX)
    }

    /// The same, for who has a deadline that comes soon.
    #[inline]
    pub(super) fn wait_briefly(&self, expected: u32, deadline: Option<Deadline>) -> Wake {
        sleep::wait(&self.word, expected, deadline, S::FUTEX)
    }

    /// Wakes up to `waiters`; says how many. Does not look at the word, which may be gone already: whoever
    /// sees a lock free may free its memory.
    #[inline]
    pub(super) fn wake(this: *const Self, waiters: u32) -> usize {
        sleep::wake(this.cast(), waiters, S::FUTEX)
    }

    /// If the word holds `expected`: wakes up to `wake` of its waiters and lets up to `requeue` others wait
    /// for `target` instead. Where the kernel or a filter refuses that, nothing is done.
    pub(super) fn requeue(
        &self,
        expected: u32,
        wake: u32,
        requeue: u32,
        target: &Futex<S>,
    ) -> Result<Requeue, Errno> {
        sleep::requeue(&self.word, expected, wake, requeue, &target.word, S::FUTEX)
    }
}

impl<S: Scope> Deref for Futex<S> {
    type Target = AtomicU32;

    #[inline(always)]
    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}
