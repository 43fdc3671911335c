//! A domain: readers, and writers that wait for them.
//!
//! # Data flow
//! `read` → the domain's word (generation and period) → critical section `increment_at` on this core's count of begins. The
//! end of a guard → the same section on the count of ends, on whichever core the thread is then. `synchronize` → steps
//! of `grace_period.rs` until all guards from before have ended.
//!
//! # Invariants
//! 1. All of a domain is in a page that a fork wipes ([`Core`]). So a child begins with no readers and no grace
//!    period. Guards from before the fork are the business of `survivors.rs`: a guard has the word of its beginning,
//!    with the generation in it, and compares it at its end.
//! 2. A guard counts in the group of readers that its word says: the period, and the lowest bits of the generation. So a
//!    begin or an end that a signal handler interrupts, which forks and returns in the child, counts in a group that
//!    the child does not use.
//! 3. A word is 0 until the domain is first used in a process, and has FENCED if `membarrier(2)` was refused then. Both
//!    lead readers to the cold path, and so does COLD alone: while readers are tracked, and in a child whose first thread
//!    has guards from before the fork. FENCED never changes within a process.
//! 4. Between the begin of a guard and its accesses, and between these and its end, there is a barrier: a compiler's,
//!    whose partner is the membarrier of a grace period, or with FENCED a full one.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::sync::atomic::fence;
use core::time::Duration;

use super::error::Error;
use super::grace_period::{Number, Progress, Readers, Step};
use super::guard::Guard;
use super::quiescent::QuiescentReader;
use super::stall::{About, Watch};
use super::survivors;
use super::ticket::Ticket;
#[cfg(feature = "std")]
use super::tracked;
use super::word;
use crate::percpu::{Group, ReaderCounts, heavy_barrier, light_barrier};
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sys::futex::{Deadline, Scope};
use crate::sys::wipe_on_fork::WipeOnFork;
use crate::sys::{Errno, forks, sleep};

#[cfg(feature = "std")]
use super::deferred::{Deferred, runner};

/// What readers and grace periods use. All bytes 0 is valid: no readers, and no grace period yet.
#[repr(C)]
pub(super) struct Core {
    /// First, so that critical sections need no other address.
    pub(super) counts: ReaderCounts,
    pub(super) word: AtomicU64,
    /// 1 while a thread takes steps for all that wait. A hint: it saves barriers.
    driver: AtomicU32,
    /// Counts ends of grace periods; waiting threads sleep on it.
    changes: AtomicU32,
    pub(super) progress: Progress,
    watch: Watch,
}

/// A set of readers and the grace periods that wait for them.
///
/// Readers of one domain delay grace periods of that domain only. Domains are statics:
///
/// ```
/// use corelocal::rcu::Domain;
///
/// static SESSIONS: Domain = Domain::new();
///
/// let guard = SESSIONS.read();
/// // … use what the domain protects …
/// drop(guard);
/// SESSIONS.synchronize().unwrap();
/// ```
///
/// A domain takes a page of memory at its first use, and 128 bytes for each core in use. Without memory it shares one
/// set of counts with other such domains, which in a forked child may then wait for guards of threads that do not exist
/// there.
pub struct Domain {
    core: WipeOnFork<Core>,
    about: About,
    /// 1 while readers are tracked.
    is_tracking: AtomicU32,
    #[cfg(feature = "std")]
    pub(super) deferred: Deferred,
}

/// For all domains that find no memory.
static WITHOUT_MEMORY: Core = Core::new();
/// Of all domains before their first use. Its word stays 0.
static UNUSED: Core = Core::new();

impl Domain {
    /// A domain with the default limits for deferred memory: 1 MiB and 64 MiB.
    #[must_use]
    #[track_caller]
    pub const fn new() -> Domain {
        Domain::named("")
    }

    /// Like [`new`](Self::new), with a name for reports.
    #[must_use]
    #[track_caller]
    pub const fn named(name: &'static str) -> Domain {
        Domain {
            about: About::new(name),
            is_tracking: AtomicU32::new(0),
            // SAFETY: all bytes 0 is valid. A thread that uses it while a fork wipes it fails to change it in the child
            // (invariant 2; `grace_period.rs`, invariant 4).
            core: unsafe { WipeOnFork::with_placeholder(&UNUSED) },
            #[cfg(feature = "std")]
            deferred: Deferred::new(),
        }
    }

