//! A guard: what a reader holds, and how it ends.

use core::fmt;
use core::marker::PhantomData;
use core::panic::{RefUnwindSafe, UnwindSafe};

use super::domain::Domain;
use super::readers::Core;
use super::survivors;
use super::word;
use crate::percpu::light_barrier;
use crate::primitive::atomic::Ordering;

/// While it exists, no grace period of its domain that begins later ends: what a thread loads under it is not freed.
///
/// It belongs to its thread (`!Send`). One that is forgotten (`core::mem::forget`) delays grace periods for ever.
#[must_use = "a guard that is dropped at once protects nothing"]
pub struct Guard {
    core: &'static Core,
    domain: &'static Domain,
    /// The domain's word when the guard began.
    word: u64,
    /// Makes the guard !Send: the thread that begins it counts it as its own (`survivors.rs`).
    not_send: PhantomData<*mut ()>,
}

impl Guard {
    /// Returns the domain whose grace periods wait for it.
    #[inline(always)]
    pub fn domain(&self) -> &'static Domain {
        self.domain
    }

    /// Ends the guard and begins another one, so that grace periods need not wait for it any longer. What was loaded
    /// under it cannot be used after that.
    ///
    /// ```
    /// use corelocal::rcu::{self, Rcu};
    ///
    /// let number = Rcu::new(Box::new(1));
    /// let mut guard = rcu::read();
    /// for n in 0..1000 {
    ///     let _ = number.load(&guard);
    ///     guard.repin(); // old versions may be freed now
    /// }
    /// ```
    pub fn repin(&mut self) {
        let domain = self.domain;
        // The old guard ends first: a thread that renews one guard all the time would never be without, which a forked
        // child waits for (`survivors.rs`, invariant 3). SAFETY: the guard is not used before the other one is in its
        // place; `read` does not unwind.
        unsafe {
            core::ptr::drop_in_place(self);
            core::ptr::write(self, domain.read());
        }
    }

    /// Returns how far grace periods of the domain have come in this process.
    #[inline(always)]
    pub(super) fn progress(&self) -> u64 {
        self.core.progress.word()
    }
}

impl Domain {
    /// Begins a guard. While it exists, no grace period that begins later ends.
    ///
    /// Guards nest, and may end in any order. Lock-free and async-signal-safe: a few nanoseconds for begin and end, a
    /// few system calls at the domain's first use.
    ///
    /// # Memory ordering
    /// What a thread published before a grace period began is visible to guards that this grace period does not wait
    /// for.
    #[inline(always)]
    pub fn read(&'static self) -> Guard {
        let (core, word) = self.begin();
        Guard { core, domain: self, word, not_send: PhantomData }
    }

    /// Does what [`read`](Self::read) does, without critical sections at begin and end.
    #[cfg(feature = "std")]
    pub(super) fn read_by_atomics(&'static self) -> Guard {
        let (core, word) = self.begin_by_atomics();
        Guard { core, domain: self, word, not_send: PhantomData }
    }
}

// What a panic interrupts under a guard is the caller's; the guard stays as it is.
impl UnwindSafe for Guard {}
impl RefUnwindSafe for Guard {}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        let (core, word) = (self.core, self.word);
        light_barrier();
        // Before the word is loaded (`survivors.rs`, invariant 1).
        survivors::end();
        // Relaxed: only a fork, which this thread made, changes more than the period.
        if word::is_plain_end(word, core.word.load(Ordering::Relaxed)) {
            core.counts.end(word::group(word));
        } else {
            core.end_cold(word);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}
