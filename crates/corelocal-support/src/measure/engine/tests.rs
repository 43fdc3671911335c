//! Rounds, their order, their time, and how long a batch is.

use super::*;

#[test]
fn the_order_changes_every_round() {
    for contestants in 1..9 {
        let orders: Vec<Vec<usize>> =
            (0..contestants).map(|r| order(contestants, r).collect()).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..contestants), "{order:?}");
        }
        assert!(orders.windows(2).all(|pair| pair[0] != pair[1]), "{orders:?}");
    }
    let neighbours = |round| order(4, round).skip_while(|&nth| nth != 2).nth(1);
    assert_ne!(neighbours(0), neighbours(4), "2 always runs before the same contestant");
}

/// The time that is left is divided among the tables that are left.
#[test]
fn time_is_divided() {
    let end = Instant::now() + Duration::from_secs(600);
    let [many, few] = [100, 2].map(|tables| Plan::until(end, tables));
    assert!(many.table <= Duration::from_secs(4) && many.rounds == Plan::QUICK.rounds);
    assert!(few.table <= Duration::from_secs(200) && few.rounds == Plan::FULL.rounds);
    assert!(Plan::until(Instant::now(), 0).is_over());
}

#[test]
fn rounds_fit_the_time() {
    let second = Duration::from_secs(1);
    assert_eq!(rounds_within(second, Duration::from_millis(20), 101), 50);
    assert_eq!(rounds_within(second, Duration::from_millis(1), 101), 101);
    assert_eq!(rounds_within(second, 2 * second, 101), MIN_ROUNDS);
    assert_eq!(rounds_within(second, Duration::ZERO, 101), 101);
}

#[test]
fn calibration_ends() {
    let target = Duration::from_millis(4);
    let mut calls = 0;
    let nothing = calibrate(target, |_| {
        calls += 1;
        Duration::ZERO
    });
    assert!(nothing > 1 << 30 && calls < 20, "{nothing} iterations, {calls} calls");
    let slow = calibrate(target, |iterations| Duration::from_secs(1) * iterations as u32);
    assert_eq!(slow, 1);
    let usual = calibrate(target, |iterations| Duration::from_nanos(20 * iterations));
    assert_eq!(usual, 200_000);
}

#[test]
fn an_interruption_does_not_make_small_batches() {
    let target = Duration::from_micros(5);
    for interrupted in 0..12 {
        let mut call = 0;
        let iterations = calibrate(target, |iterations| {
            call += 1;
            let work = Duration::from_nanos(2 * iterations);
            work + if call == interrupted { Duration::from_millis(3) } else { Duration::ZERO }
        });
        assert_eq!(iterations, 2500, "call {interrupted}");
    }
}
