//! The recorder of a whole program: installed once, used by many threads, read meanwhile.

mod text;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use corelocal_metrics::{Error, Handle, Recorder};
use metrics::{counter, gauge, histogram};
use text::parse;

const THREADS: u64 = 8;

fn handle() -> &'static Handle {
    static HANDLE: OnceLock<Handle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let builder = Recorder::builder().buckets_for("exact", [0.0, 9.0, 99.0]);
        let handle = builder.install().expect("nobody else installs one");
        assert_eq!(corelocal_metrics::install().err(), Some(Error::AlreadyInstalled));
        handle
    })
}

/// `operations`, times `CORELOCAL_TEST_SCALE` where that is set: an emulated machine is slow.
fn scaled(operations: u64) -> u64 {
    let Ok(scale) = std::env::var("CORELOCAL_TEST_SCALE") else { return operations };
    let scale: f64 = scale.parse().expect("CORELOCAL_TEST_SCALE is a number");
    ((operations as f64 * scale) as u64).max(1)
}

/// Looked up each time, as most programs do it, and by handles that are kept.
#[test]
fn nothing_is_lost() {
    let handle = handle();
    let each = scaled(20_000);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let kept = counter!("kept");
                let own = counter!("own", "thread" => thread.to_string());
                for n in 0..each {
                    counter!("looked_up").increment(1);
                    counter!("looked_up", "label" => "static").increment(2);
                    kept.increment(3);
                    own.increment(1);
                    gauge!("level").increment(2.0);
                    gauge!("level").decrement(1.0);
                    histogram!("values").record(n as f64);
                    histogram!("exact").record((n % 100) as f64);
                    counter!("absolute").absolute(n + 1);
                }
            });
        }
    });
    let seen = parse(&handle.render());
    let all = (THREADS * each) as f64;
    assert_eq!(seen.value("looked_up", &[]), Some(all));
    assert_eq!(seen.value("looked_up", &[("label", "static")]), Some(2.0 * all));
    assert_eq!(seen.value("kept", &[]), Some(3.0 * all));
    for thread in 0..THREADS {
        assert_eq!(seen.value("own", &[("thread", &thread.to_string())]), Some(each as f64));
    }
    assert_eq!(seen.value("level", &[]), Some(all));
    assert_eq!(seen.value("absolute", &[]), Some(each as f64));
    assert_eq!(seen.value("values_count", &[]), Some(all));
    let sum = (THREADS * (each * (each - 1) / 2)) as f64;
    assert_eq!(seen.value("values_sum", &[]), Some(sum));
    let upto = |bound| (THREADS * (0..each).filter(|n| n % 100 <= bound).count() as u64) as f64;
    assert_eq!(seen.value("exact_bucket", &[("le", "0")]), Some(upto(0)));
    assert_eq!(seen.value("exact_bucket", &[("le", "9")]), Some(upto(9)));
    assert_eq!(seen.value("exact_bucket", &[("le", "99")]), Some(all));
}

/// Scrapes while threads record and new series come: each can be read, and no count falls.
#[test]
fn scraped_meanwhile() {
    let handle = handle();
    let each = scaled(20_000);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let recorders: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    for n in 0..each {
                        counter!("meanwhile").increment(1);
                        histogram!("spread").record((n as f64 - 1000.0).exp2().min(1e6));
                        if n % 100 == 0 {
                            let label = format!("{thread} {}", n / 1000);
                            gauge!("new", "label" => label).set(n as f64);
                        }
                    }
                })
            })
            .collect();
        let scraper = scope.spawn(|| {
            let (mut scrapes, mut last) = (0, (0.0, 0.0));
            while !done.load(Ordering::Relaxed) || scrapes == 0 {
                let seen = parse(&handle.render());
                let value = |name| seen.value(name, &[]).unwrap_or(0.0);
                let now = (value("meanwhile"), value("spread_count"));
                assert!(now.0 >= last.0 && now.1 >= last.1, "{now:?} after {last:?}");
                (last, scrapes) = (now, scrapes + 1);
            }
            scrapes
        });
        recorders.into_iter().for_each(|recorder| recorder.join().expect("a recorder ends"));
        done.store(true, Ordering::Relaxed);
        assert!(scraper.join().expect("the scraper ends") > 0);
    });
    let seen = parse(&handle.render());
    assert_eq!(seen.value("meanwhile", &[]), Some(4.0 * each as f64));
    assert_eq!(seen.value("spread_count", &[]), Some(4.0 * each as f64));
}
