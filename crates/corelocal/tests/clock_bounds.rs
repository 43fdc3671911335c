//! Bounds hold the time, while the kernel is told how right its clock is, and while it is slewed.
//!
//! As root these tests change what the kernel was told for a moment.
#![cfg(not(miri))]

mod adjusting;
mod restorer;
mod sandbox;
mod storm;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use adjusting::{adjust, adjusting, alone};
use corelocal::clock::{self, Bounded, Timestamp, Unbounded};
use sandbox::skip;

#[test]
fn bounds_of_a_clock_that_is_kept_right() {
    const TEST: &str = "bounds_of_a_clock_that_is_kept_right";
    let _alone = alone();
    let is_synchronised = || adjust(|_| ()).is_ok_and(|now| now.status & libc::STA_UNSYNC == 0);
    adjusting(TEST, || {
        let keep = |max_error| {
            adjust(|kept| {
                kept.modes = libc::ADJ_STATUS | libc::ADJ_MAXERROR | libc::ADJ_ESTERROR;
                (kept.status, kept.maxerror, kept.esterror) = (libc::STA_PLL, max_error, 10);
            })
            .unwrap();
            // As long as what was learnt before is kept.
            thread::sleep(Duration::from_millis(15));
        };
        for max_error in [50, 2_000, 100] {
            keep(max_error);
            for _ in 0..storm::scaled(100_000) {
                let before = clock::realtime() as i64;
                let now = match clock::now_bounded() {
                    Ok(now) => now,
                    // Setting the clock or switching its source has this effect.
                    Err(Unbounded::Unsynchronised) if !is_synchronised() => {
                        return skip(TEST, "another process takes the clock's word away");
                    }
                    Err(why) => panic!("{why}"),
                };
                let after = clock::realtime() as i64;
                let (earliest, latest) = (now.earliest.as_nanos(), now.latest.as_nanos());
                assert!(earliest <= after && before <= latest, "{before} {now:?} {after}");
                let width = (latest - earliest) as u64;
                // The kernel adds 500 us a second, and we what may be drifted within a second.
                let least = 2 * 1000 * max_error as u64;
                assert!((least..least + 12_000_000).contains(&width), "{width} of {max_error}");
                assert!(now.is_after(Timestamp::UNIX_EPOCH));
            }
        }
        adjust(|gone| (gone.modes, gone.status) = (libc::ADJ_STATUS, libc::STA_UNSYNC)).unwrap();
        thread::sleep(Duration::from_millis(15));
        assert_eq!(clock::now_bounded(), Err(Unbounded::Unsynchronised));
    });
}

/// A filter refuses the call.
#[test]
fn where_the_kernel_does_not_tell() {
    let test = "where_the_kernel_does_not_tell";
    // libc makes either, by its version.
    let call = libc::SYS_clock_adjtime;
    sandbox::run_refusing(test, call, sandbox::When::Always, libc::EPERM, || {
        sandbox::refuse(libc::SYS_adjtimex, sandbox::When::Always, libc::EPERM);
        for _ in 0..1000 {
            match clock::now_bounded() {
                Err(Unbounded::Untold(error)) => assert_eq!(error.0, libc::EPERM),
                told => panic!("{told:?}"),
            }
        }
    });
}

/// Threads on all cpus and a signal handler, while the clock is slewed to and fro at each of its ticks; each
/// bound of the time, and none earlier than one that was handed over.
#[test]
fn while_the_clock_is_slewed() {
    const TEST: &str = "while_the_clock_is_slewed";
    let _alone = alone();
    clock::settle();
    adjusting(TEST, || {
        adjust(|kept| {
            kept.modes = libc::ADJ_STATUS | libc::ADJ_MAXERROR;
            (kept.status, kept.maxerror) = (libc::STA_PLL, 20);
        })
        .unwrap();
        thread::sleep(Duration::from_millis(15));
        static WRONG: std::sync::Mutex<Option<(u64, Bounded, u64)>> = std::sync::Mutex::new(None);
        static SEEN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let by = if turn % 2 == 0 { 500 << 16 } else { -500 << 16 };
                    let _ = adjust(|slew| (slew.modes, slew.freq) = (libc::ADJ_FREQUENCY, by));
                    thread::sleep(Duration::from_millis(3));
                }
            });
            storm::rage_doing(4, storm::scaled(200_000), || {
                let before = clock::realtime();
                let Ok(now) = clock::now_bounded() else { return };
                let after = clock::realtime();
                let is_right = now.earliest.as_nanos() as u64 <= after
                    && before <= now.latest.as_nanos() as u64;
                SEEN.fetch_add(1, Ordering::Relaxed);
                if !is_right {
                    // Not in a handler that interrupted the lock's owner.
                    if let Ok(mut wrong) = WRONG.try_lock() {
                        *wrong = Some((before, now, after));
                    }
                }
            });
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(*WRONG.lock().unwrap(), None);
        println!("{} bounds", SEEN.load(Ordering::Relaxed));
    });
}
