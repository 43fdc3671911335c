//! The choice of the back-end that reads the clock: by trying, with continuous checks, and a fallback on any
//! inconsistency.
//!
//! # Data flow
//! ```text
//!   read ──► route ──┬─ the address of the vDSO's data: kernel/page.rs, inline
//!                    └─ a small number ──► read_otherwise ──┬─ the data, with retries   back-end 1
//!                                                          ├─ anchor.rs, pvclock      back-end 2
//!                                                          ├─ anchor.rs, counter      back-end 3
//!                                                          └─ kernel/vdso.rs                 back-end 4
//!   unsettled ──► validating ──► 1 ──► 2 ──► 3 ──► 4       (an inconsistency leads to the right, counted)
//! ```
//! `handover.rs` explains why no clock goes back when one back-end follows another.
//!
//! The first reading probes (some ten microseconds) and uses the vDSO. While the vDSO is in use, each reading
//! compares the candidate with the vDSO's results before and after it. After a thousand comparisons over several
//! updates by the kernel the candidate is used. [`settle`](Selector::settle) does that at once. From then on one
//! reading in every 64th tick is compared again. A comparison is exact: the data leads to the same nanosecond as the
//! vDSO, which computes the same sum. So a comparison on any cpu is valid for all.
//!
//! # Invariants
//! 1. `route` is 0, a number of [`route`], or the word of a validated [`KernelPage`]. The state of a back-end is
//!    stored before the route that leads to it (Release), and stays. A number has the highest bit, and contains a
//!    count, so a route never recurs: a delayed thread cannot end a later one.
//! 2. A back-end that was abandoned is not tried again, except by [`settle`](Selector::settle).
//! 3. System calls are made by the first reading and by `settle`, and one `mmap` when an anchor is first needed. All
//!    others are those of a vDSO that falls back to a system call.
//! 4. No function blocks: a thread that loses a race uses the winner's result.

mod anchored;
mod handover;
mod point;
mod validate;

use core::marker::PhantomData;

use self::handover::Floors;
use super::Clock;
use super::anchor::Anchors;
use super::counter::{self, Fence, how};
use super::kernel::page::{self, KernelPage, Mode};
use super::kernel::paravirtual;
use super::kernel::probe;
use super::page::pvclock;
use super::status::{Backend, Cause, Counts, Source, Status};
use crate::primitive::global::{AtomicU32, AtomicUsize, Ordering};
use crate::sys::WipeOnFork;
use crate::sys::process::environment;
use crate::sys::process::words::Variable;

/// The routes of readings, and the word that holds the chosen one: in bit 0 the fence, in the next seven one of these,
/// above a count, and in the highest bit 1. As a signed number that is negative, so one comparison tells it from a
/// page's address.
mod route {
    pub(super) const UNSETTLED: usize = 0;
    pub(super) const VALIDATING_COUNTER: usize = 1;
    pub(super) const VALIDATING_PVCLOCK: usize = 2;
    pub(super) const PAGE_BY_PVCLOCK: usize = 3;
    pub(super) const ANCHOR_PVCLOCK: usize = 4;
    pub(super) const ANCHOR_COUNTER: usize = 5;
    pub(super) const VDSO: usize = 6;
    /// The [`kind`] of the word that names a kernel page.
    pub(super) const PAGE: usize = 127;

    /// Returns `true` if it is the word of a kernel page.
    #[inline(always)]
    pub(super) fn is_page(route: usize) -> bool {
        route as isize >= 128
    }

    /// Returns the kind of a route: a constant of this module.
    #[inline(always)]
    pub(super) fn kind(route: usize) -> usize {
        if is_page(route) { PAGE } else { (route & 0xff) >> 1 }
    }
}
use route::{is_page, kind};

/// The reference clock, which all back-ends are compared with.
pub(super) trait Truth {
    /// Returns its time in nanoseconds.
    fn read(clock: Clock) -> u64;
}

/// The choice of the back-end: see the module's text.
#[repr(align(64))]
pub(super) struct Selector<T: Truth> {
    route: AtomicUsize,
    /// The kernel page that is being validated or serves, as a word.
    page: AtomicUsize,
    /// The address of KVM's page, or 0.
    pvclock: AtomicUsize,
    /// The latest times that anchors gave before they were given up.
    floors: Floors,
    /// The number of routes so far.
    routes: AtomicUsize,
    anchors: WipeOnFork<Anchors>,
    /// 1 if the cpus' counters are trusted to agree.
    counters_agree: AtomicU32,
    /// The best back-end that may be used.
    limit: AtomicU32,
    /// The comparisons so far, and below it the updates that they span and the last sequence number.
    passed: AtomicU32,
    changes: AtomicU32,
    sequence: AtomicU32,
    counts: Counts,
    truth: PhantomData<fn() -> T>,
}

