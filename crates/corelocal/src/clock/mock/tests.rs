//! The mock beside clocks of 128 bits, and read by threads while it is moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{format, thread, vec::Vec};

use proptest::prelude::*;

use super::*;
use crate::clock::SystemClocks;
use crate::sys::Errno;

const SECOND: Duration = Duration::from_secs(1);

/// One reading of every function of `Clocks`.
type Readings = ([u64; 10], Result<Bounded, Unbounded>, u64, Instant, Timestamp);

fn read_all<C: Clocks>(clocks: C) -> Readings {
    let readings = [
        clocks.monotonic(),
        clocks.monotonic_unordered(),
        clocks.coarse(),
        clocks.realtime(),
        clocks.realtime_unordered(),
        clocks.realtime_coarse(),
        clocks.boottime(),
        clocks.boottime_unordered(),
        clocks.tai(),
        clocks.tai_unordered(),
    ];
    (readings, clocks.now_bounded(), clocks.epoch(), clocks.now(), clocks.timestamp())
}

/// Clocks whose methods all return different values.
struct Different;

impl Clocks for Different {
    fn monotonic(&self) -> u64 {
        1
    }
    fn monotonic_unordered(&self) -> u64 {
        2
    }
    fn coarse(&self) -> u64 {
        3
    }
    fn realtime(&self) -> u64 {
        4
    }
    fn realtime_unordered(&self) -> u64 {
        5
    }
    fn realtime_coarse(&self) -> u64 {
        6
    }
    fn boottime(&self) -> u64 {
        7
    }
    fn boottime_unordered(&self) -> u64 {
        8
    }
    fn tai(&self) -> u64 {
        9
    }
    fn tai_unordered(&self) -> u64 {
        10
    }
    fn now_bounded(&self) -> Result<Bounded, Unbounded> {
        Err(Unbounded::Disrupted)
    }
    fn epoch(&self) -> u64 {
        11
    }
    fn now(&self) -> Instant {
        Instant::from_nanos(12)
    }
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_nanos(13)
    }
    fn elapsed(&self, _: Instant) -> Duration {
        Duration::from_nanos(14)
    }
}

/// (1) of `clocks.rs`.
#[test]
fn pointers_read_what_they_point_to() {
    let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    let (now, timestamp) = (Instant::from_nanos(12), Timestamp::from_nanos(13));
    let expected = (numbers, Err(Unbounded::Disrupted), 11, now, timestamp);
    let shared: Arc<dyn Clocks> = Arc::new(Different);
    for readings in [read_all(Different), read_all(&Different), read_all(&shared)] {
        assert_eq!(readings, expected);
    }
    assert_eq!(shared.elapsed(now), Duration::from_nanos(14));
}

#[test]
fn clocks_of_the_system_are_the_functions() {
    use crate::clock;

    let between = |before: u64, now: u64, after: u64| assert!(before <= now && now <= after);
    let clocks = &SystemClocks;
    between(clock::monotonic(), clocks.monotonic(), clock::monotonic());
    between(clock::boottime(), clocks.boottime(), clock::boottime());
    assert!(clocks.coarse() <= clock::monotonic());
    let before = clocks.monotonic_unordered();
    assert!(before <= clocks.monotonic_unordered());
    assert!(Instant::now() <= clocks.now());
    assert!(clocks.elapsed(clocks.now()) < 1000 * SECOND);
    between(clock::epoch(), clocks.epoch(), clock::epoch());
    if let Ok(bounds) = clocks.now_bounded() {
        assert!(bounds.earliest <= bounds.latest);
    }
    // The realtime clocks may be set meanwhile, by less than years.
    for realtime in [clocks.realtime(), clocks.realtime_unordered(), clocks.realtime_coarse()] {
        assert!(realtime.abs_diff(clock::realtime()) < 1 << 60);
    }
    assert!(clocks.tai().abs_diff(clocks.tai_unordered()) < 1 << 60);
    assert!(clocks.timestamp() > Timestamp::UNIX_EPOCH);
}

