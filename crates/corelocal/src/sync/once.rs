//! One-time initialisation: a closure that runs once while other threads wait for it.
//!
//! | word | meaning |
//! |---|---|
//! | NEW (0) | No closure has begun. |
//! | DONE (1) | A closure has completed. Final. |
//! | CUT_SHORT (2) | The last closure panicked. The next call runs its own. |
//! | RUNNING, tag | The thread with this tag (bits 0 to 28, `owner_tag.rs`) runs a closure. |
//! | RUNNING, SEALED, tag | The same, and the run can no longer be taken over. |
//! | NEW or CUT_SHORT with AWAITED | As without it, and threads may sleep on the word. |
//! | RUNNING with AWAITED | As without it, and threads may sleep on the word. |
//!
//! ```text
//!              claim                  finish
//!   NEW ----------------> RUNNING ---------------> DONE
//!   CUT_SHORT ----------/    |  \--> CUT_SHORT    (panic)
//!  owner gone: claim anew --/   \-> NEW           (given back)
//! ```
//!
//! # Invariants
//! 1. DONE is final. A thread that sees it sees the effects of the run.
//! 2. One thread of the process runs a closure at a time: the one whose tag is in the word. A run is taken over only
//!    from a thread that a fork left behind.
//! 3. Taking over is sound here, unlike for a lock: the effects of the gone thread are not relied on, and the new run
//!    starts from the beginning with its own closure. A run that the forking thread began is never taken over
//!    (`owner_tag.rs`). If a running thread is wrongly taken for gone, its run ends without effect: it fails to seal
//!    or to finish its claim. Between seal and finish no code of the caller runs, so a run that is found sealed is
//!    that of a gone thread. Where a second run is impossible, because the closure may have been consumed,
//!    `begin_first` is used, which never takes over.
//! 4. AWAITED is set before a thread sleeps on the word, and stays until `end` clears it and wakes all.
//! 5. A thread that finishes does not access the word after the exchange: its memory may be freed.

mod claim;
pub(in crate::sync) mod lazy;
pub(in crate::sync) mod lock;

use core::fmt;
use core::time::Duration;

use super::machinery::futex::Futex;
use super::machinery::scope::Private;
use super::machinery::timeout::WaitTimeoutResult;
use super::profile::{Kind, Wait, let_go};
use crate::primitive::atomic::Ordering;
use crate::sys::futex::{Deadline, Wake};
use crate::sys::thread::owner_tag::{self, Holder};

const NEW: u32 = 0;
const DONE: u32 = 1;
const CUT_SHORT: u32 = 2;

const RUNNING: u32 = 1 << 31;
const AWAITED: u32 = 1 << 30;
const SEALED: u32 = 1 << 29;
const TAG_BITS: u32 = 29;
const TAG: u32 = (1 << TAG_BITS) - 1;

#[inline(always)]
fn is_running(word: u32) -> bool {
    word & RUNNING != 0
}

/// One-time initialisation: one thread runs a closure, and others wait until it has completed. Its size is 4 bytes,
/// and all bytes 0 is its initial state.
///
/// ```
/// use corelocal::sync::Once;
///
/// static START: Once = Once::new();
///
/// START.call_once(|| println!("only once"));
/// START.call_once(|| unreachable!());
/// assert!(START.is_completed());
/// ```
///
/// # Panics in the closure
/// If a closure panics, the next call runs its own closure. A `Once` is never poisoned.
/// [`call_once_force`](Self::call_once_force) tells its closure whether an earlier one panicked.
///
/// # After fork
/// If another thread of the parent was running a closure, it never completes in the child. There the next call runs
/// its own closure, as after a panic. [`wait`](Self::wait) panics instead.
#[repr(transparent)]
pub struct Once {
    word: Futex<Private>,
}

/// Passed to the closure of [`Once::call_once_force`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnceState {
    was_cut_short: bool,
}

impl OnceState {
    /// Returns whether an earlier run did not complete: it panicked, or a fork left its thread behind.
    pub fn was_cut_short(&self) -> bool {
        self.was_cut_short
    }
}

/// Tells the caller of `begin` what to do next.
pub(super) enum Begin<'a> {
    /// It returns, since the closure has run.
    Done,
    /// It runs the closure.
    Run(Claim<'a>),
}