impl<T: Truth> Selector<T> {
    pub(super) const fn new() -> Selector<T> {
        Selector {
            route: AtomicUsize::new(0),
            page: AtomicUsize::new(0),
            pvclock: AtomicUsize::new(0),
            floors: Floors::new(),
            routes: AtomicUsize::new(0),
            // SAFETY: all bytes 0 are anchors that are not set.
            anchors: unsafe { WipeOnFork::new() },
            counters_agree: AtomicU32::new(0),
            limit: AtomicU32::new(0),
            passed: AtomicU32::new(0),
            changes: AtomicU32::new(0),
            sequence: AtomicU32::new(0),
            counts: Counts::new(),
            truth: PhantomData,
        }
    }

    /// Returns the clock's time in nanoseconds.
    #[inline(always)]
    pub(super) fn read<const ORDERED: bool>(&self, clock: Clock) -> u64 {
        // Acquire: partner is the Release in `switch`. (1)
        let route = self.route.load(Ordering::Acquire);
        if is_page(route) {
            // SAFETY: (1)
            let page = unsafe { KernelPage::of_word(route) };
            if let Some(nanos) = page.read_fast::<ORDERED>(clock) {
                return nanos;
            }
        }
        self.read_otherwise(route, clock, ORDERED)
    }

    /// Returns the vDSO's data, while it serves by the cpu's counter.
    #[inline(always)]
    pub(super) fn serving(&self) -> Option<KernelPage> {
        // Acquire: as in `read`.
        let route = self.route.load(Ordering::Acquire);
        // SAFETY: (1)
        is_page(route).then(|| unsafe { KernelPage::of_word(route) })
    }

    /// Returns the time of the last tick.
    #[inline(always)]
    pub(super) fn read_coarse(&self, clock: Clock) -> u64 {
        match self.read_coarse_fast(clock) {
            Some(nanos) => nanos,
            None => T::read(clock),
        }
    }

    /// Returns the same, by the vDSO's data alone. `None` if another back-end serves, or an update is under way.
    #[inline(always)]
    pub(super) fn read_coarse_fast(&self, clock: Clock) -> Option<u64> {
        self.serving().and_then(|page| page.read_coarse(clock))
    }

    /// Sorts alone, so that each back-end has its registers to itself.
    #[inline(never)]
    fn read_otherwise(&self, route: usize, clock: Clock, ordered: bool) -> u64 {
        let is_fenced = Fence::of_bit(route) == Fence::FENCED;
        match (kind(route), ordered, is_fenced) {
            (route::VDSO, ..) => self.read_vdso(route, clock),
            (route::PAGE_BY_PVCLOCK, false, _) => self.read_by_pvclock::<{ how::UNORDERED }>(clock),
            (route::PAGE_BY_PVCLOCK, _, true) => self.read_by_pvclock::<{ how::FENCED }>(clock),
            (route::PAGE_BY_PVCLOCK, ..) => self.read_by_pvclock::<{ how::BY_ITSELF }>(clock),
            (route::ANCHOR_COUNTER, false, _) => {
                self.read_anchored::<{ how::UNORDERED }, false>(clock)
            }
            (route::ANCHOR_COUNTER, _, true) => self.read_anchored::<{ how::FENCED }, false>(clock),
            (route::ANCHOR_COUNTER, ..) => self.read_anchored::<{ how::BY_ITSELF }, false>(clock),
            (route::ANCHOR_PVCLOCK, false, _) => {
                self.read_anchored::<{ how::UNORDERED }, true>(clock)
            }
            (route::ANCHOR_PVCLOCK, _, true) => self.read_anchored::<{ how::FENCED }, true>(clock),
            (route::ANCHOR_PVCLOCK, ..) => self.read_anchored::<{ how::BY_ITSELF }, true>(clock),
            _ => self.read_patiently(clock, ordered),
        }
    }

    #[inline(never)]
    fn read_by_pvclock<const HOW: u8>(&self, clock: Clock) -> u64 {
        // None after a later probe that did not find it: for want of a descriptor, say.
        let read = |page| paravirtual::read_through::<HOW>(self.page(), page, clock);
        match self.pvclock().and_then(read) {
            Some(nanos) => nanos,
            None => self.read_patiently(clock, HOW != how::UNORDERED),
        }
    }

    #[cold]
    #[inline(never)]
    fn read_patiently(&self, clock: Clock, ordered: bool) -> u64 {
        let mut route = self.route.load(Ordering::Acquire);
        // Each round but the last leads to a lower back-end; others may lead up again, by `settle`.
        for _ in 0..16 {
            let read = match kind(route) {
                route::UNSETTLED => {
                    self.start();
                    route = self.route.load(Ordering::Acquire);
                    continue;
                }
                route::VALIDATING_COUNTER => self.validate(route, Mode::Counter, clock),
                route::VALIDATING_PVCLOCK => self.validate(route, Mode::Pvclock, clock),
                route::PAGE_BY_PVCLOCK => self.read_page(Mode::Pvclock, clock, ordered),
                route::ANCHOR_PVCLOCK => self.read_anchor(route, Mode::Pvclock, clock, ordered),
                route::ANCHOR_COUNTER => self.read_anchor(route, Mode::Counter, clock, ordered),
                route::VDSO => Ok(self.true_time(clock)),
                _ => self.read_page(Mode::Counter, clock, ordered),
            };
            if let Err(cause) = read {
                self.fall_back(route, cause);
            }
            let now = self.route.load(Ordering::Acquire);
            match read {
                // Still the same: see `handover.rs`.
                Ok(nanos) if now == route => return nanos,
                _ => route = now,
            }
        }
        self.true_time(clock)
    }

