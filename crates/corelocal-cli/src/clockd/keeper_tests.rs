//! States of clocks that are disturbed.

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
    let mut keeper = Keeper::new(libc::CLOCK_REALTIME, true, Some(7), None);
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
        None,
        Some(point(40 * GHZ, 20 * GHZ + 400_000)),
    );
    assert_eq!((state.status, state.disruptions), (Status::Synchronized, 7));
    // Set by an hour: the counter goes on as before.
    let set = Some(point(42 * GHZ, 3621 * GHZ));
    let state = keeper.state_of(&kept(500), Happened::Set, None, set);
    assert_eq!((state.status, state.disruptions), (Status::Synchronized, 8));
    assert!(state.period.nanoseconds(2 * GHZ).unwrap().abs_diff(GHZ) < 100_000);
}

#[test]
fn another_machine_is_not_trusted_until_a_daemon_has_been_there() {
    let mut keeper = Keeper::new(libc::CLOCK_REALTIME, true, None, None);
    let mut at = |error, counter, nanos| {
        keeper.state_of(&kept(error), Happened::Nothing, None, Some(point(counter, nanos)))
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
    let slept = keeper.state_of(&vouched, Happened::Broken, None, None);
    assert_eq!(slept.disruptions, 2);
    let mut without = Keeper::new(libc::CLOCK_REALTIME, false, None, None);
    assert_eq!(
        without.state_of(&vouched, Happened::Broken, None, None).status,
        Status::Synchronized
    );
    assert_eq!(without.state_of(&kept(9), Happened::Broken, None, None).status, Status::Disrupted);
    assert_eq!(
        without.state_of(&kept(8), Happened::Nothing, None, None).status,
        Status::Synchronized
    );
}

#[test]
fn states_of_this_machine() {
    let discipline = Discipline::unknown().trusted_to(1000);
    let mut keeper = Keeper::new(libc::CLOCK_REALTIME, false, Some(3), None);
    keeper.calibrate();
    let state = keeper.state(&discipline, false);
    assert_eq!((state.status, state.disruptions), (Status::Synchronized, 3));
    assert_eq!(state.max_error_ns, 1000);
    if cfg!(target_arch = "x86_64") {
        let mut keeper = Keeper::new(libc::CLOCK_REALTIME, true, None, None);
        keeper.calibrate();
        let state = keeper.state(&discipline, false);
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
    let mut keeper = Keeper::new(libc::CLOCK_REALTIME, false, None, None);
    let now = kernel(libc::CLOCK_REALTIME);
    let mut status = |discipline: &Discipline, happened| {
        keeper.state_of(discipline, happened, None, None).status
    };
    let (trusted, distrusted) = (Status::Synchronized, Status::Disrupted);
    assert_eq!(status(&measured(now - GHZ, false), Happened::Nothing), trusted);
    // Set by chronyd, which told the kernel an error; by somebody else.
    assert_eq!(status(&measured(now - GHZ, false), Happened::Set), trusted);
    assert_eq!(status(&measured(now - GHZ, true), Happened::Set), distrusted);
    assert_eq!(status(&measured(now - GHZ, true), Happened::Nothing), distrusted);
    assert_eq!(status(&measured(now + 60 * GHZ, true), Happened::Nothing), trusted);
    // A suspend: the kernel's error tells nothing, whoever is asked in between.
    assert_eq!(status(&measured(now - GHZ, false), Happened::Broken), distrusted);
    assert_eq!(status(&kept(1), Happened::Nothing), distrusted);
    assert_eq!(status(&measured(now - GHZ, false), Happened::Nothing), distrusted);
    assert_eq!(status(&measured(now + 60 * GHZ, false), Happened::Nothing), trusted);
}

#[test]
fn the_hypervisors_marker_counts() {
    let mut keeper = Keeper::new(libc::CLOCK_REALTIME, false, Some(4), None);
    let mut at = |marker, rose, error| {
        let marks = Some((Marks { disruptions: marker, generation: Some(marker) }, rose));
        let state = keeper.state_of(&kept(error), Happened::Nothing, marks, None);
        (state.disruptions, state.status, state.generation)
    };
    assert_eq!(at(50, 0, 500), (4, Status::Synchronized, Some(50)));
    assert_eq!(at(53, 3, 500), (7, Status::Disrupted, Some(53)));
    assert_eq!(at(53, 0, 600), (7, Status::Disrupted, Some(53)));
    assert_eq!(at(53, 0, 300), (7, Status::Synchronized, Some(53)));
}
