//! States of clocks that are disturbed.

use super::super::discipline::WORST_PPB;
use super::*;

const GHZ: u64 = 1_000_000_000;

/// At so many ticks and so much raw time, the clock shows this.
fn point(counter: u64, raw: u64, nanos: u64) -> Point {
    Point { counter, nanos, raw, error: 20, width: 30 }
}

impl StateTracker {
    /// The state at a point at which nothing happened.
    pub(in super::super) fn state_at(&mut self, discipline: &Discipline, point: Point) -> State {
        self.state_of(discipline, Happened::Nothing, None, point)
    }
}

/// For trackers that use no counter.
fn now() -> Point {
    Point::now(libc::CLOCK_REALTIME)
}

fn kept(told_ns: u64) -> Discipline {
    let max_error_ns = told_ns;
    Discipline { status: Status::Synchronized, max_error_ns, told_ns, ..Discipline::unknown() }
}

#[test]
fn the_rate_follows() {
    let mut state_tracker = StateTracker::new(libc::CLOCK_REALTIME, true, Some(7), None);
    // 2 GHz.
    for second in 0..20 {
        assert!(state_tracker.advance(point(second * 2 * GHZ, second * GHZ, second * GHZ)));
    }
    let rate = state_tracker.rate(&kept(500)).unwrap();
    assert_eq!(rate.period.nanoseconds(2 * GHZ), Some(GHZ));
    assert!(rate.error_ppb < 10, "{rate:?}");
    assert!(state_tracker.points.len() <= 12, "{} points", state_tracker.points.len());
    // Slewed by 80,000 ppm: the same counter, and a rate that is off by the mean of it.
    let slewed = point(40 * GHZ, 20 * GHZ, 20 * GHZ + 80_000_000);
    let state = state_tracker.state_of(&kept(500), Happened::Nothing, None, slewed);
    assert_eq!((state.status, state.disruptions), (Status::Synchronized, 7));
    assert!(state.drift_ppb >= WORST_PPB + 7_000_000, "{state:?}");
    // Set by an hour: the counter goes on as before.
    let set = point(42 * GHZ, 21 * GHZ, 3621 * GHZ);
    let state = state_tracker.state_of(&kept(500), Happened::Set, None, set);
    assert_eq!((state.status, state.disruptions), (Status::Synchronized, 8));
    assert!(state.period.nanoseconds(2 * GHZ).unwrap().abs_diff(GHZ) < 100_000);
}

/// A daemon that dies within a slew leaves a clock that runs away faster than the kernel's error grows.
#[test]
fn what_the_kernels_error_does_not_cover_is_added() {
    let mut state_tracker = StateTracker::new(libc::CLOCK_REALTIME, true, None, None);
    let mut error = |told: u64, second: u64, nanos: u64| {
        let point = point(second * 2 * GHZ, second * GHZ, nanos);
        state_tracker.state_of(&kept(told), Happened::Nothing, None, point).max_error_ns - told
    };
    error(100, 1, GHZ);
    // Of the counter.
    let blur = error(500_100, 2, 2 * GHZ);
    // But for the blur, which is of another rate each time.
    let is = |error: u64, excess: u64| error.abs_diff(blur + excess) <= 2;
    assert!(is(error(1_000_100, 3, 3 * GHZ + 80_000_000), 80_000_000 - 500_000));
    assert!(is(error(1_500_100, 4, 4 * GHZ + 160_000_000), 160_000_000 - 1_000_000));
    // A daemon is there again.
    assert!(is(error(900, 5, 5 * GHZ), 0));
}

#[test]
fn readers_of_the_kernels_clock_are_warned_of_leap_seconds() {
    const MIDNIGHT: u64 = 20_000 * 86_400 * GHZ;
    let state = |leap, realtime| {
        let state = State { leap, valid_for: BELIEVED, max_error_ns: 7, ..State::default() };
        let state = near_leap_second(state, realtime);
        (state.max_error_ns, state.valid_for.as_secs())
    };
    let ahead = Leap::InsertionAhead;
    assert_eq!(state(Leap::None, MIDNIGHT - GHZ), (7, 15));
    assert_eq!(state(ahead, MIDNIGHT - 60 * GHZ), (7, 15));
    assert_eq!(state(ahead, MIDNIGHT - 10 * GHZ), (7, 8));
    assert_eq!(state(ahead, MIDNIGHT - 2 * GHZ), (GHZ + 7, 15));
    assert_eq!(state(Leap::Inserting, MIDNIGHT + GHZ), (GHZ + 7, 15));
    assert_eq!(state(ahead, MIDNIGHT + 3 * GHZ), (7, 15));
}

