//! How one back-end replaces another without any clock going back.
//!
//! # The guarantee
//! An ordered reading is not earlier than one that happens before it: of the same thread, or of another thread that
//! synchronised since (a lock, a channel, a Release store that an Acquire load sees). This holds for each clock by
//! itself, whichever back-ends made the two readings and whatever switched between them: an inconsistency,
//! [`settle`](Selector::settle) in any number of threads, a fork. `CLOCK_REALTIME` and `CLOCK_TAI` go back when they
//! are set, and all clocks do in a process that enters another time namespace.
//!
//! # The rule
//! There are two kinds of back-ends. *Exact* ones return what the vDSO would return at that counter: the vDSO's data,
//! the vDSO, and the one that is being validated. *Anchors* follow lines, which may be ahead of the true time or
//! behind it by some microseconds. Each change has an order of steps:
//!
//! ```text
//!   anchor → anything   end the anchor ──► raise the floors to its end ──► next route
//!   exact → anchor      begin a line ahead of the true time and of the floors ──► next route
//!   exact → exact       next route; the vDSO's data only when the true time is past the floors
//! ```
//!
//! # Invariants
//! 1. *An anchor that ended returns no reading beyond its stop.* First a line is published that covers no counter.
//!    Readers of the previous line read `current` after the counter, so their counters are older than that, apart
//!    from instructions in flight. Then the stop is computed, from a counter that is read after the first step, and
//!    published as a second such line. Any thread can take the second step, and all find the same stop.
//! 2. *Exact readings are not earlier than the floors*, which are such stops. The floors are raised before the route
//!    that leads away from the anchor is published (Release), and read after the route (Acquire).
//! 3. *Exact readings of a route end before its successor is published*: where no page is used, the route is read
//!    again after the reading, and a reading under another route is repeated. So an anchor that follows has to be
//!    ahead of the true time only when it begins. Its first line is ahead by more than the error of its samples. A
//!    line that was not read for a period begins again at the true time.
//! 4. *The vDSO's data* is read without a second read of the route. Its readings are exact, and end when the page's
//!    mode changes, before an anchor begins. A page that only stayed in the middle of an update may continue
//!    afterwards; the vDSO follows it, which is exact.
//! 5. *An anchor's offsets to other clocks do not fall*, unless a clock was set back. So the guarantee for the
//!    monotonic clock extends to boottime.
//! 6. *A floor counts while the clock is less than [`NEAR`] behind it.* A floor further ahead is of another time
//!    namespace, or the clock was set. So a child of a fork into a time namespace does not wait for its parent's
//!    time.
//! 7. *After a fork* lines are gone, and the child begins its own, ahead of the true time and of the floors. The
//!    parent's line may have been ahead by more, by some microseconds after NTP changed the clock's rate: less than
//!    the fork took.
//! 8. No function blocks. At an anchor that has ended and is still the route, readers use the maximum of the vDSO's
//!    time and the stop.

use crate::primitive::global::{AtomicU64, Ordering};

use super::anchored::other_clocks;
use super::{Selector, Truth, kind, route};
use crate::clock::Clock;
use crate::clock::anchor::slew::{self, Line};
use crate::clock::anchor::{self, Current, Offsets, Published};
use crate::clock::counter::{self, Fence};
use crate::clock::kernel::page::{KernelPage, Mode};
use crate::clock::kernel::probe;
use crate::clock::status::{Backend, Cause};

/// The longest plausible lead of a floor, in nanoseconds: three of an anchor's periods, and the error of a line.
const NEAR: u64 = 100_000_000;

/// The clocks that never go back at a change of back-ends: the one that lines describe, then those with offsets.
const CLOCKS: [Clock; 1 + anchor::OFFSETS] =
    [Clock::Monotonic, Clock::Realtime, Clock::Boottime, Clock::Tai];

/// The times of [`CLOCKS`].
type Times = [u64; CLOCKS.len()];

