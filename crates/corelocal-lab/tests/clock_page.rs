//! Clock pages between programs: the readers of ClockBound read what we publish, and we read what its
//! writers publish. One's writer runs while the other's readers read.
//!
//! Its readers give their last content where ours report a doubt; both must be whole.

use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clock_bound_shm::{ClockErrorBound, ClockStatus, ShmReader, ShmWrite, ShmWriter};
use clock_bound_vmclock::shm::{VMClockClockStatus, VMClockShmBody};
use clock_bound_vmclock::shm_reader::VMClockShmReader;
use clock_bound_vmclock::shm_writer::{VMClockShmWrite, VMClockShmWriter};
use corelocal::clock::page::{
    Leap, Publisher, ReadError, Refusal, Smearing, Status, Subscriber, clockbound, vmclock,
};
use nix::sys::time::TimeSpec;
use tempfile::TempDir;

/// A path in a folder of the test's own, which goes with it.
struct File(PathBuf, CString, #[expect(dead_code, reason = "removes the folder")] TempDir);

impl File {
    fn new() -> File {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("page");
        let c_path = CString::new(path.to_str().expect("a path in UTF-8")).expect("no NUL");
        File(path, c_path, folder)
    }

    fn c(&self) -> &CStr {
        &self.1
    }

    fn str(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

/// How many publications each test makes.
const PUBLICATIONS: u64 = 20_000;

fn our_bound(n: u64) -> clockbound::Content {
    clockbound::Content {
        as_of: Duration::new(n, n as u32),
        void_after: Duration::new(n + 1000, n as u32),
        bound_ns: n,
        disruptions: n,
        drift_ppb: n as u32,
        status: [Status::Synchronized, Status::FreeRunning, Status::Disrupted][n as usize % 3],
        marker_counts: true,
    }
}

fn their_bound(n: u64) -> ClockErrorBound {
    let status = [ClockStatus::Synchronized, ClockStatus::FreeRunning, ClockStatus::Disrupted];
    ClockErrorBound::new(
        TimeSpec::new(n as i64, n as i64),
        TimeSpec::new(n as i64 + 1000, n as i64),
        n as i64,
        n,
        n as u32,
        status[n as usize % 3],
        true,
    )
}

#[test]
fn clockbounds_readers_read_our_page() {
    let file = File::new();
    let mut publisher = Publisher::<clockbound::Page>::create(file.c()).expect("a publisher");
    assert!(ShmReader::new(file.c()).is_err(), "there is nothing to read yet");
    publisher.publish(&our_bound(1)).expect("our own process");
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reader = ShmReader::new(file.c()).expect("a reader");
            let mut seen = 0;
            while !done.load(Ordering::Relaxed) {
                // Its retries end with an error if it meets none but odd generations.
                let Ok(bound) = reader.snapshot() else { continue };
                let n = bound.disruption_marker;
                if n != 0 {
                    assert_eq!(*bound, their_bound(n));
                    seen += 1;
                }
            }
            seen
        });
        for n in 2..PUBLICATIONS {
            publisher.publish(&our_bound(n)).expect("our own process");
            // Sixteen bits of generation must not come around within one of its readings.
            if n % 64 == 0 {
                thread::yield_now();
            }
        }
        thread::sleep(Duration::from_millis(20));
        done.store(true, Ordering::Relaxed);
        reader.join().expect("a reader that found nothing torn")
    });
    println!("{seen} contents seen");
    assert!(seen > 0);
    let mut reader = ShmReader::new(file.c()).expect("a reader");
    assert_eq!(*reader.snapshot().expect("a content"), their_bound(PUBLICATIONS - 1));
}

#[test]
fn clockbounds_bounds_are_ours() {
    let file = File::new();
    let mut publisher = Publisher::<clockbound::Page>::create(file.c()).expect("a publisher");
    let now = clock_bound_shm::common::clock_gettime_safe(clock_bound_shm::common::CLOCK_MONOTONIC)
        .expect("a clock");
    let as_of = Duration::new(now.tv_sec() as u64, now.tv_nsec() as u32);
    let content = clockbound::Content {
        as_of,
        void_after: as_of + Duration::from_secs(1000),
        bound_ns: 50_000_000,
        drift_ppb: 1000,
        status: Status::Synchronized,
        ..clockbound::Content::default()
    };
    publisher.publish(&content).expect("our own process");
    let mut ours = Subscriber::<clockbound::Page>::open(file.c()).expect("a subscriber");
    let mut theirs = ShmReader::new(file.c()).expect("a reader");
    let before = ours.bounds().expect("bounds");
    let (earliest, latest, status) =
        theirs.snapshot().and_then(|bound| bound.now()).expect("bounds");
    let after = ours.bounds().expect("bounds");
    let duration = |time: TimeSpec| Duration::new(time.tv_sec() as u64, time.tv_nsec() as u32);
    assert_eq!((before.status, status), (Status::Synchronized, ClockStatus::Synchronized));
    // Theirs is rounded inwards, by a nanosecond.
    let blur = Duration::from_nanos(1) + after.latest - before.latest;
    assert!(before.earliest <= duration(earliest) && duration(earliest) <= after.earliest + blur);
    assert!(before.latest <= duration(latest) + blur && duration(latest) <= after.latest);
}

