//! Which back-end reads the clock: chosen by trying, watched while it serves, given up at the first doubt.
//!
//! # Data's way
//! ```text
//!   read ──► route ──┬─ the address of the vDSO's data: kernel_page.rs, inline
//!                    └─ a small number ──► read_otherwise ──┬─ the data, patiently    back-end 1
//!                                                          ├─ anchor.rs, pvclock      back-end 2
//!                                                          ├─ anchor.rs, counter      back-end 3
//!                                                          └─ vdso.rs                 back-end 4
//!   unsettled ──► validating ──► 1 ──► 2 ──► 3 ──► 4       (a doubt leads to the right, counted)
//! ```
//! The first reading probes (some ten microseconds) and lets the vDSO serve. While it does, each reading
//! compares what was found with the vDSO's answers before and after it; after a thousand comparisons
//! over some updates by the kernel it serves itself. [`settle`](Selector::settle) does that at once. From
//! then on one reading in every 64th tick is compared again. A comparison is exact: the data leads to the
//! same nanosecond as the vDSO, which does the same sum on it, so any cpu's comparison speaks for all.
//!
//! # Invariants
//! 1. `route` is 0, a number of [`route`], or the word of a [`KernelPage`] that was validated. What a back-end
//!    needs is stored before the route that leads to it (Release), and stays.
//! 2. A back-end that is given up is not tried again, except by [`settle`](Selector::settle).
//! 3. System calls are made by the first reading and by `settle`, and one `mmap` when an anchor is first
//!    needed. Otherwise none is made but those of a vDSO that cannot do without.
//! 4. Nothing blocks: whoever loses a race reads what the winner stored.

mod anchored;
mod point;
mod validate;

use core::marker::PhantomData;

use super::Clock;
use super::anchor::Anchors;
use super::counter::{self, Fence, how};
use super::kernel_page::{self, KernelPage, Mode};
use super::page::pvclock;
use super::paravirtual;
use super::probe;
use super::status::{Backend, Cause, Counts, Source, Status};
use crate::primitive::global::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sys::WipedByFork;

/// Where readings go: in bit 0 the fence, above one of these.
mod route {
    pub(super) const UNSETTLED: usize = 0;
    pub(super) const VALIDATING_TSC: usize = 1;
    pub(super) const VALIDATING_PVCLOCK: usize = 2;
    pub(super) const PAGE_BY_PVCLOCK: usize = 3;
    pub(super) const ANCHOR_PVCLOCK: usize = 4;
    pub(super) const ANCHOR_TSC: usize = 5;
    pub(super) const VDSO: usize = 6;
    /// From here on it is the word of a kernel page.
    pub(super) const PAGE: usize = 128;
}

/// The true clock, which everything is compared with.
pub(super) trait Truth {
    /// Its time in nanoseconds.
    fn read(clock: Clock) -> u64;
}

