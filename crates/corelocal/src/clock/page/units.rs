//! Time in 2^-64 seconds, as pages and hypervisors count it, and in nanoseconds, as everybody else does.
//!
//! Invariants:
//! 1. Nanoseconds that become 2^-64 seconds and then nanoseconds again are the same.
//! 2. No division by a number that the compiler does not know: these are on the way of a publication.

use core::time::Duration;

use super::ReadError;

const NANOSECONDS: u64 = 1_000_000_000;
/// The most by which a counter may be behind a page's point: another cpu's, or one read before the publication.
pub(super) const SKEW_NS: u64 = 1_000;

/// Returns the nanoseconds as 2^-64 seconds, rounded up: too many by three of those at most.
#[inline]
pub(super) fn fixed_of_nanoseconds(nanoseconds: u64) -> u128 {
    // 2^93 / 10^9, rounded down by less than one. Times a rest below 2^30 that is less than 2^30, less
    // than two after the shift; the shift itself rounds down by less than one.
    const SCALE: u64 = ((1 << 93) / NANOSECONDS as u128) as u64;
    let (seconds, rest) = (nanoseconds / NANOSECONDS, nanoseconds % NANOSECONDS);
    if rest == 0 {
        return u128::from(seconds) << 64;
    }
    (u128::from(seconds) << 64) + ((u128::from(rest) * u128::from(SCALE)) >> 29) + 3
}

/// Returns 2^-64 seconds as a duration, rounded to the nearest nanosecond.
#[inline]
pub(super) fn duration_of_nearest(fixed: u128) -> Result<Duration, ReadError> {
    const HALF: u128 = (1 << 63) / NANOSECONDS as u128;
    duration_of(fixed.checked_add(HALF).ok_or(ReadError::Range)?)
}

/// Returns 2^-64 seconds as a duration, rounded down.
#[inline]
pub(super) fn duration_of(fixed: u128) -> Result<Duration, ReadError> {
    let nanoseconds = (u128::from(fixed as u64) * u128::from(NANOSECONDS)) >> 64;
    Ok(Duration::new((fixed >> 64) as u64, nanoseconds as u32))
}

/// Returns 2^-64 seconds as a duration, rounded up.
#[inline]
pub(super) fn duration_of_ceil(fixed: u128) -> Result<Duration, ReadError> {
    const ONE_LESS: u128 = (1 << 64) / NANOSECONDS as u128;
    duration_of(fixed.checked_add(ONE_LESS).ok_or(ReadError::Range)?)
}

/// Time from tick to tick of a counter: `fraction` / 2^(64 + `shift`) seconds.
///
/// ```
/// use corelocal::clock::page::Period;
///
/// let gigahertz = Period::from_hertz(1_000_000_000).unwrap();
/// assert_eq!(gigahertz.nanoseconds(5_000_000_000), Some(5_000_000_000));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Period {
    /// The period in units of 2^-(64 + `shift`) seconds.
    pub fraction: u64,
    /// The number of bits that `fraction` is shifted by: below 64.
    pub shift: u8,
}

impl Period {
    /// Returns the period of a counter of `hertz` ticks in a second; `None` for 0 and 1, which no period can tell.
    pub const fn from_hertz(hertz: u64) -> Option<Period> {
        Period::from_ratio(1_000_000_000, hertz)
    }

    /// Returns the period of a counter that takes `ticks` for `nanoseconds`; `None` if either is 0, or for a tick of a
    /// second and more.
    pub const fn from_ratio(nanoseconds: u64, ticks: u64) -> Option<Period> {
        if nanoseconds == 0 || ticks == 0 {
            return None;
        }
        let units = ticks as u128 * NANOSECONDS as u128;
        if nanoseconds as u128 >= units {
            return None;
        }
        // nanoseconds / units < 1, bit by bit: zeros first, then 64 digits.
        let (mut rest, mut shift) = (nanoseconds as u128, 0);
        while shift < 63 && rest * 2 < units {
            rest *= 2;
            shift += 1;
        }
        let (mut fraction, mut digit) = (0u64, 0);
        while digit < 64 {
            // Below 2^95: no overflow.
            rest *= 2;
            fraction <<= 1;
            if rest >= units {
                rest -= units;
                fraction |= 1;
            }
            digit += 1;
        }
        Some(Period { fraction, shift })
    }

    /// Returns the period of a counter whose tick is `multiplier` / 2^`shift` nanoseconds, as the kernel has it; `None`
    /// for no period, a shift above 63, and a tick of a second and more.
    pub const fn from_kernel(multiplier: u32, shift: u32) -> Option<Period> {
        if shift > 63 { None } else { Period::from_ratio(multiplier as u64, 1 << shift) }
    }

