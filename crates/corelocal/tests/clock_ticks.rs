//! Ticks get the time at which they were taken, or none: from threads and signal handlers that move from cpu
//! to cpu, while the clock is slewed and set, in forked children and in another time namespace. What happens
//! to the clocks is noticed.
//!
//! As root some of these tests slew the machine's clock for a moment. `CORELOCAL_MAY_SET_TIME=1` also lets
//! the time of day be set, by a millisecond and back: for guests.
#![cfg(not(miri))]

mod adjusting;
mod forked;
mod restorer;
mod sandbox;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use adjusting::{adjust, adjusting, alone};
use corelocal::clock::{self, Change, Converter, Stamp, Ticks, Unknown, Watcher};
use forked::End;
use sandbox::{run_in_child, skip};

/// A tick between two readings of the clock.
#[derive(Clone, Copy)]
struct Event {
    stamp: Stamp,
    before: u64,
    after: u64,
}

fn event() -> Event {
    let before = clock::monotonic();
    let stamp = Stamp::now_ordered();
    Event { stamp, before, after: clock::monotonic() }
}

/// By how much a converted event is off, if it has a time.
fn off<const N: usize>(converter: &Converter<N>, event: &Event) -> Result<u64, Unknown> {
    let time = converter.monotonic(event.stamp)?;
    Ok(event.before.saturating_sub(time).max(time.saturating_sub(event.after)))
}

/// What the back-ends that follow samples may be off by, and what is left of a slewed clock between two
/// looks.
const SLACK: u64 = 20_000;

#[test]
fn from_all_threads_and_converted_meanwhile() {
    let _alone = alone();
    clock::settle();
    let rounds = storm::scaled(300);
    let mut converter = Converter::new();
    let (mut known, mut worst) = (0, 0);
    for _ in 0..rounds {
        let threads: Vec<_> = (0..4)
            .map(|_| thread::spawn(|| (0..200).map(|_| event()).collect::<Vec<_>>()))
            .collect();
        let events: Vec<_> =
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        converter.refresh();
        for event in &events {
            match off(&converter, event) {
                Ok(by) => {
                    known += 1;
                    worst = worst.max(by);
                }
                // Another process may set the clock, or switch its source, just then.
                Err(why) => assert_eq!(why, Unknown::Doubtful),
            }
        }
    }
    println!("{known} of {} at most {worst} ns off, {converter:?}", rounds * 800);
    assert!(known > rounds * 400 && worst < SLACK, "{known} known, {worst} off");
}

#[test]
fn many_at_once_are_what_each_is_alone() {
    let _alone = alone();
    clock::settle();
    let mut converter = Converter::<1000>::with_history();
    let epoch = clock::epoch();
    let mut ticks = Vec::new();
    for _ in 0..storm::scaled(20).max(2) {
        ticks.extend((0..1000).map(|_| Ticks::now()));
        thread::sleep(Duration::from_millis(3));
        converter.refresh();
    }
    // As several threads' buffers, one after the other.
    ticks.rotate_left(1234);
    let (mut monotonic, mut realtime) = (vec![0; ticks.len()], vec![0; ticks.len()]);
    let all = converter.monotonic_all(epoch, &ticks, &mut monotonic);
    let dates = converter.realtime_all(epoch, &ticks, &mut realtime);
    if clock::check().number() != epoch {
        return skip("many_at_once_are_what_each_is_alone", "the clocks were changed meanwhile");
    }
    all.unwrap();
    dates.unwrap();
    for (at, tick) in ticks.iter().enumerate() {
        let stamp = Stamp { ticks: *tick, epoch };
        assert_eq!(converter.monotonic(stamp), Ok(monotonic[at]));
        assert_eq!(converter.realtime(stamp), Ok(realtime[at]));
    }
    let ahead = clock::realtime() - clock::monotonic();
    assert!((realtime[0] - monotonic[0]).abs_diff(ahead) < 1_000_000);
    // The shorter slice counts; nothing is written beyond.
    let mut short = [7; 3];
    converter.monotonic_all(epoch, &ticks[..2], &mut short).unwrap();
    assert_eq!(short[2], 7);
    converter.monotonic_all(epoch, &ticks, &mut short[..1]).unwrap();
    let later = [ticks[0], Ticks::from_raw(u64::MAX), ticks[1]];
    let no_time = converter.monotonic_all(epoch, &later, &mut short).unwrap_err();
    assert_eq!(no_time.at, 1);
}

