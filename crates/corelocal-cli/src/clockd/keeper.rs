//! From the kernel's clocks to what is published: a point, a rate, and the clock's jumps.
//!
//! Way of a state: what happened to the clocks since the last one; the counter beside the clock's time; the
//! rate over the last points; what is known of the clock's error, and the errors of all of it.
//!
//! Invariants:
//! 1. The rate is of points since the counter was last disrupted. Until there are two, no time is told.
//! 2. The number of jumps never falls, not even from one keeper of a page to the next.
//! 3. After something that no time daemon can have foreseen (a suspend, a migration, a snapshot restored),
//!    the clock is not trusted until a daemon has looked at it again. chronyd says when it did; of others it
//!    shows in a greatest error that falls.
//! 4. After somebody set the clock, what chronyd had measured before is worth nothing: until it has measured
//!    again, or told the kernel an error, as it does when it was itself who set the clock.
//! 5. The hypervisor's marker counts by as much as it rises. A page for ClockBound's readers has the marker
//!    itself, which they compare with the hypervisor's.

use std::collections::VecDeque;
use std::time::Duration;

use corelocal::clock::page::{Period, Scale, State, Status, vmclock};
use corelocal::clock::{self, Change, Epoch};

use super::device::{Device, Marks};
use super::discipline::{Discipline, Whose};
use crate::clock::counter::Point;
use crate::clock::offset::kernel;

/// For how long a reader believes a page whose keeper is gone, as ClockBound has it.
const VALID_FOR: Duration = Duration::from_secs(1000);

/// Points of which the rate is: those of about this time, and never more than so many.
const WINDOW_NS: u64 = 10_000_000_000;
const POINTS: usize = 128;

/// What is kept from one state to the next.
pub struct Keeper {
    clock: libc::clockid_t,
    by_counter: bool,
    points: VecDeque<Point>,
    /// None: the default.
    period: Period,
    /// What had happened to the clocks.
    seen: Epoch,
    jumps: u64,
    device: Option<Device>,
    distrusted: Option<Distrust>,
}

/// Why the clock is not trusted: (3), (4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Distrust {
    /// Nanoseconds since 1970, by the clock as it is now.
    since: u64,
    /// The greatest error at the last look, and who said so.
    last: u64,
    whose: Whose,
    /// It is only that somebody set the clock.
    was_set: bool,
}

impl Distrust {
    fn new(discipline: &Discipline, was_set: bool) -> Distrust {
        let since = kernel(libc::CLOCK_REALTIME);
        Distrust { since, last: discipline.max_error_ns, whose: discipline.whose, was_set }
    }

    /// What is left of it now.
    fn after(self, discipline: &Discipline) -> Option<Distrust> {
        let is_over = match discipline.whose {
            Whose::User => true,
            Whose::Chrony => {
                let is_told = self.was_set && !discipline.is_reset;
                is_told || discipline.measured.is_some_and(|measured| measured > self.since)
            }
            Whose::Kernel => {
                let has_fallen = discipline.max_error_ns < self.last;
                self.was_set || (has_fallen && self.whose == Whose::Kernel)
            }
        };
        let (last, whose) = (discipline.max_error_ns, discipline.whose);
        (!is_over).then_some(Distrust { last, whose, ..self })
    }
}

/// What happened between two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happened {
    Nothing,
    /// Somebody set the clock.
    Set,
    /// The counter may have broken.
    Broken,
}

impl Keeper {
    /// Of `CLOCK_REALTIME`, or of `CLOCK_MONOTONIC`; with a rate of the counter, or without. `jumps` is
    /// what the last keeper counted, if there was one.
    pub fn new(
        clock: libc::clockid_t,
        by_counter: bool,
        jumps: Option<u64>,
        device: Option<Device>,
    ) -> Keeper {
        // Nobody has watched the device since.
        let unwatched = u64::from(jumps.is_some() && device.is_some());
        let jumps = jumps.unwrap_or(0) + unwatched;
        Keeper {
            clock,
            by_counter,
            points: VecDeque::new(),
            period: Period::default(),
            seen: clock::check(),
            jumps,
            device,
            distrusted: None,
        }
    }

