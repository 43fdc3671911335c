//! Medians, quartiles and paired ratios: the only arithmetic between a clock and a report.
//!
//! Invariants: every figure given out is finite; no samples, no figure.

use crate::schema::{Better, Stat};

impl Stat {
    /// Returns the median and spread of `samples`; `None` when there are none or one is not finite.
    pub fn of(samples: &[f64]) -> Option<Self> {
        if samples.is_empty() || samples.iter().any(|s| !s.is_finite()) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: quantile(&sorted, 0.5),
            q1: quantile(&sorted, 0.25),
            q3: quantile(&sorted, 0.75),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            n: sorted.len(),
        })
    }
}

/// Interpolates linearly between the two closest ranks (type 7 of Hyndman and Fan, the default of
/// R and NumPy). `sorted` is ascending and not empty.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = q * (sorted.len() - 1) as f64;
    let (low, high) = (rank.floor() as usize, rank.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (rank - low as f64)
}

/// Returns the median over rounds of how much better `this` was than `baseline` in the same round.
///
/// Pairing by round cancels what slowed both, which a ratio of medians would not. `None` when no
/// round gives a finite ratio, or for [`Better::Neither`].
pub fn ratio(baseline: &[f64], this: &[f64], better: Better) -> Option<f64> {
    let of_round = |(&base, &this): (&f64, &f64)| match better {
        Better::Lower => base / this,
        Better::Higher => this / base,
        Better::Neither => f64::NAN,
    };
    let mut ratios: Vec<f64> =
        baseline.iter().zip(this).map(of_round).filter(|r| r.is_finite()).collect();
    ratios.sort_by(f64::total_cmp);
    (!ratios.is_empty()).then(|| quantile(&ratios, 0.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_by_hand() {
        let stat = Stat::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        let expected = Stat { median: 3.0, q1: 2.0, q3: 4.0, min: 1.0, max: 5.0, n: 5 };
        assert_eq!(stat, expected);
        let stat = Stat::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        let expected = Stat { median: 2.5, q1: 1.75, q3: 3.25, min: 1.0, max: 4.0, n: 4 };
        assert_eq!(stat, expected);
        let stat = Stat::of(&[7.0]).unwrap();
        assert_eq!(stat, Stat { median: 7.0, q1: 7.0, q3: 7.0, min: 7.0, max: 7.0, n: 1 });
    }

    /// With 4k + 1 samples every quartile is a sample: the one with k (2k, 3k) smaller ones.
    #[test]
    fn quartiles_count_smaller_samples() {
        for k in 1..20_usize {
            let n = 4 * k + 1;
            let samples: Vec<f64> = (0..n).map(|i| ((i * 7919) % n) as f64 * 1.5).collect();
            let smaller = |q: f64| samples.iter().filter(|s| **s < q).count();
            let stat = Stat::of(&samples).unwrap();
            let distinct = samples.iter().filter(|s| **s == stat.median).count() == 1;
            assert!(distinct, "{n} and 7919 share a factor: choose another step");
            assert_eq!(
                [smaller(stat.q1), smaller(stat.median), smaller(stat.q3)],
                [k, 2 * k, 3 * k]
            );
        }
    }

    #[test]
    fn no_figure_without_samples() {
        assert_eq!(Stat::of(&[]), None);
        assert_eq!(Stat::of(&[1.0, f64::NAN]), None);
        assert_eq!(ratio(&[], &[], Better::Lower), None);
        assert_eq!(ratio(&[1.0], &[0.0], Better::Lower), None);
        assert_eq!(ratio(&[1.0], &[2.0], Better::Neither), None);
    }

    #[test]
    fn ratios_are_paired() {
        // The machine slows down threefold; this is twice as fast as the baseline in every round.
        let baseline = [2.0, 4.0, 6.0];
        assert_eq!(ratio(&baseline, &[1.0, 2.0, 3.0], Better::Lower), Some(2.0));
        assert_eq!(ratio(&baseline, &[4.0, 8.0, 12.0], Better::Higher), Some(2.0));
        // A ratio of medians would be 4.0 / 3.0 here.
        assert_eq!(ratio(&baseline, &[2.0, 3.0, 12.0], Better::Lower), Some(1.0));
    }
}
