//! What a domain keeps of its deferred functions.
//!
//! Invariants: those of the [module above](super).

use core::ptr;
use core::sync::atomic::fence;

use super::budget::Budget;
use super::deferral::Deferral;
use super::runner::{Batch, Runners};
use crate::percpu::Queue;
use crate::primitive::global::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::sys::Errno;

/// The deferred functions of a domain.
pub(in crate::rcu) struct Deferred {
    pub(super) queues: [Queue<Deferral>; 2],
    pub(super) budget: Budget,
    pub(super) runners: Runners,
    pub(super) takes: AtomicU64,
    pub(super) runs: AtomicU64,
    /// The number of batches that the callers of `barrier` wait for.
    pub(super) wanted: AtomicU64,
    pub(super) panics: AtomicU64,
    /// The generation of the process whose bytes are counted; 0 before the first call. (3)
    pub(super) counted_in: AtomicU32,
    /// 1 if the background thread does not run the functions.
    pub(super) is_on_caller: AtomicU32,
    /// The error with which the kernel refused the last grace period; 0 if there was none.
    pub(super) refused: AtomicU32,
    /// Counts batches that have run; threads that wait for them sleep on it.
    pub(super) room: AtomicU32,
    /// The next domain in the list of all that have deferred something (`thread.rs`): a `Domain`.
    pub(super) next: AtomicPtr<()>,
    /// 1 once the domain is in the list of all domains with deferred functions.
    pub(super) is_listed: AtomicU32,
}

impl Deferred {
    pub(in crate::rcu) const fn new() -> Deferred {
        Deferred {
            queues: [Queue::new(), Queue::new()],
            budget: Budget::new(),
            runners: Runners::new(),
            takes: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            counted_in: AtomicU32::new(0),
            is_on_caller: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            room: AtomicU32::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            is_listed: AtomicU32::new(0),
        }
    }

    pub(super) fn is_on_caller(&self) -> bool {
        self.is_on_caller.load(Ordering::Relaxed) != 0
    }

    /// Returns the error with which the kernel refuses grace periods.
    pub(super) fn refused(&self) -> Option<Errno> {
        let errno = self.refused.load(Ordering::Relaxed);
        (errno != 0).then_some(Errno(errno as i32))
    }

    /// Returns `true` if there is something for a runner.
    pub(super) fn has_work(&self) -> bool {
        self.runners.has_batch()
            || self.runs.load(Ordering::Relaxed) < self.wanted.load(Ordering::Relaxed)
            || self.queues.iter().any(|queue| !queue.is_empty())
    }

    /// Ends a batch that has run, or is lost.
    pub(super) fn end_batch(&self) {
        // Release: partner is the Acquire in `barrier`.
        self.runs.store(self.takes.load(Ordering::Relaxed), Ordering::Release);
    }

    pub(in crate::rcu) fn count_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }
}

impl Deferred {
    /// Takes what is in the current queue. The other one is current from now on.
    pub(super) fn take(&self, batch: &mut Batch) {
        let takes = self.takes.fetch_add(1, Ordering::Relaxed);
        // SeqCst: partner is the fence in `barrier`.
        fence(Ordering::SeqCst);
        self.queues[takes as usize % 2].take_all(&mut batch.items);
    }

    /// Takes everything, and counts it. (3)
    pub(super) fn recount(&self, batch: &mut Batch) {
        batch.grace_period = None;
        self.queues.iter().for_each(|queue| queue.take_all(&mut batch.items));
        let bytes: usize = batch.items.iter().map(Deferral::bytes).sum();
        self.budget.recount(bytes as i64);
    }
}