/// Handlers take ticks and bounds while their own thread does, or converts, or looks.
#[test]
fn in_signal_handlers() {
    static WRONG: AtomicU64 = AtomicU64::new(0);
    let _alone = alone();
    clock::settle();
    storm::rage_doing(4, storm::scaled(2_000), || {
        let (before, stamp) = (Stamp::now_ordered(), Stamp::now_ordered());
        let went_back = before.epoch == stamp.epoch && before.ticks > stamp.ticks;
        let bounds = clock::now_bounded();
        let crossed = bounds.is_ok_and(|now| now.earliest > now.latest);
        clock::check();
        let mut converter = Converter::<2>::with_history();
        converter.refresh();
        let known = converter.monotonic(Stamp::now());
        let has_future = known.is_ok();
        WRONG.fetch_add(u64::from(went_back || crossed || has_future), Ordering::Relaxed);
    });
    assert_eq!(WRONG.load(Ordering::Relaxed), 0);
}

/// The clock's rate changes by up to 1000 ppm every few milliseconds, between looks and at them.
#[test]
fn while_the_clock_is_slewed() {
    let _alone = alone();
    clock::settle();
    adjusting("while_the_clock_is_slewed", || {
        let done = AtomicBool::new(false);
        let converter = thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..storm::scaled(60) {
                    let by = if turn % 2 == 0 { 500 << 16 } else { -500 << 16 };
                    let _ = adjust(|slew| (slew.modes, slew.freq) = (libc::ADJ_FREQUENCY, by));
                    thread::sleep(Duration::from_millis(7));
                }
                done.store(true, Ordering::Relaxed);
            });
            let mut converter = Converter::<1000>::with_history();
            let mut worst = 0;
            while !done.load(Ordering::Relaxed) {
                let began = Instant::now();
                let events: Vec<_> = (0..100)
                    .map(|_| {
                        thread::sleep(Duration::from_micros(50));
                        event()
                    })
                    .collect();
                converter.refresh();
                // A rate that changed since the last refresh, by 1000 ppm at most, is off for as long as this one
                // came late.
                let late = began.elapsed().as_nanos() as u64 / 1000;
                for event in &events {
                    worst = worst.max(off(&converter, event).unwrap_or(0).saturating_sub(late));
                }
            }
            println!("{worst} ns off while slewed, {converter:?}, {:?}", clock::status());
            assert!(worst < SLACK, "{worst} off");
            converter
        });
        assert!(!converter.is_full());
    });
}

/// Ticks are nanoseconds where the counter is not to be used.
#[test]
fn without_the_counter() {
    let prepare = |command: &mut std::process::Command| {
        command.env("CORELOCAL_CLOCK", "vdso");
    };
    run_in_child("without_the_counter", prepare, || {
        let mut converter = Converter::new();
        let events: Vec<_> = (0..1000).map(|_| event()).collect();
        converter.refresh();
        for event in &events {
            assert_eq!(off(&converter, event), Ok(0));
            assert_eq!(converter.monotonic(event.stamp), Ok(event.stamp.ticks.as_raw()));
        }
    });
}

/// Runs `body` in a forked child, which makes system calls and reads clocks only; whether it said so.
fn in_fork(body: impl FnOnce() -> Option<bool>) -> Option<bool> {
    const RIGHT: i32 = 0;
    const CANNOT: i32 = 77;
    let child = forked::fork(|| body().map_or(CANNOT, |right| if right { RIGHT } else { 1 }));
    let End::Code(code) = child.wait() else { return Some(false) };
    (code != CANNOT).then_some(code == RIGHT)
}

/// A child goes on with its parent's converter.
#[test]
fn in_a_forked_child() {
    let _alone = alone();
    clock::settle();
    let mut converter = Converter::new();
    let parents = event();
    let right = in_fork(|| {
        let childs = event();
        converter.refresh();
        let known = |event| off(&converter, event).is_ok_and(|by| by < SLACK);
        let bounds = clock::now_bounded().map_or(true, |now| now.earliest <= now.latest);
        Some(known(&parents) && known(&childs) && bounds)
    });
    assert_eq!(right, Some(true));
}