/// The latest time of ended anchors, by clock; 0 if none has ended.
pub(super) struct Floors([AtomicU64; CLOCKS.len()]);

impl Floors {
    pub(super) const fn new() -> Floors {
        Floors([const { AtomicU64::new(0) }; CLOCKS.len()])
    }

    /// Returns a time, or the floor.
    #[inline]
    pub(super) fn apply(&self, clock: Clock, time: u64) -> u64 {
        // Relaxed: the route's Acquire orders it. (2)
        place(clock).map_or(time, |at| not_before(time, self.0[at].load(Ordering::Relaxed)))
    }

    /// Returns whether these are the times of all clocks.
    pub(super) fn are_past(&self, time: impl Fn(Clock) -> u64) -> bool {
        CLOCKS.into_iter().all(|clock| {
            let time = time(clock);
            self.apply(clock, time) == time
        })
    }

    /// Makes them no lower than these, unless what is there is of another time namespace.
    fn raise(&self, stops: &Times) {
        for (floor, stop) in self.0.iter().zip(stops) {
            let raised = |floor: u64| (not_before(*stop, floor) != floor).then_some(*stop);
            // Relaxed: the Release of the route that follows publishes it. (2)
            let _ = floor.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised);
        }
    }
}

/// Returns the time, or the floor if the time is a little behind it. (6)
#[inline]
fn not_before(time: u64, floor: u64) -> u64 {
    if floor.wrapping_sub(time) < NEAR { floor } else { time }
}

/// Returns which of [`CLOCKS`] it is.
#[inline]
fn place(clock: Clock) -> Option<usize> {
    match clock {
        Clock::Monotonic => Some(0),
        Clock::Realtime => Some(1),
        Clock::Boottime => Some(2),
        Clock::Tai => Some(3),
        Clock::MonotonicCoarse | Clock::RealtimeCoarse => None,
    }
}

/// Returns all clocks' times at one time of the monotonic clock.
fn times(monotonic: u64, offsets: &Offsets) -> Times {
    let [realtime, boottime, tai] = offsets.map(|ahead| monotonic.wrapping_add(ahead));
    [monotonic, realtime, boottime, tai]
}

/// Returns the anchor that a route leads to.
fn anchored(route: usize) -> Option<Mode> {
    match kind(route) {
        route::ANCHOR_PVCLOCK => Some(Mode::Pvclock),
        route::ANCHOR_COUNTER => Some(Mode::Counter),
        _ => None,
    }
}

impl<T: Truth> Selector<T> {
    /// Probes, and leads from the route `from` to the best back-end there is.
    pub(super) fn choose(&self, from: usize) {
        let fence = counter::cheaper_fence();
        let found = probe::probe(fence, T::read);
        self.pvclock.store(found.pvclock.unwrap_or(0), Ordering::Relaxed);
        self.counters_agree.store(found.counters_agree.into(), Ordering::Relaxed);
        self.choose_among(from, fence, found.page);
    }

    pub(super) fn choose_among(
        &self,
        from: usize,
        fence: Fence,
        page: Result<(KernelPage, Mode), Cause>,
    ) {
        let is_allowed = self.limit.load(Ordering::Relaxed) <= Backend::KernelPage as u32;
        let to = match page {
            Ok((page, mode)) if is_allowed => {
                self.page.store(page.word(), Ordering::Relaxed);
                self.passed.store(0, Ordering::Relaxed);
                self.changes.store(0, Ordering::Relaxed);
                self.end(from);
                let validating = match mode {
                    Mode::Counter => route::VALIDATING_COUNTER,
                    Mode::Pvclock => route::VALIDATING_PVCLOCK,
                };
                self.number(validating, fence)
            }
            _ => self.below(Backend::KernelPage, from, fence),
        };
        if to == from {
            return;
        }
        if !self.switch(from, to) {
            self.lead_on();
        } else if let (Err(cause), true) = (page, is_allowed) {
            self.counts.fell_back(cause);
        }
    }

