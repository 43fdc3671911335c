//! From the kernel's clocks to the published state: a point, a rate, and the number of the clock's jumps.
//!
//! A state is computed in this order: the clocks' discontinuities since the last one; the counter beside the clock's
//! time; the rate over the last points, and the bound (`bound.rs` derives both).
//!
//! Invariants:
//! 1. The rate is that of points since the counter was last disrupted. Until there are two, the published page gives
//!    no time by the counter.
//! 2. The number of jumps never falls, also from one publisher of a page to the next.
//! 3. After a discontinuity that a time daemon cannot foresee (a suspend, a migration, a restored snapshot), the
//!    clock is not trusted until a daemon has synchronised it again. chronyd says when it did; for others it shows in
//!    a maximum error that falls.
//! 4. After the clock was set, chronyd's earlier measurements are invalid until it has measured again, or has told
//!    the kernel an error, as it does when it has set the clock itself.
//! 5. The hypervisor's marker counts by its increments. A page for ClockBound's readers has the marker itself, which
//!    they compare with the hypervisor's.

use std::collections::VecDeque;
use std::time::Duration;

use corelocal::clock::page::{Leap, Period, Scale, State, Status, vmclock};
use corelocal::clock::{self, Change, Epoch};
use corelocal_support::clock::counter::{self, Point};
use corelocal_support::clock::offset::kernel;

use super::bound::{self, Rate};
use super::device::{Device, Marks};
use super::discipline::{Discipline, Whose};

/// For how long a reader of `CLOCK_REALTIME` believes a page whose tracker is gone. Long enough for the slowest
/// rhythm of publications, and short, since the clock's daemon goes on moving that clock (`bound.rs`).
pub const BELIEVED: Duration = Duration::from_secs(15);

/// Points of which the rate is: those of about this time, and never more than so many.
const WINDOW_NS: u64 = 10_000_000_000;
const POINTS: usize = 128;

/// Keeps what the next state needs of the last one.
pub struct StateTracker {
    clock: libc::clockid_t,
    by_counter: bool,
    points: VecDeque<Point>,
    /// The error that the kernel's word does not cover, and the point and the word that it goes by.
    excess: u64,
    last: Option<(Point, u64)>,
    /// The events that clocks had gone through at the last state.
    seen: Epoch,
    jumps: u64,
    device: Option<Device>,
    distrusted: Option<Distrust>,
}

/// The reasons for which the clock is not trusted: (3), (4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Distrust {
    /// Nanoseconds since 1970, by the clock as it is now.
    since: u64,
    /// The error that the kernel had at the last look, and the source that was believed then.
    last: u64,
    whose: Whose,
    /// The only change is that the clock was set.
    was_set: bool,
}

impl Distrust {
    fn new(discipline: &Discipline, was_set: bool) -> Distrust {
        let since = kernel(libc::CLOCK_REALTIME);
        Distrust { since, last: discipline.told_ns, whose: discipline.whose, was_set }
    }

    /// Returns what is left of it now.
    fn after(self, discipline: &Discipline) -> Option<Distrust> {
        let is_over = match discipline.whose {
            Whose::User => true,
            Whose::Chrony => {
                let is_told = self.was_set && !discipline.is_reset;
                is_told || discipline.measured.is_some_and(|measured| measured > self.since)
            }
            Whose::Kernel => {
                let has_fallen = discipline.told_ns < self.last;
                self.was_set || (has_fallen && self.whose == Whose::Kernel)
            }
        };
        let (last, whose) = (discipline.told_ns, discipline.whose);
        (!is_over).then_some(Distrust { last, whose, ..self })
    }
}

/// An event between two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happened {
    Nothing,
    /// The clock was set.
    Set,
    /// The counter may have broken.
    Broken,
}

impl StateTracker {
    /// Creates that of `CLOCK_REALTIME`, or of `CLOCK_MONOTONIC`; with a rate of the counter, or without. `jumps` is
    /// what the last tracker counted, if there was one.
    pub fn new(
        clock: libc::clockid_t,
        by_counter: bool,
        jumps: Option<u64>,
        device: Option<Device>,
    ) -> StateTracker {
        // The device was not watched since.
        let unwatched = u64::from(jumps.is_some() && device.is_some());
        let jumps = jumps.unwrap_or(0) + unwatched;
        StateTracker {
            clock,
            by_counter,
            points: VecDeque::new(),
            excess: 0,
            last: None,
            seen: clock::check(),
            jumps,
            device,
            distrusted: None,
        }
    }