    /// Reads by back-end 4, if it still serves afterwards.
    #[inline(never)]
    fn read_vdso(&self, route: usize, clock: Clock) -> u64 {
        let time = self.true_time(clock);
        if self.route.load(Ordering::Acquire) == route {
            time
        } else {
            self.read_patiently(clock, true)
        }
    }

    /// Returns the vDSO's time, not earlier than an anchor's before it.
    #[inline]
    fn true_time(&self, clock: Clock) -> u64 {
        self.floors.apply(clock, T::read(clock))
    }

    /// Reads by back-end 1, however long it takes, and compared with the vDSO where that is due.
    fn read_page(&self, mode: Mode, clock: Clock, ordered: bool) -> Result<u64, Cause> {
        let page = self.page();
        let read = page.read(clock, mode, || self.count(mode, ordered, page.fence()));
        let reading = match read {
            Err(Cause::UpdateStalled) => return self.wait_for_page(page, clock),
            read => read?,
        };
        let sequence = reading.head as u32;
        let is_due = page::is_checked(reading.head)
            && self.sequence.swap(sequence, Ordering::Relaxed) != sequence;
        if is_due {
            self.compare(page, mode, clock)?;
        }
        // Later than the comparison, which ordered readings must not see a time from before.
        Ok(if is_due && ordered { T::read(clock) } else { reading.nanos })
    }

    /// Returns the counter of `mode`.
    #[inline(always)]
    fn count(&self, mode: Mode, ordered: bool, fence: Fence) -> Result<u64, Cause> {
        let count = || if ordered { counter::ordered_by(fence) } else { counter::unordered() };
        match mode {
            Mode::Counter => Ok(count()),
            Mode::Pvclock => paravirtual::count(self.pvclock().ok_or(Cause::UnknownLayout)?, count),
        }
    }

    /// Returns KVM's page.
    #[inline(always)]
    pub(super) fn pvclock(&self) -> Option<&'static pvclock::Page> {
        // SAFETY: 0, which is no page, or what the probe found.
        unsafe { probe::pvclock_at(self.pvclock.load(Ordering::Relaxed)) }
    }

    /// Returns the page that is validated or serves.
    #[inline]
    fn page(&self) -> KernelPage {
        // SAFETY: stored before any route that leads here. (1)
        unsafe { KernelPage::of_word(self.page.load(Ordering::Relaxed)) }
    }

    /// Takes the first reading.
    #[cold]
    fn start(&self) {
        self.limit.store(limit_by_environment() as u32, Ordering::Relaxed);
        self.choose(route::UNSETTLED);
    }

    /// Returns what serves.
    pub(super) fn status(&self) -> Status {
        let route = self.route.load(Ordering::Acquire);
        let (backend, source) = match kind(route) {
            route::UNSETTLED
            | route::VALIDATING_COUNTER
            | route::VALIDATING_PVCLOCK
            | route::VDSO => (Backend::Vdso, Source::Kernel),
            route::PAGE_BY_PVCLOCK => (Backend::KernelPage, Source::Pvclock),
            route::ANCHOR_PVCLOCK => (Backend::Paravirtual, Source::Pvclock),
            route::ANCHOR_COUNTER => (Backend::Anchor, Source::COUNTER),
            _ => (Backend::KernelPage, Source::COUNTER),
        };
        Status {
            validating: is_validating(route),
            fence: (backend != Backend::Vdso).then_some(Fence::of_bit(route)),
            ..self.counts.status(backend, source)
        }
    }

    /// See [`Status::epoch`].
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.counts.epoch()
    }
}

fn is_validating(route: usize) -> bool {
    matches!(kind(route), route::VALIDATING_COUNTER | route::VALIDATING_PVCLOCK)
}

/// Returns the best back-end that `CORELOCAL_CLOCK` allows.
fn limit_by_environment() -> Backend {
    static VARIABLE: Variable =
        Variable::new(c"CORELOCAL_CLOCK", &["vdso", "libc", "anchor", "paravirtual"]);
    // SAFETY: used at once.
    let value = unsafe { environment::variable(c"CORELOCAL_CLOCK") }.unwrap_or_default();
    VARIABLE.report(value.to_bytes(), |_| false);
    match value.to_bytes() {
        b"vdso" | b"libc" => Backend::Vdso,
        b"anchor" => Backend::Anchor,
        b"paravirtual" => Backend::Paravirtual,
        _ => Backend::KernelPage,
    }
}

#[cfg(test)]
mod tests;