/// A child that is born into another time namespace, days ahead: its parent's ticks keep their time, its own
/// have theirs, and those in between have none.
#[test]
fn in_another_time_namespace() {
    const DAY: u64 = 86_400_000_000_000;
    let _alone = alone();
    clock::settle();
    let mut converter = Converter::new();
    let parents = event();
    converter.refresh();
    let between = event();
    let before = clock::check();
    let right = in_fork(|| {
        let offsets = "monotonic 172800 0\nboottime 432000 0\n";
        // SAFETY: a path that ends in NUL, and a valid range.
        let written = unsafe {
            libc::unshare(libc::CLONE_NEWTIME);
            let file = libc::open(c"/proc/self/timens_offsets".as_ptr(), libc::O_WRONLY);
            libc::write(file, offsets.as_ptr().cast(), offsets.len())
        };
        if written != offsets.len() as isize {
            return None;
        }
        in_fork(|| {
            if clock::monotonic() < parents.after + DAY {
                return None;
            }
            converter.refresh();
            let childs = event();
            converter.refresh();
            let changed = clock::check();
            let noticed = changed.since(&before).any(|(change, _)| change == Change::Suspend)
                && changed.since(&before).any(|(change, _)| change == Change::Realtime);
            let known = |event| off(&converter, event).is_ok_and(|by| by < SLACK);
            let unknown = off(&converter, &between) == Err(Unknown::Doubtful);
            Some(noticed && known(&parents) && known(&childs) && unknown)
        })
    });
    match right {
        None => skip("in_another_time_namespace", "no time namespace can be made here"),
        right => assert_eq!(right, Some(true)),
    }
}

/// Sets the realtime clock forward or back.
fn set_by(nanos: libc::suseconds_t) -> io::Result<libc::timex> {
    adjust(|step| {
        step.modes = libc::ADJ_SETOFFSET | libc::ADJ_NANO;
        let second = libc::suseconds_t::from(nanos < 0);
        (step.time.tv_sec, step.time.tv_usec) = (-second, nanos + second * 1_000_000_000);
    })
}

#[test]
fn a_clock_that_is_set_is_noticed() {
    const TEST: &str = "a_clock_that_is_set_is_noticed";
    if std::env::var_os("CORELOCAL_MAY_SET_TIME").is_none() {
        return skip(TEST, "CORELOCAL_MAY_SET_TIME=1 allows it, on a machine of no importance");
    }
    let _alone = alone();
    adjusting(TEST, || {
        let mut watcher = Watcher::new().unwrap();
        let is_ready = |watcher: &Watcher| {
            let mut poll = libc::pollfd { fd: watcher.fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid entry.
            unsafe { libc::poll(&mut poll, 1, 0) == 1 }
        };
        let mut converter = Converter::new();
        for by in [1_000_000, -1_000_000, 1, -1] {
            let before = clock::check();
            assert!(!is_ready(&watcher));
            converter.refresh();
            let old = event();
            set_by(by).unwrap();
            assert!(is_ready(&watcher), "{by}");
            let after = watcher.look();
            assert!(!is_ready(&watcher));
            let times: u32 = after
                .since(&before)
                .map(|(change, times)| if change == Change::Realtime { times } else { 0 })
                .sum();
            assert_eq!(times, 1, "{by}: {after:?}");
            assert!(after.number() > before.number() && clock::epoch() >= after.number());
            converter.refresh();
            let new = event();
            converter.refresh();
            // The time on the old clock or the new one is unknown. Monotonic time is not affected.
            assert!(off(&converter, &old).unwrap() < SLACK);
            assert!(off(&converter, &new).unwrap() < SLACK);
            if by.abs() > 1000 {
                assert_eq!(converter.realtime(old.stamp), Err(Unknown::RealtimeSet));
            }
            let date = converter.realtime(new.stamp).unwrap();
            assert!(date.abs_diff(clock::realtime()) < 100_000_000);
        }
    });
}

#[test]
fn without_a_descriptor_to_be_had() {
    run_in_child(
        "without_a_descriptor_to_be_had",
        |_| (),
        || {
            let none = libc::rlimit { rlim_cur: 3, rlim_max: 3 };
            // SAFETY: a valid limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) }, 0);
            let mut held = Vec::new();
            while let Ok(watcher) = Watcher::new() {
                held.push(watcher);
            }
            clock::check();
            let mut converter = Converter::new();
            let event = event();
            converter.refresh();
            assert!(off(&converter, &event).unwrap() < SLACK);
        },
    );
}
