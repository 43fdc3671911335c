//! Tests of `gauge.rs`.

use super::*;
use metrics::GaugeFn as _;
use proptest::prelude::*;
use std::thread;

#[test]
fn whole_numbers() {
    for (value, step) in [
        (0.0, Some(0)),
        (-0.0, Some(0)),
        (-3.0, Some(-3)),
        (4294967296.0, Some(1 << 32)),
        (-4294967296.0, Some(-(1 << 32))),
        (4294967297.0, None),
        (0.5, None),
        (f64::NAN, None),
        (f64::INFINITY, None),
        (f64::NEG_INFINITY, None),
        (f64::MIN_POSITIVE, None),
        (9.3e18, None),
    ] {
        assert_eq!(whole(value), step, "{value}");
    }
}

/// Setting a fraction after many steps leaves no rounding error of theirs.
#[test]
fn set_is_exact() {
    let gauge = Gauge::default();
    gauge.increment(4e9);
    gauge.increment(1e18);
    gauge.set(0.1);
    assert_eq!(gauge.get(), 0.1);
    gauge.increment(1.0);
    gauge.decrement(1.0);
    assert_eq!(gauge.get(), 0.1);
    gauge.set(f64::INFINITY);
    gauge.decrement(7.0);
    assert_eq!(gauge.get(), f64::INFINITY);
    gauge.set(-0.0);
    assert_eq!(gauge.get(), 0.0);
    gauge.set(f64::NAN);
    assert!(gauge.get().is_nan());
}

#[test]
fn threads_lose_no_step() {
    let gauge = Gauge::default();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    gauge.increment(5.0);
                    gauge.decrement(2.0);
                    gauge.increment(0.25);
                }
            });
        }
    });
    assert_eq!(gauge.get(), 4.0 * 1000.0 * 3.25);
}

/// Sets among steps: each step is on top of one of the values, or gone with it.
#[test]
fn sets_among_steps() {
    let gauge = Gauge::default();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..1000).for_each(|_| gauge.increment(1.0)));
            scope.spawn(|| (0..100).for_each(|_| gauge.set(0.5)));
        }
    });
    let left = gauge.get();
    assert!((0.5..=2000.5).contains(&left) && left.fract() == 0.5, "{left}");
    gauge.set(3.0);
    assert_eq!(gauge.get(), 3.0);
}

#[derive(Clone, Debug)]
enum Operation {
    Increment(f64),
    Decrement(f64),
    Set(f64),
}

fn operation() -> impl Strategy<Value = Operation> {
    // Multiples of 1/8 whose sums a plain `f64` holds exactly.
    let value = || (-1_000_000i32..1_000_000).prop_map(|n| f64::from(n) / 8.0);
    let whole = || (-1_000_000i32..1_000_000).prop_map(f64::from);
    prop_oneof![
        prop_oneof![value(), whole()].prop_map(Operation::Increment),
        prop_oneof![value(), whole()].prop_map(Operation::Decrement),
        value().prop_map(Operation::Set),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_a_plain_number(operations in prop::collection::vec(operation(), 0..50)) {
        let (gauge, mut naive) = (Gauge::default(), 0.0);
        for operation in operations {
            match operation {
                Operation::Increment(by) => { gauge.increment(by); naive += by; }
                Operation::Decrement(by) => { gauge.decrement(by); naive -= by; }
                Operation::Set(to) => { gauge.set(to); naive = to; }
            }
            prop_assert_eq!(gauge.get(), naive);
        }
    }
}
