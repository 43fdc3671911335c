//! Something that is done once.
//!
//! ```text
//!   31        30        29       28                      0
//!   RUNNING   AWAITED   SEALED   who runs (`owner_tag.rs`)         while somebody runs, and else:
//!             AWAITED            NEW or CUT_SHORT
//!                                DONE
//!
//!              claim                  finish
//!   NEW ----------------> RUNNING ---------------> DONE
//!   CUT_SHORT ----------/    |  \--> CUT_SHORT    (a panic)
//!        gone: claim anew ---/   \-> NEW          (gave it back)
//! ```
//!
//! # Invariants
//! 1. DONE stays. Whoever sees it sees what the run did.
//! 2. One thread of the process runs at a time: the one whose tag is in the word. A run is taken over only
//!    from a thread that a fork left behind.
//! 3. That is sound, other than for a lock: what a gone thread was about to make is not there, and a new run begins
//!    from nothing, with a closure of its own. What the forking thread began is never taken over (`owner_tag.rs`). Should
//!    a run be taken over all the same, it ends without effect: it fails to seal or to finish its claim. No foreign
//!    code runs between seal and finish, so a sealed run is that of a gone thread.
//!    What cannot begin anew, since its closure may be gone, is begun by `begin_first`: of that no run is taken over.
//! 4. AWAITED is set before a thread sleeps on the word, and stays until `end` clears it and wakes all.
//! 5. Who finishes does not touch the word after the exchange: its memory may be gone.

use core::fmt;
use core::time::Duration;

use super::futex::Futex;
use super::profile::{Kind, Wait, let_go};
use super::scope::Private;
use super::timeout::WaitTimeoutResult;
use crate::primitive::atomic::Ordering;
use crate::sys::futex::{Deadline, Wake};
use crate::sys::owner_tag::{self, Holder};

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

/// Lets one thread do something, and the others wait until it is done: 4 bytes.
///
/// All bytes 0 is one where nothing was done.
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
/// # When it is cut short
/// A closure that panics has done nothing: the next call runs its own. There is no poison; who must know
/// uses [`call_once_force`](Self::call_once_force).
///
/// # After fork
/// Where another thread of the parent was in the middle of it, nobody in the child ever will end it: there the
/// next call runs, as after a panic. To [`wait`](Self::wait) there panics instead.
#[repr(transparent)]
pub struct Once {
    word: Futex<Private>,
}

/// What a closure learns from [`Once::call_once_force`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnceState {
    was_cut_short: bool,
}

impl OnceState {
    /// Whether an earlier run has begun and has not ended: it panicked, or a fork left its thread behind.
    pub fn was_cut_short(&self) -> bool {
        self.was_cut_short
    }
}

/// What is to be done.
pub(super) enum Begin<'a> {
    /// Nothing.
    Done,
    /// It, by the caller.
    Run(Claim<'a>),
}

/// Why what must not run twice cannot be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotFirst {
    /// A run panicked.
    CutShort,
    /// A fork left the thread behind that runs.
    Gone,
}

/// What the word says; the word, which may have changed since.
enum Seen {
    Done,
    /// Another thread runs.
    Running(u32),
    /// No thread runs.
    Idle(u32),
    /// The thread that runs was left behind by a fork.
    Gone(u32),
}

/// The right to run. Dropped, the run was cut short.
pub(super) struct Claim<'a> {
    once: &'a Once,
    tag: u32,
    state: OnceState,
}

