//! The tracer's write path: each event is recorded once, in order, or counted as lost.
//!
//! A process has one recording, so each test runs in a process of its own: this program again, with the test's name.

#![cfg(all(target_os = "linux", feature = "std"))]

use std::collections::BTreeMap;
use std::io::Read as _;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use corelocal::event;
use corelocal::trace::format::{self, BUFFER_HEADER_LEN, BUFFER_LEN, HEADER_LEN, SITE_LEN, header};
use corelocal::trace::{self, Options, SmokeTestError, StartError};

const CHILD: &str = "CORELOCAL_TEST_TRACE";

/// Runs the test in a child with these variables, or says that this is the child.
fn is_child(test: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os(CHILD).is_some_and(|of| of == test) {
        return true;
    }
    let program = std::env::current_exe().expect("the file of this program");
    let output = Command::new(program)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, test)
        .env("RUST_TEST_THREADS", "2")
        .envs(variables.iter().copied())
        .output()
        .expect("a child");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    text.iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.starts_with("skipped"))
        .for_each(|line| eprintln!("{line}"));
    assert!(ExitStatus::success(&output.status), "{}", text.concat());
    false
}

/// A record: its thread, its time, and its words without the time.
#[derive(Clone, Debug)]
struct Record {
    thread: u64,
    time: u64,
    words: Vec<u64>,
}

/// What a dump has: the names of sites, the records of each buffer, and the number of lost events.
struct Dump {
    sites: BTreeMap<u16, String>,
    buffers: Vec<Vec<Record>>,
    lost: u64,
    is_counted: bool,
}

impl Dump {
    fn take() -> Dump {
        let mut bytes = Vec::new();
        let len = trace::dump_to(&mut bytes).expect("a dump");
        assert_eq!(len, bytes.len() as u64);
        Dump::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Dump {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a word"));
        assert_eq!(word(header::MAGIC), format::MAGIC);
        let site = |number: usize| {
            let at = HEADER_LEN + (number - 1) * SITE_LEN;
            let len = word(at) as usize >> 32;
            let text = &bytes[at + format::SITE_TEXT..][..len];
            (number as u16, String::from_utf8_lossy(text).into_owned())
        };
        let sites = (1..=word(header::SITES) as usize).map(site).collect();
        let mut at = word(header::BUFFERS_AT) as usize;
        let mut buffers = Vec::new();
        for _ in 0..word(header::BUFFERS) {
            if word(at + format::buffer::TICKET) == 0 {
                at += BUFFER_LEN;
                continue;
            }
            let end = at + word(at) as usize;
            let mut records = Vec::new();
            let mut thread = 0;
            let mut record = at + BUFFER_HEADER_LEN;
            while record < end {
                let first = word(record + 8);
                let len = (first >> 16 & 0xffff) as usize;
                let words: Vec<u64> = (0..len).map(|nth| word(record + 8 + 8 * nth)).collect();
                if first as u16 == format::CONTEXT {
                    thread = words[1];
                } else {
                    records.push(Record { thread, time: word(record), words });
                }
                record += 8 * (1 + len);
            }
            assert_eq!(record, end, "the last record ends where the buffer does");
            buffers.push(records);
            at = if word(header::PACKED) == format::DUMP { end } else { at + BUFFER_LEN };
        }
        let is_counted = word(header::IS_COUNTED) != 0;
        Dump { sites, buffers, lost: word(header::LOST), is_counted }
    }

    fn number(&self, name: &str) -> u16 {
        let found = self.sites.iter().find(|(_, text)| text.lines().next() == Some(name));
        *found.unwrap_or_else(|| panic!("no site {name} in {:?}", self.sites)).0
    }

    /// The records of this site, buffer by buffer.
    fn of(&self, name: &str) -> Vec<Vec<&Record>> {
        let number = self.number(name);
        let of_site = |records: &'_ Vec<Record>| -> Vec<usize> {
            (0..records.len()).filter(|&nth| records[nth].words[0] as u16 == number).collect()
        };
        self.buffers
            .iter()
            .map(|records| of_site(records).into_iter().map(|nth| &records[nth]).collect())
            .collect()
    }
}

fn gettid() -> u64 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() as u64 }
}

