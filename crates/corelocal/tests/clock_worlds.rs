//! The clock where it was not set up: in forked children, and in time namespaces, whose clocks are days
//! ahead, or behind.
//!
//! The page beside the vDSO is replaced under a process that is forked into a time namespace or goes there.
//! What a clock knew about the page is then wrong, and must be found out by the next reading.
#![cfg(not(miri))]

mod between_vdso;
mod forked;
mod sandbox;
mod storm;

use std::ffi::CStr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{env, io};

use between_vdso::{CLOCKS, judge, vdso};
use corelocal::clock;
use forked::End;
use sandbox::{run_in_child, skip};

/// What a forked child ends with: right; wrong at once; wrong after the best back-end was looked for again; or
/// that it cannot be tried here.
const RIGHT: i32 = 0;
const WRONG: i32 = 1;
const WRONG_AFTERWARDS: i32 = 2;
const CANNOT: i32 = 77;

/// Runs `body` in a forked child, which makes system calls and reads clocks only; its result.
fn fork_and(body: impl FnOnce() -> i32) -> i32 {
    match forked::fork(body).wait() {
        End::Code(code) => code,
        End::Signal(signal) => -signal,
    }
}

/// Reads each clock so often, before and after the best back-end was looked for again.
fn right_or_wrong(readings: u64) -> i32 {
    let count = CLOCKS.len() as u64 * readings;
    let right = || between_vdso::readings(count, |_| ()).iter().all(|tally| tally.outside == 0);
    if !right() {
        return WRONG;
    }
    clock::settle();
    if right() { RIGHT } else { WRONG_AFTERWARDS }
}

#[test]
fn in_a_forked_child() {
    clock::settle();
    let readings = storm::scaled(20_000);
    assert_eq!(fork_and(|| right_or_wrong(readings)), RIGHT);
    assert_eq!(fork_and(|| fork_and(|| right_or_wrong(readings))), RIGHT);
}

const DAY: u64 = 86_400_000_000_000;

/// A new time namespace, for the children of this process, in which it is another day. System calls only.
fn make_time_namespace() -> io::Result<()> {
    // Seconds and nanoseconds later: two days and a bit, five days and a bit.
    make_time_namespace_at("monotonic 172800 123456789\nboottime 432000 987654321\n")
}

/// Likewise, with clocks that are so far ahead.
fn make_time_namespace_at(offsets: &str) -> io::Result<()> {
    // SAFETY: no addresses but of a path that ends in NUL and of a valid range.
    let written = unsafe {
        if libc::unshare(libc::CLONE_NEWTIME) != 0 {
            return Err(io::Error::last_os_error());
        }
        let file = libc::open(c"/proc/self/timens_offsets".as_ptr(), libc::O_WRONLY);
        let written = libc::write(file, offsets.as_ptr().cast(), offsets.len());
        libc::close(file);
        written
    };
    if written == offsets.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens a namespace of this process.
fn open(path: &CStr) -> i32 {
    // SAFETY: a path that ends in NUL.
    unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }
}

/// Goes into a namespace, as only a process without other threads can.
fn enter(namespace: i32) -> io::Result<()> {
    // SAFETY: no addresses.
    let entered = unsafe { libc::setns(namespace, libc::CLONE_NEWTIME) } == 0;
    if entered { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Says why not, or fails unless the child was right.
fn judge_namespace(test: &str, code: i32) {
    match code {
        CANNOT => skip(test, "no time namespace can be made here"),
        code => assert_eq!(code, RIGHT),
    }
}

/// The child is born into the namespace; its clock was set up outside.
#[test]
fn forked_into_a_time_namespace() {
    clock::settle();
    let (readings, outside) = (storm::scaled(20_000), vdso(libc::CLOCK_MONOTONIC));
    let code = fork_and(|| match make_time_namespace() {
        Err(_) => CANNOT,
        Ok(()) => fork_and(|| match vdso(libc::CLOCK_MONOTONIC) > outside + DAY {
            true => right_or_wrong(readings),
            false => CANNOT,
        }),
    });
    judge_namespace("forked_into_a_time_namespace", code);
}

/// The child's clocks are behind its parent's, by much and by little: it does not wait for its parent's time.
#[test]
fn forked_into_a_time_namespace_that_is_behind() {
    const TEST: &str = "forked_into_a_time_namespace_that_is_behind";
    clock::settle();
    let readings = storm::scaled(20_000);
    for (offsets, behind) in [
        ("monotonic -30 0\nboottime -30 0\n", 29_000_000_000),
        ("monotonic -1 950000000\nboottime -1 950000000\n", 0),
    ] {
        for read in [clock::monotonic, clock::boottime] {
            read();
        }
        let outside = vdso(libc::CLOCK_MONOTONIC);
        let code = fork_and(|| match make_time_namespace_at(offsets) {
            Err(_) => CANNOT,
            Ok(()) => fork_and(|| match vdso(libc::CLOCK_MONOTONIC) + behind < outside + DAY {
                true => right_or_wrong(readings),
                false => CANNOT,
            }),
        });
        judge_namespace(TEST, code);
    }
}

/// Back-ends that follow the vDSO by samples see where they are with the next one, 32 ms later at most.
fn take_another_sample() {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    // SAFETY: a valid time.
    unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) };
    for clock in CLOCKS {
        let _ = between_vdso::batch(clock);
    }
}

/// A running process goes into the namespace and comes back.
#[test]
fn into_a_time_namespace_and_back() {
    clock::settle();
    let (readings, outside) = (storm::scaled(20_000), vdso(libc::CLOCK_MONOTONIC));
    let code = fork_and(|| {
        let home = open(c"/proc/self/ns/time");
        if make_time_namespace().is_err() {
            return CANNOT;
        }
        let away = open(c"/proc/self/ns/time_for_children");
        for _ in 0..3 {
            for namespace in [away, home] {
                let exact = between_vdso::is_exact();
                if enter(namespace).is_err() {
                    return CANNOT;
                }
                let is_away = vdso(libc::CLOCK_MONOTONIC) > outside + DAY;
                if is_away != (namespace == away) {
                    return CANNOT;
                }
                if !exact {
                    take_another_sample();
                }
                match right_or_wrong(readings) {
                    RIGHT => {}
                    wrong => return wrong,
                }
            }
        }
        RIGHT
    });
    judge_namespace("into_a_time_namespace_and_back", code);
}

/// A program is started in the namespace.
#[test]
fn started_in_a_time_namespace() {
    const TEST: &str = "started_in_a_time_namespace";
    let outside = vdso(libc::CLOCK_MONOTONIC);
    // Before Linux 6.0 exec does not enter it, and a process that waits outside of it has no threads.
    let go =
        || make_time_namespace().and_then(|()| enter(open(c"/proc/self/ns/time_for_children")));
    // SAFETY: between fork and exec the closure makes system calls only.
    let prepare = |command: &mut Command| unsafe {
        command.env("OUTSIDE", outside.to_string()).pre_exec(go);
    };
    run_in_child(TEST, prepare, || {
        let outside: u64 = env::var("OUTSIDE").unwrap().parse().unwrap();
        assert!(vdso(libc::CLOCK_MONOTONIC) > outside + DAY);
        clock::settle();
        judge(&between_vdso::readings(storm::scaled(1_000_000), |_| ()));
    });
}
