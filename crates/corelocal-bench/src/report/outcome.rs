//! Whether a figure of ours is better than another one. Two differ only if their quartiles do not overlap, and by
//! [`SMALLEST_CHANGE`].

use corelocal_support::schema::Stat;
use corelocal_support::verdict::SMALLEST_CHANGE;

/// The outcome of a comparison of ours with a rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Ours is better.
    Better,
    /// There is no difference beyond the spread.
    Equal,
    /// Ours is worse.
    Worse,
}

impl Outcome {
    /// Judges a factor, above 1 of which ours is better, of figures with these spreads.
    pub fn of(factor: f64, ours: Option<&Stat>, versus: Option<&Stat>) -> Outcome {
        let overlap = ours.zip(versus).is_some_and(|(a, b)| a.q1 <= b.q3 && b.q1 <= a.q3);
        match factor {
            _ if overlap || (factor - 1.0).abs() < SMALLEST_CHANGE => Outcome::Equal,
            better if better > 1.0 => Outcome::Better,
            _ => Outcome::Worse,
        }
    }

    /// Returns its class in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Outcome::Better => "better",
            Outcome::Equal => "even",
            Outcome::Worse => "worse",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_quartiles_are_no_difference() {
        let stat = |median: f64| Stat {
            median,
            q1: median - 1.0,
            q3: median + 1.0,
            min: 0.0,
            max: 99.0,
            n: 9,
        };
        assert_eq!(Outcome::of(1.2, Some(&stat(10.0)), Some(&stat(12.0))), Outcome::Equal);
        assert_eq!(Outcome::of(1.3, Some(&stat(10.0)), Some(&stat(13.0))), Outcome::Better);
        assert_eq!(Outcome::of(0.7, Some(&stat(13.0)), Some(&stat(9.1))), Outcome::Worse);
        assert_eq!(Outcome::of(1.02, None, None), Outcome::Equal);
    }
}