#[test]
fn another_machine_is_not_trusted_until_a_daemon_has_been_there() {
    let mut state_tracker = StateTracker::new(libc::CLOCK_REALTIME, true, None, None);
    let mut at = |error, counter, nanos| {
        state_tracker.state_of(&kept(error), Happened::Nothing, None, point(counter, nanos, nanos))
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
    let slept = state_tracker.state_of(
        &vouched,
        Happened::Broken,
        None,
        point(5 + 8 * GHZ, 6 * GHZ, 6 * GHZ),
    );
    assert_eq!(slept.disruptions, 2);
    let mut without = StateTracker::new(libc::CLOCK_REALTIME, false, None, None);
    assert_eq!(
        without.state_of(&vouched, Happened::Broken, None, now()).status,
        Status::Synchronized
    );
    assert_eq!(without.state_of(&kept(9), Happened::Broken, None, now()).status, Status::Disrupted);
    assert_eq!(
        without.state_of(&kept(8), Happened::Nothing, None, now()).status,
        Status::Synchronized
    );
}

#[test]
fn states_of_this_machine() {
    let discipline = Discipline::unknown().trusted_to(1000);
    let mut state_tracker = StateTracker::new(libc::CLOCK_REALTIME, false, Some(3), None);
    state_tracker.calibrate();
    let state = state_tracker.state(&discipline, false);
    assert_eq!((state.status, state.disruptions), (Status::Synchronized, 3));
    assert_eq!(state.max_error_ns, 1000);
    if counter::IS_READ {
        let mut state_tracker = StateTracker::new(libc::CLOCK_REALTIME, true, None, None);
        state_tracker.calibrate();
        let state = state_tracker.state(&discipline, false);
        assert!(state.max_error_ns > 1000);
        let second = state.period.nanoseconds(1 << 32);
        assert!(second.is_some_and(|nanos| nanos > GHZ / 4), "{second:?}");
    }
}

/// As chronyd said it, which measured at this time.
fn measured(at: u64, is_reset: bool) -> Discipline {
    Discipline { whose: Whose::Chrony, measured: Some(at), is_reset, ..kept(900) }
}

#[test]
fn what_chrony_measured_before_is_worth_nothing() {
    let mut state_tracker = StateTracker::new(libc::CLOCK_REALTIME, false, None, None);
    let now = kernel(libc::CLOCK_REALTIME);
    let mut status = |discipline: &Discipline, happened| {
        state_tracker.state_of(discipline, happened, None, Point::now(libc::CLOCK_REALTIME)).status
    };
    let (trusted, distrusted) = (Status::Synchronized, Status::Disrupted);
    assert_eq!(status(&measured(now - GHZ, false), Happened::Nothing), trusted);
    // Set by chronyd, which told the kernel an error; then by another program.
    assert_eq!(status(&measured(now - GHZ, false), Happened::Set), trusted);
    assert_eq!(status(&measured(now - GHZ, true), Happened::Set), distrusted);
    assert_eq!(status(&measured(now - GHZ, true), Happened::Nothing), distrusted);
    assert_eq!(status(&measured(now + 60 * GHZ, true), Happened::Nothing), trusted);
    // A suspend: the kernel's error is meaningless, whichever source is asked in between.
    assert_eq!(status(&measured(now - GHZ, false), Happened::Broken), distrusted);
    assert_eq!(status(&kept(1), Happened::Nothing), distrusted);
    assert_eq!(status(&measured(now - GHZ, false), Happened::Nothing), distrusted);
    assert_eq!(status(&measured(now + 60 * GHZ, false), Happened::Nothing), trusted);
}

#[test]
fn the_hypervisors_marker_counts() {
    let mut state_tracker = StateTracker::new(libc::CLOCK_REALTIME, false, Some(4), None);
    let mut at = |marker, rose, error| {
        let marks = Some((Marks { disruptions: marker, generation: Some(marker) }, rose));
        let state = state_tracker.state_of(&kept(error), Happened::Nothing, marks, now());
        (state.disruptions, state.status, state.generation)
    };
    assert_eq!(at(50, 0, 500), (4, Status::Synchronized, Some(50)));
    assert_eq!(at(53, 3, 500), (7, Status::Disrupted, Some(53)));
    assert_eq!(at(53, 0, 600), (7, Status::Disrupted, Some(53)));
    assert_eq!(at(53, 0, 300), (7, Status::Synchronized, Some(53)));
}
