//! Settings of the malloc and of the tracer at their extremes: a program goes on, or gets an error that says why. Those of
//! `rcu` are in `rcu_deferred.rs`.
#![cfg(all(feature = "std", target_os = "linux"))]

mod sandbox;

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use corelocal::alloc::{self, CoreLocal};
use corelocal::event;
use corelocal::trace::{self, Options, StartError};

#[global_allocator]
static MEMORY: CoreLocal = CoreLocal;

/// Allocates and frees small and large objects, here and in another thread.
fn use_memory() {
    let all: Vec<Vec<u8>> = (0..2000_usize).map(|nth| vec![nth as u8; nth * 7 % 5000]).collect();
    let large = vec![1_u8; 3 << 20];
    thread::spawn(move || {
        assert!(all.iter().enumerate().all(|(nth, at)| at.iter().all(|byte| *byte == nth as u8)));
        drop((all, large));
        alloc::release_idle();
    })
    .join()
    .unwrap();
}

#[test]
fn of_the_malloc() {
    for target in [Some(0), Some(1), Some(usize::MAX - 1), Some(usize::MAX), None] {
        for hook_at in [0, 1, usize::MAX] {
            alloc::set_target(target);
            alloc::set_cold_hook(hook_at, |moment| _ = black_box(moment));
            use_memory();
        }
    }
    alloc::set_cold_hook(usize::MAX, |_| ());
    alloc::set_target(None);
}

/// Environments with which the malloc's own words are read anew, each in a process of its own.
#[test]
fn of_the_malloc_in_the_environment() {
    for number in ["0", "1", "18446744073709551615", "18446744073709551616", "-1", "", "9999G"] {
        let words = ["guard", "profile", "resident"].map(|word| format!("{word}:{number}"));
        let prepare = |command: &mut std::process::Command| {
            command.env("CORELOCAL_MALLOC", words.join(","));
        };
        sandbox::run_in_child("of_the_malloc_in_the_environment", prepare, use_memory);
    }
}

/// Starts a recording in a child, which records if that is possible.
fn starts(options: fn() -> Options<'static>, is_right: fn(Result<(), StartError>) -> bool) {
    static NTH: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let nth = NTH.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // SAFETY: the child records, and leaves by `_exit`; a test of its own, so that there is one thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child if it hangs.
        unsafe { libc::alarm(30) };
        let started = trace::start(options());
        let records = started.is_err() || {
            (0..10_000_u64).for_each(|n| event!(test::extreme, n = n));
            trace::status().is_some()
        };
        let code = i32::from(!(is_right(started) && records));
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) };
    }
    let mut status = -1;
    // SAFETY: waits for the child just made; writes one number.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the options number {nth}");
}

#[test]
fn of_the_tracer() {
    starts(|| Options::flight_recorder().max_bytes(0), |started| started.is_ok());
    starts(|| Options::flight_recorder().max_bytes(1), |started| started.is_ok());
    starts(
        || Options::flight_recorder().max_bytes(usize::MAX),
        |started| matches!(started, Err(StartError::NoMemory(_))),
    );
    starts(|| Options::flight_recorder().min_age(Duration::ZERO), |started| started.is_ok());
    starts(|| Options::flight_recorder().min_age(Duration::MAX), |started| started.is_ok());
    starts(
        || Options::flight_recorder().dump_to("/dev/null").dump_pause(Duration::ZERO),
        |started| started.is_ok(),
    );
    starts(
        || Options::flight_recorder().dump_to("/dev/null").dump_pause(Duration::MAX),
        |started| started.is_ok(),
    );
    let refused: fn(Result<(), StartError>) -> bool = |started| started.is_err();
    starts(|| Options::flight_recorder().dump_to("/dev/null").dump_on_signal(-1), refused);
    starts(|| Options::flight_recorder().dump_to("/dev/null").dump_on_signal(i32::MAX), refused);
    starts(|| Options::flight_recorder().dump_to("/dev/null").dump_on_signal(i32::MIN), refused);
    starts(|| Options::flight_recorder().dump_to(""), |_| true);
    starts(|| Options::flight_recorder().file(""), refused);
}
