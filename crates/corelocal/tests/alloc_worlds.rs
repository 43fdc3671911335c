//! The malloc in children of forks, at limits, without sections, and for a whole Rust program.
#![cfg(not(any(loom, miri)))]

mod forked;
mod sandbox;
mod storm;

use std::collections::HashMap;
use std::os::unix::process::CommandExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use corelocal::alloc::{self, CoreLocal};
use forked::{End, fork};
use sandbox::run_in_child;
use storm::{Tell, scaled};

/// This test binary's heap.
#[global_allocator]
static MEMORY: CoreLocal = CoreLocal;

/// Allocates and frees all sizes; how many objects were wrong.
fn churn(rounds: usize) -> usize {
    const HELD: usize = 64;
    let mut held = [(std::ptr::null_mut::<u8>(), 0usize); HELD];
    let mut wrong = 0;
    for round in 0..rounds + HELD {
        let place = &mut held[round * 7 % HELD];
        if !place.0.is_null() {
            // SAFETY: allocated below with so many bytes.
            unsafe {
                wrong += usize::from(place.0.read() != place.1 as u8);
                wrong += usize::from(place.0.add(place.1 - 1).read() != place.1 as u8);
                alloc::deallocate(place.0);
            }
            *place = (std::ptr::null_mut(), 0);
        }
        if round < rounds {
            let size = 1 + (round * round * 31) % (if round % 50 == 0 { 2_000_000 } else { 3000 });
            let object = alloc::allocate(size);
            if object.is_null() {
                return wrong + 1;
            }
            // SAFETY: so many bytes.
            unsafe {
                object.write(size as u8);
                object.add(size - 1).write(size as u8);
            }
            *place = (object, size);
        }
    }
    wrong
}

/// While four threads are anywhere in the malloc, holding its locks too: no child waits for what they hold,
/// and in none an object is in two hands.
#[test]
fn children_of_busy_parents() {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _at_end = Tell(&done);
        for number in 0..4 {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(churn(scaled(2000).max(200) as usize), 0);
                    if number == 0 {
                        alloc::trim(0);
                    }
                }
            });
        }
        for _ in 0..scaled(300) {
            let child = fork(|| {
                let wrong = churn(1000);
                alloc::trim(0);
                wrong as i32 + churn(200) as i32
            });
            assert_eq!(child.wait(), End::Code(0));
        }
    });
}

/// A child's children, each of which goes on with what it has.
#[test]
fn generations() {
    let object = alloc::allocate(100);
    let child = fork(|| {
        // SAFETY: this process's copy.
        unsafe { alloc::deallocate(object) };
        if churn(500) != 0 {
            return 1;
        }
        match fork(|| churn(500) as i32).wait() {
            End::Code(0) => churn(500) as i32,
            _ => 2,
        }
    });
    assert_eq!(child.wait(), End::Code(0));
    // SAFETY: ours.
    unsafe { alloc::deallocate(object) };
}

#[test]
fn without_sections() {
    run_in_child(
        "without_sections",
        |command| _ = command.env("CORELOCAL_RSEQ", "off"),
        || {
            thread::scope(|scope| {
                (0..8).for_each(|_| {
                    _ = scope.spawn(|| assert_eq!(churn(scaled(20_000).max(1000) as usize), 0))
                });
            });
            alloc::trim(0);
            assert_eq!(churn(1000), 0);
        },
    );
}

/// The type that libc gives the number of a limit.
#[cfg(target_env = "musl")]
type Resource = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Resource = libc::__rlimit_resource_t;

