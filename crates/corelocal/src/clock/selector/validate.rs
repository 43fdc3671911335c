//! Comparing with the vDSO: before the page serves, and one reading in every 64th tick while it does.
//!
//! # Invariants
//! 1. A comparison holds if ours lies between two readings of the vDSO; ends are included.
//! 2. A clock that is set in between fails an attempt, not all of them.

use crate::primitive::global::Ordering;

use super::{Selector, Truth, is_validating, route};
use crate::clock::Clock;
use crate::clock::kernel::page::{KernelPage, Mode};
use crate::clock::status::{Backend, Cause};

/// The comparisons that the vDSO's data must pass before it serves, and the kernel's updates that they must span.
pub(super) const ENOUGH: u32 = 1000;
pub(super) const CHANGES: u32 = 4;

impl<T: Truth> Selector<T> {
    /// Waits for an update that takes long: the updating cpu may be a virtual one that is not running. The vDSO waits
    /// for it, and what the vDSO saw the end of must not be in the same middle afterwards.
    #[cold]
    pub(super) fn wait_for_page(&self, page: KernelPage, clock: Clock) -> Result<u64, Cause> {
        let before = page.sequence();
        let time = T::read(clock);
        let is_stuck = before & 1 != 0 && page.sequence() == before;
        if is_stuck { Err(Cause::UpdateStalled) } else { Ok(time) }
    }

    /// Compares the page with the vDSO.
    ///
    /// A clock that is set in between fails the first attempt and passes the next.
    ///
    /// # Errors
    /// [`Cause::Inconsistent`]; those of the page.
    pub(super) fn compare(&self, page: KernelPage, mode: Mode, clock: Clock) -> Result<(), Cause> {
        for _ in 0..3 {
            let before = T::read(clock);
            let read = page.read(clock, mode, || self.count(mode, true, page.fence()));
            let between = match read {
                Err(Cause::UpdateStalled) => return self.wait_for_page(page, clock).map(|_| ()),
                read => read?.nanos,
            };
            if (before..=T::read(clock)).contains(&between) {
                self.counts.validated();
                return Ok(());
            }
        }
        Err(Cause::Inconsistent)
    }

    /// Compares while the vDSO serves, and lets the page serve when it has been enough.
    #[cold]
    pub(super) fn validate(&self, route: usize, mode: Mode, clock: Clock) -> Result<u64, Cause> {
        let page = self.page();
        let passed = self.passed.load(Ordering::Relaxed);
        // So that a program that reads seldom gets there, too.
        let comparisons = if passed < ENOUGH { 8 } else { 1 };
        let clocks = [Clock::Monotonic, Clock::Realtime, Clock::Boottime, Clock::Tai];
        for clock in clocks.into_iter().cycle().skip(passed as usize % 4).take(comparisons) {
            self.compare(page, mode, clock)?;
        }
        let passed = passed.saturating_add(comparisons as u32);
        self.passed.store(passed, Ordering::Relaxed);
        let sequence = page.sequence() >> 1;
        if self.sequence.swap(sequence, Ordering::Relaxed) != sequence {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        // A page's readers look at no floor.
        let is_past_floors = || self.floors.are_past(T::read);
        if passed >= ENOUGH && self.changes.load(Ordering::Relaxed) >= CHANGES && is_past_floors() {
            let serving = match mode {
                Mode::Counter => page.word(),
                Mode::Pvclock => self.number(route::PAGE_BY_PVCLOCK, page.fence()),
            };
            self.switch(route, serving);
        }
        Ok(self.true_time(clock))
    }

    /// Validates now what is otherwise validated in passing; looks for better than what serves.
    pub(in crate::clock) fn settle(&self) -> Backend {
        /// A long time, in nanoseconds: a hundred timer ticks of the fastest kernels, ten of the slowest.
        const LONG: u64 = 100_000_000;
        self.read::<true>(Clock::Monotonic);
        // Memory for what may serve later: a page can be given up where system calls are no longer allowed.
        let _ = self.anchors.get();
        let route = self.route.load(Ordering::Acquire);
        let backend = self.status().backend;
        if backend > Backend::KernelPage && !is_validating(route) {
            self.choose(route);
        }
        let start = T::read(Clock::Monotonic);
        while is_validating(self.route.load(Ordering::Acquire))
            && T::read(Clock::Monotonic).saturating_sub(start) < LONG
        {
            self.read::<true>(Clock::Monotonic);
        }
        self.status().backend
    }
}