    /// Returns the error of the period, if its rate is wrong by `parts_per_billion`: rounded up, with the same shift.
    #[inline]
    #[must_use]
    pub fn error(self, parts_per_billion: u32) -> Period {
        let part = self.fraction / NANOSECONDS + 1;
        Period { fraction: part.saturating_mul(parts_per_billion.into()), shift: self.shift }
    }

    /// Returns how many nanoseconds so many ticks take, rounded to the nearest; `None` beyond 2^64, and for a
    /// shift that no period has.
    pub fn nanoseconds(self, ticks: u64) -> Option<u64> {
        let fixed =
            (u128::from(self.fraction) * u128::from(ticks)).checked_shr(self.shift.into())?;
        u64::try_from(duration_of_nearest(fixed).ok()?.as_nanos()).ok()
    }

    /// Returns the multiplier and shift of a [`super::pvclock`] page: a tick, shifted, times `multiplier`, is
    /// nanoseconds times 2^32. Zeros for no period.
    pub fn for_pvclock(self) -> (u32, i8) {
        // Nanoseconds times 2^(64 + shift), below 2^94.
        let nanoseconds = u128::from(self.fraction) * u128::from(NANOSECONDS);
        if nanoseconds == 0 {
            return (0, 0);
        }
        // The 32 highest digits: multiplier * 2^down.
        let down = 96 - nanoseconds.leading_zeros() as i32;
        let multiplier = if down >= 0 { nanoseconds >> down } else { nanoseconds << -down };
        // multiplier * 2^(down - 64 - shift) = multiplier * 2^(pvclock's shift - 32)
        (multiplier as u32, (down - 32 - i32::from(self.shift)) as i8)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edges() {
        assert_eq!(Period::from_hertz(0), None);
        assert_eq!(Period::from_hertz(1), None);
        assert_eq!(Period::from_hertz(2), Some(Period { fraction: 1 << 63, shift: 0 }));
        assert_eq!(Period::from_ratio(0, 5), None);
        assert_eq!(Period::from_kernel(1, 64), None);
        assert_eq!(Period::default().for_pvclock(), (0, 0));
        assert_eq!(Period { fraction: 1, shift: 200 }.nanoseconds(1), None);
        let nanosecond = Period::from_hertz(1_000_000_000).unwrap();
        assert_eq!(nanosecond.for_pvclock(), (u32::MAX, 0));
        assert_eq!(Period::from_kernel(1 << 24, 24), Some(nanosecond));
        for hertz in [2, 3, 1000, u64::MAX] {
            let period = Period::from_hertz(hertz).unwrap();
            assert!(period.shift < 64);
            let _ = (period.error(u32::MAX), period.nanoseconds(u64::MAX), period.for_pvclock());
        }
        assert_eq!(duration_of_ceil(u128::MAX), Err(ReadError::Range));
        assert_eq!(duration_of_ceil(1), Ok(Duration::from_nanos(1)));
        assert_eq!(duration_of_ceil(0), Ok(Duration::ZERO));
    }

    proptest! {
        #[test]
        fn nanoseconds_come_back(nanoseconds: u64) {
            let fixed = fixed_of_nanoseconds(nanoseconds);
            prop_assert_eq!(duration_of(fixed), Ok(Duration::from_nanos(nanoseconds)));
            let exact = (u128::from(nanoseconds) << 64) / u128::from(NANOSECONDS);
            prop_assert!(fixed >= exact && fixed - exact <= 4);
        }

        #[test]
        fn a_period_is_what_it_came_from(hertz in 1_000_000u64..10_000_000_000, seconds in 1u64..100_000) {
            let period = Period::from_hertz(hertz).unwrap();
            let nanoseconds = period.nanoseconds(hertz * seconds).unwrap();
            prop_assert!(nanoseconds.abs_diff(seconds * NANOSECONDS) <= 1);
            let (multiplier, shift) = period.for_pvclock();
            prop_assert!(multiplier >= 1 << 31);
            let ticks = u128::from(hertz);
            let shifted = if shift < 0 { ticks >> -shift } else { ticks << shift };
            let second = (shifted * u128::from(multiplier)) >> 32;
            prop_assert!(second.abs_diff(u128::from(NANOSECONDS)) <= 3 + (1 << shift.unsigned_abs()) / 1000);
            let ppm = period.error(1000);
            let exact = period.fraction / 1_000_000;
            prop_assert!(ppm.fraction > exact && ppm.fraction <= exact + 1000);
        }
    }
}
