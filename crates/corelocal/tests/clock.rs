//! The clock in each of its back-ends, which `CORELOCAL_CLOCK` chooses: between the vDSO's readings, rising
//! across threads and under signals, right after fork, and without what its start asks the kernel for.

mod forked;
mod sandbox;
mod storm;

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use corelocal::clock::{self, Backend, Instant, Timestamp};
use storm::scaled;

/// The vDSO's time in nanoseconds.
fn vdso(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { libc::clock_gettime(clock, &mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

type Clocks = [(libc::clockid_t, fn() -> u64, fn() -> u64); 4];

const CLOCKS: Clocks = [
    (libc::CLOCK_MONOTONIC, clock::monotonic, clock::monotonic_unordered),
    (libc::CLOCK_REALTIME, clock::realtime, clock::realtime_unordered),
    (libc::CLOCK_BOOTTIME, clock::boottime, clock::boottime_unordered),
    (libc::CLOCK_TAI, clock::tai, clock::tai_unordered),
];

/// How far a back-end's reading may lie outside the vDSO's around it: on a machine whose rate is slewed
/// meanwhile the anchored ones are off by what their documentation says.
fn tolerance() -> u64 {
    match clock::status().backend {
        Backend::Paravirtual | Backend::Anchor => 50_000,
        _ => 0,
    }
}

/// Every clock is between two readings of the vDSO, ordered or not.
fn is_between(readings: u64) {
    for reading in 0..readings {
        let (id, ordered, unordered) = CLOCKS[reading as usize % CLOCKS.len()];
        let read = if reading % 8 < 4 { ordered } else { unordered };
        // A clock that is set in between fails once.
        let mut outside = 0;
        for _ in 0..3 {
            let before = vdso(id);
            let time = read();
            let after = vdso(id);
            // An unordered reading may be early by what the cpu has in flight.
            let early = if reading % 8 < 4 { 0 } else { 1000 };
            outside = before.saturating_sub(time + early).max(time.saturating_sub(after));
            if outside <= tolerance() {
                break;
            }
        }
        assert!(outside <= tolerance(), "clock {id}: {outside} ns outside: {:?}", clock::status());
    }
}

/// What one thread reads is not earlier than what another read before and handed over.
fn rises_across_threads(readings: u64) {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut own = 0;
                for _ in 0..readings {
                    // Acquire: partner is the Release below, by which a thread hands over what it read.
                    let before = LATEST.load(Ordering::Acquire);
                    let now = clock::monotonic();
                    assert!(now >= before, "{} ns back", before - now);
                    LATEST.fetch_max(now, Ordering::Release);
                    let cheap = clock::monotonic_unordered();
                    assert!(cheap >= own, "{} ns back within a thread", own - cheap);
                    own = cheap;
                }
            });
        }
    });
}

/// Runs `body` in a child in which `CORELOCAL_CLOCK` is that.
fn with_clock(test: &str, backend: &str, body: impl FnOnce()) {
    let prepare = |child: &mut Command| {
        child.env("CORELOCAL_CLOCK", backend);
    };
    sandbox::run_in_child(test, prepare, body);
}

fn all_is_well() {
    is_between(scaled(40_000));
    rises_across_threads(scaled(200_000));
    is_between(scaled(1000));
    let status = clock::status();
    eprintln!("{status:?}");
}

#[test]
fn the_best_back_end_is_right() {
    with_clock("the_best_back_end_is_right", "", || {
        all_is_well();
        clock::settle();
        all_is_well();
        assert_eq!(clock::status().epoch, clock::epoch());
    });
}

#[test]
fn the_anchor_is_right() {
    with_clock("the_anchor_is_right", "anchor", || {
        all_is_well();
        assert!(clock::settle() >= Backend::Anchor);
        all_is_well();
    });
}

#[test]
fn the_paravirtual_page_is_right() {
    with_clock("the_paravirtual_page_is_right", "paravirtual", || {
        all_is_well();
        if clock::status().backend != Backend::Paravirtual {
            sandbox::skip("the_paravirtual_page_is_right", "KVM's page is not mapped here");
        }
    });
}

#[test]
fn the_vdso_is_right() {
    with_clock("the_vdso_is_right", "vdso", || {
        all_is_well();
        assert_eq!(clock::settle(), Backend::Vdso);
        assert_eq!(clock::status().fallbacks.total(), 0, "nothing was tried");
    });
}