/// The reason why a closure that must run at most once cannot run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotFirst {
    /// An earlier run panicked.
    CutShort,
    /// The thread that was running it was left behind by a fork.
    Gone,
}

/// A state of the word as it was loaded; it may have changed since.
enum Seen {
    Done,
    /// Another thread runs a closure.
    Running(u32),
    /// No closure is running.
    Idle(u32),
    /// The thread that was running a closure was left behind by a fork.
    Gone(u32),
}

/// The right to run the closure. If dropped without `finish`, the run counts as cut short.
pub(super) struct Claim<'a> {
    once: &'a Once,
    tag: u32,
    state: OnceState,
}

impl Once {
    const_fn! {
        /// Creates a `Once` in its initial state.
        pub const fn new() -> Self {
            Once { word: Futex::new(NEW) }
        }
    }

    /// Returns whether a closure has completed. Its effects are then visible to the caller. Async-signal-safe.
    #[inline(always)]
    pub fn is_completed(&self) -> bool {
        // Acquire: partner is the Release in `end`.
        self.word.load(Ordering::Acquire) == DONE
    }

    /// Runs the closure unless one has completed. Waits while another thread runs one.
    ///
    /// When this returns a closure has completed, and its effects are visible to the caller.
    ///
    /// # Panics
    /// If the closure panics, or calls `call_once` of the same `Once`: that would wait for itself.
    #[inline]
    pub fn call_once(&self, run: impl FnOnce()) {
        self.call_once_force(|_| run());
    }

    /// Does what [`call_once`](Self::call_once) does. The closure learns whether an earlier run did not complete.
    ///
    /// # Panics
    /// As [`call_once`](Self::call_once).
    #[inline]
    pub fn call_once_force(&self, run: impl FnOnce(&OnceState)) {
        if !self.is_completed() {
            self.call_cold(run);
        }
    }

    /// Waits until another thread has completed a closure. The effects of that closure are then visible to the
    /// caller.
    ///
    /// After a closure that panics it keeps waiting for the next one.
    ///
    /// ```
    /// use corelocal::sync::Once;
    ///
    /// static READY: Once = Once::new();
    ///
    /// let other = std::thread::spawn(|| READY.call_once(|| println!("prepared")));
    /// READY.wait();
    /// assert!(READY.is_completed());
    /// # other.join().unwrap();
    /// ```
    ///
    /// # Panics
    /// - If the calling thread is the one that runs the closure.
    /// - In a forked child, if another thread of the parent was running a closure at the [fork](#after-fork): it
    ///   would never complete. [`call_once`](Self::call_once) runs a closure in that case.
    #[inline]
    pub fn wait(&self) {
        if !self.is_completed() {
            self.wait_cold(None);
        }
    }