#[test]
fn a_mock_stands_until_it_is_moved() {
    static CLOCKS: MockClocks = MockClocks::new();
    let start = read_all(&CLOCKS);
    assert_eq!(start.0, [0; 10]);
    assert_eq!(start.1, Err(Unbounded::Unsynchronised));
    CLOCKS.advance(SECOND);
    CLOCKS.suspend(2 * SECOND);
    CLOCKS.set_tai_offset(37);
    assert_eq!(CLOCKS.now() - start.3, SECOND);
    assert_eq!(CLOCKS.elapsed(start.3), SECOND);
    assert_eq!((CLOCKS.boottime(), CLOCKS.realtime()), (3_000_000_000, 3_000_000_000));
    assert_eq!((CLOCKS.tai(), CLOCKS.epoch()), (40_000_000_000, 1));
    assert_eq!(read_all(&CLOCKS), read_all(&CLOCKS));
    CLOCKS.set_monotonic(Instant::from_nanos(-5));
    assert_eq!((CLOCKS.now().as_nanos(), CLOCKS.epoch()), (-5, 2));
    assert_eq!(CLOCKS.boottime(), 1_999_999_995);
    assert_eq!(CLOCKS.elapsed(start.3), Duration::ZERO);
    let text = format!("{CLOCKS:?}");
    assert_eq!(text, "MockClocks { now: Instant(-5), timestamp: Timestamp(3000000000), .. }");
    let fresh = MockClocks::default();
    assert_eq!(read_all(fresh).0, [0; 10]);
}

#[test]
fn bounds_and_leap_seconds_are_what_was_set() {
    let clocks = MockClocks::new();
    clocks.set_realtime(Timestamp::from_nanos(1_000_000));
    clocks.set_leap(Leap::Insertion);
    assert_eq!(clocks.now_bounded(), Err(Unbounded::Unsynchronised));
    clocks.set_error(Ok(Duration::from_micros(3)));
    clocks.advance(Duration::from_nanos(1));
    let bounds = clocks.now_bounded().unwrap();
    assert_eq!((bounds.earliest.as_nanos(), bounds.latest.as_nanos()), (997_001, 1_003_001));
    assert_eq!((bounds.middle(), bounds.leap), (clocks.timestamp(), Leap::Insertion));
    let reasons = [Unbounded::Unsynchronised, Unbounded::Disrupted, Unbounded::Untold(Errno(1))];
    for why in reasons {
        clocks.set_error(Err(why));
        assert_eq!(clocks.now_bounded(), Err(why));
    }
    clocks.set_error(Ok(Duration::MAX));
    let bounds = clocks.now_bounded().unwrap();
    assert_eq!(bounds.latest.as_nanos(), i64::MAX);
    assert!(bounds.earliest < clocks.timestamp());
}

/// A change of the mock clocks.
#[derive(Clone, Copy, Debug)]
enum Step {
    Advance(Duration),
    Suspend(Duration),
    SetMonotonic(i64),
    SetRealtime(i64),
    SetTai(i32),
    SetError(Duration),
}

fn step() -> impl Strategy<Value = Step> {
    let duration = prop_oneof![
        (0u64..5_000_000_000).prop_map(Duration::from_nanos),
        any::<u64>().prop_map(Duration::from_nanos),
        Just(Duration::MAX),
    ];
    prop_oneof![
        4 => duration.clone().prop_map(Step::Advance),
        2 => duration.clone().prop_map(Step::Suspend),
        1 => any::<i64>().prop_map(Step::SetMonotonic),
        1 => any::<i64>().prop_map(Step::SetRealtime),
        1 => any::<i32>().prop_map(Step::SetTai),
        1 => duration.prop_map(Step::SetError),
    ]
}

/// A number of 128 bits as the clocks show it.
fn shown(number: i128) -> u64 {
    number.clamp(i64::MIN.into(), i64::MAX.into()) as i64 as u64
}