    /// Returns the hypervisor's page.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// Takes the first points, from which the rate is: 50 ms.
    pub fn calibrate(&mut self) {
        if self.by_counter {
            self.advance(Point::now(self.clock));
            std::thread::sleep(Duration::from_millis(50));
            self.advance(Point::now(self.clock));
        }
    }

    /// Returns what to publish now. `is_marker`: the number of disruptions is the hypervisor's, where there is one.
    pub fn state(&mut self, discipline: &Discipline, is_marker: bool) -> State {
        let happened = self.what_happened();
        let marks = self.device.as_mut().map(Device::look);
        let state = self.state_of(discipline, happened, marks, Point::now(self.clock));
        match marks {
            Some((marks, _)) if is_marker => {
                State { disruptions: marks.disruptions, is_hypervisors_marker: true, ..state }
            }
            _ => state,
        }
    }

    fn state_of(
        &mut self,
        discipline: &Discipline,
        mut happened: Happened,
        marks: Option<(Marks, u64)>,
        point: Point,
    ) -> State {
        let rose = marks.map_or(0, |(_, rose)| rose);
        if rose > 0 {
            happened = Happened::Broken;
        }
        if happened == Happened::Set {
            // The counter goes on. What is known of its rate, told by the clock as it is now.
            for then in &mut self.points {
                then.nanos = point.nanos.wrapping_sub(point.raw.wrapping_sub(then.raw));
            }
        }
        if !self.advance(point) {
            happened = Happened::Broken;
        }
        if happened != Happened::Nothing {
            // (5)
            self.jumps = self.jumps.wrapping_add(rose.max(1));
            self.last = None;
        }
        if happened == Happened::Broken {
            self.points.clear();
            self.points.push_back(point);
            self.distrusted = Some(Distrust::new(discipline, false));
        } else if happened == Happened::Set && self.distrusted.is_none() {
            self.distrusted = Some(Distrust::new(discipline, true));
        }
        let rate = self.rate(discipline);
        let state = State {
            counter_kind: vmclock::COUNTER_NONE,
            max_error_ns: self.error_at(discipline, &point),
            estimated_error_ns: discipline.estimated_error_ns,
            drift_ppb: bound::growth_by_clock(discipline.drift_ppb, discipline.slew_ppb),
            status: self.status(discipline, rate.is_some()),
            disruptions: self.jumps,
            scale: match self.clock {
                libc::CLOCK_MONOTONIC => Scale::Monotonic,
                _ => Scale::Utc,
            },
            tai_offset: discipline.tai_offset,
            leap: discipline.leap,
            generation: marks.and_then(|(marks, _)| marks.generation),
            published: Duration::from_nanos(kernel(libc::CLOCK_MONOTONIC_COARSE)),
            valid_for: BELIEVED,
            ..State::default()
        };
        if !self.by_counter {
            return near_leap_second(state, point.nanos);
        }
        let Some(rate) = rate else {
            return State { counter_kind: counter::KIND, counter: point.counter, ..state };
        };
        let blur = rate.period.nanoseconds(point.error).unwrap_or(u64::MAX);
        State {
            counter_kind: counter::KIND,
            counter: point.counter,
            time: Duration::from_nanos(point.nanos),
            period: rate.period,
            max_error_ns: state.max_error_ns.saturating_add(blur).saturating_add(1),
            drift_ppb: bound::growth_by_counter(discipline.drift_ppb, &rate),
            ..state
        }
    }