/// See the module's text.
#[repr(align(64))]
pub(super) struct Selector<T: Truth> {
    route: AtomicUsize,
    /// The word of the page that is validated or serves.
    page: AtomicUsize,
    /// The address of KVM's page, or 0.
    pvclock: AtomicUsize,
    /// The monotonic time that an anchor gave last, when it was given up: the vDSO may be a little behind.
    floor: AtomicU64,
    anchors: WipedByFork<Anchors>,
    /// 1 if the cpus' counters are trusted to agree.
    tsc: AtomicU32,
    /// The best back-end that may be used.
    limit: AtomicU32,
    /// Comparisons so far, updates that they span, and the last one's sequence number.
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
            floor: AtomicU64::new(0),
            // SAFETY: zeros are anchors that nobody has set.
            anchors: unsafe { WipedByFork::new() },
            tsc: AtomicU32::new(0),
            limit: AtomicU32::new(0),
            passed: AtomicU32::new(0),
            changes: AtomicU32::new(0),
            sequence: AtomicU32::new(0),
            counts: Counts::new(),
            truth: PhantomData,
        }
    }

    /// The clock's time in nanoseconds.
    #[inline(always)]
    pub(super) fn read<const ORDERED: bool>(&self, clock: Clock) -> u64 {
        // Acquire: partner is the Release in `switch`. (1)
        let route = self.route.load(Ordering::Acquire);
        if route >= route::PAGE {
            // SAFETY: (1)
            let page = unsafe { KernelPage::of_word(route) };
            if let Some(nanos) = page.read_fast::<ORDERED>(clock) {
                return nanos;
            }
        }
        self.read_otherwise(route, clock, ORDERED)
    }

    /// The vDSO's data, while it serves by the cpu's counter.
    #[inline(always)]
    pub(super) fn serving(&self) -> Option<KernelPage> {
        // Acquire: as in `read`.
        let route = self.route.load(Ordering::Acquire);
        // SAFETY: (1)
        (route >= route::PAGE).then(|| unsafe { KernelPage::of_word(route) })
    }

    /// The time of the last tick.
    #[inline(always)]
    pub(super) fn read_coarse(&self, clock: Clock) -> u64 {
        match self.serving().and_then(|page| page.read_coarse(clock)) {
            Some(nanos) => nanos,
            None => T::read(clock),
        }
    }

    /// Only sorts, so that each back-end has its registers to itself.
    #[inline(never)]
    fn read_otherwise(&self, route: usize, clock: Clock, ordered: bool) -> u64 {
        let is_lfence = Fence::of_bit(route) == Fence::Lfence;
        match (route >> 1, ordered, is_lfence) {
            (route::VDSO, ..) => self.read_vdso(clock),
            (route::PAGE_BY_PVCLOCK, false, _) => self.read_by_pvclock::<{ how::UNORDERED }>(clock),
            (route::PAGE_BY_PVCLOCK, _, true) => self.read_by_pvclock::<{ how::LFENCE }>(clock),
            (route::PAGE_BY_PVCLOCK, ..) => self.read_by_pvclock::<{ how::RDTSCP }>(clock),
            (route::ANCHOR_TSC, false, _) => self.read_anchored::<{ how::UNORDERED }, false>(clock),
            (route::ANCHOR_TSC, _, true) => self.read_anchored::<{ how::LFENCE }, false>(clock),
            (route::ANCHOR_TSC, ..) => self.read_anchored::<{ how::RDTSCP }, false>(clock),
            (route::ANCHOR_PVCLOCK, false, _) => {
                self.read_anchored::<{ how::UNORDERED }, true>(clock)
            }
            (route::ANCHOR_PVCLOCK, _, true) => self.read_anchored::<{ how::LFENCE }, true>(clock),
            (route::ANCHOR_PVCLOCK, ..) => self.read_anchored::<{ how::RDTSCP }, true>(clock),
            _ => self.read_patiently(clock, ordered),
        }
    }

    #[inline(never)]
    fn read_by_pvclock<const HOW: u8>(&self, clock: Clock) -> u64 {
        // SAFETY: what the probe found; it is there where this route leads. (1)
        let page = unsafe { probe::pvclock_unchecked(self.pvclock.load(Ordering::Relaxed)) };
        match paravirtual::read_through::<HOW>(self.page(), page, clock) {
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
            let read = match route >> 1 {
                route::UNSETTLED => {
                    self.start();
                    route = self.route.load(Ordering::Acquire);
                    continue;
                }
                route::VALIDATING_TSC => self.validate(route, Mode::Tsc, clock),
                route::VALIDATING_PVCLOCK => self.validate(route, Mode::Pvclock, clock),
                route::PAGE_BY_PVCLOCK => self.read_page(Mode::Pvclock, clock, ordered),
                route::ANCHOR_PVCLOCK => self.read_anchor(route, Mode::Pvclock, clock, ordered),
                route::ANCHOR_TSC => self.read_anchor(route, Mode::Tsc, clock, ordered),
                route::VDSO => Ok(self.read_vdso(clock)),
                _ => self.read_page(Mode::Tsc, clock, ordered),
            };
            match read {
                Ok(nanos) => return nanos,
                Err(cause) => {
                    self.latch(route, cause);
                    route = self.route.load(Ordering::Acquire);
                }
            }
        }
        self.read_vdso(clock)
    }

    /// The vDSO's time, not earlier than an anchor's before it.
    #[inline(never)]
    fn read_vdso(&self, clock: Clock) -> u64 {
        let time = T::read(clock);
        if clock == Clock::Monotonic { time.max(self.floor.load(Ordering::Relaxed)) } else { time }
    }

    /// Back-end 1, however long it takes, and compared with the vDSO where that is due.
    fn read_page(&self, mode: Mode, clock: Clock, ordered: bool) -> Result<u64, Cause> {
        let page = self.page();
        let read = page.read(clock, mode, || self.count(mode, ordered, page.fence()));
        let reading = match read {
            Err(Cause::NeverEven) => return self.wait_for_page(page, clock),
            read => read?,
        };
        let is_due = kernel_page::is_checked(reading.sequence.into())
            && self.sequence.swap(reading.sequence, Ordering::Relaxed) != reading.sequence;
        if is_due {
            self.compare(page, mode, clock)?;
        }
        // Later than the comparison, which ordered readings must not see a time from before.
        Ok(if is_due && ordered { T::read(clock) } else { reading.nanos })
    }

    /// The counter of `mode`.
    #[inline(always)]
    fn count(&self, mode: Mode, ordered: bool, fence: Fence) -> Result<u64, Cause> {
        let count = || if ordered { counter::ordered_by(fence) } else { counter::unordered() };
        match mode {
            Mode::Tsc => Ok(count()),
            Mode::Pvclock => paravirtual::count(self.pvclock().ok_or(Cause::UnknownLayout)?, count),
        }
    }

    /// KVM's page.
    #[inline(always)]
    pub(super) fn pvclock(&self) -> Option<&'static pvclock::Page> {
        // SAFETY: 0, which is no page, or what the probe found.
        unsafe { probe::pvclock_at(self.pvclock.load(Ordering::Relaxed)) }
    }

    /// The page that is validated or serves.
    #[inline]
    fn page(&self) -> KernelPage {
        // SAFETY: stored before any route that leads here. (1)
        unsafe { KernelPage::of_word(self.page.load(Ordering::Relaxed)) }
    }

    /// The first reading.
    #[cold]
    fn start(&self) {
        self.limit.store(limit_by_environment() as u32, Ordering::Relaxed);
        self.choose(route::UNSETTLED);
    }

    /// Probes, and leads from the route `from` to the best back-end there is.
    fn choose(&self, from: usize) {
        let fence = counter::cheaper_fence();
        let found = probe::probe(fence, T::read);
        self.pvclock.store(found.pvclock.unwrap_or(0), Ordering::Relaxed);
        self.tsc.store(found.tsc.into(), Ordering::Relaxed);
        self.choose_among(from, fence, found.page);
    }

    fn choose_among(&self, from: usize, fence: Fence, page: Result<(KernelPage, Mode), Cause>) {
        let limit = self.limit.load(Ordering::Relaxed);
        let to = match page {
            Ok((page, mode)) if limit <= Backend::KernelPage as u32 => {
                self.page.store(page.word(), Ordering::Relaxed);
                self.passed.store(0, Ordering::Relaxed);
                self.changes.store(0, Ordering::Relaxed);
                let validating = match mode {
                    Mode::Tsc => route::VALIDATING_TSC,
                    Mode::Pvclock => route::VALIDATING_PVCLOCK,
                };
                number(validating, fence)
            }
            Ok(_) => self.below(Backend::KernelPage, fence),
            Err(_) if limit > Backend::KernelPage as u32 => self.below(Backend::KernelPage, fence),
            Err(cause) => {
                let to = self.below(Backend::KernelPage, fence);
                if self.switch(from, to) {
                    self.counts.latched(cause);
                }
                return;
            }
        };
        self.switch(from, to);
    }

    /// Gives up the back-end of the route `from`.
    #[cold]
    fn latch(&self, from: usize, cause: Cause) {
        if cause == Cause::SourceSwitched {
            // Perhaps because the counters do not agree any more.
            self.tsc.store(0, Ordering::Relaxed);
        }
        let fence = Fence::of_bit(from);
        let mode = match from >> 1 {
            route::ANCHOR_PVCLOCK => Some(Mode::Pvclock),
            route::ANCHOR_TSC => Some(Mode::Tsc),
            _ => None,
        };
        if let Some(mode) = mode {
            self.raise_floor(mode, fence);
        }
        let to = match mode {
            None => self.below(Backend::KernelPage, fence),
            Some(Mode::Pvclock) => self.below(Backend::Paravirtual, fence),
            Some(Mode::Tsc) => number(route::VDSO, fence),
        };
        if self.switch(from, to) {
            self.counts.latched(cause);
        }
    }

    /// The best back-end below `level` that there is, ready for use.
    fn below(&self, level: Backend, fence: Fence) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        let anchors = [
            (Backend::Paravirtual, Mode::Pvclock, route::ANCHOR_PVCLOCK),
            (Backend::Anchor, Mode::Tsc, route::ANCHOR_TSC),
        ];
        for (backend, mode, to) in anchors {
            let is_there = match mode {
                Mode::Pvclock => self.pvclock.load(Ordering::Relaxed) != 0,
                Mode::Tsc => self.tsc.load(Ordering::Relaxed) != 0,
            };
            if backend <= level || (backend as u32) < limit || !is_there {
                continue;
            }
            let ready = self.anchor(mode).ok_or(Cause::NoResources);
            match ready.and_then(|anchor| self.begin(anchor, mode, fence)) {
                Ok(()) => return number(to, fence),
                Err(cause) => self.counts.latched(cause),
            }
        }
        number(route::VDSO, fence)
    }

    /// Leads readings to `to`, if they still go to `from`.
    fn switch(&self, from: usize, to: usize) -> bool {
        // Release: partner is the Acquire in `read`. (1)
        self.route.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// What serves.
    pub(super) fn status(&self) -> Status {
        let route = self.route.load(Ordering::Acquire);
        let (backend, source) = match route >> 1 {
            route::UNSETTLED | route::VALIDATING_TSC | route::VALIDATING_PVCLOCK | route::VDSO => {
                (Backend::Vdso, Source::Kernel)
            }
            route::PAGE_BY_PVCLOCK => (Backend::KernelPage, Source::Pvclock),
            route::ANCHOR_PVCLOCK => (Backend::Paravirtual, Source::Pvclock),
            route::ANCHOR_TSC => (Backend::Anchor, Source::Tsc),
            _ => (Backend::KernelPage, Source::Tsc),
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
    matches!(route >> 1, route::VALIDATING_TSC | route::VALIDATING_PVCLOCK)
}

/// The number of a route.
const fn number(to: usize, fence: Fence) -> usize {
    to << 1 | fence as usize
}

/// The best back-end that `CORELOCAL_CLOCK` allows.
fn limit_by_environment() -> Backend {
    // SAFETY: getenv with a constant name; the result is read at once, as every libc does itself.
    let value = unsafe {
        let value = libc::getenv(c"CORELOCAL_CLOCK".as_ptr());
        if value.is_null() {
            return Backend::KernelPage;
        }
        core::ffi::CStr::from_ptr(value)
    };
    match value.to_bytes() {
        b"vdso" => Backend::Vdso,
        b"anchor" => Backend::Anchor,
        b"paravirtual" => Backend::Paravirtual,
        _ => Backend::KernelPage,
    }
}

#[cfg(test)]
#[path = "selector_tests.rs"]
mod tests;