    /// Does what [`wait`](Self::wait) does, with a time limit. Reports a time-out at once if a [fork](#after-fork) left
    /// the running thread behind.
    ///
    /// # Panics
    /// If the calling thread is the one that does it.
    #[inline]
    pub fn wait_for(&self, span: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.is_completed() || self.wait_cold(Some(Deadline::after(span))))
    }

    /// Does what [`wait`](Self::wait) does, with a deadline. Reports a time-out at once if a [fork](#after-fork) left
    /// the running thread behind.
    ///
    /// # Panics
    /// If the calling thread is the one that does it.
    #[inline]
    pub fn wait_until(&self, deadline: Deadline) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.is_completed() || self.wait_cold(Some(deadline)))
    }

    #[cold]
    fn wait_cold(&self, deadline: Option<Deadline>) -> bool {
        loop {
            let (word, is_running) = match self.look() {
                Seen::Done => return true,
                Seen::Gone(_) if deadline.is_none() => runner_is_gone(),
                Seen::Gone(_) => return false,
                Seen::Idle(word) => (word, false),
                Seen::Running(word) => (word, true),
            };
            if self.sleep(word, deadline, is_running) == Wake::TimedOut {
                return self.is_completed();
            }
        }
    }

    #[cold]
    fn call_cold(&self, run: impl FnOnce(&OnceState)) {
        if let Begin::Run(claim) = self.begin() {
            run(&claim.state);
            claim.finish();
        }
    }

    /// Waits until a closure has completed or the caller may run one.
    ///
    /// # Panics
    /// If the caller is running one already.
    #[cold]
    pub(super) fn begin(&self) -> Begin<'_> {
        loop {
            match self.look() {
                Seen::Done => return Begin::Done,
                Seen::Running(word) => _ = self.sleep(word, None, true),
                // A gone thread's run is taken over (invariant 3).
                Seen::Idle(word) | Seen::Gone(word) => {
                    if let Some(claim) = self.claim(word) {
                        return Begin::Run(claim);
                    }
                }
            }
        }
    }

    /// Does what [`begin`](Self::begin) does, for a closure that must run at most once: a gone thread's run is not
    /// taken over.
    ///
    /// # Errors
    /// An earlier run began and will never complete.
    ///
    /// # Panics
    /// If the caller is running one already.
    #[cold]
    pub(super) fn begin_first(&self) -> Result<Begin<'_>, NotFirst> {
        loop {
            match self.look() {
                Seen::Done => return Ok(Begin::Done),
                Seen::Running(word) => _ = self.sleep(word, None, true),
                Seen::Idle(word) if word & !AWAITED == NEW => {
                    if let Some(claim) = self.claim(word) {
                        return Ok(Begin::Run(claim));
                    }
                }
                Seen::Idle(_) => return Err(NotFirst::CutShort),
                Seen::Gone(_) => return Err(NotFirst::Gone),
            }
        }
    }

    /// Reads the state.
    ///
    /// # Panics
    /// If the caller is running the closure.
    fn look(&self) -> Seen {
        // Acquire: partner is the Release in `end`, also of runs that were cut short.
        let word = self.word.load(Ordering::Acquire);
        if word == DONE {
            return Seen::Done;
        }
        if !is_running(word) {
            return Seen::Idle(word);
        }
        match owner_tag::who::<TAG_BITS>(word & TAG) {
            Holder::Gone => Seen::Gone(word),
            Holder::Me => comes_back(),
            Holder::Other => Seen::Running(word),
        }
    }

    /// Claims the right to run. `None` if the word has changed.
    fn claim(&self, word: u32) -> Option<Claim<'_>> {
        let tag = owner_tag::tag::<TAG_BITS>();
        // Threads may sleep on the word already (invariant 4).
        let claimed = RUNNING | word & AWAITED | tag;
        // Acquire: as in `look`.
        self.word.compare_exchange(word, claimed, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let state = OnceState { was_cut_short: word & !AWAITED != NEW };
        Some(Claim { once: self, tag, state })
    }

    /// Sleeps while the word is as it was seen, apart from AWAITED.
    fn sleep(&self, word: u32, deadline: Option<Deadline>, is_running: bool) -> Wake {
        let awaited = word | AWAITED;
        // Relaxed: a woken thread reads the word again.
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if word != awaited && self.word.compare_exchange(word, awaited, success, failure).is_err() {
            return Wake::Differed;
        }
        // Before a run begins no thread causes the wait, so the profile does not record it.
        let mut wait = is_running.then(|| Wait::begin(Kind::Once, self));
        wait.iter_mut().for_each(Wait::sleeps);
        // The deadline makes a signal handler end the wait: it may have forked, and in the child the running thread
        // is gone. Under loom a deadline may pass at any time, so there it is left out.
        let wake = self.word.wait(awaited, deadline.or((!cfg!(loom)).then_some(Deadline::NEVER)));
        if let Some(wait) = wait {
            wait.end(wake != Wake::TimedOut);
        }
        wake
    }

    /// Returns whether no run has begun. Needs exclusive access.
    pub(super) fn is_new_mut(&mut self) -> bool {
        // Relaxed: as in `is_completed_mut`.
        self.word.load(Ordering::Relaxed) & !AWAITED == NEW
    }

    /// Returns whether a run has completed. Needs exclusive access.
    pub(super) fn is_completed_mut(&mut self) -> bool {
        // Relaxed: the caller's exclusive access orders it.
        self.word.load(Ordering::Relaxed) == DONE
    }
}

#[cold]
fn runner_is_gone() -> ! {
    panic!(
        "the thread that was in the middle of what is waited for was left behind by a fork, and never ends it: do it in the \
         child (`call_once`, `get_or_init`), or before the fork"
    );
}

#[cold]
fn comes_back() -> ! {
    panic!("what is done once calls for itself, and would wait for itself for ever");
}

impl Default for Once {
    fn default() -> Self {
        Once::new()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("completed", &self.is_completed()).finish()
    }
}

#[cfg(all(test, loom))]
mod loom;
