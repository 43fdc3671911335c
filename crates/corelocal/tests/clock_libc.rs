//! `CORELOCAL_CLOCK=libc`: the clock follows libc's `clock_gettime`, which a preloaded library such as libfaketime answers.
//! Deadlines are of the kernel's clock all the same, by which the kernel ends waits.
#![cfg(not(any(miri, target_feature = "crt-static")))]

mod sandbox;

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use corelocal::clock::{self, Timestamp};
use corelocal::sync::{AutoEvent, Deadline};

/// Seconds that the fake clock is ahead.
static AHEAD: AtomicI64 = AtomicI64::new(0);

/// libc's function, as libfaketime has it.
///
/// # Safety
/// - As `clock_gettime(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> i32 {
    // SAFETY: the caller's place for the time.
    unsafe {
        let failed = libc::syscall(libc::SYS_clock_gettime, clock, time) as i32;
        if failed == 0 {
            (*time).tv_sec += AHEAD.load(Ordering::Relaxed);
        }
        failed
    }
}

/// How far our clocks are ahead of the kernel's, in seconds.
fn ahead() -> [i64; 2] {
    let kernels = |clock: libc::clockid_t| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a place for the time.
        unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &mut time) };
        time.tv_sec
    };
    let ours = [Timestamp::now().as_nanos(), clock::Instant::now().as_nanos()];
    let theirs = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC].map(kernels);
    // Nearest, as a second may turn in between.
    std::array::from_fn(|nth| (ours[nth] as f64 / 1e9 - theirs[nth] as f64).round() as i64)
}

fn run(test: &str, setting: &str, body: fn()) {
    let prepare = |child: &mut std::process::Command| {
        child.env("CORELOCAL_CLOCK", setting);
    };
    sandbox::run_in_child(test, prepare, body);
}

#[test]
fn by_libc_the_clock_is_the_fake_one() {
    run("by_libc_the_clock_is_the_fake_one", "libc", || {
        assert!(ahead().iter().all(|seconds| seconds.abs() <= 1), "{:?}", ahead());
        AHEAD.store(10_000, Ordering::Relaxed);
        assert!(ahead().iter().all(|seconds| (seconds - 10_000).abs() <= 1), "{:?}", ahead());
        assert_eq!(clock::settle(), clock::Backend::Vdso);
        assert!(ahead().iter().all(|seconds| (seconds - 10_000).abs() <= 1), "{:?}", ahead());
    });
}

#[test]
fn otherwise_it_is_the_kernels() {
    for setting in ["", "vdso"] {
        run("otherwise_it_is_the_kernels", setting, || {
            AHEAD.store(10_000, Ordering::Relaxed);
            assert!(ahead().iter().all(|seconds| seconds.abs() <= 1), "{:?}", ahead());
        });
    }
}

#[test]
fn waits_end_by_the_kernels_clock() {
    run("waits_end_by_the_kernels_clock", "libc", || {
        AHEAD.store(10_000, Ordering::Relaxed);
        let begin = Instant::now();
        assert!(AutoEvent::new(false).wait_for(Duration::from_millis(20)).timed_out());
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(20) && took < Duration::from_secs(60), "{took:?}");
        assert!(Deadline::after(Duration::from_secs(5)).remaining() <= Duration::from_secs(5));
    });
}
