//! Tests of `bucket.rs`.

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

/// The buckets as the module documentation defines them, octave by octave.
fn naive(precision: u32) -> Vec<(u64, u64)> {
    let exact = 1u128 << (precision + 1);
    let mut buckets: Vec<(u64, u64)> = (0..exact).map(|v| (v as u64, v as u64)).collect();
    let mut octave = exact;
    while octave < 1 << 64 {
        let width = octave >> precision;
        for low in (octave..2 * octave).step_by(width as usize) {
            buckets.push((low as u64, (low + width - 1) as u64));
        }
        octave *= 2;
    }
    buckets
}

fn check<const P: u32>() {
    let buckets = naive(P);
    assert_eq!(buckets.len(), len(P));
    assert_eq!((buckets[0].0, buckets[len(P) - 1].1), (0, u64::MAX));
    for (i, &(low, high)) in buckets.iter().enumerate() {
        assert_eq!(bounds::<P>(i), (low, high), "bucket {i} at {P} bits");
        assert_eq!((index::<P>(low), index::<P>(high)), (i, i), "{low}..={high} at {P} bits");
        assert!(i == 0 || buckets[i - 1].1 + 1 == low, "no gap before {low}");
        assert!(u128::from(high - low) << P <= u128::from(low), "{low}..={high} is too wide");
        let mid = Bucket::new::<P>(i, 1).mid();
        let error = (mid - low).max(high - mid);
        assert!(u128::from(error) << (P + 1) <= u128::from(low), "{mid} is not the middle");
    }
    for power in 0..64 {
        let value = 1u64 << power;
        for value in [value - 1, value, value + 1, value | value >> 1, !value] {
            let (low, high) = buckets[index::<P>(value)];
            assert!((low..=high).contains(&value), "{value} at {P} bits");
        }
    }
    assert_eq!(index::<P>(u64::MAX), len(P) - 1);
}

/// Each bucket and each power of two, at each precision.
#[test]
fn buckets_are_as_defined() {
    check::<0>();
    check::<1>();
    check::<2>();
    check::<3>();
    check::<4>();
    check::<5>();
    check::<6>();
    check::<7>();
    check::<8>();
    check::<9>();
    check::<10>();
    check::<11>();
}

fn within<const P: u32>(value: u64) {
    let i = index::<P>(value);
    assert!(i < len(P));
    let bucket = Bucket::new::<P>(i, 1);
    assert!((bucket.low..=bucket.high).contains(&value));
    // The error is at most 2^-(P+1) of the value.
    let error = bucket.mid().abs_diff(value);
    assert!(u128::from(error) << (P + 1) <= u128::from(value), "{value} at {P} bits: {error}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_error_is_bounded(value: u64, shift in 0u32..64) {
        let value = value >> shift;
        within::<0>(value);
        within::<1>(value);
        within::<5>(value);
        within::<7>(value);
        within::<11>(value);
    }

    #[test]
    fn buckets_keep_the_order(a: u64, b: u64, shift in 0u32..64) {
        let (a, b) = (a >> shift, b >> shift);
        prop_assert!((a <= b) == (index::<5>(a) <= index::<5>(b)) || index::<5>(a) == index::<5>(b));
    }
}