    /// Begins a guard. While it exists, no grace period that begins later ends.
    ///
    /// Guards nest, and may end in any order. Lock-free and async-signal-safe: a few nanoseconds for begin and end, a few
    /// system calls at the domain's first use.
    ///
    /// # Memory ordering
    /// What a thread published before a grace period began is visible to guards that this grace period does not wait
    /// for.
    #[inline(always)]
    pub fn read(&'static self) -> Guard {
        let (core, word) = self.begin();
        Guard { core, domain: self, word, not_send: PhantomData }
    }

    /// Like [`read`](Self::read), without critical sections at begin and end.
    #[cfg(feature = "std")]
    pub(super) fn read_by_atomics(&'static self) -> Guard {
        survivors::begin();
        let (core, word) = self.prepared();
        core.counts.begin_atomically(word::group(word));
        // SeqCst: partner is the barrier of a grace period. (4)
        fence(Ordering::SeqCst);
        Guard { core, domain: self, word: word::in_a_guard(word, 0), not_send: PhantomData }
    }

    #[inline(always)]
    fn begin(&'static self) -> (&'static Core, u64) {
        // SAFETY: made with a placeholder, in `named`.
        let core = unsafe { self.core.now() };
        // Before the word is loaded (`survivors.rs`, invariant 1).
        survivors::begin();
        // Relaxed: any period will do (`grace_period.rs`, invariant 3).
        let word = core.word.load(Ordering::Relaxed);
        if word::is_plain(word) {
            core.counts.begin(word::group(word));
            light_barrier();
            return (core, word);
        }
        self.begin_cold()
    }

    /// Begins a guard, which this thread has counted. (`survivors.rs`, invariant 1)
    #[cold]
    #[inline(never)]
    fn begin_cold(&'static self) -> (&'static Core, u64) {
        let (core, word) = self.prepared();
        let word = self.without_survivors(core, word);
        if word::is_plain(word) {
            core.counts.begin(word::group(word));
            light_barrier();
            return (core, word);
        }
        core.counts.begin_atomically(word::group(word));
        // SeqCst: partner is the barrier of a grace period. (4)
        fence(Ordering::SeqCst);
        #[cfg(feature = "std")]
        if self.is_tracking.load(Ordering::Relaxed) != 0 {
            return (core, word::in_a_guard(word, tracked::begin(self)));
        }
        (core, word::in_a_guard(word, 0))
    }

    /// Ends COLD in a child whose guards from before the fork are gone, if that was its reason. Returns the word.
    fn without_survivors(&self, core: &Core, word: u64) -> u64 {
        if word & word::COLD == 0 || self.is_cold(word) {
            return word;
        }
        let warm = word & !word::COLD;
        // Relaxed: readers may see it late. Failure: another thread was faster, and this guard begins in the cold path.
        match core.word.compare_exchange(word, warm, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => warm,
            Err(_) => word,
        }
    }

    /// Returns `true` if guards take the cold path. (3)
    fn is_cold(&self, word: u64) -> bool {
        word & word::FENCED != 0
            || self.is_tracking.load(Ordering::Relaxed) != 0
            || !survivors::are_gone()
    }

    pub(super) fn about(&self) -> &About {
        &self.about
    }

    /// Notes thread, time and stack of each guard that begins from now on, so that reports of stalls have them. For
    /// debugging: each guard then costs microseconds. At most 511 guards at a time are noted.
    ///
    /// Do not use it in a program whose signal handlers have guards: it allocates.
    #[cfg(feature = "std")]
    pub fn track_readers(&'static self, is_on: bool) {
        self.is_tracking.store(u32::from(is_on), Ordering::Relaxed);
        let (core, _) = self.prepared();
        let changed =
            |word: u64| Some(word & !word::COLD | if self.is_cold(word) { word::COLD } else { 0 });
        // Relaxed: readers may see it late.
        let _ = core.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }

