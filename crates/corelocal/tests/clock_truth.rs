//! The clock tells the truth: vDSO <= ours <= vDSO, on every cpu, under load, while the clock is slewed, its
//! source is switched and the time of day is set.
//!
//! Ten million readings; `CORELOCAL_TEST_SCALE` takes fewer, and this takes a hundred million:
//!
//! ```sh
//! CORELOCAL_CLOCK_READINGS=100000000 cargo test --release -p corelocal --test clock_truth -- --nocapture
//! ```
//!
//! As root some of these tests change the machine's clock for a moment: they slew it by up to 500 ppm either
//! way, and switch its source. A process of its own puts back what was before, even if the test is killed.
//! `CORELOCAL_MAY_SET_TIME=1` also lets the time of day be set, by an hour and back: for guests.
#![cfg(not(miri))]

mod between_vdso;
mod cpus;
mod restorer;
mod sandbox;
mod storm;

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use std::{env, fs, io, mem, thread};

use between_vdso::{CLOCKS, Tally, judge, vdso};
use corelocal::clock::{self, Backend};
use restorer::Restorer;
use sandbox::{run_in_child, skip};

/// One test at a time changes the machine's clock, and none measures meanwhile but its own.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Reads on every cpu, by a thread that stays there, and by two that move from batch to batch, beside threads
/// that keep the machine busy. About so many readings in all.
fn on_all_cpus(count: u64) -> [Tally; CLOCKS.len()] {
    clock::settle();
    let done = AtomicBool::new(false);
    let cpus = cpus::count();
    let each = count / (cpus as u64 + 2);
    let reader = |number: u32, moves: bool| {
        cpus::hop(number);
        between_vdso::readings(each, |turn| {
            if moves {
                cpus::hop(number.wrapping_add(turn as u32));
            }
        })
    };
    thread::scope(|scope| {
        let (done, reader) = (&done, &reader);
        let load: Vec<_> = (0..cpus.min(8)).map(|_| scope.spawn(|| work(done))).collect();
        let readers: Vec<_> = (0..cpus + 2)
            .map(|number| scope.spawn(move || reader(number, number >= cpus)))
            .collect();
        let mut total = [Tally::default(); CLOCKS.len()];
        let results: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        done.store(true, Ordering::Relaxed);
        load.into_iter().for_each(|worker| worker.join().unwrap());
        for tallies in results {
            sum(&mut total, &tallies.unwrap());
        }
        total
    })
}

/// Reads on every cpu for as long as `body` takes.
fn reading_meanwhile(body: impl FnOnce()) -> [Tally; CLOCKS.len()] {
    clock::settle();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let done = &done;
        let readers: Vec<_> = (0..cpus::count())
            .map(|number| {
                scope.spawn(move || {
                    cpus::hop(number);
                    let mut total = [Tally::default(); CLOCKS.len()];
                    while !done.load(Ordering::Relaxed) {
                        sum(&mut total, &between_vdso::readings(4 * between_vdso::BATCH, |_| ()));
                    }
                    total
                })
            })
            .collect();
        // Told after a panic too: the scope waits for the threads.
        let told = OnDrop(|| done.store(true, Ordering::Relaxed));
        body();
        drop(told);
        let mut total = [Tally::default(); CLOCKS.len()];
        readers.into_iter().for_each(|reader| sum(&mut total, &reader.join().unwrap()));
        total
    })
}

fn sum(total: &mut [Tally], tallies: &[Tally]) {
    total.iter_mut().zip(tallies).for_each(|(total, tally)| total.add(tally));
}

/// Keeps a cpu and its caches busy, and leaves it now and then so that others get in.
fn work(done: &AtomicBool) {
    let mut memory = vec![0_u64; 1 << 16];
    while !done.load(Ordering::Relaxed) {
        memory.iter_mut().for_each(|word| *word = word.wrapping_mul(3) + 1);
        thread::sleep(Duration::from_micros(100));
    }
    assert!(!memory.is_empty());
}

fn count() -> u64 {
    let count = env::var("CORELOCAL_CLOCK_READINGS").ok();
    count.map_or_else(|| storm::scaled(10_000_000), |count| count.parse().unwrap())
}

