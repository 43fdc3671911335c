//! A domain: readers, and writers that wait for them.
//!
//! # Data flow
//! `read` → the domain's word (generation and period) → critical section `increment_at` on this core's count of begins.
//! The end of a guard → the same section on the count of ends, on whichever core the thread is then. `synchronize` →
//! steps of `grace_period.rs` until all guards from before have ended.
//!
//! # Invariants
//! 1. All of a domain is in a page that a fork wipes (`readers.rs`). So a child begins with no readers and no grace
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

use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::sync::atomic::fence;

#[cfg(feature = "std")]
use super::deferred::Deferred;
use super::grace_period::Number;
#[cfg(feature = "std")]
use super::key::Key;
use super::readers::Core;
use super::survivors;
#[cfg(feature = "std")]
use super::tracked;
use super::watch::About;
use super::word;
use crate::percpu::{heavy_barrier, light_barrier};
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::sys::forks;
use crate::sys::forks::wipe_on_fork::WipeOnFork;

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

/// The core of all domains that find no memory.
static WITHOUT_MEMORY: Core = Core::new();
/// The core of all domains before their first use. Its word stays 0.
static UNUSED: Core = Core::new();

impl Domain {
    /// Creates a domain with the default limits for deferred memory: 1 MiB and 64 MiB.
    #[must_use]
    #[track_caller]
    pub const fn new() -> Domain {
        Domain::named("")
    }

    /// Does what [`new`](Self::new) does, with a name for reports.
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

    /// Begins a guard without a critical section.
    #[cfg(feature = "std")]
    pub(super) fn begin_by_atomics(&self) -> (&'static Core, u64) {
        survivors::begin();
        let (core, word) = self.prepared();
        core.counts.begin_atomically(word::group(word));
        // SeqCst: partner is the barrier of a grace period. (4)
        fence(Ordering::SeqCst);
        (core, word::in_a_guard(word, 0))
    }

    /// Begins a guard. Returns where it counts, and the word of its beginning.
    #[inline(always)]
    pub(super) fn begin(&'static self) -> (&'static Core, u64) {
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
            return (core, word::in_a_guard(word, tracked::begin(self.key())));
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

    /// Returns which domain this is, for what needs nothing else of it.
    #[cfg(feature = "std")]
    pub(super) fn key(&self) -> Key {
        Key::of(self)
    }

    /// Returns the domain's memory, which is used from now on.
    pub(super) fn core(&self) -> &'static Core {
        self.prepared().0
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

    /// Returns the domain's memory, and its word, which is set from now on in this process.
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

    /// Returns how far grace periods have come in this process.
    pub(super) fn progress(&'static self) -> u64 {
        self.prepared().0.progress.word()
    }

    /// Returns the grace period that ends after all guards of now have ended.
    pub(super) fn next_grace_period(&'static self) -> Number {
        let (core, word) = self.prepared();
        core.progress.ticket(word::generation(word))
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
