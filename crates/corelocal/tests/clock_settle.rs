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
use sandbox::{run_in_child, skip};

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

/// From here on the process is killed at any system call but the one that ends it.
fn forbid_system_calls() -> bool {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0);
    let is_exit =
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_exit_group as u32);
    let ret = libc::BPF_RET | libc::BPF_K;
    let mut filter = [
        load,
        libc::sock_filter { jf: 1, ..is_exit },
        statement(ret, libc::SECCOMP_RET_ALLOW),
        statement(ret, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter is the kernel's to read during the call.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

/// Whether a forked child gets through `body` without a system call once it has settled; `None` if filters are refused.
fn needs_no_system_call(body: fn()) -> Option<bool> {
    const NO_FILTER: i32 = 2;
    // SAFETY: the child ends below, and needs no lock of another thread's.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            clock::settle();
            if !forbid_system_calls() {
                libc::_exit(NO_FILTER);
            }
            body();
            libc::_exit(0);
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        let is_refused = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == NO_FILTER;
        (!is_refused).then_some(status == 0)
    }
}

/// A program may forbid itself system calls once it has settled.
#[test]
fn all_readings_after_settling_make_no_system_call() {
    const TEST: &str = "all_readings_after_settling_make_no_system_call";
    run_in_child(
        TEST,
        |_| (),
        || {
            // What this machine needs without the library.
            let by_libc = || {
                let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME] {
                    // SAFETY: a place for a time.
                    unsafe { libc::clock_gettime(clock, &raw mut time) };
                }
            };
            match (needs_no_system_call(|| ()), needs_no_system_call(by_libc)) {
                (None, _) => return skip(TEST, "system call filters are refused"),
                (Some(false), _) => {
                    return skip(TEST, "a child makes a system call by itself: a sanitizer's");
                }
                (_, Some(false)) => return skip(TEST, "libc asks the kernel for the time here"),
                _ => {}
            }
            let is_needless = needs_no_system_call(|| _ = (clock::monotonic(), clock::realtime()));
            assert_eq!(is_needless, Some(true));
            let is_needless = needs_no_system_call(|| {
                let _ = (clock::epoch(), clock::status(), clock::check());
                let _ =
                    (clock::Ticks::now(), clock::Stamp::now(), clock::coarse(), clock::boottime());
            });
            assert_eq!(is_needless, Some(true));
        },
    );
}