/// Times of ticks are not in the future, nor long ago, and rise.
#[test]
fn coarse_times_are_of_the_last_tick() {
    for settled in [false, true] {
        if settled {
            clock::settle();
        }
        let mut last = 0;
        for _ in 0..scaled(10_000) {
            let before = vdso(libc::CLOCK_MONOTONIC_COARSE);
            let coarse = clock::coarse();
            assert!(before <= coarse && coarse <= vdso(libc::CLOCK_MONOTONIC_COARSE));
            assert!(coarse >= last && coarse <= clock::monotonic());
            last = coarse;
            assert!(clock::realtime_coarse() <= clock::realtime());
        }
    }
}

#[test]
fn the_types_read_their_clocks() {
    let before = vdso(libc::CLOCK_MONOTONIC) as i64;
    let (now, instant) = (clock::now(), Instant::now());
    assert!(before <= now.as_nanos() && now <= instant);
    assert!(instant.as_nanos() <= vdso(libc::CLOCK_MONOTONIC) as i64);
    assert!(Instant::now_unordered().duration_since(now) < Duration::from_secs(60));
    let before = vdso(libc::CLOCK_REALTIME) as i64;
    let date = Timestamp::now();
    assert!(before <= date.as_nanos() + 60_000_000_000, "unless the clock was set");
    assert!(Timestamp::now_unordered().as_nanos() > 0);
}

/// Signal handlers read the clock while what they interrupt does, and may be making the next line.
#[test]
fn signal_handlers_and_migrations_do_no_harm() {
    for backend in ["", "anchor"] {
        with_clock("signal_handlers_and_migrations_do_no_harm", backend, || {
            static LAST: AtomicU64 = AtomicU64::new(0);
            let act = || {
                let before = LAST.load(Ordering::Acquire);
                let now = clock::monotonic();
                if now < before {
                    // A panic must not leave a signal handler.
                    std::process::abort();
                }
                LAST.fetch_max(now, Ordering::Release);
            };
            let done = storm::rage_doing(4, scaled(100_000), act);
            assert!(done >= scaled(100_000));
            is_between(1000);
        });
    }
}

/// A child reads right from its first instruction on, and does not need what its parent's threads had.
#[test]
fn a_forked_child_reads_right() {
    for backend in ["", "anchor", "vdso"] {
        with_clock("a_forked_child_reads_right", backend, || {
            clock::settle();
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| is_between(scaled(20_000)));
                }
                for _ in 0..scaled(200) {
                    let before = clock::monotonic();
                    let child = forked::judge(|| {
                        let mut right = true;
                        for (id, read, _) in CLOCKS {
                            let slack = tolerance();
                            let before = vdso(id).saturating_sub(slack);
                            let time = read();
                            right &= before <= time && time <= vdso(id) + slack;
                        }
                        right &= clock::monotonic() + tolerance() >= before;
                        right
                    });
                    child.succeeds();
                }
            });
        });
    }
}

/// Without pipes nothing can be probed; without files (no /proc, no /sys) the counter cannot be trusted.
#[test]
fn nothing_that_is_refused_makes_it_wrong() {
    for call in [libc::SYS_pipe2, libc::SYS_write, libc::SYS_openat, libc::SYS_mmap] {
        let test = "nothing_that_is_refused_makes_it_wrong";
        sandbox::run_refusing(test, call, sandbox::When::Always, libc::EPERM, REFUSED);
    }
}

const REFUSED: fn() = || {
    is_between(scaled(20_000));
    clock::settle();
    is_between(scaled(20_000));
};

/// What the first reading asked the kernel for, no later one does.
#[test]
fn readings_after_the_first_make_no_system_calls() {
    with_clock("readings_after_the_first_make_no_system_calls", "", || {
        clock::settle();
        let before = clock::status();
        for call in [libc::SYS_pipe2, libc::SYS_openat, libc::SYS_read, libc::SYS_mmap] {
            sandbox::refuse(call, sandbox::When::Always, libc::EPERM);
        }
        is_between(scaled(20_000));
        let after = clock::status();
        assert_eq!((after.backend, after.fallbacks), (before.backend, before.fallbacks));
    });
}
