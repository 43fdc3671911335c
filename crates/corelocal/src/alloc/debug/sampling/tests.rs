//! Tests of `sampling.rs`.

use super::*;

const RATE: u64 = 1 << 19;

fn odds(guard: Option<u32>, rate: Option<u64>) -> Odds {
    Odds { guard, rate }
}

/// Whether a count is within five standard deviations of its expectation.
fn is_about(found: u64, expected: f64) -> bool {
    (found as f64 - expected).abs() < 5.0 * expected.max(1.0).sqrt()
}

#[test]
fn logarithms() {
    for p in [1e-9, 1e-4, 0.1, 0.3, 0.5f64] {
        let exact = -(-p).ln_1p();
        assert!((minus_log_of_rest(p) / exact - 1.0).abs() < 1e-8, "{p}");
    }
    assert!(fraction(u64::MAX) < 1.0 && fraction(0) == 0.0);
}

#[test]
fn distances_have_their_mean_and_are_geometric() {
    const DRAWN: u64 = 200_000;
    for (guard, rate, size) in [
        (Some(2), None, 16),
        (Some(50), None, 16),
        (Some(5000), None, 4096),
        (None, Some(RATE), 16),
        (None, Some(RATE), 100_000),
        (None, Some(4096), 1024),
        (Some(100), Some(RATE), 8192),
    ] {
        let odds = odds(guard, rate);
        let p = odds.of_any(size);
        let (mut sum, mut ones, mut beyond) = (0.0, 0, 0);
        for _ in 0..DRAWN {
            let distance = odds.distance(size);
            sum += distance as f64 / DRAWN as f64;
            ones += u64::from(distance == 1);
            beyond += u64::from(distance as f64 > 1.0 / p);
        }
        // The mean of this many is off by about 1/447.
        assert!((sum * p - 1.0).abs() < 0.015, "{odds:?} of {size}: {sum} for {}", 1.0 / p);
        assert!(is_about(ones, DRAWN as f64 * p), "{odds:?} of {size}: {ones} with {p}");
        let rest = (1.0 - p).powf((1.0 / p).floor());
        assert!(is_about(beyond, DRAWN as f64 * rest), "{odds:?} of {size}: {beyond}");
    }
    assert_eq!(odds(Some(1), None).distance(16), 1);
    assert_eq!(odds(None, Some(1)).distance(16), 1);
    assert_eq!(odds(None, None).distance(16), NEVER);
    assert!(odds(Some(u32::MAX), None).distance_of(16, 0) > 1 << 30);
    assert!(odds(None, Some(1 << 39)).distance_of(16, 0) < 1 << 60);
}

/// Objects of a size and its class: selected by distances, and one by one. Both ways select equally many.
#[test]
fn both_ways_are_as_likely() {
    const OBJECTS: u64 = 300_000;
    for (guard, rate, of_class, size) in [
        (Some(40), None, 64, 60),
        (None, Some(4096), 112, 100),
        (None, Some(4096), 112, 97),
        (Some(30), Some(8192), 1024, 900),
        // The class is always selected, its smaller objects are not always sampled.
        (None, Some(1000), 1024, 980),
        (Some(3), Some(1000), 1024, 980),
        (Some(1), Some(1000), 16, 1),
    ] {
        let odds = odds(guard, rate);
        let guarded = guard.map_or(0.0, |guard| 1.0 / f64::from(guard));
        let sampled = rate.map_or(0.0, |rate| 1.0 - (-(size as f64) / rate as f64).exp());
        let expected = [guarded, (1.0 - guarded) * sampled].map(|p| p * OBJECTS as f64);
        let mut by_distance = [0; 2];
        let mut at = odds.distance(of_class);
        while at <= OBJECTS {
            match odds.at_last(of_class, size) {
                Lot::Guarded => by_distance[0] += 1,
                Lot::Sampled => by_distance[1] += 1,
                Lot::Plain => {}
            }
            at += odds.distance(of_class);
        }
        let mut one_by_one = [0; 2];
        for _ in 0..OBJECTS {
            match odds.at_once(size) {
                Lot::Guarded => one_by_one[0] += 1,
                Lot::Sampled => one_by_one[1] += 1,
                Lot::Plain => {}
            }
        }
        for found in [by_distance, one_by_one] {
            let fits =
                found.iter().zip(expected).all(|(found, expected)| is_about(*found, expected));
            assert!(fits, "{odds:?} of {size}: {found:?} for {expected:?}");
        }
    }
    // A large object has no class.
    assert_eq!(odds(None, Some(RATE)).at_once(5 << 20), Lot::Sampled);
    assert_eq!(odds(None, None).at_once(5 << 20), Lot::Plain);
}
