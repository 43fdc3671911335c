//! Lets a thread that has waited for long have the lock before threads that come new.
//!
//! A thread that unlocks and locks again at once is faster than the waiter that it woke: a holder that sleeps with the
//! lock would keep another thread out for hundreds of milliseconds. So a waiter that lost the race after 2 ms
//! closes the gate, at which threads that come new wait until it has the lock.
//!
//! # Invariants
//! 1. The gate orders nothing, and the lock is right whatever the gate says: it decides only which thread tries first.
//! 2. No thread waits at the gate for longer than 10 ms (`machinery/fairness.rs`). A thread that waited so long opens it, for the
//!    waiter that closed it may have been killed, or left behind by a fork. A waiter that is there closes it again within
//!    10 ms. A thread whose own deadline ended its wait before opens the gate only if it got the lock, so threads that try
//!    with short time limits let the waiter go first as others do.

use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sync::machinery::fairness;
use crate::sys::futex::{Deadline, Scope, Wake};
use crate::sys::sleep;

const OPEN: u32 = 0;
const CLOSED: u32 = 1;

/// The gate that lets a thread which has waited for long go first. All bytes 0 is an open one. `pub`, as the trait is
/// that takes it; no other crate can name it.
pub struct Gate {
    state: AtomicU32,
}

impl Gate {
    const_fn! {
        pub(super) const fn new() -> Self {
            Gate { state: AtomicU32::new(OPEN) }
        }
    }

    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        // Relaxed, here and below: the gate orders nothing (1).
        self.state.load(Ordering::Relaxed) == OPEN
    }

    /// Waits at a closed gate. Returns `false` if the deadline has come before it opened.
    #[cold]
    #[inline(never)]
    pub(super) fn wait(&self, deadline: Option<Deadline>, scope: Scope) -> bool {
        let end = Some(fairness::end_of_step_back(deadline));
        if sleep::wait(&self.state, CLOSED, end, scope) != Wake::TimedOut {
            return true;
        }
        if deadline.is_some_and(Deadline::has_come) {
            return false;
        }
        self.open(scope); // (2)
        true
    }

    pub(super) fn close(&self) {
        self.state.store(CLOSED, Ordering::Relaxed);
    }

    pub(super) fn open(&self, scope: Scope) {
        if self.state.swap(OPEN, Ordering::Relaxed) == CLOSED {
            sleep::wake(&self.state, u32::MAX, scope);
        }
    }
}
