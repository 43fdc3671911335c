//! The malloc beside a naive model, from many threads, and under attack. (`alloc_worlds.rs` has forks, limits
//! and worlds without sections, `alloc_faults.rs` programs that are wrong.)
#![cfg(not(any(loom, miri)))]

mod sandbox;
mod scripted;
mod storm;

use std::env;
use std::process::Command;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::thread;

use corelocal::alloc;
use proptest::prelude::*;
use scripted::{MOST, MOST_ALIGNED, Step, looked_at, pattern};
use storm::{rage_doing, scaled};

/// Sizes of all kinds, the small ones more often.
fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0..200usize,
        4 => 0..5000usize,
        2 => 0..300_000usize,
        1 => 0..MOST,
        1 => (0..21u32, 0..3usize).prop_map(|(shift, more)| (1 << shift) + more - 1),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => sizes().prop_map(Step::Allocate),
        2 => sizes().prop_map(Step::Zeroed),
        2 => (0..=MOST_ALIGNED, sizes()).prop_map(|(shift, size)| Step::Aligned(shift, size)),
        8 => any::<usize>().prop_map(Step::Free),
        4 => (any::<usize>(), sizes()).prop_map(|(which, size)| Step::Resize(which, size)),
        1 => Just(Step::Trim),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(scaled(80) as u32))]

    /// Objects are apart, aligned, long enough, keep what is in them; zeroed ones are.
    #[test]
    fn scripts(steps in steps()) {
        scripted::run(steps);
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(scaled(20) as u32))]

    /// As they are read where a fuzzer makes them up.
    #[test]
    fn scripts_of_bytes(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        scripted::run(scripted::of_bytes(&bytes));
    }
}

/// A number that looks random.
fn next(random: &mut u64) -> usize {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random as usize
}

fn size_of_number(number: usize) -> usize {
    match number % 100 {
        0 => number / 100 % 3_000_000,
        1..10 => number / 100 % 40_000,
        _ => number / 100 % 1000,
    }
    .max(24)
}

/// An object that tells its size and its pattern itself.
fn told(number: usize) -> *mut u8 {
    let size = size_of_number(number);
    let at = alloc::allocate(size);
    assert!(!at.is_null());
    // SAFETY: 24 bytes at least.
    unsafe {
        at.cast::<usize>().write(size);
        at.cast::<usize>().add(1).write(number);
        looked_at(size).filter(|byte| *byte >= 16).for_each(|byte| {
            at.add(byte).write(pattern(number as u8, byte));
        });
    }
    at
}

/// Checks that the text is whole, and frees it.
fn free_told(at: *mut u8) {
    if at.is_null() {
        return;
    }
    // SAFETY: made by `told`, ours now.
    unsafe {
        let (size, number) = (at.cast::<usize>().read(), at.cast::<usize>().add(1).read());
        assert_eq!(size, size_of_number(number));
        for byte in looked_at(size).filter(|byte| *byte >= 16) {
            assert_eq!(at.add(byte).read(), pattern(number as u8, byte), "{byte} of {size}");
        }
        alloc::deallocate(at);
    }
}

/// What one of 64 threads allocates another one frees.
#[test]
fn objects_change_hands() {
    static TABLE: [AtomicPtr<u8>; 512] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 512];
    let rounds = scaled(3000);
    thread::scope(|scope| {
        for seed in 1..=64u64 {
            scope.spawn(move || {
                let mut random = seed << 7;
                for _ in 0..rounds {
                    let number = next(&mut random) >> 8;
                    let place = &TABLE[next(&mut random) % TABLE.len()];
                    free_told(place.swap(told(number), Ordering::AcqRel));
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..scaled(100) {
                alloc::trim(0);
                alloc::release_idle();
            }
        });
    });
    TABLE.iter().for_each(|place| free_told(place.swap(std::ptr::null_mut(), Ordering::AcqRel)));
}

/// Threads that are signalled and moved, and handlers that allocate like everybody else.
#[test]
fn handlers_allocate() {
    static TABLE: [AtomicPtr<u8>; 64] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 64];
    fn act() {
        static CALLS: AtomicU64 = AtomicU64::new(1);
        let mut random = CALLS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for _ in 0..5 {
            let number = next(&mut random) >> 8;
            let place = &TABLE[next(&mut random) % TABLE.len()];
            free_told(place.swap(told(number), Ordering::AcqRel));
        }
    }
    rage_doing(4, scaled(20_000), act);
    TABLE.iter().for_each(|place| free_told(place.swap(std::ptr::null_mut(), Ordering::AcqRel)));
}

#[test]
fn what_the_numbers_tell() {
    const OBJECTS: usize = 10_000;
    /// As many of the same class may other tests free meanwhile.
    const OF_OTHERS: usize = 5_000;
    let before = alloc::stats();
    let objects: Vec<*mut u8> = (0..OBJECTS).map(|_| alloc::allocate(777)).collect();
    let large = alloc::allocate(5 << 20);
    let during = alloc::stats();
    let class =
        |stats: &alloc::Stats| *stats.classes.iter().find(|class| class.size >= 777).unwrap();
    let (before, now) = (class(&before).in_use, class(&during).in_use);
    assert!(now + OF_OTHERS >= before + OBJECTS, "{before}, then {now}");
    assert!(during.large_objects >= 1 && during.large_bytes >= 5 << 20);
    assert!(during.used <= during.committed && during.committed <= during.reserved);
    objects.into_iter().chain([large]).for_each(|object| {
        // SAFETY: allocated above.
        unsafe { alloc::deallocate(object) };
    });
    assert!(alloc::cores().count() >= 1);
}

/// All tests of this file in a process whose malloc watches.
fn all_under(mode: &str) {
    if env::var_os("CORELOCAL_MALLOC").is_some() {
        return sandbox::skip("all_under", "the malloc is told what to do already");
    }
    let scale = env::var("CORELOCAL_TEST_SCALE").ok().and_then(|scale| scale.parse().ok());
    let scale: f64 = scale.unwrap_or(1.0);
    let mut command = Command::new(env::current_exe().unwrap());
    command.env("CORELOCAL_MALLOC", mode).env("CORELOCAL_TEST_SCALE", (scale / 5.0).to_string());
    let output = command.args(["--skip", "under_"]).output().unwrap();
    let (said, wrong) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}\n{wrong}", output.status);
    assert!(said.contains("scripts ... ok"), "{said}");
}

#[test]
fn under_check() {
    all_under("check");
}

#[test]
fn under_guard() {
    all_under("guard:2");
}

#[test]
fn under_nodes() {
    all_under("nodes:3");
}

#[test]
fn under_all_of_it() {
    all_under("check,guard:10,stats,nodes:2");
}
