//! Tests of `noise.rs`.

use super::*;

const STAT: &str = "cpu  100 1 50 9000 9 2 3 40 7 8\ncpu0 60 0 20 4000 9 1 2 30 7 8\n\
                    cpu1 40 1 30 5000 0 1 1 10 0 0\nintr 5 4\n";

#[test]
fn proc_stat_lines() {
    assert_eq!(Ticks::parse(STAT, None), Some(Ticks { busy: 156, steal: 40 }));
    assert_eq!(Ticks::parse(STAT, Some(1)), Some(Ticks { busy: 73, steal: 10 }));
    assert_eq!(Ticks::parse(STAT, Some(2)), None);
    assert_eq!(Ticks::parse("cpu 1 2 x", None), None);
    assert_eq!(Ticks::parse("", None), None);
}

#[test]
fn stolen_share() {
    let from = Ticks { busy: 100, steal: 10 };
    assert_eq!(from.stolen_until(Ticks { busy: 190, steal: 20 }), 0.1);
    assert_eq!(from.stolen_until(from), 0.0);
}

#[test]
fn share_of_others() {
    let ticks = Ticks { busy: 1000, steal: 0 };
    let from = Reading { watched: ticks, all: ticks, cpus: 4, own_s: 7.0 };
    let used = |seconds: f64, own_s: f64| {
        let busy = ticks.busy + (seconds * ticks_per_s()) as u64;
        Reading { all: Ticks { busy, ..ticks }, own_s, ..from }
    };
    // Of 4 cpus in 2 s, 3 s of cpu time were used, 1 s of them by us.
    assert_eq!(from.others_until(used(3.0, 8.0), 2.0), 0.25);
    assert_eq!(from.others_until(used(1.0, 8.01), 2.0), 0.0);
    assert_eq!(from.others_until(used(1.0, 7.0), 0.0), 0.0);
}

#[test]
fn advice_only_when_noisy() {
    let quiet = Noise {
        wall_s: 2.0,
        steal: Some(0.01),
        others: Some(0.03),
        involuntary_per_s: 4.0,
        pinned: None,
    };
    assert_eq!(advice(&quiet), None);
    assert_eq!(advice(&Noise { steal: None, others: None, ..quiet }), None);
    let shared = advice(&Noise { others: Some(0.45), ..quiet }).unwrap();
    assert!(shared.contains("45 %") && shared.contains("stop them"), "{shared}");
    let stolen = advice(&Noise { steal: Some(0.12), ..quiet }).unwrap();
    assert!(stolen.contains("12 %") && stolen.contains("run again"), "{stolen}");
    // Two ticks in a third of a second are no evidence.
    assert_eq!(advice(&Noise { steal: Some(0.06), wall_s: 0.33, ..quiet }), None);
    let noisy = Noise { involuntary_per_s: 400.0, pinned: Some(3), ..quiet };
    let switched = advice(&noisy).unwrap();
    assert!(switched.contains("400 times") && switched.contains("cpu 3"), "{switched}");
}

#[test]
fn means_weigh_the_time() {
    let noise = |wall_s: f64, steal: f64| Noise { wall_s, steal: Some(steal), ..Noise::default() };
    let all = of_all(&[noise(1.0, 0.4), noise(3.0, 0.0)]);
    assert_eq!((all.wall_s, all.steal, all.others), (4.0, Some(0.1), None));
    assert_eq!(of_all(&[]).steal, None);
    assert!(is_quieter(&noise(1.0, 0.1), &noise(9.0, 0.2)));
    assert!(is_disturbed(&noise(1.0, 0.1)) && !is_disturbed(&noise(1.0, 0.01)));
}

#[test]
fn a_busy_loop_is_observed() {
    let watch = Watch::start(true, None);
    let start = Instant::now();
    while start.elapsed().as_millis() < 20 {
        std::hint::spin_loop();
    }
    let noise = watch.finish();
    assert!(noise.wall_s >= 0.02 && noise.involuntary_per_s >= 0.0);
    for share in [noise.steal, noise.others].into_iter().flatten() {
        assert!((0.0..=1.0).contains(&share), "{share}");
    }
}