#[test]
fn fields_and_states() {
    if !is_child("fields_and_states", &[]) {
        return;
    }
    let computed = AtomicBool::new(false);
    event!(test::before, n = 1_u32);
    event!(
        test::before_twice,
        n = {
            computed.store(true, Ordering::Relaxed);
            1_u32
        }
    );
    assert_eq!(trace::status(), None);
    assert_eq!(trace::smoke_test(), Err(SmokeTestError::NotRecording));
    assert!(trace::dump_to(&mut Vec::new()).is_err());
    let too_much = trace::start(Options::flight_recorder().max_bytes(usize::MAX));
    assert!(matches!(too_much, Err(StartError::NoMemory(_))), "{too_much:?}");
    trace::start(Options::flight_recorder()).expect("a recording");
    assert_eq!(trace::start(Options::flight_recorder()), Err(StartError::AlreadyStarted));
    let outer = 5_u8;
    event!(
        test::fields,
        a = 7_u32,
        outer = outer,
        b = outer,
        text = "héllo",
        blob = &[1_u8, 2][..],
        x = -1.5_f64,
        yes = true
    );
    event!(test::none);
    let long = "x".repeat(2000);
    event!(test::long, text = &*long);
    trace::smoke_test().expect("a recording");
    for nth in 0..3_u64 {
        event!(test::off, nth = nth);
        assert_eq!(trace::switch("test::o*f", nth == 1), Ok(1));
    }
    // A rule holds for sites that are reached later.
    assert_eq!(trace::switch("test::later", false), Ok(0));
    event!(test::later);
    for nth in 0..3_u64 {
        event!(test::ordered, nth = nth);
        assert!(trace::switch("*", nth == 1).is_ok_and(|sites| sites > 3));
    }
    assert!(trace::switch("*", true).is_ok());
    for nth in 0..24 {
        let switched = trace::switch(&format!("x{nth}"), true);
        assert_eq!(switched.is_ok(), nth < 23, "{nth}: {switched:?}");
    }
    assert!(trace::switch(&"x".repeat(127), true).is_err());
    assert!(trace::switch("x3", false).is_ok(), "the same pattern");
    let dump = Dump::take();
    let fields = dump.of("test::fields").concat();
    assert_eq!(
        dump.sites[&dump.number("test::fields")],
        "test::fields\nIa\nBouter\nBb\nstext\nyblob\ndx\n?yes"
    );
    assert_eq!((fields.len(), fields[0].thread), (1, gettid()));
    let bytes: Vec<u8> = fields[0].words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut expected = vec![7, 0, 0, 0, 5, 5, 6, 0];
    expected.extend("héllo".bytes());
    expected.extend([2, 0, 1, 2]);
    expected.extend((-1.5_f64).to_le_bytes());
    expected.push(1);
    assert_eq!(bytes[4..4 + expected.len()], expected);
    assert_eq!(dump.of("test::none").concat()[0].words.len(), 1);
    assert_eq!(dump.of("test::long").concat()[0].words.len(), format::MOST_WORDS);
    let off = dump.of("test::off").concat();
    let values: Vec<u64> =
        off.iter().map(|record| record.words[1] << 32 | record.words[0] >> 32).collect();
    assert_eq!(values, [0, 2], "off in between");
    assert!(dump.of("test::before").concat().is_empty() && computed.into_inner());
}

