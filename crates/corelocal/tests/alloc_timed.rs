//! Memory that goes back by time from cold paths, and what there is done before a result is null.
#![cfg(not(any(loom, miri)))]

mod sandbox;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{ptr, thread};

use corelocal::alloc::{self, CoreLocal, Moment};
use sandbox::run_in_child;

/// This test binary's heap.
#[global_allocator]
static MEMORY: CoreLocal = CoreLocal;

const MIB: usize = 1 << 20;
/// A machine may do other things for long.
const SOON: Duration = Duration::from_secs(60);

/// Objects of a size, written to.
fn fill(count: usize, size: usize) -> Vec<*mut u8> {
    let objects: Vec<_> = (0..count).map(|_| alloc::allocate(size)).collect();
    // SAFETY: allocated above.
    objects.iter().for_each(|object| unsafe { object.write_bytes(1, size) });
    objects
}

fn empty(objects: Vec<*mut u8>) {
    // SAFETY: what `fill` made, once.
    objects.into_iter().for_each(|object| unsafe { alloc::deallocate(object) });
}

/// Bytes that steps have given back in the hook, and the most of one.
static GIVEN: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn hook(_: Moment) {
    let bytes = alloc::release_by_time();
    GIVEN.fetch_add(bytes, Ordering::Relaxed);
    MOST.fetch_max(bytes, Ordering::Relaxed);
}

/// Does a little until what is idle is less, in a process whose only thread this is.
fn work_until_idle_is_below(bytes: usize) {
    let began = Instant::now();
    while alloc::idle_bytes() >= bytes {
        assert!(began.elapsed() < SOON, "{} bytes are idle", alloc::idle_bytes());
        empty(fill(1, 2 * MIB));
        thread::sleep(Duration::from_millis(2));
    }
}

/// Large objects and small ones, in steps of bounded size.
#[test]
fn idle_memory_goes_back_from_cold_paths() {
    run_in_child(
        "idle_memory_goes_back_from_cold_paths",
        |_| (),
        || {
            alloc::set_cold_hook(32 * MIB, hook);
            for (count, size) in [(100, 2 * MIB), (1_000_000, 200)] {
                empty(fill(count, size));
                work_until_idle_is_below(8 * MIB);
            }
            assert!(GIVEN.load(Ordering::Relaxed) >= 300 * MIB);
            assert!(MOST.load(Ordering::Relaxed) <= 20 * MIB, "{MOST:?} in one step");
        },
    );
}

/// Steps that were due while no thread called are made up for, but not all of a long time.
#[test]
fn a_few_calls_in_a_row_take_a_step() {
    run_in_child(
        "a_few_calls_in_a_row_take_a_step",
        |_| (),
        || {
            alloc::set_cold_hook(usize::MAX, |_| ());
            empty(fill(300, 2 * MIB));
            // It has to be idle for a period.
            let began = Instant::now();
            while alloc::release_by_time() == 0 {
                assert!(began.elapsed() < SOON);
                thread::sleep(Duration::from_millis(100));
            }
            thread::sleep(Duration::from_secs(1));
            let began = Instant::now();
            let mut steps = 0;
            while alloc::release_by_time() > 0 {
                steps += 1;
            }
            // While they are taken, more become due: one for each 10 ms of a clock that moves every 4 to 10.
            let most = 8 + began.elapsed().as_millis() / 10 + 1;
            assert!((6..=most).contains(&steps), "{steps} steps in {:?}", began.elapsed());
        },
    );
}

/// One object that comes and goes never finds a cache empty or full: the cold path comes all the same, as long as much
/// is idle.
#[test]
fn pairs_of_one_size_are_enough() {
    run_in_child(
        "pairs_of_one_size_are_enough",
        |_| (),
        || {
            alloc::set_cold_hook(32 * MIB, hook);
            empty(fill(1_000_000, 200));
            let began = Instant::now();
            while alloc::idle_bytes() >= 32 * MIB {
                assert!(began.elapsed() < SOON, "{} bytes are idle", alloc::idle_bytes());
                (0..5000).for_each(|_| empty_one(alloc::allocate(200)));
                thread::sleep(Duration::from_millis(2));
            }
            // It is as it was: objects are where caches are looked for at first.
            for _ in 0..1000 {
                empty(fill(100, 200));
            }
        },
    );
}

fn empty_one(object: *mut u8) {
    assert!(!object.is_null());
    // SAFETY: the caller's, just allocated.
    unsafe { alloc::deallocate(object) };
}

/// One of 300 stays, so that no span is empty.
#[test]
fn pages_between_objects_go_back_from_cold_paths() {
    run_in_child(
        "pages_between_objects_go_back_from_cold_paths",
        |_| (),
        || {
            alloc::set_cold_hook(32 * MIB, hook);
            let objects = fill(1_000_000, 64).into_iter().enumerate();
            let (kept, freed): (Vec<_>, Vec<_>) = objects.partition(|(nth, _)| nth % 300 == 0);
            empty(freed.into_iter().map(|(_, object)| object).collect());
            let began = Instant::now();
            while GIVEN.load(Ordering::Relaxed) < 24 * MIB {
                assert!(began.elapsed() < SOON, "{GIVEN:?} bytes");
                empty(fill(1, 2 * MIB));
                thread::sleep(Duration::from_millis(2));
            }
            for (_, object) in kept {
                // SAFETY: ours, of so many bytes, not written to since.
                unsafe {
                    assert!((0..64).all(|byte| object.add(byte).read() == 1));
                    alloc::deallocate(object);
                }
            }
        },
    );
}

