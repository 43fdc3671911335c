//! Tests of `segment.rs`.

use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// The sum in numbers of any length, rounded to the nearest.
fn exact(segment: &Segment, tick: u64) -> u64 {
    let (ticks, rate) = (tick as i128 - segment.origin as i128, segment.rate as i128);
    (segment.base as i128 + (ticks * rate + (1 << 52)).div_euclid(1 << 53)) as u64
}

fn segment() -> impl Strategy<Value = Segment> {
    let first = prop_oneof![Just(0), 0..1u64 << 40, 0..1u64 << 62];
    let length = prop_oneof![Just(1), 1u64..1000, 1..1u64 << 32, 1..LONGEST];
    // From a counter of 64 GHz to one of 4 MHz; most are between 1 and 6 GHz.
    let rates = prop_oneof![3 => ONE / 6..ONE, 1 => ONE / 64..250 * ONE];
    (first, length, 0..1u64 << 60, rates).prop_map(|(first, length, base, rate)| {
        let rate = if rate < ONE { rate | 1 } else { rate };
        let ahead = Some(0);
        Segment { last: first + length, ..Segment::new(first, base, rate, ahead, (0, 0)) }
    })
}

proptest! {
    #[test]
    fn many_at_once_are_what_each_is_alone(
        segment in segment(),
        parts in prop::collection::vec(0.0..=1.0, 0..80),
        ahead: u64,
        with_ends: bool,
    ) {
        let length = (segment.last - segment.first) as f64;
        let mut ticks: Vec<Ticks> = parts
            .iter()
            .map(|part| segment.first + (part * length) as u64)
            .map(|tick| Ticks::from_raw(tick.min(segment.last)))
            .collect();
        // With the ends all are looked at, too.
        if with_ends {
            ticks.extend([segment.first, segment.last].map(Ticks::from_raw));
        }
        let mut times = vec![1; ticks.len()];
        prop_assert!(segment.fill(&ticks, &mut times, ahead));
        for (tick, time) in ticks.iter().zip(times) {
            let exact = exact(&segment, tick.as_raw());
            prop_assert_eq!(segment.at(tick.as_raw()), exact);
            prop_assert_eq!(time, exact.wrapping_add(ahead));
        }
    }

    #[test]
    fn time_never_falls(segment in segment(), at: u64) {
        let tick = segment.first + at % (segment.last - segment.first);
        prop_assert!(segment.at(tick) <= segment.at(tick + 1));
    }

    #[test]
    fn a_tick_outside_is_noticed_wherever_it_stands(
        segment in segment(),
        at in 0usize..50,
        outside in prop_oneof![
            Just(1),
            1..1000u64,
            1..1u64 << 52,
            (0u32..64, any::<u64>()).prop_map(|(bit, low)| (1 << bit) + (low >> 12)),
            (0u32..64).prop_map(|bit| 1 << bit),
            any::<u64>(),
        ],
        before: bool,
    ) {
        let tick = match before {
            true => segment.first.wrapping_sub(outside),
            false => segment.last.wrapping_add(outside),
        };
        if segment.covers(tick) {
            return Ok(());
        }
        let middle = segment.first + (segment.last - segment.first) / 2;
        let mut ticks = [Ticks::from_raw(middle); 50];
        ticks[at] = Ticks::from_raw(tick);
        prop_assert!(!segment.fill(&ticks, &mut [0; 50], 0));
    }

    #[test]
    fn a_rate_is_what_it_is_made_of(nanos_in in 1..1u64 << 50, ticks in 1u64 << 20..1 << 50) {
        let rate = rate(nanos_in, ticks);
        prop_assert!(rate >= ONE || rate % 2 == 1);
        // From 64 GHz to 4 MHz; others are cut off.
        if (ticks / 250..ticks.saturating_mul(64)).contains(&nanos_in) {
            prop_assert!(nanos(ticks, rate).abs_diff(nanos_in) <= 1);
        }
    }
}

#[test]
fn nothing_is_in_an_empty_one() {
    assert!(Segment::EMPTY.epochs.0 > Segment::EMPTY.epochs.1);
    assert_eq!((rate(0, 0), rate(0, 5), rate(u64::MAX, 1)), (1, 1, 1 << 61));
    assert_eq!((rate(1, 1), rate(7, 2)), (ONE, ONE / 2 * 7));
    assert_eq!(nanos(u64::MAX, u64::MAX), u64::MAX);
    assert!(Segment::EMPTY.fill(&[], &mut [], 0));
    let short = Segment::new(100, 7, ONE / 3, None, (1, 1));
    assert!(short.fill(&[Ticks::from_raw(100)], &mut [0], 0) && short.at(100) == 7);
}
