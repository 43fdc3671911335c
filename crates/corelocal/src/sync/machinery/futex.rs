//! A futex word with its scope.

use core::marker::PhantomData;
use core::ops::Deref;

use super::bounded_wait;
use super::scope::Scope;
use crate::primitive::atomic::AtomicU32;
use crate::sys::Errno;
use crate::sys::futex::{Deadline, Requeue, Wake};
use crate::sys::sleep;

/// An atomic word that threads can sleep on. Waits may return spuriously.
#[repr(transparent)]
pub(in crate::sync) struct Futex<S: Scope> {
    word: AtomicU32,
    scope: PhantomData<S>,
}

impl<S: Scope> Futex<S> {
    const_fn! {
        pub(in crate::sync) const fn new(value: u32) -> Self {
            Futex { word: AtomicU32::new(value), scope: PhantomData }
        }
    }

    /// Sleeps while the word holds `expected`, until woken or until the deadline. If processes share the word,
    /// another value is noticed within a second, even if the process that should wake this one died
    /// (`machinery/bounded_wait.rs`).
    #[inline]
    pub(in crate::sync) fn wait(&self, expected: u32, deadline: Option<Deadline>) -> Wake {
        bounded_wait::wait(&self.word, expected, deadline, S::FUTEX)
    }

    /// Does what [`wait`](Self::wait) does, for a deadline that comes soon.
    #[inline]
    pub(in crate::sync) fn wait_briefly(&self, expected: u32, deadline: Option<Deadline>) -> Wake {
        sleep::wait(&self.word, expected, deadline, S::FUTEX)
    }

    /// Wakes up to `waiters` threads; returns how many. Does not access the word, whose memory may be gone: a thread
    /// that sees a lock free may free its memory.
    #[inline]
    pub(in crate::sync) fn wake(this: *const Self, waiters: u32) -> usize {
        sleep::wake(this.cast(), waiters, S::FUTEX)
    }

    /// If the word holds `expected`: wakes up to `wake` waiters and moves up to `requeue` others to `target`. Does
    /// nothing if the kernel or a filter refuses it.
    pub(in crate::sync) fn requeue(
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