proptest! {
    #[test]
    fn a_mock_goes_back_only_if_it_is_set(steps in proptest::collection::vec(step(), 0..40)) {
        let clocks = MockClocks::new();
        let (mut monotonic, mut realtime, mut slept) = (0i128, 0i128, 0i128);
        let (mut tai, mut error) = (0i128, None);
        let cap = |number: i128| number.min(i64::MAX.into());
        for step in steps {
            let before = read_all(&clocks);
            let by = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            match step {
                Step::Advance(length) => {
                    clocks.advance(length);
                    monotonic = cap(monotonic + i128::from(by(length)));
                    realtime = cap(realtime + i128::from(by(length)));
                }
                Step::Suspend(length) => {
                    clocks.suspend(length);
                    slept = cap(slept + i128::from(by(length)));
                    realtime = cap(realtime + i128::from(by(length)));
                }
                Step::SetMonotonic(to) => {
                    clocks.set_monotonic(Instant::from_nanos(to));
                    monotonic = to.into();
                }
                Step::SetRealtime(to) => {
                    clocks.set_realtime(Timestamp::from_nanos(to));
                    realtime = to.into();
                }
                Step::SetTai(seconds) => {
                    clocks.set_tai_offset(seconds);
                    tai = i128::from(seconds) * 1_000_000_000;
                }
                Step::SetError(length) => {
                    clocks.set_error(Ok(length));
                    error = Some(i128::from(by(length)));
                }
            }
            let after = read_all(&clocks);
            let numbers = [monotonic, realtime, monotonic + slept, realtime + tai].map(shown);
            let [m, r, b, t] = numbers;
            prop_assert_eq!(after.0, [m, m, m, r, r, r, b, b, t, t]);
            prop_assert_eq!(after.1.is_ok(), error.is_some());
            if let (Ok(bounds), Some(error)) = (after.1, error) {
                let ends = [bounds.earliest, bounds.latest].map(|end| end.as_nanos() as u64);
                prop_assert_eq!(ends, [shown(realtime - error), shown(realtime + error)]);
            }
            let is_set = matches!(step, Step::SetMonotonic(_) | Step::SetRealtime(_) | Step::SetTai(_));
            if !is_set {
                let pairs = before.0.into_iter().zip(after.0);
                prop_assert!(pairs.clone().all(|(before, after)| before as i64 <= after as i64));
                prop_assert!(before.3 <= after.3 && before.4 <= after.4);
            }
            let is_epoch = matches!(
                step,
                Step::Suspend(_) | Step::SetMonotonic(_) | Step::SetRealtime(_)
            );
            prop_assert_eq!(after.2 - before.2, u64::from(is_epoch));
        }
    }
}

/// Threads advance the clocks while others read them: no reading is before an earlier one, no change is seen in part,
/// and none is lost.
#[test]
fn threads_share_a_mock() {
    const STEPS: u64 = 2_000;
    let clocks = Arc::new(MockClocks::new());
    clocks.set_error(Ok(Duration::from_nanos(10)));
    clocks.set_realtime(Timestamp::from_nanos(1_000_000));
    let is_over = Arc::new(AtomicBool::new(false));
    let readers = (0..2).map(|_| {
        let (clocks, is_over) = (Arc::clone(&clocks), Arc::clone(&is_over));
        thread::spawn(move || {
            let mut last = 0;
            while !is_over.load(Ordering::Relaxed) {
                let before = clocks.monotonic();
                let (realtime, after) = (clocks.realtime(), clocks.monotonic());
                assert!(last <= before && before <= after, "{last} {before} {after}");
                let as_realtime = before + 1_000_000..=after + 1_000_000;
                assert!(as_realtime.contains(&realtime), "{realtime} is not in {as_realtime:?}");
                let bounds = clocks.now_bounded().unwrap();
                assert_eq!(bounds.latest - bounds.earliest, Duration::from_nanos(20));
                last = after;
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..STEPS).for_each(|_| clocks.advance(Duration::from_nanos(3))));
        }
    });
    is_over.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert_eq!(clocks.monotonic(), 2 * STEPS * 3);
}