    /// The domain's memory, and its word, which is set from now on in this process.
    #[cold]
    fn prepared(&self) -> (&'static Core, u64) {
        let core = self.core.get_or(&WITHOUT_MEMORY);
        let word = core.word.load(Ordering::Relaxed);
        if word != 0 {
            return (core, word);
        }
        survivors::prepare();
        let plain = word::first(forks::generation());
        let fresh = plain | if heavy_barrier().is_ok() { 0 } else { word::FENCED };
        let fresh = fresh | if self.is_cold(fresh) { word::COLD } else { 0 };
        // Relaxed: the word is all there is to see.
        match core.word.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => (core, fresh),
            Err(word) => (core, word),
        }
    }

    /// Waits for a grace period: until every guard of this domain that exists now has ended.
    ///
    /// Calls at the same time share grace periods. Under a guard of this domain the calling thread would wait for
    /// itself, for ever.
    ///
    /// # Errors
    /// [`Error::InCallback`] in a deferred function of this domain, [`Error::Refused`] if the kernel refuses
    /// `membarrier(2)` since the first use. Then guards may exist: free nothing.
    pub fn synchronize(&'static self) -> Result<(), Error> {
        self.wait_and_flush(None)
    }

    /// Like [`synchronize`](Self::synchronize), but waits no longer than this.
    ///
    /// # Errors
    /// [`Error::TimedOut`], besides those of `synchronize`.
    pub fn synchronize_timeout(&'static self, span: Duration) -> Result<(), Error> {
        self.wait_and_flush(Some(Deadline::after(span)))
    }

    fn wait_and_flush(&'static self, deadline: Option<Deadline>) -> Result<(), Error> {
        self.wait(&self.start_poll(), deadline)?;
        #[cfg(feature = "std")]
        self.flush_on_caller();
        Ok(())
    }

    /// Returns a reader for a thread that promises to call [`QuiescentReader::quiescent`] between its tasks.
    #[must_use]
    pub fn quiescent_reader(&'static self) -> QuiescentReader {
        QuiescentReader::new(self)
    }

    /// Returns how far grace periods have come in this process.
    pub(super) fn progress(&'static self) -> u64 {
        self.prepared().0.progress.word()
    }

    /// Begins to wait for a grace period, without blocking: [`Ticket::is_complete`] tells when it has ended.
    ///
    /// ```
    /// use corelocal::rcu;
    ///
    /// let guard = rcu::read();
    /// let ticket = rcu::start_poll();
    /// assert_eq!(ticket.is_complete(), Ok(false));
    /// drop(guard);
    /// while !ticket.is_complete().unwrap() {}
    /// ```
    #[must_use]
    pub fn start_poll(&'static self) -> Ticket {
        let (core, number) = self.next_grace_period();
        Ticket { core, domain: self, number: Cell::new(number) }
    }

    pub(super) fn next_grace_period(&'static self) -> (&'static Core, Number) {
        let (core, word) = self.prepared();
        (core, core.progress.ticket(word::generation(word)))
    }

    pub(super) fn wait(
        &'static self,
        ticket: &Ticket,
        deadline: Option<Deadline>,
    ) -> Result<(), Error> {
        const SPINS: u32 = 16;
        const SHORTEST: Duration = Duration::from_micros(50);
        /// A pause, and the share of the wait so far that a pause may take, up to `LONGEST`: many threads that wait for
        /// a long reader must not keep the processor busy.
        const LONG: Duration = Duration::from_millis(1);
        const SHARE: u32 = 32;
        const LONGEST: Duration = Duration::from_millis(100);
        #[cfg(feature = "std")]
        if runner::is_inside_of(self) {
            return Err(Error::InCallback);
        }
        let core = ticket.core;
        let (mut looks, mut pause, mut waited) = (0, SHORTEST, Duration::ZERO);
        loop {
            let number = ticket.of_this_process();
            // Acquire: partner is the Release in `takes_a_step`, so that no end after this load is missed.
            let changes = core.changes.load(Ordering::Acquire);
            if core.is_complete(number) {
                return Ok(());
            }
            if core.takes_a_step(number, self)? {
                continue;
            }
            if deadline.is_some_and(|deadline| deadline.remaining().is_zero()) {
                return Err(Error::TimedOut);
            }
            looks += 1;
            if looks < SPINS {
                core::hint::spin_loop();
                continue;
            }
            let most = deadline.map_or(pause, |deadline| pause.min(deadline.remaining()));
            sleep::wait(&core.changes, changes, Some(Deadline::after(most)), Scope::Private);
            waited += most;
            pause = (pause * 2).min((waited / SHARE).clamp(LONG, LONGEST));
        }
    }
}