/// The target holds for steps as well.
#[test]
fn a_target_keeps_what_is_idle() {
    run_in_child(
        "a_target_keeps_what_is_idle",
        |_| (),
        || {
            alloc::set_cold_hook(32 * MIB, hook);
            alloc::set_target(Some(150 * MIB));
            empty(fill(60, 2 * MIB));
            let end = Instant::now() + Duration::from_millis(1500);
            while Instant::now() < end {
                empty(fill(1, 2 * MIB));
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(GIVEN.load(Ordering::Relaxed), 0);
            alloc::set_target(Some(50 * MIB));
            work_until_idle_is_below(50 * MIB);
            assert!(alloc::idle_bytes() > 20 * MIB);
        },
    );
}

/// A handler that interrupts whatever the thread does, steps included, and has cold paths itself.
#[test]
fn steps_in_signal_handlers() {
    extern "C" fn handle(_: libc::c_int) {
        let objects: [*mut u8; 3] = std::array::from_fn(|nth| alloc::allocate(2 * MIB + nth));
        let small: [*mut u8; 64] = std::array::from_fn(|_| alloc::allocate(3000));
        for object in objects.into_iter().chain(small) {
            // SAFETY: just allocated.
            unsafe { alloc::deallocate(object) };
        }
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    run_in_child(
        "steps_in_signal_handlers",
        |_| (),
        || {
            alloc::set_cold_hook(MIB, hook);
            // SAFETY: a handler that does what the module allows; one signal at a time.
            let me = unsafe {
                libc::signal(libc::SIGUSR1, handle as extern "C" fn(libc::c_int) as usize);
                libc::pthread_self() as usize
            };
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                let done = &done;
                scope.spawn(move || {
                    let mut next = 0;
                    while !done.load(Ordering::Relaxed) {
                        // One signal at a time: a thread that is interrupted all the time does nothing else.
                        if HANDLED.load(Ordering::Relaxed) >= next {
                            next += 1;
                            // SAFETY: the thread waits for this one.
                            unsafe { libc::pthread_kill(me as libc::pthread_t, libc::SIGUSR1) };
                        }
                        thread::sleep(Duration::from_micros(300));
                    }
                });
                let end = Instant::now() + Duration::from_secs(2);
                while Instant::now() < end {
                    empty(fill(10_000, 300));
                    empty(fill(4, 3 * MIB));
                    alloc::trim(0);
                }
                done.store(true, Ordering::Relaxed);
            });
            assert!(HANDLED.load(Ordering::Relaxed) > 0);
        },
    );
}

/// Sets a limit before the program starts.
fn limit_data(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    let limit = libc::rlimit { rlim_cur: 256 << 20, rlim_max: 256 << 20 };
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_DATA, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// As many objects as there are, in a list through themselves.
fn all_there_are(size: usize) -> (usize, *mut u8) {
    let (mut count, mut last) = (0, ptr::null_mut::<u8>());
    loop {
        let object = alloc::allocate(size);
        if object.is_null() {
            return (count, last);
        }
        // SAFETY: a word at least.
        unsafe { object.cast::<*mut u8>().write(last) };
        (last, count) = (object, count + 1);
    }
}

fn give_all(mut last: *mut u8) {
    while !last.is_null() {
        // SAFETY: written by `all_there_are`.
        unsafe {
            let before = last.cast::<*mut u8>().read();
            alloc::deallocate(last);
            last = before;
        }
    }
}

/// What caches have of one size is had again as another one.
#[test]
fn nothing_is_in_caches_when_there_is_no_memory() {
    // No other part of this program has objects of this size.
    const SIZE: usize = 200_000;
    fn cached() -> usize {
        let stats = alloc::stats();
        let of_size = stats.classes.iter().find(|class| class.size >= SIZE);
        of_size.map_or(0, |class| class.on_cores + class.in_depot)
    }
    run_in_child("nothing_is_in_caches_when_there_is_no_memory", limit_data, || {
        let (first, last) = all_there_are(SIZE);
        give_all(last);
        let before = cached();
        assert!(first > 100 && before > 0, "{first} objects, {before} in caches");
        // A large object's length: all that is free is one run, but for what is pinned by caches.
        let (large, last) = all_there_are(2 * MIB);
        assert_eq!(cached(), 0, "of {before}");
        assert!(large > 50, "{large}");
        give_all(last);
        let (again, last) = all_there_are(SIZE);
        assert!(again * 10 >= first * 9, "{first} and then {again}");
        give_all(last);
    });
}

/// Several threads that find no memory at once: each has what the others' caches had.
#[test]
fn threads_without_memory_go_on() {
    run_in_child("threads_without_memory_go_on", limit_data, || {
        // A thread of std's has to have memory when it begins.
        let begun = std::sync::Barrier::new(4);
        thread::scope(|scope| {
            for nth in 0..4 {
                let begun = &begun;
                scope.spawn(move || {
                    begun.wait();
                    for round in 0..20 {
                        let (_, last) =
                            all_there_are([100_000, 3_000_000, 40_000][(nth + round) % 3]);
                        give_all(last);
                    }
                });
            }
        });
        let (count, last) = all_there_are(MIB);
        assert!(count > 100, "{count}");
        give_all(last);
    });
}