#[test]
fn we_read_clockbounds_page() {
    let file = File::new();
    let mut writer = ShmWriter::new(&file.0).expect("a writer");
    // Version 0, until the first publication, or 2 of generation 0.
    match Subscriber::<clockbound::Page>::open(file.c()) {
        Ok(mut subscriber) => assert_eq!(subscriber.content(), Err(ReadError::Blank)),
        Err(refusal) => assert_eq!(refusal, Refusal::Version(0)),
    }
    writer.write(&their_bound(1));
    // The daemon takes no lock, so its file is not ours to write.
    let refusal = Publisher::<clockbound::Page>::create(file.c()).err();
    assert_eq!(refusal, Some(Refusal::NotOurs));
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut subscriber = Subscriber::<clockbound::Page>::open(file.c()).expect("a page");
            assert_eq!(subscriber.recoveries(), None);
            let mut seen = 0;
            while !done.load(Ordering::Relaxed) {
                match subscriber.content() {
                    Ok(content) => {
                        assert_eq!(*content, our_bound(content.bound_ns));
                        seen += 1;
                    }
                    Err(doubt) => {
                        assert!(matches!(doubt, ReadError::Odd | ReadError::Changing), "{doubt}")
                    }
                }
            }
            seen
        });
        for n in 2..PUBLICATIONS {
            writer.write(&their_bound(n));
        }
        thread::sleep(Duration::from_millis(20));
        done.store(true, Ordering::Relaxed);
        reader.join().expect("a reader that found nothing torn")
    });
    println!("{seen} contents seen");
    let mut subscriber = Subscriber::<clockbound::Page>::open(file.c()).expect("a page");
    assert_eq!(subscriber.content(), Ok(&our_bound(PUBLICATIONS - 1)));
}

fn our_vmclock(n: u64) -> vmclock::Content {
    vmclock::Content {
        disruptions: n,
        flags: n & 0xff,
        status: Status::Synchronized,
        smearing: Smearing::UtcSls,
        tai_offset: n as i16,
        leap: Leap::Inserted,
        period_shift: n as u8,
        counter: n,
        period: n,
        period_estimated_error: n,
        period_max_error: n,
        seconds: n,
        fraction: n,
        estimated_error_ns: n,
        max_error_ns: n,
        ..vmclock::Content::default()
    }
}

fn their_vmclock(n: u64) -> VMClockShmBody {
    VMClockShmBody {
        disruption_marker: n,
        flags: n & 0xff,
        _padding: [0; 2],
        clock_status: VMClockClockStatus::Synchronized,
        leap_second_smearing_hint: 2,
        tai_offset_sec: n as i16,
        leap_indicator: 4,
        counter_period_shift: n as u8,
        counter_value: n,
        counter_period_frac_sec: n,
        counter_period_esterror_rate_frac_sec: n,
        counter_period_maxerror_rate_frac_sec: n,
        time_sec: n,
        time_frac_sec: n,
        time_esterror_nanosec: n,
        time_maxerror_nanosec: n,
    }
}

#[test]
fn its_vmclock_readers_read_our_page() {
    let file = File::new();
    let mut publisher = Publisher::<vmclock::Page>::create(file.c()).expect("a publisher");
    let mut reader = VMClockShmReader::new(file.str()).expect("a reader");
    for n in 1..PUBLICATIONS {
        publisher.publish(&our_vmclock(n)).expect("our own process");
        if n % 100 == 1 {
            assert_eq!(*reader.snapshot().expect("a content"), their_vmclock(n));
        }
    }
}

#[test]
fn we_read_its_vmclock_page() {
    let file = File::new();
    let mut writer = VMClockShmWriter::new(&file.0).expect("a writer");
    writer.write(&their_vmclock(1));
    let mut subscriber = Subscriber::<vmclock::Page>::open(file.c()).expect("a page");
    for n in 2..PUBLICATIONS {
        writer.write(&their_vmclock(n));
        let content = *subscriber.content().expect("a content");
        let kinds = vmclock::Content { counter_kind: content.counter_kind, ..our_vmclock(n) };
        assert_eq!(content, vmclock::Content { scale: content.scale, ..kinds });
    }
}