    /// Returns how far the clock may be off at this point.
    fn error_at(&mut self, discipline: &Discipline, now: &Point) -> u64 {
        let known = discipline.max_error_ns;
        if let Some(report) = &discipline.report {
            (self.excess, self.last) = (0, None);
            let (moved, elapsed) = report.moved(now);
            let grown = bound::growth(elapsed, discipline.drift_ppb);
            return known.saturating_add(moved).saturating_add(grown);
        }
        if discipline.whose != Whose::Kernel {
            return known;
        }
        // A lower error is one that the kernel was told anew.
        let last = self.last.replace((*now, discipline.told_ns));
        self.excess = match last {
            Some((then, told)) if discipline.told_ns >= told => {
                self.excess.saturating_add(bound::excess(&then, now, discipline.drift_ppb))
            }
            _ => 0,
        };
        known.saturating_add(self.excess)
    }

    /// Returns the rate to publish; `None` until there are two points.
    fn rate(&self, discipline: &Discipline) -> Option<Rate> {
        let (first, last) = (self.points.front()?, self.points.back()?);
        // A page of the monotonic clock tells that clock, slews and all.
        let is_truth = self.clock != libc::CLOCK_MONOTONIC;
        bound::rate(first, last, discipline.report.as_ref().filter(|_| is_truth))
    }

    fn status(&mut self, discipline: &Discipline, has_rate: bool) -> Status {
        self.distrusted = self.distrusted.and_then(|distrust| distrust.after(discipline));
        let has_no_rate = self.by_counter && !has_rate;
        if self.distrusted.is_some() || has_no_rate { Status::Disrupted } else { discipline.status }
    }

    /// Returns another point. `false`, and nothing changed, if the counter did not advance as
    /// `CLOCK_MONOTONIC_RAW` did: the machine slept, or was moved or restored.
    fn advance(&mut self, point: Point) -> bool {
        const LEAST: u64 = 50_000;
        if !self.by_counter {
            return true;
        }
        if let (Some(first), Some(last)) = (self.points.front(), self.points.back()) {
            let ticks = point.counter.checked_sub(last.counter);
            let passed = point.raw.checked_sub(last.raw);
            let Some((ticks, passed)) = ticks.zip(passed) else { return false };
            let (all, of) = (last.raw - first.raw, last.counter - first.counter);
            if let Some(period) = Period::from_ratio(all, of) {
                let expected = period.nanoseconds(ticks).unwrap_or(u64::MAX);
                if passed.abs_diff(expected) > LEAST + passed / 500 {
                    return false;
                }
            }
        }
        let is_old = |first: &Point| point.raw.saturating_sub(first.raw) > WINDOW_NS;
        while self.points.len() > 1 && (self.points.len() >= POINTS || is_old(&self.points[1])) {
            self.points.pop_front();
        }
        self.points.push_back(point);
        true
    }

    /// Returns whether the clock was set, or the machine slept, was moved or restored.
    fn what_happened(&mut self) -> Happened {
        let now = clock::check();
        let mut happened = Happened::Nothing;
        for (change, _) in now.since(&self.seen) {
            happened = match change {
                // Which of our back-ends reads the clocks makes no difference here.
                Change::Backend => happened,
                // Counted by what the device itself says.
                Change::Disruption | Change::Restore if self.device.is_some() => happened,
                _ if change.is_hint() => happened,
                Change::Realtime if happened == Happened::Nothing => Happened::Set,
                Change::Realtime => happened,
                _ => Happened::Broken,
            };
        }
        self.seen = now;
        happened
    }
}

/// Returns a state for readers of `CLOCK_REALTIME`, whom a page does not tell of leap seconds: from two seconds before
/// a midnight that may have one until the kernel has done it, the clock may be a second off. What is published before
/// expires before.
fn near_leap_second(state: State, realtime: u64) -> State {
    const SECOND: u64 = 1_000_000_000;
    const NEAR: u64 = 2 * SECOND;
    const DAY: u64 = 86_400 * SECOND;
    if state.leap == Leap::None || state.scale != Scale::Utc {
        return state;
    }
    let left = DAY - realtime % DAY;
    if left <= NEAR || DAY - left <= NEAR {
        let max_error_ns = state.max_error_ns.saturating_add(SECOND);
        return State { max_error_ns, ..state };
    }
    let valid_for = state.valid_for.min(Duration::from_nanos(left - NEAR));
    State { valid_for, ..state }
}

#[cfg(test)]
mod tests;
