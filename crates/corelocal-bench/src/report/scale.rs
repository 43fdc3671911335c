//! Axes: from a value to its place on a plot, and where the ticks stand.
//!
//! Invariant: a place lies in 0..=1 for every finite value, whatever the axis was made of; a
//! plot cannot leave its frame, and no scale has zero length.

use corelocal_support::plot::round_up;

/// Beyond this ratio of largest to smallest a linear bar hides the small ones.
const LINEAR_LIMIT: f64 = 30.0;

/// The scale of an axis.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Whether equal distances are equal ratios.
    pub log: bool,
    lo: f64,
    hi: f64,
}

impl Scale {
    /// Returns an axis that holds all `values`: from zero, or logarithmic where they are positive and
    /// differ by more than 30x.
    pub fn over(values: impl IntoIterator<Item = f64>) -> Self {
        let (mut lo, mut hi) = (f64::INFINITY, 0.0_f64);
        for value in values.into_iter().filter(|v| v.is_finite()) {
            lo = lo.min(value);
            hi = hi.max(value);
        }
        if !lo.is_finite() || hi <= 0.0 {
            return Self { log: false, lo: 0.0, hi: 1.0 };
        }
        if lo > 0.0 && hi / lo > LINEAR_LIMIT {
            // below the smallest value, so that its bar has a length
            return Self { log: true, lo: round_down(lo * 0.8), hi: round_up(hi) };
        }
        Self { log: false, lo: 0.0, hi: round_up(hi) }
    }

    /// Returns the place of `value` between 0 and 1.
    pub fn place(&self, value: f64) -> f64 {
        let place = if self.log {
            (value.max(self.lo) / self.lo).ln() / (self.hi / self.lo).ln()
        } else {
            (value - self.lo) / (self.hi - self.lo)
        };
        place.clamp(0.0, 1.0)
    }

    /// Returns round values to mark: powers of ten, or about five steps.
    pub fn ticks(&self) -> Vec<f64> {
        if self.log {
            let first = self.lo.log10().ceil() as i32;
            let last = self.hi.log10().floor() as i32;
            return (first..=last).map(|power| 10f64.powi(power)).collect();
        }
        let step = round_up(self.hi / 5.0);
        let count = (self.hi / step * (1.0 + 1e-9)).floor() as u32;
        (0..=count).map(|i| f64::from(i) * step).collect()
    }
}

/// Returns the largest of 1, 2, 5 times a power of ten that is at most `value`.
fn round_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|step| step * power);
    steps.into_iter().find(|step| *step <= value * (1.0 + 1e-9)).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ranges_start_at_zero() {
        let scale = Scale::over([14.0, 3.0, 88.0]);
        assert!(!scale.log);
        assert_eq!(scale.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!((scale.place(0.0), scale.place(50.0), scale.place(1e9)), (0.0, 0.5, 1.0));
    }

    #[test]
    fn large_ranges_are_logarithmic() {
        let scale = Scale::over([0.29, 164.0]);
        assert!(scale.log);
        assert_eq!(scale.ticks(), [1.0, 10.0, 100.0]);
        assert!(scale.place(0.29) > 0.0);
        assert_eq!(scale.place(0.0), 0.0);
    }

    #[test]
    fn odd_values_give_a_usable_axis() {
        for values in
            [vec![], vec![0.0], vec![-3.0], vec![f64::NAN, f64::INFINITY], vec![0.0, 900.0]]
        {
            let scale = Scale::over(values);
            assert!(!scale.log);
            assert!((0.0..=1.0).contains(&scale.place(1.0)));
            assert!(scale.ticks().len() >= 2);
        }
    }
}
