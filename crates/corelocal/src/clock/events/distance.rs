//! The difference between two clocks, as far as it is known.
//!
//! Two clocks cannot be read at the same moment. A reading of one between two readings of the other gives a range. It
//! is as wide as that took: 70 ns, or milliseconds if the thread was interrupted. The middle and the width of the
//! range are stored in one word, so that they can be replaced by compare-exchange.
//!
//! # Invariant
//! 1. A word holds the middle, with [`BIAS`], and in its lowest four bits the class: the range was at most 256 ns
//!    times two to the power of the class wide. It is not 0.

/// The difference of a clock to the monotonic one: from `least` to `least + width` nanoseconds, wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::clock) struct Range {
    pub(in crate::clock) least: u64,
    pub(in crate::clock) width: u64,
}

/// A range, encoded in a word: see the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::clock) struct Distance(u64);

/// Added to the encoding, so that a distance of 0 is not the word 0.
const BIAS: u64 = 1 << 63;
const CLASS: u64 = 0xf;
/// The width of the widest range of class 0, in nanoseconds.
const NARROW: u64 = 256;
/// The smallest change that counts as a setting of the clock: clocks are not set by less.
const STEP: u64 = 1000;

impl Distance {
    /// Returns the distance that a range stands for; `None` if the range is wider than 8 ms, which tells too little.
    pub(in crate::clock) fn seen(range: Range) -> Option<Distance> {
        let class = (0..=CLASS).find(|class| range.width <= NARROW << class)?;
        let middle = range.least.wrapping_add(range.width / 2);
        let word = (middle.wrapping_add(BIAS) & !CLASS) | class;
        // A distance of 292 years: none.
        if word == 0 { None } else { Some(Distance(word)) }
    }

    /// Returns the one that is remembered in a word, unless it is 0.
    pub(in crate::clock) fn of_word(word: u64) -> Option<Distance> {
        if word == 0 { None } else { Some(Distance(word)) }
    }

    pub(in crate::clock) fn word(self) -> u64 {
        self.0
    }

    /// Returns how little is known of it.
    pub(in crate::clock) fn class(self) -> u64 {
        self.0 & CLASS
    }

    /// Returns the distance, more or less.
    pub(in crate::clock) fn middle(self) -> u64 {
        (self.0 & !CLASS).wrapping_sub(BIAS)
    }

    /// Returns `true` if it may be the same that is now seen in this range, or differs by no more than a step.
    pub(in crate::clock) fn agrees(self, range: Range) -> bool {
        let doubt = STEP + CLASS + ((NARROW / 2) << self.class());
        let above = self.middle().wrapping_sub(range.least).wrapping_add(doubt);
        above <= range.width.saturating_add(2 * doubt)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However wide two looks were: a clock that was not set was not, and one that was set by much was.
        #[test]
        fn ranges_around_the_same_distance_agree(
            distance: u64,
            widths in (1u64..9_000_000, 1u64..9_000_000),
            parts in (0.0..=1.0, 0.0..=1.0),
            step in 20_000_000u64..1 << 62,
        ) {
            let around = |width: u64, part: f64| {
                let below = (width as f64 * part) as u64;
                Range { least: distance.wrapping_sub(below), width }
            };
            let (first, second) = (around(widths.0, parts.0), around(widths.1, parts.1));
            let Some(known) = Distance::seen(first) else {
                prop_assert!(widths.0 > 8_000_000);
                return Ok(());
            };
            prop_assert_eq!(Distance::of_word(known.word()), Some(known));
            prop_assert!(known.agrees(second) && known.agrees(first));
            let off = (known.middle().wrapping_sub(distance) as i64).unsigned_abs();
            prop_assert!(off <= widths.0 / 2 + CLASS + 1);
            for least in [second.least.wrapping_add(step), second.least.wrapping_sub(step)] {
                let set = Range { least, ..second };
                prop_assert!(!known.agrees(set));
            }
        }

        #[test]
        fn a_step_between_narrow_looks_is_seen(distance: u64, width in 1u64..200, step in 2_000u64..1 << 62) {
            let range = Range { least: distance, width };
            let known = Distance::seen(range).unwrap();
            let agrees = |least| known.agrees(Range { least, width });
            prop_assert!(agrees(distance.wrapping_add(500)) && agrees(distance.wrapping_sub(500)));
            prop_assert!(!agrees(distance.wrapping_add(step)) && !agrees(distance.wrapping_sub(step)));
        }
    }
}