/// Threads record numbers, while signals interrupt them, whose handlers record too, and cpus change. All events are there
/// once, in order by thread and buffer.
fn storm(threads: u64, events: u64) {
    trace::start(Options::flight_recorder().max_bytes(256 << 20)).expect("a recording");
    extern "C" fn handler(_: libc::c_int) {
        event!(test::signal, thread = gettid());
    }
    // SAFETY: a handler that records.
    unsafe { libc::signal(libc::SIGUSR1, handler as extern "C" fn(libc::c_int) as usize) };
    let (is_over, ids) = (AtomicBool::new(false), std::sync::Mutex::new(Vec::new()));
    let sent = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    ids.lock().expect("no panic").push(gettid());
                    for nth in 0..events {
                        event!(test::number, nth = nth, copy = nth);
                        if nth % 1000 == 0 {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let sender = scope.spawn(|| {
            let mut sent = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                for &id in ids.lock().expect("no panic").iter() {
                    // SAFETY: a thread that may have ended: then the call fails.
                    let failed = unsafe {
                        libc::syscall(libc::SYS_tgkill, libc::getpid(), id, libc::SIGUSR1)
                    };
                    sent += u64::from(failed == 0);
                }
                thread::sleep(Duration::from_micros(50));
            }
            sent
        });
        workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
        is_over.store(true, Ordering::Relaxed);
        sender.join().expect("the sender")
    });
    let dump = Dump::take();
    assert_eq!(dump.lost, 0);
    let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for records in dump.of("test::number") {
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for record in records {
            let bytes: Vec<u8> = record.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let value =
                |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a word"));
            assert_eq!(value(4), value(12));
            if let Some(before) = last.insert(record.thread, value(4)) {
                assert!(before < value(4), "out of order");
            }
            seen.entry(record.thread).or_default().push(value(4));
        }
    }
    assert_eq!(seen.len() as u64, threads);
    for (thread, mut numbers) in seen {
        numbers.sort_unstable();
        let is_all = numbers.iter().copied().eq(0..events);
        assert!(is_all, "thread {thread}: {} of {events}", numbers.len());
    }
    // Otherwise a time is read before the section: a handler's event in between has a later one.
    for records in dump.buffers.iter().filter(|_| dump.is_counted) {
        assert!(records.windows(2).all(|pair| pair[0].time <= pair[1].time), "time goes back");
    }
    // There is no site if no signal came in time.
    let has_signals = dump.sites.values().any(|text| text.starts_with("test::signal"));
    let signals = if has_signals { dump.of("test::signal").concat() } else { Vec::new() };
    assert!(
        signals.iter().all(|record| record.thread == record.words[1] << 32 | record.words[0] >> 32)
    );
    println!(
        "{threads} threads, {events} events each, {sent} signals sent, {} handled",
        signals.len()
    );
}

fn scale(count: u64) -> u64 {
    let scale =
        std::env::var("CORELOCAL_TEST_SCALE").ok().and_then(|scale| scale.parse::<f64>().ok());
    ((count as f64 * scale.unwrap_or(1.0)) as u64).max(500)
}

#[test]
fn every_event_once() {
    if is_child("every_event_once", &[]) {
        storm(16, scale(200_000));
    }
}

#[test]
fn every_event_once_without_rseq() {
    if is_child("every_event_once_without_rseq", &[("CORELOCAL_RSEQ", "off")]) {
        storm(4, scale(50_000));
    }
}

/// The last events are kept, and the oldest buffers are begun again.
#[test]
fn the_last_events_are_kept() {
    if !is_child("the_last_events_are_kept", &[]) {
        return;
    }
    trace::start(Options::flight_recorder().max_bytes(1 << 20)).expect("a recording");
    let events = 300_000_u64;
    let mut dumps = 0;
    thread::scope(|scope| {
        let dumper = scope.spawn(|| {
            let mut dumps = 0;
            for _ in 0..20 {
                Dump::take();
                dumps += 1;
            }
            dumps
        });
        (0..events).for_each(|nth| event!(test::kept, nth = nth));
        dumps = dumper.join().expect("dumps");
    });
    let dump = Dump::take();
    let mut kept: Vec<u64> = dump
        .of("test::kept")
        .concat()
        .iter()
        .map(|record| record.words[1] << 32 | record.words[0] >> 32)
        .collect();
    kept.sort_unstable();
    assert_eq!(kept.last(), Some(&(events - 1)));
    // Older ones may be in the buffer of another core, which is not full yet.
    let gap = kept.windows(2).rposition(|pair| pair[0] + 1 != pair[1]);
    let kept = &kept[gap.map_or(0, |at| at + 1)..];
    // 24 bytes each.
    assert!(kept.len() > 30_000, "{} of {events}", kept.len());
    println!("{} of {events} kept, {dumps} dumps meanwhile", kept.len());
}

