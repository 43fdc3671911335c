//! Which thread runs the deferred functions of a domain, and those that wait for their grace period.
//!
//! ```text
//!          takes items               its grace period lasts
//!   free ──────────────► running ──────────────────────────► free, BATCH
//!     ▲                   │    ▲                                │
//!     │  functions ended  │    │       looks again              │
//!     └───────────────────┘    └────────────────────────────────┘
//! ```
//!
//! # Invariants
//! 1. One thread at a time is the runner: its identity is in [`Runners::state`], and it alone uses the batch. A runner that
//!    a fork left behind is replaced, and its batch is lost in the child: it stays allocated.
//! 2. A thread knows which functions it is in by a list on its stack, which a child of the function has, too.

use core::cell::{Cell, UnsafeCell};
use core::ptr;
use std::vec::Vec;

use super::deferral::Deferral;
use crate::primitive::global::{AtomicU64, Ordering};
use crate::rcu::grace_period::Number;
use crate::rcu::key::Key;
use crate::sys::forks::Identity;

/// Items that wait for a grace period.
pub(super) struct Batch {
    pub(super) items: Vec<Deferral>,
    pub(super) grace_period: Option<Number>,
}

impl Batch {
    const fn new() -> Batch {
        Batch { items: Vec::new(), grace_period: None }
    }
}

pub(super) struct Runners {
    /// The runner's identity, or 0, and BATCH.
    state: AtomicU64,
    batch: UnsafeCell<Batch>,
}

/// The batch has items, or a grace period that has begun for it.
const BATCH: u64 = 1 << 63;
const _: () = assert!(Identity::BITS < 63);

// SAFETY: `batch` is accessed by the runner only. (1)
unsafe impl Sync for Runners {}

/// The right to run deferred functions, which the calling thread has while this exists.
pub(super) struct Runner<'a> {
    runners: &'a Runners,
    /// Whether a fork left the last runner behind, and its batch with it.
    pub(super) has_lost: bool,
}

impl Runners {
    pub(super) const fn new() -> Runners {
        Runners { state: AtomicU64::new(0), batch: UnsafeCell::new(Batch::new()) }
    }

    /// Makes the calling thread the runner; `None` if another one is, or a function of its own batch calls.
    pub(super) fn enter(&self) -> Option<Runner<'_>> {
        let me = Identity::of_this_thread();
        let before = self.state.load(Ordering::Relaxed);
        let owner = before & !BATCH;
        if owner != 0 && !Identity::of_number(owner).is_gone(me) {
            return None;
        }
        let now = me.number() | if owner == 0 { before & BATCH } else { 0 };
        // Acquire: partner is the Release of the runner before.
        self.state.compare_exchange(before, now, Ordering::Acquire, Ordering::Relaxed).ok()?;
        if owner != 0 {
            // SAFETY: this thread is the runner, and the old value, which may be half-written, is not used.
            unsafe { self.batch.get().write(Batch::new()) };
        }
        // Made only now: dropped, it gives up what it stands for.
        Some(Runner { runners: self, has_lost: owner != 0 })
    }

    pub(super) fn has_batch(&self) -> bool {
        self.state.load(Ordering::Relaxed) & BATCH != 0
    }
}

impl Runner<'_> {
    pub(super) fn batch(&mut self) -> &mut Batch {
        // SAFETY: this thread is the runner as long as `self` exists, which it borrows. (1)
        unsafe { &mut *self.runners.batch.get() }
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        let has_batch = !self.batch().items.is_empty() || self.batch().grace_period.is_some();
        // Release: partner is the Acquire in `enter`.
        self.runners.state.store(if has_batch { BATCH } else { 0 }, Ordering::Release);
    }
}

/// A deferred function that the thread is running. (2)
struct Frame {
    domain: Key,
    outer: *const Frame,
}

std::thread_local! {
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

/// Calls `run` as a deferred function of this domain.
pub(super) fn inside<R>(domain: Key, run: impl FnOnce() -> R) -> R {
    struct Leave(*const Frame);
    impl Drop for Leave {
        fn drop(&mut self) {
            INNERMOST.set(self.0);
        }
    }
    let outer = INNERMOST.get();
    let frame = Frame { domain, outer };
    INNERMOST.set(&raw const frame);
    let _leave = Leave(outer);
    run()
}

/// Returns `true` if the caller is a deferred function, of whichever domain.
pub(super) fn is_inside() -> bool {
    !INNERMOST.get().is_null()
}

/// Returns `true` if the caller is a deferred function of this domain.
pub(in crate::rcu) fn is_inside_of(domain: Key) -> bool {
    let mut at = INNERMOST.get();
    // SAFETY: null, or a frame of a call of `inside` that this thread is in.
    while let Some(frame) = unsafe { at.as_ref() } {
        if frame.domain == domain {
            return true;
        }
        at = frame.outer;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_runner_takes_nothing_from_the_first() {
        let runners = Runners::new();
        let first = runners.enter();
        assert!(first.is_some());
        for _ in 0..2 {
            assert!(runners.enter().is_none());
        }
        drop(first);
        assert!(!runners.has_batch() && runners.enter().is_some());
    }

    #[test]
    fn functions_nest() {
        let (one, other) = (Key::of(&1), Key::of(&2));
        assert!(!is_inside());
        inside(one, || {
            let _ = std::panic::catch_unwind(|| inside(other, || panic!("on purpose")));
            assert!(is_inside_of(one) && !is_inside_of(other));
            inside(other, || assert!(is_inside_of(one) && is_inside_of(other)));
        });
        assert!(!is_inside());
    }
}
