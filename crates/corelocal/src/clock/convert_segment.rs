//! A piece of history in which time went straight over the counter, and the sum that makes times of ticks.
//!
//! `base + (tick - first) * rate`, for very many ticks. A 64 by 64 bit product takes one multiplication per
//! tick, and no vector unit has it. A double's fused multiply-add is as exact, and they all have that:
//!
//! ```text
//!   d = tick - first                                        below 2^52
//!   x = the double with bits 0x433 << 52 | d                is 2^52 + d
//!   y = x * rate + (2^52 - 2^52 * rate), rounded once       is 2^52 + d * rate, to the nearest integer
//!   its bits                                                are 0x433 << 52 | nanoseconds
//! ```
//!
//! No conversion between integers and doubles is made but by an addition to bits. Five instructions serve
//! four ticks, one of which checks all of them: the `or` of every `d` is at least each of them, so if it is
//! within the segment, they are.
//!
//! # Invariants
//! 1. `rate` is nanoseconds a tick times 2^53, is not 0, and at most 2^61. `last - first` is below 2^52.
//! 2. A rate below 2^53 is odd. Then `d * rate` is never halfway between two integers (halfway is a multiple
//!    of 2^52, and so would `d` be), and both ways of rounding, the fused one's and that of integers, agree.
//!    And `2^53 - rate` has at most 53 bits: what is added is exact.
//! 3. So what a tick is converted to depends on the segment and the tick alone: not on the cpu, nor on the
//!    slice it stands in. It never falls from one tick to the next.

use super::ticks::Ticks;

/// See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The first tick, and the last.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Nanoseconds of the monotonic clock at the first.
    pub(super) base: u64,
    rate: u64,
    /// What the realtime clock is ahead by, wrapping; `None` if it was set within.
    pub(super) ahead: Option<u64>,
    /// The epochs at the beginning of what the counter tells without a break, and at `last`.
    pub(super) epochs: (u64, u64),
}

/// A nanosecond per tick.
pub(super) const ONE: u64 = 1 << SHIFT;
const SHIFT: u32 = 53;
/// The longest segment: invariant 1, with room for a last piece.
pub(super) const LONGEST: u64 = 1 << 51;

/// So many nanoseconds in so many ticks, as a rate; the nearest one that there is.
pub(super) fn rate(nanos: u64, ticks: u64) -> u64 {
    const FASTEST: u128 = 1 << 61;
    let exact = (u128::from(nanos) << SHIFT) / u128::from(ticks.max(1));
    let rate = exact.clamp(1, FASTEST) as u64;
    // (2)
    if rate < ONE { rate | 1 } else { rate }
}

/// The time that so many ticks take.
pub(super) fn nanos(ticks: u64, rate: u64) -> u64 {
    // The product is below 2^125; half a nanosecond is added so that the result is the nearest.
    let half = 1 << (SHIFT - 1);
    u64::try_from((u128::from(ticks) * u128::from(rate) + half) >> SHIFT).unwrap_or(u64::MAX)
}

impl Segment {
    /// With nothing known of it but its beginning.
    pub(super) fn new(
        first: u64,
        base: u64,
        rate: u64,
        ahead: Option<u64>,
        epochs: (u64, u64),
    ) -> Segment {
        Segment { first, last: first, base, rate, ahead, epochs }
    }

    /// None at all: it covers nothing that is of an epoch.
    pub(super) const EMPTY: Segment =
        Segment { first: 0, last: 0, base: 0, rate: ONE, ahead: None, epochs: (u64::MAX, 0) };

    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// Whether the tick lies within.
    #[inline]
    pub(super) fn covers(&self, tick: u64) -> bool {
        tick.wrapping_sub(self.first) <= self.last.wrapping_sub(self.first)
    }

    /// The monotonic time at a tick, from the first to [`LONGEST`] later.
    #[inline]
    pub(super) fn at(&self, tick: u64) -> u64 {
        self.base.wrapping_add(nanos(tick.wrapping_sub(self.first), self.rate))
    }

    /// Writes what is `ahead` of each tick's time by so much, and says whether the segment covers all the
    /// ticks; if not, what was written is void. Both slices have the same length.
    #[inline]
    pub(super) fn fill(&self, ticks: &[Ticks], times: &mut [u64], ahead: u64) -> bool {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.rate < ONE && super::convert_x86_64::is_there() {
            let straight = super::convert_x86_64::Straight {
                first: self.first,
                rate: self.rate,
                base: self.base.wrapping_add(ahead),
            };
            let length = self.last.wrapping_sub(self.first);
            // SAFETY: the cpu has what it needs.
            return unsafe {
                let any = super::convert_x86_64::fill(&straight, ticks, times);
                // `any` may be beyond the end though no tick is: then all are looked at.
                any <= length || super::convert_x86_64::are_within(self.first, length, ticks)
            };
        }
        for (tick, time) in ticks.iter().zip(times) {
            *time = self.at(tick.as_raw()).wrapping_add(ahead);
        }
        ticks.iter().fold(true, |all, tick| all & self.covers(tick.as_raw()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    /// The sum in numbers of any length, rounded to the nearest.
    fn exact(segment: &Segment, tick: u64) -> u64 {
        let product = u128::from(tick - segment.first) * u128::from(segment.rate);
        segment.base + ((product + (1 << 52)) >> 53) as u64
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
        ) {
            let length = (segment.last - segment.first) as f64;
            let mut ticks: Vec<Ticks> = parts
                .iter()
                .map(|part| segment.first + (part * length) as u64)
                .map(|tick| Ticks::from_raw(tick.min(segment.last)))
                .collect();
            ticks.extend([Ticks::from_raw(segment.first), Ticks::from_raw(segment.last)]);
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
                Just(u64::MAX), Just(1), 1..1000u64, 1..1u64 << 52, (0u32..64).prop_map(|bit| 1 << bit), any::<u64>(),
            ],
            before: bool,
        ) {
            let tick = match before {
                true => segment.first.wrapping_sub(outside),
                false => segment.last.wrapping_add(outside),
            };
            prop_assume!(!segment.covers(tick));
            let mut ticks = [Ticks::from_raw(segment.first); 50];
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
    }
}
