//! Profiles that are asked for from outside, by two words in the process's memory, and samples that are read from there.
//! The process asks itself, by /proc/self/mem.
#![cfg(all(target_os = "linux", not(any(loom, miri))))]

mod forked;
mod sandbox;

use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt as _;

use corelocal::alloc::CoreLocal;
use corelocal::alloc::inspect::{Found, MARK, NO_PROFILE, asking_for, inspect, samples};
use corelocal::alloc::profile::{self, Sample};
use sandbox::run_in_child;

/// This test binary's heap.
#[global_allocator]
static MEMORY: CoreLocal = CoreLocal;

const RATE: u64 = 16 << 10;

/// This process, as another one sees it.
struct Outside {
    memory: File,
    header: usize,
}

impl Outside {
    fn open() -> Outside {
        let memory = File::options().read(true).write(true).open("/proc/self/mem").expect("memory");
        let maps = read_to_string("/proc/self/maps").expect("maps");
        let starts = maps.lines().filter_map(|line| {
            let (start, rest) = line.split_once('-')?;
            rest.contains(" rw-p ").then(|| usize::from_str_radix(start, 16).ok())?
        });
        let is_marked = |start: &usize| {
            let mut mark = [0; 8];
            memory.read_exact_at(&mut mark, *start as u64).is_ok()
                && u64::from_le_bytes(mark) == MARK
        };
        let header = starts.into_iter().find(is_marked).expect("a malloc");
        Outside { memory, header }
    }

    fn read(&self) -> impl FnMut(usize, &mut [u8]) -> bool + '_ {
        |at, bytes| self.memory.read_exact_at(bytes, at as u64).is_ok()
    }

    fn found(&self) -> Found {
        inspect(self.header, &mut self.read()).expect("a malloc")
    }

    fn ask(&self, byte: u8) {
        let (found, number) = (self.found(), std::process::id().to_ne_bytes());
        self.memory.write_all_at(&number, found.asked_of as u64).expect("written");
        self.memory.write_all_at(&[byte], found.asked as u64).expect("written");
    }

    /// How many samples are in use, and their bytes.
    fn in_use(&self) -> (usize, u64) {
        let (mut count, mut bytes) = (0, 0);
        let mut sample = Box::new(Sample::EMPTY);
        let summary = samples(self.header, &mut self.read(), &mut sample, &mut |sample| {
            if sample.is_in_use() {
                count += 1;
                bytes += sample.bytes();
            }
        });
        assert_eq!(summary.expect("sums"), profile::summary());
        (count, bytes)
    }
}

fn pieces(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|nth| vec![nth as u8; 1000]).collect()
}

/// Takes the cold path of every class, and so follows what is asked.
fn on_cold_path() {
    drop(vec![0_u8; 2 << 20]);
}

#[test]
fn a_profile_is_asked_for_and_ended_from_outside() {
    const TEST: &str = "a_profile_is_asked_for_and_ended_from_outside";
    run_in_child(
        TEST,
        |_| (),
        || {
            let outside = Outside::open();
            let before = pieces(5000);
            assert!(!profile::is_on() && outside.found().taken.profile_rate.is_none());
            outside.ask(asking_for(RATE));
            let during = pieces(20_000);
            assert_eq!(outside.found().taken.profile_rate, Some(RATE));
            let (count, bytes) = outside.in_use();
            if profile::summary().samples == 0 {
                return sandbox::skip(TEST, "no stacks here");
            }
            // 20 MB and the vectors, by samples of 16 KiB: 3 % is the standard deviation.
            assert!((16_000_000..26_000_000).contains(&bytes) && count > 900, "{count}: {bytes}");
            outside.ask(NO_PROFILE);
            on_cold_path();
            assert_eq!(outside.found().taken.profile_rate, None);
            let taken = profile::summary().samples;
            let after = pieces(20_000);
            assert_eq!(profile::summary().samples, taken, "it goes on");
            drop((before, during, after));
            assert!(outside.in_use().1 < 1_000_000, "{:?}", outside.in_use());
            // Again.
            outside.ask(asking_for(RATE));
            let again = pieces(5000);
            assert!(outside.in_use().1 > 2_000_000, "{:?}", outside.in_use());
            drop(again);
        },
    );
}

/// A profile that the program began is the program's.
#[test]
fn the_programs_own_profile_stays() {
    run_in_child(
        "the_programs_own_profile_stays",
        |_| (),
        || {
            let outside = Outside::open();
            assert_eq!(profile::start(RATE), Ok(RATE));
            for byte in [asking_for(1), NO_PROFILE] {
                outside.ask(byte);
                on_cold_path();
                assert_eq!(outside.found().taken.profile_rate, Some(RATE), "{byte}");
            }
            profile::stop();
            on_cold_path();
            assert_eq!(outside.found().taken.profile_rate, None);
            // One that was asked for becomes the program's.
            outside.ask(asking_for(1));
            on_cold_path();
            assert_eq!(profile::start(RATE), Ok(RATE));
            outside.ask(NO_PROFILE);
            on_cold_path();
            assert_eq!(outside.found().taken.profile_rate, Some(RATE));
        },
    );
}

/// Any byte has a meaning, and none does harm.
#[test]
fn any_byte_may_be_written() {
    run_in_child(
        "any_byte_may_be_written",
        |_| (),
        || {
            let outside = Outside::open();
            for byte in (0..=u8::MAX).rev() {
                outside.ask(byte);
                on_cold_path();
                let rate = outside.found().taken.profile_rate;
                // The first rate stays.
                assert_eq!(rate, (byte != NO_PROFILE).then_some(1 << 39), "{byte}");
            }
        },
    );
}

/// A child does not go on with what was asked of its parent, and can be asked itself.
#[test]
fn a_forked_child_was_not_asked() {
    run_in_child(
        "a_forked_child_was_not_asked",
        |_| (),
        || {
            let outside = Outside::open();
            outside.ask(asking_for(RATE));
            on_cold_path();
            let is_on = |outside: &Outside| outside.found().taken.profile_rate == Some(RATE);
            assert!(is_on(&outside));
            forked::judge(|| {
                let own = Outside::open();
                on_cold_path();
                let is_off = !is_on(&own);
                own.ask(asking_for(RATE));
                on_cold_path();
                let is_asked = is_on(&own);
                own.ask(NO_PROFILE);
                on_cold_path();
                is_off && is_asked && !is_on(&own)
            })
            .succeeds();
            on_cold_path();
            assert!(is_on(&outside), "the parent's stays");
        },
    );
}

/// A child that is forked before its parent has followed is not asked either.
#[test]
fn a_child_of_a_parent_that_has_not_followed_yet_was_not_asked() {
    run_in_child(
        "a_child_of_a_parent_that_has_not_followed_yet_was_not_asked",
        |_| (),
        || {
            let outside = Outside::open();
            outside.ask(asking_for(RATE));
            let is_on = |outside: &Outside| outside.found().taken.profile_rate == Some(RATE);
            assert!(!is_on(&outside));
            forked::judge(|| {
                let own = Outside::open();
                on_cold_path();
                let is_off = !is_on(&own);
                own.ask(asking_for(RATE));
                on_cold_path();
                is_off && is_on(&own)
            })
            .succeeds();
            on_cold_path();
            assert!(is_on(&outside), "the parent follows later");
        },
    );
}