// A panic leaves a domain as it is.
impl UnwindSafe for Domain {}
impl RefUnwindSafe for Domain {}

impl Default for Domain {
    #[track_caller]
    fn default() -> Self {
        Domain::new()
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("name", &self.name())
            .field("location", &self.location())
            .finish_non_exhaustive()
    }
}

impl Core {
    const fn new() -> Core {
        Core {
            word: AtomicU64::new(0),
            progress: Progress::new(),
            driver: AtomicU32::new(0),
            changes: AtomicU32::new(0),
            watch: Watch::new(),
            counts: ReaderCounts::new(),
        }
    }

    pub(super) fn is_complete(&self, number: Number) -> bool {
        self.progress.is_complete(number) && survivors::are_gone()
    }

    /// Takes a step. False if readers are in the way, or guards from before a fork, or another thread is at it.
    pub(super) fn takes_a_step(
        &self,
        number: Number,
        domain: &'static Domain,
    ) -> Result<bool, Error> {
        if self.progress.is_complete(number) {
            if !survivors::are_gone() {
                domain.is_waiting(&self.watch, number.get(), survivors::known);
            }
            return Ok(false);
        }
        // Acquire and Release: a hint, but so the steps of one driver come before those of the next.
        if self.driver.swap(1, Ordering::Acquire) != 0 {
            return Ok(false);
        }
        let step = self.progress.step(number, self);
        self.driver.store(0, Ordering::Release);
        if self.progress.is_complete(number) {
            // Release: partner is the Acquire in `wait`.
            self.changes.fetch_add(1, Ordering::Release);
            sleep::wake(&self.changes, u32::MAX, Scope::Private);
        }
        if step == Ok(Step::Waiting) {
            let last = self.progress.last(number.generation());
            domain.is_waiting(&self.watch, last, || self.guards());
        }
        step.map(|step| step == Step::Changed).map_err(Error::Refused)
    }

    /// The readers inside now, or some more.
    fn guards(&self) -> i64 {
        let ended = self.ended(0) + self.ended(1);
        self.begun(0) + self.begun(1) - ended
    }

    /// The group of readers in which a period of this process is counted. (2)
    fn group(&self, period: u32) -> Group {
        word::group(word::with_period(self.word.load(Ordering::Relaxed), period))
    }

    /// Ends a guard that began with this word in COLD, or before a fork. Its thread has counted the end.
    #[cold]
    #[inline(never)]
    pub(super) fn end_cold(&self, began: u64) {
        #[cfg(feature = "std")]
        tracked::end(word::entry(began));
        let now = self.word.load(Ordering::Relaxed);
        if word::generation(now) == word::generation(began) {
            // SeqCst: partner is the barrier of a grace period. (4)
            fence(Ordering::SeqCst);
            self.counts.end_atomically(word::group(began));
        }
        // Publishes what is left from before a fork (`survivors.rs`, invariant 2).
        let _ = survivors::are_gone();
    }
}

impl Readers for Core {
    fn period(&self) -> u32 {
        word::period(self.word.load(Ordering::Relaxed))
    }

    fn flip(&self, from: u32) {
        let word = self.word.load(Ordering::Relaxed);
        if word != 0 && word::period(word) == from {
            // Relaxed: readers may see it late, and grace periods see it in the state's order. Failure: another thread
            // has flipped, or the process has forked.
            let flipped = word ^ word::PERIOD;
            let _ = self.word.compare_exchange(word, flipped, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn begun(&self, period: u32) -> i64 {
        self.counts.begun(self.group(period))
    }

    fn ended(&self, period: u32) -> i64 {
        self.counts.ended(self.group(period))
    }

    fn barrier(&self) -> Result<(), Errno> {
        if self.word.load(Ordering::Relaxed) & word::FENCED != 0 {
            // SeqCst: partners are the fences of readers. (4)
            fence(Ordering::SeqCst);
            return Ok(());
        }
        heavy_barrier()
    }
}