    /// The hypervisor's page.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// The first points, from which the rate is: 50 ms.
    pub fn calibrate(&mut self) {
        if self.by_counter {
            self.points.push_back(Point::now(self.clock));
            std::thread::sleep(Duration::from_millis(50));
            self.advance(Point::now(self.clock));
        }
    }

    /// What to publish now. `is_marker`: the number of disruptions is the hypervisor's, where there is one.
    pub fn state(&mut self, discipline: &Discipline, is_marker: bool) -> State {
        let happened = self.what_happened();
        let marks = self.device.as_mut().map(Device::look);
        let point = self.by_counter.then(|| Point::now(self.clock));
        let state = self.state_of(discipline, happened, marks, point);
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
        point: Option<Point>,
    ) -> State {
        let rose = marks.map_or(0, |(_, rose)| rose);
        if rose > 0 {
            happened = Happened::Broken;
        }
        if happened != Happened::Nothing {
            self.points.clear();
        }
        if point.is_some_and(|point| !self.advance(point)) {
            happened = Happened::Broken;
        }
        if happened != Happened::Nothing {
            // (5)
            self.jumps = self.jumps.wrapping_add(rose.max(1));
        }
        if happened == Happened::Broken {
            self.points.clear();
            self.points.extend(point);
            self.period = Period::default();
            self.distrusted = Some(Distrust::new(discipline, false));
        } else if happened == Happened::Set && self.distrusted.is_none() {
            self.distrusted = Some(Distrust::new(discipline, true));
        }
        let state = State {
            counter_kind: vmclock::COUNTER_NONE,
            max_error_ns: discipline.max_error_ns,
            estimated_error_ns: discipline.estimated_error_ns,
            drift_ppb: discipline.drift_ppb,
            status: self.status(discipline),
            disruptions: self.jumps,
            scale: match self.clock {
                libc::CLOCK_MONOTONIC => Scale::Monotonic,
                _ => Scale::Utc,
            },
            tai_offset: discipline.tai_offset,
            leap: discipline.leap,
            generation: marks.and_then(|(marks, _)| marks.generation),
            published: Duration::from_nanos(kernel(libc::CLOCK_MONOTONIC_COARSE)),
            valid_for: VALID_FOR,
            ..State::default()
        };
        let Some(point) = point else { return state };
        let blur = self.period.nanoseconds(point.error).unwrap_or(0) + 1;
        State {
            counter_kind: vmclock::COUNTER_TSC,
            counter: point.counter,
            time: Duration::from_nanos(point.nanos),
            period: self.period,
            max_error_ns: discipline.max_error_ns.saturating_add(blur),
            ..state
        }
    }

    fn status(&mut self, discipline: &Discipline) -> Status {
        self.distrusted = self.distrusted.and_then(|distrust| distrust.after(discipline));
        let has_no_rate = self.by_counter && self.period == Period::default();
        if self.distrusted.is_some() || has_no_rate { Status::Disrupted } else { discipline.status }
    }

    /// Another point, and a better rate. `false`, and nothing changed, if it does not fit the rate so far:
    /// a clock that is slewed gains or loses 500 us a second, a machine that slept or was moved more.
    fn advance(&mut self, point: Point) -> bool {
        const LEAST: u64 = 50_000;
        if let Some(last) = self.points.back().filter(|_| self.period != Period::default()) {
            let ticks = point.counter.saturating_sub(last.counter);
            let expected = self.period.nanoseconds(ticks).unwrap_or(u64::MAX);
            let passed = point.nanos.saturating_sub(last.nanos);
            if passed.abs_diff(expected) > LEAST + passed / 500 {
                return false;
            }
        }
        let is_old = |first: &Point| point.nanos.saturating_sub(first.nanos) > WINDOW_NS;
        while self.points.len() > 1 && (self.points.len() >= POINTS || is_old(&self.points[1])) {
            self.points.pop_front();
        }
        self.points.push_back(point);
        if let Some(first) = self.points.front() {
            let ticks = point.counter.saturating_sub(first.counter);
            let period = Period::from_ratio(point.nanos.saturating_sub(first.nanos), ticks);
            self.period = period.unwrap_or(self.period);
        }
        true
    }

    /// Whether somebody set the clock, or the machine slept, was moved or restored.
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

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
