//! No clock goes back in any thread while others choose the back-end anew, whichever is the best that is allowed.
//!
//! Each thread compares its reading with the latest that any thread had published before (Release and Acquire),
//! which therefore happens before it.
#![cfg(not(miri))]

mod sandbox;
mod storm;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use corelocal::clock;
use sandbox::run_in_child;

/// Those of which a reading is never earlier than one that happens before, if the machine's time is not set.
const CLOCKS: [fn() -> u64; 2] = [clock::monotonic, clock::boottime];

struct Latest([AtomicU64; CLOCKS.len()]);

impl Latest {
    /// Reads each clock once; the worst that one went back by.
    fn read(&self) -> u64 {
        let mut worst = 0;
        for (read, latest) in CLOCKS.iter().zip(&self.0) {
            // Acquire: partner is the Release below, after that reading.
            let before = latest.load(Ordering::Acquire);
            let now = read();
            worst = worst.max(before.saturating_sub(now));
            latest.fetch_max(now, Ordering::Release);
        }
        worst
    }
}

fn nothing_goes_back() {
    let latest = Latest([const { AtomicU64::new(0) }; CLOCKS.len()]);
    let done = AtomicBool::new(false);
    let readings = storm::scaled(1_000_000);
    thread::scope(|scope| {
        let reader = || (0..readings).map(|_| latest.read()).max();
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(reader)).collect();
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    clock::settle();
                    latest.read();
                    thread::yield_now();
                }
            });
        }
        let worst: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        done.store(true, Ordering::Relaxed);
        for worst in worst {
            let status = clock::status();
            assert_eq!(worst.unwrap(), Some(0), "nanoseconds back; {status:?}");
        }
    });
    println!("{:?}", clock::status());
}

fn with(test: &str, best: &str) {
    let allow = |command: &mut Command| {
        command.env("CORELOCAL_CLOCK", best);
    };
    run_in_child(test, allow, nothing_goes_back);
}

#[test]
fn nothing_goes_back_with_the_best() {
    with("nothing_goes_back_with_the_best", "");
}

#[test]
fn nothing_goes_back_with_the_paravirtual_page() {
    with("nothing_goes_back_with_the_paravirtual_page", "paravirtual");
}

#[test]
fn nothing_goes_back_with_an_anchor() {
    with("nothing_goes_back_with_an_anchor", "anchor");
}

#[test]
fn nothing_goes_back_with_the_vdso() {
    with("nothing_goes_back_with_the_vdso", "vdso");
}
