//! From the kernel's clocks to what is published: a point, a rate, and the clock's jumps.
//!
//! Way of a state: what happened to the clocks since the last one; the counter beside the clock's time; the
//! rate over the last points; what the kernel says of the clock, and the errors of all of it.
//!
//! Invariants:
//! 1. The rate is of points since the counter was last disrupted. Until there are two, no time is told.
//! 2. The number of jumps never falls, not even from one keeper of a page to the next.
//! 3. After something that no time daemon can have foreseen (a suspend, a migration, a snapshot restored), the
//!    clock is not trusted until its greatest error has fallen, which only a daemon makes it do.

use std::collections::VecDeque;
use std::time::Duration;

use corelocal::clock::page::{Period, Scale, State, Status, vmclock};
use corelocal::clock::{self, Change, Epoch};

use super::discipline::Discipline;
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
    /// The greatest error at the last look, while the clock is not trusted. (3)
    distrusted: Option<u64>,
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
    /// what the last keeper counted.
    pub fn new(clock: libc::clockid_t, by_counter: bool, jumps: u64) -> Keeper {
        Keeper {
            clock,
            by_counter,
            points: VecDeque::new(),
            period: Period::default(),
            seen: clock::check(),
            jumps,
            distrusted: None,
        }
    }

    /// The first points, from which the rate is: 50 ms.
    pub fn calibrate(&mut self) {
        if self.by_counter {
            self.points.push_back(Point::now(self.clock));
            std::thread::sleep(Duration::from_millis(50));
            self.advance(Point::now(self.clock));
        }
    }

    /// What to publish now.
    pub fn state(&mut self, discipline: &Discipline) -> State {
        let happened = self.what_happened();
        let point = self.by_counter.then(|| Point::now(self.clock));
        self.state_of(discipline, happened, point)
    }

    fn state_of(
        &mut self,
        discipline: &Discipline,
        mut happened: Happened,
        point: Option<Point>,
    ) -> State {
        if happened != Happened::Nothing {
            self.points.clear();
        }
        if point.is_some_and(|point| !self.advance(point)) {
            happened = Happened::Broken;
        }
        if happened != Happened::Nothing {
            self.jumps += 1;
        }
        if happened == Happened::Broken {
            self.points.clear();
            self.points.extend(point);
            self.period = Period::default();
            self.distrusted = Some(discipline.max_error_ns);
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
        // (3), unless somebody vouches for the clock whatever happens.
        let most = discipline.max_error_ns;
        self.distrusted = self.distrusted.filter(|last| most >= *last && !discipline.is_vouched);
        self.distrusted = self.distrusted.map(|_| most);
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
mod tests {
    use super::*;

    const GHZ: u64 = 1_000_000_000;

    fn point(counter: u64, nanos: u64) -> Point {
        Point { counter, nanos, error: 20 }
    }

    fn kept(max_error_ns: u64) -> Discipline {
        Discipline { status: Status::Synchronized, max_error_ns, ..Discipline::unknown() }
    }

    #[test]
    fn the_rate_follows() {
        let mut keeper = Keeper::new(libc::CLOCK_REALTIME, true, 7);
        // 2 GHz.
        for second in 0..20 {
            assert!(keeper.advance(point(second * 2 * GHZ, second * GHZ)));
        }
        assert_eq!(keeper.period.nanoseconds(2 * GHZ), Some(GHZ));
        assert!(keeper.points.len() <= 12, "{} points", keeper.points.len());
        // Slewed by 400 ppm: the same clock.
        let state = keeper.state_of(
            &kept(500),
            Happened::Nothing,
            Some(point(40 * GHZ, 20 * GHZ + 400_000)),
        );
        assert_eq!((state.status, state.disruptions), (Status::Synchronized, 7));
        // Set by an hour: the counter goes on as before.
        let set = Some(point(42 * GHZ, 3621 * GHZ));
        let state = keeper.state_of(&kept(500), Happened::Set, set);
        assert_eq!((state.status, state.disruptions), (Status::Synchronized, 8));
        assert!(state.period.nanoseconds(2 * GHZ).unwrap().abs_diff(GHZ) < 100_000);
    }

    #[test]
    fn another_machine_is_not_trusted_until_a_daemon_has_been_there() {
        let mut keeper = Keeper::new(libc::CLOCK_REALTIME, true, 0);
        let mut at = |error, counter, nanos| {
            keeper.state_of(&kept(error), Happened::Nothing, Some(point(counter, nanos)))
        };
        assert_eq!(at(500, 100 * GHZ, GHZ).status, Status::Disrupted, "there is no rate yet");
        assert_eq!(at(500, 102 * GHZ, 2 * GHZ).status, Status::Synchronized);
        // Its counter begins near zero, and has another rate.
        let moved = at(600, 5, 3 * GHZ);
        assert_eq!((moved.status, moved.disruptions), (Status::Disrupted, 1));
        assert_eq!(moved.period, Period::default());
        let grown = at(700, 5 + 3 * GHZ, 4 * GHZ);
        assert_eq!((grown.status, grown.disruptions), (Status::Disrupted, 1));
        assert_eq!(grown.period.nanoseconds(3 * GHZ), Some(GHZ));
        assert_eq!(at(300, 5 + 6 * GHZ, 5 * GHZ).status, Status::Synchronized);
        // A suspend, while the user vouches for the clock.
        let vouched = kept(0).trusted_to(300);
        let slept = keeper.state_of(&vouched, Happened::Broken, None);
        assert_eq!(slept.disruptions, 2);
        let mut without = Keeper::new(libc::CLOCK_REALTIME, false, 0);
        assert_eq!(without.state_of(&vouched, Happened::Broken, None).status, Status::Synchronized);
        assert_eq!(without.state_of(&kept(9), Happened::Broken, None).status, Status::Disrupted);
        assert_eq!(
            without.state_of(&kept(8), Happened::Nothing, None).status,
            Status::Synchronized
        );
    }

    #[test]
    fn states_of_this_machine() {
        let discipline = Discipline::unknown().trusted_to(1000);
        let mut keeper = Keeper::new(libc::CLOCK_REALTIME, false, 3);
        keeper.calibrate();
        let state = keeper.state(&discipline);
        assert_eq!((state.status, state.disruptions), (Status::Synchronized, 3));
        assert_eq!(state.max_error_ns, 1000);
        if cfg!(target_arch = "x86_64") {
            let mut keeper = Keeper::new(libc::CLOCK_REALTIME, true, 0);
            keeper.calibrate();
            let state = keeper.state(&discipline);
            assert!(state.max_error_ns > 1000);
            let second = state.period.nanoseconds(1 << 32);
            assert!(second.is_some_and(|nanos| nanos > GHZ / 4), "{second:?}");
        }
    }
}
