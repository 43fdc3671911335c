//! What a change of a figure means.
//!
//! Invariant: a change counts only where the quartiles of each measurement lie outside of the other's rounds but
//! outliers, and the medians differ by [`SMALLEST_CHANGE`] and by both quartile ranges together.

use crate::schema::{Better, Stat};

/// The share of the old median below which a change is always noise.
pub const SMALLEST_CHANGE: f64 = 0.05;

/// The meaning of a change of one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Better than before.
    Faster,
    /// Worse than before.
    Slower,
    /// Changed, in a table where neither direction is better.
    Changed,
    /// Too small to mean anything.
    Noise,
}

impl Verdict {
    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Changed => "changed",
            Verdict::Noise => "noise",
        }
    }
}

/// Returns where rounds lie that are no outliers (Tukey, Exploratory Data Analysis, 1977).
fn fences(stat: &Stat) -> (f64, f64) {
    let reach = 1.5 * (stat.q3 - stat.q1);
    ((stat.q1 - reach).max(stat.min), (stat.q3 + reach).min(stat.max))
}

/// Judges one figure.
pub fn verdict(better: Better, old: &Stat, new: &Stat) -> Verdict {
    let difference = new.median - old.median;
    let spread = (old.q3 - old.q1) + (new.q3 - new.q1);
    let size = difference.abs();
    let is_within = |inner: &Stat, outer: &Stat| {
        let (low, high) = fences(outer);
        inner.q1 <= high && low <= inner.q3
    };
    let overlaps = is_within(old, new) || is_within(new, old);
    if size == 0.0 || overlaps || size <= spread || size < SMALLEST_CHANGE * old.median.abs() {
        return Verdict::Noise;
    }
    match (better, difference < 0.0) {
        (Better::Neither, _) => Verdict::Changed,
        (Better::Lower, true) | (Better::Higher, false) => Verdict::Faster,
        (Better::Lower, false) | (Better::Higher, true) => Verdict::Slower,
    }
}