/// Sets a limit before the program starts.
fn limited(command: &mut std::process::Command, which: Resource, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(which, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// Allocates until nothing is left, in pieces of any size, and gets as far once more when all was given back.
fn exhaust() {
    const MOST: usize = 1 << 18;
    /// Address space that the map of chunks takes once, when another node's part of the range is used for the first time:
    /// a thread that was moved to its cpu in between does that.
    const MAP: usize = 16 << 20;
    for size in [1 << 20, 5 << 20, 100_000, 4000] {
        let mut last = std::ptr::null_mut::<u8>();
        let mut counts = [0; 2];
        for count in &mut counts {
            while *count < MOST {
                let object = alloc::allocate(size);
                if object.is_null() {
                    break;
                }
                // SAFETY: a word at least; a list of all.
                unsafe { object.cast::<*mut u8>().write(last) };
                last = object;
                *count += 1;
            }
            while !last.is_null() {
                // SAFETY: as written above.
                unsafe {
                    let before = last.cast::<*mut u8>().read();
                    alloc::deallocate(last);
                    last = before;
                }
            }
        }
        assert!(counts[0] > 10 && counts[0] < MOST, "{size}: {counts:?}");
        assert!((counts[1] + MAP.div_ceil(size)) * 10 >= counts[0] * 9, "{size}: {counts:?}");
    }
    assert_eq!(churn(1000), 0);
    // SAFETY: null, or an object that stays as it is.
    unsafe {
        let object = alloc::allocate(100);
        assert!(alloc::reallocate(object, 1 << 40).is_null());
        alloc::deallocate(object);
    }
}

/// An emulated machine has little memory, and all of it is used.
fn mebibytes(limit: u64, least: u64) -> u64 {
    scaled(limit).max(least) << 20
}

#[test]
fn little_address_space() {
    let limit = |command: &mut _| limited(command, libc::RLIMIT_AS, mebibytes(512, 256));
    run_in_child("little_address_space", limit, exhaust);
}

#[test]
fn little_data() {
    let limit = |command: &mut _| limited(command, libc::RLIMIT_DATA, mebibytes(256, 192));
    run_in_child("little_data", limit, exhaust);
}

#[test]
fn sizes_that_nobody_has() {
    for size in [isize::MAX as usize, usize::MAX, usize::MAX - 4095, 1 << 46] {
        assert!(alloc::allocate(size).is_null());
        assert!(alloc::allocate_zeroed(size).is_null());
        assert!(alloc::allocate_aligned(4096, size).is_null());
    }
    assert!(alloc::allocate_aligned(1 << 62, 1).is_null());
    assert!(alloc::allocate_aligned(3, 1).is_null() && alloc::allocate_aligned(0, 1).is_null());
}

/// Whatever a Rust program does with its heap.
#[test]
fn a_heap_for_rust() {
    let words: HashMap<String, Vec<usize>> = (0..scaled(20_000).max(500) as usize)
        .map(|n| (format!("word {n}"), vec![n; n % 50]))
        .collect();
    let threads: Vec<_> = (0..8)
        .map(|nth| {
            let words = words.clone();
            thread::spawn(move || words.values().map(|word| word.len() * nth).sum::<usize>())
        })
        .collect();
    let sum: usize = words.values().map(Vec::len).sum();
    for (nth, thread) in threads.into_iter().enumerate() {
        assert_eq!(thread.join().unwrap(), nth * sum);
    }
    let mut long = Vec::new();
    (0..scaled(3_000_000).max(200_000)).for_each(|n| long.push(n));
    assert!(long.iter().enumerate().all(|(nth, n)| nth as u64 == *n));
}

/// Growth in place counts as well: it starts the thread that returns memory.
#[test]
fn growth_in_place_is_noticed() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    run_in_child(
        "growth_in_place_is_noticed",
        |_| (),
        || {
            alloc::set_cold_hook(32 << 20, |_| _ = CALLS.fetch_add(1, Ordering::Relaxed));
            let mut object = alloc::allocate(2 << 20);
            for mebibytes in 3..100 {
                // SAFETY: ours, and not used any more where it was.
                object = unsafe { alloc::reallocate(object, mebibytes << 20) };
                assert!(!object.is_null());
            }
            assert!(CALLS.load(Ordering::Relaxed) > 0);
            // SAFETY: ours.
            unsafe { alloc::deallocate(object) };
        },
    );
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    let pages: usize =
        statm.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("a number");
    pages * 4096
}

/// In a child, since what other tests do is resident as well.
#[test]
fn memory_goes_back() {
    run_in_child(
        "memory_goes_back",
        |_| (),
        || {
            fn fill(count: usize, size: usize) -> Vec<*mut u8> {
                let objects: Vec<_> = (0..count).map(|_| alloc::allocate(size)).collect();
                // SAFETY: allocated above.
                objects.iter().for_each(|object| unsafe { object.write_bytes(1, size) });
                objects
            }
            let empty = |objects: Vec<*mut u8>| {
                // SAFETY: what `fill` made, once.
                let free = |object| unsafe { alloc::deallocate(object) };
                objects.into_iter().for_each(free);
            };
            for (count, size) in [(1_000_000, 64), (20_000, 3000), (200, 300_000), (10, 6_000_000)]
            {
                let before = resident();
                let objects = fill(count, size);
                assert!(resident() > before + count * size / 2);
                empty(objects);
                // Once it is aged, twice it is gone; what the cores had comes with the second.
                (0..4).for_each(|_| _ = alloc::release_idle());
                assert!(resident() < before + (24 << 20), "{size}: {} of {before}", resident());
                empty(fill(count, size));
                assert!(alloc::trim(0));
                assert!(resident() < before + (8 << 20), "{size}: {} of {before}", resident());
            }
            // One of 300 stays: pages between them go, and come back as they are needed.
            let before = resident();
            let (kept, freed): (Vec<_>, Vec<_>) =
                fill(1_000_000, 64).into_iter().enumerate().partition(|(nth, _)| nth % 300 == 0);
            empty(freed.into_iter().map(|(_, object)| object).collect());
            (0..4).for_each(|_| _ = alloc::release_idle());
            assert!(resident() < before + (40 << 20), "{} of {before}", resident());
            empty(fill(1_000_000, 64));
            // SAFETY: 64 bytes that did not change since.
            let whole =
                |object: &*mut u8| unsafe { (0..64).all(|byte| object.add(byte).read() == 1) };
            let kept: Vec<_> = kept.into_iter().map(|(_, object)| object).collect();
            assert!(kept.iter().all(whole));
            empty(kept);
        },
    );
}

const TARGET_BY_ENVIRONMENT: &str = "resident:100M";

/// What is idle stays below a target, and goes above it, without ageing.
#[test]
fn memory_stays_up_to_a_target() {
    run_in_child(
        "memory_stays_up_to_a_target",
        |_| (),
        || {
            const MIB: usize = 1 << 20;
            let all = || alloc::stats().used + alloc::idle_bytes();
            let come_and_go = |count: usize| {
                let objects: Vec<_> = (0..count).map(|_| alloc::allocate(2 * MIB)).collect();
                for object in objects {
                    // SAFETY: ours, of so many bytes.
                    unsafe {
                        object.write_bytes(1, 2 * MIB);
                        alloc::deallocate(object);
                    }
                }
            };
            let is_set =
                std::env::var("CORELOCAL_MALLOC").is_ok_and(|it| it == TARGET_BY_ENVIRONMENT);
            if !is_set {
                alloc::set_target(Some(100 * MIB));
            }
            come_and_go(30);
            assert!((0..5).all(|_| alloc::release_idle() == 0) && alloc::idle_bytes() >= 60 * MIB);
            come_and_go(90);
            // 180 MiB, if the malloc's own calls have released none so far.
            let before = all();
            assert!(before >= 96 * MIB, "{} MiB", before / MIB);
            let released = alloc::release_idle();
            // To the end of a run.
            assert!((96 * MIB..=100 * MIB).contains(&all()), "{} MiB", all() / MIB);
            assert_eq!(released, before - all());
            assert_eq!(alloc::release_idle(), 0);
            // What is in use is more than that: nothing that is idle stays.
            let object = alloc::allocate(200 * MIB);
            assert!(!object.is_null());
            alloc::release_idle();
            assert_eq!(alloc::idle_bytes(), 0);
            // SAFETY: ours.
            unsafe { alloc::deallocate(object) };
            assert!(alloc::release_idle() >= 100 * MIB && all() <= 100 * MIB);
            // Pages between objects go, too, where no span is empty.
            alloc::trim(0);
            alloc::set_target(Some(MIB));
            let released = alloc::stats().released;
            let objects: Vec<_> = (0..300_000).map(|_| alloc::allocate(64)).collect();
            for (nth, object) in objects.iter().enumerate() {
                // SAFETY: ours, of so many bytes.
                unsafe { object.write_bytes(1, 64) };
                if nth % 300 != 0 {
                    // SAFETY: an object of this malloc, freed once.
                    unsafe { alloc::deallocate(*object) };
                }
            }
            assert_eq!(alloc::idle_bytes(), 0);
            (0..4).for_each(|_| _ = alloc::release_idle());
            let more = alloc::stats().released - released;
            assert!(more > 8 * MIB, "{more}");
            // SAFETY: those that are left.
            objects.iter().step_by(300).for_each(|object| unsafe { alloc::deallocate(*object) });
            alloc::set_target(None);
            // Caches, their spans, and then what has aged.
            (0..6).for_each(|_| _ = alloc::release_idle());
            assert_eq!(alloc::idle_bytes(), 0);
        },
    );
}

/// Forks, threads without sections and a Rust program's heap, in a process whose malloc watches.
fn worlds_under(mode: &str) {
    if std::env::var_os("CORELOCAL_MALLOC").is_some() {
        return sandbox::skip("worlds_under", "the malloc is told what to do already");
    }
    let scale = std::env::var("CORELOCAL_TEST_SCALE").ok().and_then(|scale| scale.parse().ok());
    let scale: f64 = scale.unwrap_or(1.0);
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .env("CORELOCAL_MALLOC", mode)
        .env("CORELOCAL_TEST_SCALE", (scale / 20.0).to_string())
        .args(["--exact", "children_of_busy_parents", "generations", "without_sections"])
        .args(["a_heap_for_rust", "sizes_that_nobody_has", "little_address_space"]);
    let output = command.output().unwrap();
    let (said, wrong) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}\n{wrong}", output.status);
    assert!(said.contains("6 passed"), "{said}");
}

/// Set by the environment.
#[test]
fn under_a_target() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.env("CORELOCAL_MALLOC", TARGET_BY_ENVIRONMENT);
    let output = command.args(["--exact", "memory_stays_up_to_a_target"]).output().unwrap();
    let (said, wrong) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{wrong}");
}

#[test]
fn under_check() {
    worlds_under("check");
}

#[test]
fn under_nodes() {
    worlds_under("nodes:3");
}

#[test]
fn under_guard() {
    worlds_under("guard:5");
}