    /// Gives up the back-end of the route `from`.
    #[cold]
    pub(super) fn fall_back(&self, from: usize, cause: Cause) {
        if cause == Cause::SourceSwitched {
            // Perhaps because the counters do not agree any more.
            self.counters_agree.store(0, Ordering::Relaxed);
        }
        let fence = Fence::of_bit(from);
        let may_go_on = cause == Cause::UpdateStalled
            && matches!(kind(from), route::PAGE | route::PAGE_BY_PVCLOCK);
        self.end(from);
        let to = match anchored(from) {
            // (4)
            None if may_go_on => self.number(route::VDSO, fence),
            None => self.below(Backend::KernelPage, from, fence),
            Some(Mode::Pvclock) => self.below(Backend::Paravirtual, from, fence),
            Some(Mode::Counter) => self.number(route::VDSO, fence),
        };
        if self.switch(from, to) {
            self.counts.fell_back(cause);
        } else {
            self.lead_on();
        }
    }

    /// Returns the route to the best back-end below `level` that there is, ready for use; `from` if that is the one.
    fn below(&self, level: Backend, from: usize, fence: Fence) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        let anchors = [
            (Backend::Paravirtual, Mode::Pvclock, route::ANCHOR_PVCLOCK),
            (Backend::Anchor, Mode::Counter, route::ANCHOR_COUNTER),
        ];
        for (backend, mode, to) in anchors {
            let is_there = match mode {
                Mode::Pvclock => self.pvclock.load(Ordering::Relaxed) != 0,
                Mode::Counter => self.counters_agree.load(Ordering::Relaxed) != 0,
            };
            if backend <= level || (backend as u32) < limit || !is_there {
                continue;
            }
            if kind(from) == to {
                return from;
            }
            self.end(from);
            match self.enter(mode, fence) {
                Ok(()) => return self.number(to, fence),
                Err(cause) => self.counts.fell_back(cause),
            }
        }
        if kind(from) == route::VDSO {
            return from;
        }
        self.end(from);
        self.number(route::VDSO, fence)
    }

    /// Leads readings to `to`, if they still go to `from`.
    pub(super) fn switch(&self, from: usize, to: usize) -> bool {
        // Release: partner is the Acquire in `read`.
        self.route.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns the number of a route that there was not before.
    pub(super) fn number(&self, to: usize, fence: Fence) -> usize {
        const HIGHEST: usize = 1 << (usize::BITS - 1);
        let count = self.routes.fetch_add(1, Ordering::Relaxed);
        HIGHEST | count << 8 & !HIGHEST | to << 1 | fence.bit()
    }

    /// After a lost race: the winner may lead to an anchor that was ended meanwhile, for a route that is gone.
    fn lead_on(&self) {
        let now = self.route.load(Ordering::Acquire);
        let fence = Fence::of_bit(now);
        let Some(anchor) = anchored(now).and_then(|mode| self.anchor(mode)) else { return };
        let is_open = anchor
            .read(|| Ok::<(), Cause>(()))
            .is_ok_and(|found| found.is_none_or(|(_, line, ..)| line.is_open()));
        if !is_open && self.end(now) {
            self.switch(now, self.number(route::VDSO, fence));
        }
    }

    /// Ends the anchor that the route `from` leads to, if it does, and raises the floors to where it stopped. (1), (2)
    fn end(&self, from: usize) -> bool {
        let Some(mode) = anchored(from) else { return false };
        if self.route.load(Ordering::Acquire) != from {
            return false;
        }
        if let Some(stops) = self.stops(mode, Fence::of_bit(from)) {
            self.floors.raise(&stops);
        }
        true
    }

    /// Ends an anchor, or finds where it ended: the latest times that it gave; `None` if it never began. (1)
    fn stops(&self, mode: Mode, fence: Fence) -> Option<Times> {
        /// The number of attempts: each fails by a step of the clock or by another thread.
        const ROUNDS: usize = 64;
        let anchor = self.anchor(mode)?;
        let count = || Ok::<_, Cause>(self.count(mode, true, fence).ok());
        for _ in 0..ROUNDS {
            let (current, line, offsets, counter) = anchor.read(count).ok()??;
            if let Some(stop) = line.stop() {
                return Some(times(stop, &offsets));
            }
            let next = if line.is_open() { line.closing() } else { line.closed(counter) };
            anchor.publish(Some(current), &next, &offsets);
        }
        // No slot was free for the time of all rounds, so no line follows soon either.
        let (_, line, offsets, _) = anchor.read(count).ok()??;
        let line = if line.is_open() { line.closing() } else { line };
        Some(times(line.stop().unwrap_or(line.closed(None).time), &offsets))
    }

    /// Returns the time while the route still leads to an anchor that ended. (8)
    #[cold]
    pub(super) fn after_end(&self, mode: Mode, clock: Clock, fence: Fence) -> u64 {
        let stop = self.stops(mode, fence).zip(place(clock)).map_or(0, |(stops, at)| stops[at]);
        not_before(self.true_time(clock), stop)
    }

    /// Begins an anchor that no route leads to, or one without lines after a fork. (3)
    #[cold]
    pub(super) fn enter(&self, mode: Mode, fence: Fence) -> Result<(), Cause> {
        /// The least lead of the first line, in nanoseconds: more than it loses by its rate.
        const LEAD: u64 = 100;
        const ROUNDS: usize = 8;
        let anchor = self.anchor(mode).ok_or(Cause::NoResources)?;
        for _ in 0..ROUNDS {
            let found = anchor.read(|| self.count(mode, true, fence))?;
            let mut before: Option<(Current, Times)> = None;
            if let Some((current, line, offsets, counter)) = found {
                let last = match line.stop() {
                    Some(stop) => stop,
                    None if line.is_open() && line.covers(counter) => line.at(counter),
                    None if line.is_open() => line.at(line.end),
                    None => {
                        // The second step is to be done.
                        self.stops(mode, fence);
                        continue;
                    }
                };
                let last = times(last, &offsets);
                let is_past = |clock| place(clock).map_or(0, |at| last[at]);
                if line.is_open() && self.floors.are_past(is_past) {
                    // Another thread was faster; or a beginning led nowhere, and goes on.
                    return Ok(());
                }
                before = Some((current, last));
            }
            let truth = || T::read(Clock::Monotonic);
            let line = anchor::first(|| self.count(mode, true, fence), truth)?;
            let (offsets, _, low) = other_clocks::<T>(None);
            let lift = self.lift(&line, &offsets, before.map(|(_, last)| last));
            let lift = lift.max(low.saturating_add(LEAD));
            if lift > slew::STEP / 2 {
                // The truth is not past the floors. Until then the vDSO stands there.
                return Err(Cause::Inconsistent);
            }
            let before = before.map(|(current, _)| current);
            match anchor.publish(before, &line.lifted(lift), &offsets) {
                Published::Yes => return Ok(()),
                Published::Overtaken => {}
                Published::NoSlot => return Err(Cause::NoResources),
            }
        }
        Err(Cause::NoResources)
    }

    /// Returns how far a first line must be lifted to be past the floors, and past an earlier line.
    fn lift(&self, line: &Line, offsets: &Offsets, last: Option<Times>) -> u64 {
        let begin = times(line.time, offsets);
        CLOCKS.into_iter().enumerate().fold(0, |lift, (at, clock)| {
            let least = self.floors.apply(clock, begin[at]);
            let least = last.map_or(least, |last| not_before(least, last[at]));
            lift.max(least.wrapping_sub(begin[at]))
        })
    }
}
