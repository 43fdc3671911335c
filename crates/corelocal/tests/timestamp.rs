//! `Timestamp` as text, beside jiff's.

use corelocal::clock::Timestamp;
use proptest::prelude::*;

const NANOS: i64 = 1_000_000_000;
const DAY: i64 = 24 * 60 * 60;

fn by_jiff(nanos: i64, digits: usize) -> String {
    let nanos = i128::from(nanos);
    let cut = nanos - nanos.rem_euclid(10i128.pow(9 - digits as u32));
    let stamp = jiff::Timestamp::from_nanosecond(cut).unwrap();
    format!("{stamp:.digits$}")
}

fn text(nanos: i64, digits: usize) -> String {
    format!("{:.digits$}", Timestamp::from_nanos(nanos))
}

#[test]
fn every_day_from_1677_to_2262() {
    let (first, last) = (i64::MIN / (DAY * NANOS), i64::MAX / (DAY * NANOS));
    for day in first..=last {
        let nanos = day * DAY * NANOS;
        assert_eq!(text(nanos, 0), by_jiff(nanos, 0));
    }
    assert_eq!(Timestamp::from_nanos(i64::MIN).to_string(), "1677-09-21T00:12:43.145224192Z");
    assert_eq!(Timestamp::from_nanos(i64::MAX).to_string(), "2262-04-11T23:47:16.854775807Z");
}

#[test]
fn before_1970() {
    assert_eq!(text(-1, 9), "1969-12-31T23:59:59.999999999Z");
    assert_eq!(text(-1, 3), "1969-12-31T23:59:59.999Z");
    assert_eq!(text(-1, 0), "1969-12-31T23:59:59Z");
    assert_eq!(text(-NANOS, 6), "1969-12-31T23:59:59.000000Z");
}

/// There are no more digits than nine.
#[test]
fn width_and_precision() {
    assert_eq!(format!("{:>22.0}", Timestamp::UNIX_EPOCH), "  1970-01-01T00:00:00Z");
    assert_eq!(text(0, 20), "1970-01-01T00:00:00.000000000Z");
}

proptest! {
    #[test]
    fn every_nanosecond(nanos: i64, digits in 0usize..=9) {
        prop_assert_eq!(text(nanos, digits), by_jiff(nanos, digits));
    }
}