/// adjtimex, with the kernel's frequency offset set or asked for: 2^16 is 1 ppm.
fn frequency(set: Option<libc::c_long>) -> io::Result<libc::c_long> {
    // SAFETY: all-zero bytes are a request that changes nothing.
    let mut request: libc::timex = unsafe { mem::zeroed() };
    if let Some(freq) = set {
        request.modes = libc::ADJ_FREQUENCY;
        request.freq = freq;
    }
    // SAFETY: a valid request, into which the answer goes.
    match unsafe { libc::adjtimex(&mut request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(request.freq),
    }
}

/// Runs `body` while the clock is slewed, another way every few milliseconds.
fn slewed<R>(test: &str, body: impl FnOnce() -> R) -> R {
    const LIMIT: libc::c_long = 500 << 16;
    let original = match frequency(None).and_then(|now| frequency(Some(now))) {
        Ok(original) => original,
        Err(error) => {
            skip(test, &format!("the clock cannot be slewed here, it is read as it runs: {error}"));
            return body();
        }
    };
    let restorer = Restorer::new(|| drop(frequency(Some(original)))).unwrap();
    let done = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            // Both ways by turns, so that the clock is where it was in the end.
            for turn in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let by = LIMIT / (1 + turn / 2 % 4);
                let _ = frequency(Some(if turn % 2 == 0 { by } else { -by }));
                thread::sleep(Duration::from_millis(3));
            }
        });
        // Told after a panic too: the scope waits for the thread.
        let _told = OnDrop(|| done.store(true, Ordering::Relaxed));
        body()
    });
    drop(restorer);
    result
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The comparison with the vDSO notices a clock that is wrong, by what any back-end may not be.
#[test]
fn a_wrong_clock_is_caught() {
    let _alone = alone();
    let early = || vdso(libc::CLOCK_MONOTONIC) - 3_000_000;
    let late = || vdso(libc::CLOCK_MONOTONIC) + 3_000_000;
    for ours in [early as fn() -> u64, late] {
        let tally = between_vdso::batch(between_vdso::Clock { ours, ..CLOCKS[0] });
        assert!(tally.outside > tally.readings() / 2, "{tally:?}");
    }
}

#[test]
fn between_two_readings_of_the_vdso_while_slewed() {
    let _alone = alone();
    let tallies = slewed("between_two_readings_of_the_vdso_while_slewed", || on_all_cpus(count()));
    judge(&tallies);
}

/// The same by the back-ends that serve elsewhere.
fn by(test: &str, backend: &str, expected: &[Backend]) {
    let _alone = alone();
    let prepare = |command: &mut Command| {
        command.env("CORELOCAL_CLOCK", backend);
    };
    run_in_child(test, prepare, || {
        let (tallies, backwards) = slewed(test, || {
            (on_all_cpus(storm::scaled(2_000_000)), backwards(storm::scaled(200_000)))
        });
        judge(&tallies);
        assert_eq!(backwards, 0);
        assert!(expected.contains(&clock::status().backend), "{:?}", clock::status());
    });
}

#[test]
fn by_the_paravirtual_page() {
    let expected = [Backend::Paravirtual, Backend::Anchor, Backend::Vdso];
    by("by_the_paravirtual_page", "paravirtual", &expected);
}

#[test]
fn by_an_anchor() {
    by("by_an_anchor", "anchor", &[Backend::Anchor, Backend::Vdso]);
}

#[test]
fn by_the_vdso() {
    by("by_the_vdso", "vdso", &[Backend::Vdso]);
}

