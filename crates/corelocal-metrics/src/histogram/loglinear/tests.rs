//! Tests of `loglinear.rs`.

use super::*;
use proptest::prelude::*;

fn counts(values: &[f64]) -> Counts {
    let histogram = LogLinear::default();
    values.iter().for_each(|&value| histogram.record(value, 1));
    histogram.counts()
}

fn stands_for(recorded: f64) -> f64 {
    let counts = counts(&[recorded]);
    assert_eq!(counts.values().copied().collect::<Vec<_>>(), [1]);
    quantile(&counts, 0.5).unwrap()
}

fn next_up(positive: f64) -> f64 {
    f64::from_bits(positive.to_bits() + 1)
}

#[test]
fn what_few_bits_tell_is_exact() {
    for whole in -128..=128 {
        assert_eq!(stands_for(f64::from(whole)), f64::from(whole));
    }
    for power in -63..=64 {
        assert_eq!(stands_for(2f64.powi(power)), 2f64.powi(power));
        assert_eq!(stands_for(-1.25 * 2f64.powi(power - 1)), -1.25 * 2f64.powi(power - 1));
    }
}

#[test]
fn the_ends() {
    let (smallest, largest) = (2f64.powi(-64), 2f64.powi(64));
    for tiny in [0.0, -0.0, smallest, -smallest, f64::MIN_POSITIVE, 5e-324, -5e-324] {
        assert_eq!(stands_for(tiny), 0.0, "{tiny}");
    }
    assert_eq!(stands_for(next_up(smallest)), smallest * (1.0 + 1.0 / 64.0));
    for huge in [largest, next_up(largest), f64::MAX, f64::INFINITY] {
        assert_eq!(stands_for(huge), largest, "{huge}");
        assert_eq!(stands_for(-huge), -largest, "{huge}");
    }
    assert!(counts(&[f64::NAN, -f64::NAN]).is_empty());
}

#[test]
fn memory_follows_the_values() {
    let histogram = LogLinear::default();
    (1..=1000).for_each(|n| histogram.record(f64::from(n), 1));
    let made = histogram.positive.0.iter().filter(|octave| octave.get().is_some()).count();
    // From (1/2, 1] to (512, 1024].
    assert_eq!(made, 11);
    assert!(histogram.negative.get().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_quantile_is_that_of_the_sorted_values(
        mut values in prop::collection::vec(
            prop_oneof![-1e6..1e6f64, -1e-6..1e-6f64, -1e18..1e18f64, Just(0.0)], 1..200),
        q in 0.0..=1.0f64,
    ) {
        let found = quantile(&counts(&values), q).unwrap();
        values.sort_by(f64::total_cmp);
        let rank = ((q * values.len() as f64).ceil() as usize).max(1);
        let exact = values[rank - 1];
        if exact.abs() <= 2f64.powi(-64) {
            prop_assert_eq!(found, 0.0);
        } else {
            prop_assert_eq!(found.signum(), exact.signum());
            prop_assert!(found.abs() >= exact.abs(), "{} for {}", found, exact);
            prop_assert!((found - exact).abs() <= found.abs() / 64.0, "{} for {}", found, exact);
        }
    }

    #[test]
    fn keys_keep_the_order(a: f64, b: f64) {
        let key = |value: f64| counts(&[value]).keys().next().copied();
        if let (Some(a_key), Some(b_key)) = (key(a), key(b)) {
            prop_assert!(a_key == b_key || (a_key < b_key) == (a < b));
        }
    }
}
