//! Lines over a made-up counter and clock: they rise, meet, and come back to the truth.

use super::*;
use proptest::prelude::*;

/// A clock over a counter of 2.5 GHz whose rate changes with time, in ppm.
struct Clock {
    counter: u64,
    time: f64,
    ppm: f64,
}

impl Clock {
    fn pass(&mut self, counts: u64) {
        self.counter += counts;
        self.time += counts as f64 * 0.4 * (1.0 + self.ppm / 1e6);
    }

    /// A sample as wide as that, and late by half of it.
    fn sample(&mut self, width: u64) -> Sample {
        let time = self.time as u64;
        self.pass(width);
        Sample { counter: self.counter - width / 2, time, width }
    }
}

fn started() -> (Clock, Line) {
    let mut clock = Clock { counter: 1 << 40, time: 5e12, ppm: 0.0 };
    let a = clock.sample(90);
    clock.pass(50_000);
    let b = clock.sample(90);
    (clock, Line::first(a, b).unwrap())
}

proptest! {
    /// Whatever the gaps between samples and whatever the slew, no line begins below the last one's end.
    #[test]
    fn lines_never_go_back(
        steps in prop::collection::vec((1u64..400_000_000, -500i32..=500, 60u64..400), 1..60),
    ) {
        let (mut clock, mut line) = started();
        for (gap, ppm, width) in steps {
            clock.ppm = f64::from(ppm);
            let past = line.end.saturating_sub(clock.counter);
            clock.pass(past + gap);
            let sample = clock.sample(width);
            let (next, stepped) = line.next(sample).expect("rates explain everything");
            prop_assert!(!stepped);
            prop_assert!(next.at(next.base) >= line.at(line.end));
            prop_assert!(next.covers(sample.counter) && !next.covers(next.end + 1));
            prop_assert!(next.at(next.end) >= next.at(sample.counter));
            prop_assert!(u128::from(next.end - next.base) * u128::from(next.rate) < 1 << 63);
            line = next;
        }
    }

    /// With a steady clock, the line is as near as the samples are narrow, however it started.
    #[test]
    fn a_steady_clock_is_met(ppm in -500i32..=500, width in 60u64..200) {
        let (mut clock, mut line) = started();
        clock.ppm = f64::from(ppm);
        for round in 0..40 {
            clock.pass(line.end.saturating_sub(clock.counter) + 1000);
            let sample = clock.sample(width);
            let off = clock.time - line.at(line.end) as f64
                - (clock.counter - line.end) as f64 * 0.4;
            prop_assert!(round < 25 || off.abs() < 3.0 * width as f64 * 0.4, "{off} ns in round {round}");
            line = line.next(sample).unwrap().0;
        }
    }
}

#[test]
fn a_jump_forward_is_told_and_one_back_is_refused() {
    let (mut clock, line) = started();
    clock.pass(60_000);
    let sample = clock.sample(90);
    let ahead = Sample { time: sample.time + 1_500, ..sample };
    // 1.5 us in 24 us: no rate explains that.
    assert!(line.next(ahead).is_err() || line.next(ahead).unwrap().0.time <= ahead.time);
    let (_, mut line) = started();
    // With a long baseline a jump of more than a millisecond is a small matter to the rate.
    for _ in 0..30 {
        clock.pass(line.end.saturating_sub(clock.counter) + 100);
        line = line.next(clock.sample(90)).unwrap().0;
    }
    clock.pass(line.end.saturating_sub(clock.counter) + 100);
    let sample = clock.sample(90);
    let (next, stepped) = line.next(Sample { time: sample.time + 1_200_000, ..sample }).unwrap();
    assert!(stepped && next.at(sample.counter) >= sample.time + 1_200_000);
    assert_eq!(
        line.next(Sample { time: sample.time - 1_200_000, ..sample }),
        Err(Cause::Inconsistent)
    );
}

#[test]
fn a_counter_set_back_or_standing_still_is_refused() {
    let (_, line) = started();
    let sample = Sample { counter: 1000, time: line.truth + 1_000_000, width: 90 };
    assert!(!line.covers(1000));
    assert!(line.next(sample).is_err());
    let still = Sample { counter: line.sampled, time: line.truth + 1_000_000, width: 90 };
    assert!(line.next(still).is_err());
    assert!(Line::first(still, still).is_err());
    // A little before the base is the base.
    assert!(line.covers(line.base - 5));
    assert_eq!(line.at(line.base - 5), line.time);
}