/// After a thread has seen a time, no thread on any cpu gets an earlier one.
fn backwards(each: u64) -> u64 {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    let backwards = |number: u32| {
        let mut backwards = 0;
        for turn in 0..each {
            if turn % 1024 == 0 {
                cpus::hop(number.wrapping_add((turn / 1024) as u32));
            }
            // Acquire and release: the reading comes after the one it is compared with.
            let floor = LATEST.load(Ordering::Acquire);
            let now = clock::monotonic();
            backwards += u64::from(now < floor);
            LATEST.fetch_max(now, Ordering::Release);
        }
        backwards
    };
    thread::scope(|scope| {
        let threads = [0, 1, 2].map(|number| scope.spawn(move || backwards(number)));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

#[test]
fn never_backwards_across_cpus() {
    let _alone = alone();
    clock::settle();
    let each = storm::scaled(1_000_000);
    assert_eq!(slewed("never_backwards_across_cpus", || backwards(each)), 0);
}

const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The machine's clock source, and another one that it has.
struct Sources {
    current: CString,
    other: String,
    _lock: Option<File>,
}

impl Sources {
    /// What can be switched; says why, if nothing.
    fn find(test: &str) -> Option<Sources> {
        let available = fs::read_to_string(SOURCE.replace("current", "available"));
        let (Ok(current), Ok(available)) = (fs::read_to_string(SOURCE), available) else {
            skip(test, "no clock sources in /sys");
            return None;
        };
        let current = current.trim();
        // First those that the vDSO can read.
        let mut others: Vec<&str> =
            available.split_whitespace().filter(|name| *name != current).collect();
        others.sort_by_key(|name| !matches!(*name, "tsc" | "kvm-clock"));
        let Some(other) = others.first() else {
            skip(test, "there is but one clock source");
            return None;
        };
        let (cpus, is_device) = (cpus::count(), !matches!(*other, "tsc" | "kvm-clock"));
        if is_device && cpus > 16 {
            skip(test, &format!("{cpus} cpus would wait for each other to read {other}"));
            return None;
        }
        if let Err(error) = fs::write(SOURCE, current) {
            skip(test, &format!("the clock source cannot be switched: {error}"));
            return None;
        }
        println!("from {current} to {other} and back");
        let (current, other) = (CString::new(current).unwrap(), String::from(*other));
        Some(Sources { current, other, _lock: lock_clock_source() })
    }

    /// The other one, until the restorer is dropped.
    fn switch(&self) -> Restorer {
        let (path, name) = (CString::new(SOURCE).unwrap(), self.current.as_bytes());
        let restorer = Restorer::new(|| {
            // SAFETY: a path that ends in NUL, a valid range, and what open gave.
            unsafe {
                let file = libc::open(path.as_ptr(), libc::O_WRONLY);
                libc::write(file, name.as_ptr().cast(), name.len());
                libc::close(file);
            }
        });
        let restorer = restorer.unwrap();
        fs::write(SOURCE, &self.other).unwrap();
        restorer
    }
}

fn pause(milliseconds: u64) {
    thread::sleep(Duration::from_millis(milliseconds));
}

/// The kernel reads another clock source for some milliseconds, three times. This concerns every process of
/// the machine, and virtual machines on it: their hypervisors' tests hold the same lock.
#[test]
fn the_clock_source_is_switched() {
    const TEST: &str = "the_clock_source_is_switched";
    let _alone = alone();
    let unchanged = |_: &mut Command| ();
    run_in_child(TEST, unchanged, || {
        let Some(sources) = Sources::find(TEST) else { return };
        judge(&reading_meanwhile(|| {
            for round in 0..3 {
                pause(20);
                let restorer = sources.switch();
                pause(5 + 5 * round);
                println!("meanwhile {:?}", clock::status());
                drop(restorer);
            }
            pause(50);
        }));
    });
}

/// The clock is first read while the kernel has the other source.
#[test]
fn started_with_another_clock_source() {
    const TEST: &str = "started_with_another_clock_source";
    let _alone = alone();
    let unchanged = |_: &mut Command| ();
    run_in_child(TEST, unchanged, || {
        let Some(sources) = Sources::find(TEST) else { return };
        let restorer = sources.switch();
        judge(&reading_meanwhile(|| pause(20)));
        drop(restorer);
        judge(&reading_meanwhile(|| pause(20)));
    });
}

/// Held while the source is switched; released with the file.
fn lock_clock_source() -> Option<File> {
    let path = env::temp_dir().join("corelocal-clock-source.lock");
    let file = fs::OpenOptions::new().create(true).append(true).open(path).ok()?;
    // SAFETY: the descriptor is open.
    (unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } == 0).then_some(file)
}

/// The time of day is set, by an hour and back: our next reading knows.
#[test]
fn the_time_of_day_is_set() {
    const TEST: &str = "the_time_of_day_is_set";
    const HOUR: i64 = 3_600_000_000_000;
    if env::var_os("CORELOCAL_MAY_SET_TIME").is_none() {
        return skip(TEST, "CORELOCAL_MAY_SET_TIME=1 allows it, on a machine of no importance");
    }
    let _alone = alone();
    clock::settle();
    // Others see it with their next sample.
    let exact = between_vdso::is_exact();
    let mut tallies = reading_meanwhile(|| {
        for by in [HOUR, -HOUR].repeat(5) {
            pause(20);
            let time = vdso(libc::CLOCK_REALTIME) as i64 + by;
            let time =
                libc::timespec { tv_sec: time / 1_000_000_000, tv_nsec: time % 1_000_000_000 };
            // SAFETY: a valid time.
            if unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &time) } != 0 {
                return skip(TEST, &io::Error::last_os_error().to_string());
            }
            if !exact {
                pause(100);
                let _ = clock::realtime();
            }
            let before = vdso(libc::CLOCK_REALTIME);
            let ours = clock::realtime();
            assert!(ours.abs_diff(before) < HOUR as u64 / 2, "{before} {ours}");
        }
    });
    if !exact {
        let of_the_day = |id| id == libc::CLOCK_REALTIME || id == libc::CLOCK_TAI;
        for (tally, _) in tallies.iter_mut().zip(CLOCKS).filter(|(_, clock)| of_the_day(clock.id)) {
            tally.outside = 0;
        }
    }
    judge(&tallies);
}