impl Once {
    /// One where nothing was done.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Once { word: Futex::new(NEW) }
    }

    /// As above.
    #[cfg(loom)]
    pub fn new() -> Self {
        Once { word: Futex::new(NEW) }
    }

    /// Whether it is done; then what was done happens before what follows. Async-signal-safe.
    #[inline(always)]
    pub fn is_completed(&self) -> bool {
        // Acquire: partner is the Release in `end`.
        self.word.load(Ordering::Acquire) == DONE
    }

    /// Runs the closure, unless that was done; waits while another thread does.
    ///
    /// After it, it is done, and that happens before what follows.
    ///
    /// # Panics
    /// If the closure does, or if it comes back here: that would wait for itself.
    #[inline]
    pub fn call_once(&self, run: impl FnOnce()) {
        self.call_once_force(|_| run());
    }

    /// The same; the closure is told whether an earlier run was cut short.
    ///
    /// # Panics
    /// As [`call_once`](Self::call_once).
    #[inline]
    pub fn call_once_force(&self, run: impl FnOnce(&OnceState)) {
        if !self.is_completed() {
            self.call_cold(run);
        }
    }

    /// Waits until it is done by another thread. After it, it is done, and that happens before what follows.
    ///
    /// A closure that panics has done nothing, so this waits for the next one.
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
    /// If the calling thread is the one that does it; and in a forked child, if another thread of the parent was in the
    /// middle of it at the [fork](#after-fork): no thread would end it. There [`call_once`](Self::call_once) does it
    /// anew.
    #[inline]
    pub fn wait(&self) {
        if !self.is_completed() {
            self.wait_cold(None);
        }
    }

    /// Waits until it is done by another thread, at most so long. Times out at once if a [fork](#after-fork) left the
    /// thread that runs behind.
    ///
    /// # Panics
    /// If the calling thread is the one that does it.
    #[inline]
    pub fn wait_for(&self, span: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult::of(self.is_completed() || self.wait_cold(Some(Deadline::after(span))))
    }

    /// Waits until it is done by another thread or until the deadline. Times out at once if a [fork](#after-fork) left
    /// the thread that runs behind.
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

    /// Waits until it is done, or the caller is to do it.
    ///
    /// # Panics
    /// If the caller is doing it.
    #[cold]
    pub(super) fn begin(&self) -> Begin<'_> {
        loop {
            match self.look() {
                Seen::Done => return Begin::Done,
                Seen::Running(word) => _ = self.sleep(word, None, true),
                // From a gone thread: invariant 3.
                Seen::Idle(word) | Seen::Gone(word) => {
                    if let Some(claim) = self.claim(word) {
                        return Begin::Run(claim);
                    }
                }
            }
        }
    }

    /// As [`begin`](Self::begin), of what must not run twice: nothing is taken over from a gone thread.
    ///
    /// # Errors
    /// Another run has begun, and will never end.
    ///
    /// # Panics
    /// If the caller is doing it.
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

    /// What the word says.
    ///
    /// # Panics
    /// If the caller is doing it.
    fn look(&self) -> Seen {
        // Acquire: partner is the Release in `end`, of runs that were cut short too.
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

    /// The right to run, unless the word has changed.
    fn claim(&self, word: u32) -> Option<Claim<'_>> {
        let tag = owner_tag::tag::<TAG_BITS>();
        // Threads that wait for a run may sleep already (invariant 4).
        let claimed = RUNNING | word & AWAITED | tag;
        // Acquire: as in `look`.
        self.word.compare_exchange(word, claimed, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let state = OnceState { was_cut_short: word & !AWAITED != NEW };
        Some(Claim { once: self, tag, state })
    }

    /// Sleeps while the word is as it was seen, but for AWAITED.
    fn sleep(&self, word: u32, deadline: Option<Deadline>, is_running: bool) -> Wake {
        let awaited = word | AWAITED;
        // Relaxed: a thread that is woken looks again.
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if word != awaited && self.word.compare_exchange(word, awaited, success, failure).is_err() {
            return Wake::Differed;
        }
        // A run that has not begun is held up by no thread: no time is lost that a profile should report.
        let mut wait = is_running.then(|| Wait::begin(Kind::Once, self));
        wait.iter_mut().for_each(Wait::sleeps);
        // Ended by a signal handler, which may have forked: in the child the thread that runs is gone. Models, in
        // which a deadline may pass at any time, have none.
        let wake = self.word.wait(awaited, deadline.or((!cfg!(loom)).then_some(Deadline::NEVER)));
        if let Some(wait) = wait {
            wait.end(wake != Wake::TimedOut);
        }
        wake
    }

    /// For the owner: whether no run has begun.
    pub(super) fn is_new_mut(&mut self) -> bool {
        // Relaxed: as in `is_completed_mut`.
        self.word.load(Ordering::Relaxed) & !AWAITED == NEW
    }

    /// For the owner: whether it is done.
    pub(super) fn is_completed_mut(&mut self) -> bool {
        // Relaxed: exclusive access was ordered by whoever gave it.
        self.word.load(Ordering::Relaxed) == DONE
    }
}

impl Claim<'_> {
    /// Nobody takes the run over from here on; false if somebody did.
    ///
    /// The caller runs no foreign code before it ends the claim.
    pub(super) fn seal(&self) -> bool {
        let mut word = self.once.word.load(Ordering::Relaxed);
        while self.is_mine(word) {
            // Relaxed: others learn nothing from it.
            match self.once.word.compare_exchange_weak(
                word,
                word | SEALED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// It is done.
    pub(super) fn finish(self) {
        self.end(DONE);
        core::mem::forget(self);
    }

    /// It is to be done, as if nobody had begun.
    pub(super) fn give_back(self) {
        self.end(if self.state.was_cut_short { CUT_SHORT } else { NEW });
        core::mem::forget(self);
    }

    fn is_mine(&self, word: u32) -> bool {
        is_running(word) && word & !(AWAITED | SEALED) == RUNNING | self.tag
    }

    fn end(&self, state: u32) {
        let this: *const Futex<Private> = &self.once.word;
        let mut word = self.once.word.load(Ordering::Relaxed);
        // Invariant 3.
        while self.is_mine(word) {
            // Release: partner is the Acquire in `is_completed` and `begin`.
            match self.once.word.compare_exchange_weak(
                word,
                state,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // Invariant 5: by address.
                    if word & AWAITED != 0 {
                        let_go(Kind::Once, this);
                        Futex::wake(this, u32::MAX);
                    }
                    return;
                }
                Err(now) => word = now,
            }
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.end(CUT_SHORT);
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
#[path = "once_loom.rs"]
mod loom_tests;
