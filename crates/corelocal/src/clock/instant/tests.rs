//! The arithmetic, beside std's.

use super::*;
use proptest::prelude::*;
use std::format;

#[test]
fn ends_are_kept() {
    let (first, last) = (Instant::from_nanos(i64::MIN), Instant::from_nanos(i64::MAX));
    assert_eq!(last.duration_since(first), Duration::from_nanos(u64::MAX));
    assert_eq!(first.duration_since(last), Duration::ZERO);
    assert_eq!(first.checked_duration_since(last), None);
    assert_eq!(last.checked_add(Duration::from_nanos(1)), None);
    assert_eq!(first.checked_sub(Duration::from_nanos(1)), None);
    assert_eq!(first.checked_add(Duration::from_nanos(u64::MAX)), Some(last));
    assert_eq!(last + Duration::MAX, last);
    assert_eq!(first - Duration::MAX, first);
    assert_eq!(Timestamp::from_nanos(-1).duration_since_epoch(), None);
}

#[test]
fn it_reads_like_stds() {
    let mut moment = Instant::now();
    let before = moment;
    moment += Duration::from_secs(3600);
    assert_eq!(moment - before, Duration::from_secs(3600));
    moment -= Duration::from_secs(3600);
    assert_eq!(moment, before);
    assert_eq!((before + Duration::from_secs(1)).elapsed(), Duration::ZERO);
    assert!(before.elapsed() < Duration::from_secs(60));
    assert!(before <= Instant::now());
    assert!(Instant::coarse() <= Instant::now());
    assert!(Timestamp::coarse() <= Timestamp::now());
    assert_eq!(format!("{:?}", Instant::from_nanos(-5)), "Instant(-5)");
    // An hour before a machine was up that was just started.
    assert!(Instant::from_nanos(0).checked_sub(Duration::from_secs(3600)).is_some());
}

#[test]
fn deadlines_are_moments() {
    let moment = Instant::now() + Duration::from_nanos(1_500_000_007);
    assert_eq!(Instant::from(Deadline::from(moment)), moment);
    let deadline = Deadline::after(Duration::from_secs(3));
    assert_eq!(Deadline::from(Instant::from(deadline)), deadline);
    let latest = Deadline::after(Duration::MAX);
    assert_eq!(Deadline::from(Instant::from_nanos(i64::MAX)), latest);
    assert_eq!(Deadline::from(Instant::from(latest)), latest);
    assert_eq!(Instant::from(Deadline::from(Instant::from_nanos(-1))), Instant::from_nanos(0));
}

proptest! {
    #[test]
    fn sums_and_differences_agree(nanos: i64, seconds in 0u64..40_000_000_000, rest in 0u32..1_000_000_000) {
        let (moment, duration) = (Timestamp::from_nanos(nanos), Duration::new(seconds, rest));
        let exact = i128::from(nanos) + duration.as_nanos() as i128;
        match moment.checked_add(duration) {
            Some(later) => {
                prop_assert_eq!(i128::from(later.as_nanos()), exact);
                prop_assert_eq!(later - moment, duration);
                prop_assert_eq!(later.checked_sub(duration), Some(moment));
            }
            None => prop_assert!(exact > i128::from(i64::MAX)),
        }
        let exact = i128::from(nanos) - duration.as_nanos() as i128;
        match moment.checked_sub(duration) {
            Some(earlier) => prop_assert_eq!(i128::from(earlier.as_nanos()), exact),
            None => prop_assert!(exact < i128::from(i64::MIN)),
        }
    }
}

#[cfg(feature = "serde")]
#[test]
fn serialises_as_a_number() {
    let timestamp = Timestamp::from_nanos(1_700_000_000_123_456_789);
    assert_eq!(serde_json::to_string(&timestamp).unwrap(), "1700000000123456789");
    assert_eq!(serde_json::from_str::<Timestamp>("1700000000123456789").unwrap(), timestamp);
}

#[cfg(feature = "std")]
#[test]
fn std_and_back() {
    use std::time::SystemTime;

    for nanos in [0, -1, 1_700_000_000_123_456_789, i64::MIN, i64::MAX] {
        let timestamp = Timestamp::from_nanos(nanos);
        assert_eq!(Timestamp::try_from(SystemTime::from(timestamp)), Ok(timestamp));
    }
    let late = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
    assert!(Timestamp::try_from(late).is_err());
    let now = SystemTime::now();
    assert!(Timestamp::try_from(now).unwrap() <= Timestamp::now());
    let instant = std::time::Instant::now();
    let same = Instant::from_std(instant).unwrap().to_std().unwrap();
    let off = same.max(instant) - same.min(instant);
    // Between the readings this test may be off its cpu.
    assert!(off < Duration::from_secs(1), "{off:?}");
}