#[test]
fn a_child_records_nothing() {
    if !is_child("a_child_records_nothing", &[]) {
        return;
    }
    trace::start(Options::flight_recorder()).expect("a recording");
    let record = |nth: u32| event!(test::forked, nth = nth);
    record(1);
    // SAFETY: the child records, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        record(2);
        record(3);
        let is_right =
            trace::status().is_none() && trace::smoke_test() == Err(SmokeTestError::NotRecording);
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = -1;
    // SAFETY: a child of ours.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    record(4);
    let values: Vec<u64> = Dump::take()
        .of("test::forked")
        .concat()
        .iter()
        .map(|record| record.words[0] >> 32)
        .collect();
    assert_eq!(values, [1, 4]);
}

/// A process that records into a file is killed at any time: the file has a prefix of each thread's events.
#[test]
fn a_prefix_survives_a_kill() {
    let folder =
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
    if let Some(path) = std::env::var_os("CORELOCAL_TEST_TRACE_FILE") {
        let path = path.into_string().expect("UTF-8");
        trace::start(Options::flight_recorder().max_bytes(16 << 20).file(&path))
            .expect("a recording");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..u64::MAX).for_each(|nth| event!(test::number, nth = nth)));
            }
        });
    }
    let path = folder.path().join("killed.trace");
    let kills = scale(2000) / 10;
    let mut most = 0;
    for nth in 0..kills.min(200) {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "a_prefix_survives_a_kill"])
            .env("CORELOCAL_TEST_TRACE_FILE", &path)
            .env("RUST_TEST_THREADS", "2")
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("a child");
        let is_there = || {
            let mut first = [0; 8];
            let read = std::fs::File::open(&path).and_then(|mut file| file.read_exact(&mut first));
            read.is_ok() && first == format::MAGIC.to_le_bytes()
        };
        let began = std::time::Instant::now();
        while !is_there() && began.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(1));
        }
        // Longer on a machine that is so slow that it has recorded nothing yet. Not on others, where all buffers would be
        // begun again, but for one that a core has open: older events, and a gap.
        let pause = if most == 0 && nth % 10 == 9 { 50_000 } else { nth * 37 % 5000 };
        thread::sleep(Duration::from_micros(pause));
        child.kill().expect("a child");
        child.wait().expect("a child");
        let dump = Dump::parse(&std::fs::read(&path).expect("a recording"));
        std::fs::remove_file(&path).expect("a recording");
        let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let records = dump.buffers.iter().flatten().filter(|record| record.words.len() == 2);
        for record in records {
            let value = record.words[1] << 32 | record.words[0] >> 32;
            seen.entry(record.thread).or_default().push(value);
        }
        for (thread, mut values) in seen {
            values.sort_unstable();
            let first = values[0];
            let is_whole = values.iter().copied().eq(first..first + values.len() as u64);
            assert!(is_whole, "kill {nth}: a gap in thread {thread}");
            assert!(first == 0 || values.len() > 100_000, "kill {nth}: the beginning is missing");
            most = most.max(values.len());
        }
    }
    println!("{kills} kills; at most {most} events of a thread");
    assert!(most > 0);
}

#[test]
fn files_of_recordings() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("own.trace");
    if !is_child("files_of_recordings", &[]) {
        return;
    }
    let text = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let start = |path: &std::path::Path, bytes: usize| {
        trace::start(Options::flight_recorder().max_bytes(bytes).file(&text(path)))
    };
    // What is no recording stays as it is.
    std::fs::write(&path, "precious").expect("a file");
    for other in [&path, folder.path(), "/dev/null".as_ref(), &folder.path().join("no/such")] {
        assert!(matches!(start(other, 0), Err(StartError::NoFile(_))), "{}", other.display());
    }
    assert_eq!(std::fs::read(&path).expect("a file"), b"precious");
    // No file system is so large.
    let large = folder.path().join("large.trace");
    assert!(matches!(start(&large, 1 << 50), Err(StartError::NoFile(_))));
    assert!(!large.exists());
    std::fs::write(&path, format::MAGIC.to_le_bytes()).expect("a file");
    start(&path, 0).expect("a recording");
    event!(test::filed, nth = 7_u32);
    assert!(folder.path().join("own.trace.old").exists());
    let dump = Dump::parse(&std::fs::read(&path).expect("a recording"));
    assert_eq!(dump.of("test::filed").concat()[0].words[0] >> 32, 7);
}
