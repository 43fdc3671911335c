//! A piece of history in which time went straight over the counter, and the sum that makes times of ticks.
//!
//! `base + (tick - origin) * rate`, for very many ticks. A 64 by 64 bit product takes one multiplication per
//! tick, and no vector unit has it. A double's fused multiply-add is as exact, and they all have that:
//!
//! ```text
//!   d = tick - origin                                  below 2^52
//!   x = the double whose bits are 2.0's and d          is 2 + d / 2^51
//!   y = x * rate + (2 - 2 * rate), rounded once        is 2 + n / 2^51: n is d * rate, to the nearest integer
//!   y's bits                                           are 2.0's and n
//! ```
//!
//! Nothing is converted between integers and doubles but by additions to bits. Four instructions serve four
//! ticks, one of which checks them all: the `or` of all `y`. If that is 2.0's bits and less than the last
//! tick's `n`, so is each `y` (2.0 has one bit set, and a smaller number without it would be 0 or the like,
//! which the sum never is). Then each tick is before the last one, since `y` rises with `x`; and behind the
//! origin, since what is before it makes `y` less than 2. But half a nanosecond before it is rounded to 2:
//! so the origin lies [`LEAD`] behind the first tick. Where the check fails, a second pass looks for the largest
//! tick; and if some are not even near the segment, they are taken one by one.
//!
//! # Invariants
//! 1. `rate` is nanoseconds a tick times 2^53, is not 0, and at most 2^61. `last - first` is below 2^52.
//! 2. A rate below 2^53 is odd. Then `d * rate` is never halfway between two integers (halfway is a multiple
//!    of 2^52, and so would `d` be), and both ways of rounding, the fused one's and that of integers, agree.
//!    And `2^53 - rate` has at most 53 bits: what is added is exact.
//! 3. So what a tick is converted to depends on the segment and the tick alone: not on the cpu, nor on the
//!    slice it stands in. It never falls from one tick to the next.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::x86_64 as vectors;
use crate::clock::ticks::Ticks;

/// A span of ticks in which time is a linear function of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::clock) struct Segment {
    /// The first and the last tick.
    pub(in crate::clock) first: u64,
    pub(in crate::clock) last: u64,
    /// The tick at which `base` holds: `LEAD` behind `first`; and the monotonic time there, in nanoseconds.
    origin: u64,
    base: u64,
    rate: u64,
    /// The realtime clock minus the monotonic one, wrapping; `None` if the clock was set within the segment.
    pub(in crate::clock) ahead: Option<u64>,
    /// The epochs at the start of this unbroken stretch of the counter, and at `last`.
    pub(in crate::clock) epochs: (u64, u64),
}

/// The rate of one nanosecond per tick.
pub(in crate::clock) const ONE: u64 = 1 << SHIFT;
const SHIFT: u32 = 53;
/// The ticks between `first` and `origin`: at least half a nanosecond, for counters up to 8 GHz.
const LEAD: u64 = 4;
/// The slowest rate for which vector instructions are used.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const SLOWEST: u64 = ONE / (2 * LEAD);
/// The longest segment, by invariant 1, with room for one extension.
pub(in crate::clock) const LONGEST: u64 = 1 << 51;

/// Returns the rate of `nanos` nanoseconds in `ticks` ticks, or the nearest one that there is.
pub(in crate::clock) fn rate(nanos: u64, ticks: u64) -> u64 {
    const FASTEST: u128 = 1 << 61;
    let exact = (u128::from(nanos) << SHIFT) / u128::from(ticks.max(1));
    let rate = exact.clamp(1, FASTEST) as u64;
    // (2)
    if rate < ONE { rate | 1 } else { rate }
}

/// Returns the time that so many ticks take.
pub(in crate::clock) fn nanos(ticks: u64, rate: u64) -> u64 {
    // The product is below 2^125; half a nanosecond is added so that the result is the nearest.
    let half = 1 << (SHIFT - 1);
    u64::try_from((u128::from(ticks) * u128::from(rate) + half) >> SHIFT).unwrap_or(u64::MAX)
}

impl Segment {
    /// Creates one from a tick on, at which the monotonic clock was `start`.
    pub(in crate::clock) fn new(
        first: u64,
        start: u64,
        rate: u64,
        ahead: Option<u64>,
        epochs: (u64, u64),
    ) -> Segment {
        let origin = first.wrapping_add(LEAD);
        let base = start.wrapping_add(nanos(LEAD, rate));
        Segment { first, last: first, origin, base, rate, ahead, epochs }
    }

    /// A segment that covers no tick of any epoch.
    pub(in crate::clock) const EMPTY: Segment = Segment {
        first: 0,
        last: 0,
        origin: 0,
        base: 0,
        rate: ONE,
        ahead: None,
        epochs: (u64::MAX, 0),
    };

    pub(in crate::clock) fn rate(&self) -> u64 {
        self.rate
    }

    /// Returns `true` if the tick lies within.
    #[inline]
    pub(in crate::clock) fn covers(&self, tick: u64) -> bool {
        tick.wrapping_sub(self.first) <= self.last.wrapping_sub(self.first)
    }

    /// Returns the monotonic time at a tick, from the first to [`LONGEST`] later.
    #[inline]
    pub(in crate::clock) fn at(&self, tick: u64) -> u64 {
        // From `-LEAD` on.
        let ahead = tick.wrapping_sub(self.origin) as i64;
        let half = 1 << (SHIFT - 1);
        let exact = (i128::from(ahead) * i128::from(self.rate) + half) >> SHIFT;
        self.base.wrapping_add(exact as u64)
    }

    /// Writes what is `ahead` of each tick's time by so much, and says whether the segment covers all the
    /// ticks; if not, what was written is void. Both slices have the same length.
    #[inline]
    pub(in crate::clock) fn fill(&self, ticks: &[Ticks], times: &mut [u64], ahead: u64) -> bool {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.fill_quickly(ticks, times, ahead) {
            return true;
        }
        for (tick, time) in ticks.iter().zip(times) {
            *time = self.at(tick.as_raw()).wrapping_add(ahead);
        }
        ticks.iter().fold(true, |all, tick| all & self.covers(tick.as_raw()))
    }

    /// Returns the same by vector instructions, if the cpu has them and no tick is very near an end.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    fn fill_quickly(&self, ticks: &[Ticks], times: &mut [u64], ahead: u64) -> bool {
        let is_quick = (SLOWEST..ONE).contains(&self.rate)
            && self.last.wrapping_sub(self.first) > LEAD
            && vectors::are_there();
        let length = self.last.wrapping_sub(self.origin);
        let straight = vectors::Straight {
            origin: self.origin,
            length,
            rate: self.rate,
            base: self.base.wrapping_add(ahead),
        };
        // SAFETY: the cpu has what it needs.
        is_quick
            && unsafe {
                let any = vectors::fill(&straight, ticks, times);
                // The check may fail although no tick is behind the last: then what was written is right.
                any < nanos(length, self.rate)
                    || any < vectors::FAR && vectors::are_within(&straight, ticks)
            }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
