//! Profiles that are started and stopped while the program runs, with `CoreLocal`, whose objects are freed by size.
#![cfg(not(any(loom, miri)))]

mod sandbox;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::alloc::CoreLocal;
use corelocal::alloc::profile::{self, Sample};
use sandbox::run_in_child;

/// This test binary's heap.
#[global_allocator]
static MEMORY: CoreLocal = CoreLocal;

/// Returns how many samples are in use, and their bytes.
fn in_use() -> (usize, u64) {
    let (mut count, mut bytes) = (0, 0);
    let mut sample = Box::new(Sample::EMPTY);
    profile::for_each(&mut sample, &mut |sample| {
        if sample.is_in_use() {
            count += 1;
            bytes += sample.bytes();
        }
    });
    (count, bytes)
}

fn pieces(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|nth| vec![nth as u8; 1000]).collect()
}

/// What came before the start and after the stop is not in it.
#[test]
fn a_profile_has_what_came_while_it_was_on() {
    run_in_child(
        "a_profile_has_what_came_while_it_was_on",
        |_| (),
        || {
            let before = pieces(5000);
            assert!(!profile::is_on());
            assert_eq!(profile::start(16 << 10), Ok(16 << 10));
            let during = pieces(20_000);
            profile::stop();
            let samples = profile::summary().samples;
            let after = pieces(20_000);
            assert_eq!(profile::summary().samples, samples, "it goes on");
            if samples == 0 {
                return eprintln!(
                    "skipped: a_profile_has_what_came_while_it_was_on: no stacks here"
                );
            }
            // 20 MB and the vectors, by samples of 16 KiB: 3 % is the standard deviation.
            let (_, bytes) = in_use();
            assert!((16_000_000..26_000_000).contains(&bytes), "{bytes}");
            assert!(profile::is_on(), "it can be written still");
            drop(during);
            assert!(in_use().1 < 1_000_000, "{:?}", in_use());
            // Once more; the first rate stays.
            assert_eq!(profile::start(1), Ok(16 << 10));
            let again = pieces(10_000);
            assert!(in_use().1 > 7_000_000, "{:?}", in_use());
            profile::stop();
            let contents = [before, after, again].into_iter().flatten();
            assert!(contents.flatten().map(u64::from).sum::<u64>() > 0);
        },
    );
}

/// An object that was sampled and is freed by its size, after the profile was stopped, is not given out as one of its
/// class.
#[test]
fn sampled_objects_outlive_the_profile() {
    run_in_child(
        "sampled_objects_outlive_the_profile",
        |_| (),
        || {
            assert_eq!(profile::start(1), Ok(1));
            let sampled: Vec<Box<[u64; 8]>> = (0..300).map(|nth| Box::new([nth; 8])).collect();
            profile::stop();
            let plain: Vec<Box<[u64; 8]>> = (0..300).map(|nth| Box::new([nth; 8])).collect();
            assert!(sampled.iter().zip(&plain).all(|(one, other)| one == other));
            drop(sampled);
            let fresh: Vec<Box<[u64; 8]>> = (0..2000).map(|nth| Box::new([nth; 8])).collect();
            let mut places: Vec<usize> =
                fresh.iter().chain(&plain).map(|it| &raw const **it as usize).collect();
            places.sort_unstable();
            assert!(places.windows(2).all(|two| two[1] - two[0] >= 64), "two objects in one place");
            // Objects of one class lie in few chunks; samples have pages of their own.
            places.iter_mut().for_each(|at| *at >>= 16);
            places.dedup();
            assert!(places.len() < 40, "{} chunks", places.len());
        },
    );
}

/// Threads that allocate, resize, hand over and free, while another one starts and stops the profile.
#[test]
fn it_is_switched_while_others_allocate() {
    run_in_child(
        "it_is_switched_while_others_allocate",
        |_| (),
        || {
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                for seed in 0..4_u64 {
                    let done = &done;
                    scope.spawn(move || work(seed, done));
                }
                let began = Instant::now();
                let mut nth = 0;
                while began.elapsed() < Duration::from_secs(3) {
                    let started = profile::start(512);
                    done.store(started != Ok(512), Ordering::Relaxed);
                    assert_eq!(started, Ok(512));
                    thread::sleep(Duration::from_micros(100 * (nth % 7)));
                    profile::stop();
                    thread::sleep(Duration::from_micros(70 * (nth % 5)));
                    nth += 1;
                }
                done.store(true, Ordering::Relaxed);
            });
            // All objects of the threads are freed; std may keep something of its own.
            assert!(in_use().0 <= 4, "{:?} are lost", in_use());
        },
    );
}

fn work(seed: u64, done: &AtomicBool) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut held: Vec<(Vec<u64>, u64)> = Vec::new();
    while !done.load(Ordering::Relaxed) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (what, size) = (random >> 60, 1 + (random >> 33) as usize % 300);
        match what {
            0..8 => held.push((vec![random; size], random)),
            8..10 if !held.is_empty() => {
                // Zeroed, and grown: moved by `realloc`.
                let mut zeros = vec![0_u64; size];
                assert!(zeros.iter().all(|word| *word == 0));
                zeros.resize(2 * size, 7);
                assert!(zeros[..size].iter().all(|word| *word == 0));
            }
            _ if held.len() > 50 => {
                let (words, content) = held.swap_remove(size % held.len());
                assert!(words.iter().all(|word| *word == content), "an object has two owners");
            }
            _ => {}
        }
    }
    assert!(held.iter().all(|(words, content)| words.iter().all(|word| word == content)));
}
