//! Tests of `window.rs`.

use super::*;

/// How much the reads of a window cover at least and at most, once it is old enough; one value comes each second.
fn covered(length: u64, between: u64) -> (u64, u64) {
    let start = Instant::now();
    let mut window = Window::new(start);
    let reads = (1..=1000).map(|read| read * between).map(|second| {
        let (all, now) = (Counts::from([(0, second)]), start + Duration::from_secs(second));
        let recent = window.recent(&all, Duration::from_secs(length), now);
        (second, recent.get(&0).copied().unwrap_or(0))
    });
    let old: Vec<u64> =
        reads.filter(|&(second, _)| second >= length).map(|(_, recent)| recent).collect();
    (*old.iter().min().unwrap(), *old.iter().max().unwrap())
}

/// What the README says.
#[test]
fn what_it_covers() {
    assert_eq!(covered(60, 15), (60, 105));
    assert_eq!(covered(60, 59), (118, 177));
    for between in [60, 61, 300] {
        assert_eq!(covered(60, between), (between, between));
    }
    for between in 1..200 {
        let (least, most) = covered(60, between);
        assert!(60 <= least && most < 120 + between, "{between}: {least} to {most}");
    }
}

#[test]
fn slides() {
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    let length = Duration::from_secs(60);
    let counts = |one, two| Counts::from_iter([(1, one), (2, two)]);
    let mut window = Window::new(start);
    assert_eq!(window.recent(&counts(1, 1), length, after(15)), counts(1, 1));
    assert_eq!(window.recent(&counts(2, 1), length, after(60)), counts(2, 1));
    // Since the start, since what was seen at 60 is not old enough.
    assert_eq!(window.recent(&counts(3, 1), length, after(119)), counts(3, 1));
    // Now it is.
    assert_eq!(window.recent(&counts(5, 1), length, after(120)), Counts::from([(1, 3)]));
    assert_eq!(window.recent(&counts(5, 2), length, after(179)), counts(3, 1));
    // Since 120.
    assert_eq!(window.recent(&counts(5, 2), length, after(180)), Counts::from([(2, 1)]));
    // After a long silence of the reader: since its last look that was kept.
    assert_eq!(window.recent(&counts(9, 2), length, after(9999)), Counts::from([(1, 4)]));
    assert!(window.recent(&counts(9, 2), length, after(99999)).is_empty());
}

#[test]
fn for_ever() {
    let start = Instant::now();
    let mut window = Window::new(start);
    for day in 0..3 {
        let counts = Counts::from([(0, day + 1)]);
        let now = start + Duration::from_secs(86_400 * day);
        assert_eq!(window.recent(&counts, Duration::MAX, now), counts);
    }
}
