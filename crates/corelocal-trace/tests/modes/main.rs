//! How recordings are made: spans, to disk, in children, by the environment, and what makes a dump.
//!
//! A process has one recording, so each test runs in a process of its own: this program again, with the test's name.

mod times;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::trace::{self, Options, SpanId, StartError};
use corelocal::{event, span, task_span};
use corelocal_trace::{Event, Recording, Value, What};

const CHILD: &str = "CORELOCAL_TEST_TRACE";
const FOLDER: &str = "CORELOCAL_TEST_TRACE_FOLDER";

/// The folder, if this is the child that is to run the test.
fn child_of(test: &str) -> Option<PathBuf> {
    let is_this = std::env::var_os(CHILD).is_some_and(|of| of == test);
    is_this.then(|| std::env::var_os(FOLDER).expect("a folder").into())
}

/// Runs the test in a child.
fn run(test: &str, folder: &Path, variables: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env_remove("CORELOCAL_TRACE")
        .envs([(CHILD, test)])
        .env(FOLDER, folder)
        .envs(variables.iter().copied())
        .output()
        .expect("a child")
}

fn run_well(test: &str, folder: &Path, variables: &[(&str, &str)]) {
    let output = run(test, folder, variables);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

fn path_in(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("UTF-8").to_owned()
}

fn open(folder: &Path, name: &str) -> Recording {
    let recording = Recording::open(folder.join(name)).expect("a recording");
    assert_eq!(recording.problems(), []);
    recording
}

/// Events of the tests.
fn events(recording: &Recording) -> Vec<Event<'_>> {
    recording.events().filter(|event| event.name.starts_with("test::")).collect()
}

/// A recording of this process so far.
fn dump() -> Recording {
    let mut bytes = Vec::new();
    trace::dump_to(&mut bytes).expect("a dump");
    Recording::parse(bytes).expect("a recording")
}

/// Files may have so many bytes from now on.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: a limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

/// Where no file may have the bytes of a recording, that is an error, and no signal.
#[test]
fn a_limit_of_files() {
    if child_of("a_limit_of_files").is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        return run_well("a_limit_of_files", folder.path(), &[]);
    }
    limit_files(1 << 20);
    let wrong = trace::start(Options::flight_recorder());
    assert_eq!(wrong, Err(StartError::NoMemory(corelocal::sys::Errno(libc::EFBIG))));
    assert!(wrong.unwrap_err().to_string().contains("ulimit -f"));
    limit_files(1 << 20);
    let path = std::env::temp_dir().join(format!("corelocal-limit-{}", std::process::id()));
    assert!(trace::start(Options::flight_recorder().file(&path_in(&path, ""))).is_err());
}

fn until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "too late");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Puts the calling thread on one of two cpus.
fn move_to(cpus: [usize; 2], nth: u32) {
    // SAFETY: zeros are a set of cpus, and the number is that of a cpu.
    let moved = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpus[nth as usize % 2], &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(moved, 0);
}

/// Two cpus that this process may use.
fn two_cpus() -> Option<[usize; 2]> {
    // SAFETY: zeros are a set of cpus, which is written to.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        set
    };
    // SAFETY: numbers below the size of a set.
    let mut allowed = (0..1024).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) });
    Some([allowed.next()?, allowed.next()?])
}

/// Each event with a field `want` is in that span.
fn are_in_their_spans(recording: &Recording, most_lost: bool) -> u64 {
    let mut count = 0;
    for event in recording.events().filter(|event| event.what == What::Event) {
        for (name, value) in event.present_fields() {
            if name == "want" {
                assert_eq!(*value, Value::Unsigned(event.span), "{event:?}");
                count += 1;
            }
        }
    }
    assert!(most_lost || recording.lost() == 0);
    count
}

#[test]
fn spans_of_threads_that_move() {
    let folder = tempfile::tempdir().expect("a folder");
    if child_of("spans_of_threads_that_move").is_none() {
        for rseq in ["on", "off"] {
            run_well("spans_of_threads_that_move", folder.path(), &[("CORELOCAL_RSEQ", rseq)]);
        }
        return;
    }
    let Some(cpus) = two_cpus() else {
        return eprintln!("skipped: spans_of_threads_that_move: there is one cpu");
    };
    trace::start(Options::flight_recorder().max_bytes(64 << 20)).expect("a recording");
    const ROUNDS: u32 = 1500;
    thread::scope(|scope| {
        for worker in 0..4_u32 {
            scope.spawn(move || {
                for nth in 0..ROUNDS {
                    move_to(cpus, nth + worker);
                    let outer = span!(test::outer);
                    let id = outer.id().as_raw();
                    event!(test::within, want = id);
                    move_to(cpus, nth + worker + 1);
                    event!(test::within, want = id);
                    {
                        let inner = span!(test::inner);
                        event!(test::within, want = inner.id().as_raw());
                        move_to(cpus, nth + worker);
                        event!(test::within, want = inner.id().as_raw());
                    }
                    event!(test::within, want = id);
                    drop(outer);
                    event!(test::within, want = 0_u64);
                }
            });
        }
    });
    assert_eq!(are_in_their_spans(&dump(), false), u64::from(4 * 6 * ROUNDS));
}

#[test]
fn spans_when_records_are_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    if child_of("spans_when_records_are_lost").is_none() {
        return run_well("spans_when_records_are_lost", folder.path(), &[]);
    }
    // Nothing empties the buffers, so they are full soon, and records of spans are lost among others.
    trace::start(Options::flight_recorder().max_bytes(1).drained()).expect("a recording");
    let text = "x".repeat(400);
    for nth in 0..2000_u32 {
        let outer = span!(test::outer, text = if nth % 3 == 0 { &*text } else { "" });
        event!(test::within, want = outer.id().as_raw());
        drop(outer);
        event!(test::within, want = 0_u64);
    }
    let recording = dump();
    assert!(recording.lost() > 0 && are_in_their_spans(&recording, true) > 0);
}

#[test]
fn guards_in_any_order() {
    let folder = tempfile::tempdir().expect("a folder");
    if child_of("guards_in_any_order").is_none() {
        return run_well("guards_in_any_order", folder.path(), &[]);
    }
    trace::start(Options::flight_recorder().max_bytes(1 << 20)).expect("a recording");
    if trace::status().is_none() || span!(test::first).id() == SpanId::NONE {
        return eprintln!("skipped: guards_in_any_order: threads have no spans here");
    }
    let [a, b] = [span!(test::a), span!(test::b)];
    let id = b.id().as_raw();
    event!(test::within, want = id);
    drop(a);
    event!(test::within, want = id);
    drop(b);
    event!(test::within, want = 0_u64);
    let task = task_span!(test::task);
    let id = task.id().as_raw();
    let [first, second] = [task.enter(), task.enter()];
    drop(first);
    event!(test::within, want = id);
    drop(second);
    event!(test::within, want = 0_u64);
    // A guard that is never dropped leaves its span open.
    let outer = span!(test::outer);
    let forgotten = span!(test::forgotten);
    let id = forgotten.id().as_raw();
    std::mem::forget(forgotten);
    drop(outer);
    event!(test::within, want = id);
    assert_eq!(are_in_their_spans(&dump(), false), 6);
}

#[test]
fn twenty_thousand_spans_fit_into_a_stack() {
    let folder = tempfile::tempdir().expect("a folder");
    if child_of("twenty_thousand_spans_fit_into_a_stack").is_none() {
        return run_well("twenty_thousand_spans_fit_into_a_stack", folder.path(), &[]);
    }
    trace::start(Options::flight_recorder()).expect("a recording");
    fn nest(depth: u64, text: &str) {
        if depth > 0 {
            let _span = span!(test::nested, depth = depth, text = text);
            nest(depth - 1, text);
        }
    }
    let small = thread::Builder::new().stack_size(8 << 20);
    small.spawn(|| nest(20_000, "a text")).expect("a thread").join().expect("no panic");
    let recording = dump();
    assert_eq!(events(&recording).len(), 40_000);
}

#[test]
fn spans() {
    let folder = tempfile::tempdir().expect("a folder");
    if child_of("spans").is_none() {
        run_well("spans", folder.path(), &[]);
        return run_well("spans", folder.path(), &[("CORELOCAL_RSEQ", "off")]);
    }
    assert_eq!(span!(test::early).id(), SpanId::NONE);
    trace::start(Options::flight_recorder().max_bytes(1 << 20)).expect("a recording");
    let parent = {
        let outer = span!(test::outer, n = 1_u8);
        assert!(outer.id() != SpanId::NONE && trace::current_span() == outer.id());
        event!(test::within);
        {
            let inner = span!(test::inner);
            event!(test::deep);
            assert_eq!(trace::current_span(), inner.id());
        }
        event!(test::within);
        outer.id()
    };
    assert_eq!(trace::current_span(), SpanId::NONE);
    let task = task_span!(parent: parent; test::task, what = "x");
    let id = task.id();
    event!(test::outside);
    thread::spawn(move || {
        let entered = task.enter();
        event!(test::within);
        drop(span!(test::inner));
        drop(entered);
        event!(test::outside);
    })
    .join()
    .expect("no panic");
    let mut future = std::pin::pin!(task_span!(test::future).around(async {
        event!(test::within);
        trace::current_span()
    }));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let ready = std::future::Future::poll(future.as_mut(), &mut cx);
    let std::task::Poll::Ready(in_future) = ready else { panic!("it does not wait") };
    let recording = dump();
    let all = events(&recording);
    let shown: Vec<String> = all
        .iter()
        .map(|event| {
            let name = |id: u64| match all
                .iter()
                .find(|event| event.what == What::Begin && event.span == id)
            {
                Some(begin) => &begin.name[6..],
                None => "-",
            };
            let what = match event.what {
                What::Event => "",
                What::Begin => "begin ",
                What::End => "end ",
            };
            format!(
                "{what}{} in {}, parent {}",
                &event.name[6..],
                name(event.span),
                name(event.parent)
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "begin outer in outer, parent -",
            "within in outer, parent -",
            "begin inner in inner, parent outer",
            "deep in inner, parent -",
            "end inner in inner, parent -",
            "within in outer, parent -",
            "end outer in outer, parent -",
            "begin task in task, parent outer",
            "outside in -, parent -",
            "within in task, parent -",
            "begin inner in inner, parent task",
            "end inner in inner, parent -",
            "outside in -, parent -",
            "end task in task, parent -",
            "begin future in future, parent -",
            "within in future, parent -",
        ]
    );
    assert_eq!((all[7].span, all[14].span), (id.as_raw(), in_future.as_raw()));
    assert_eq!(all[0].fields.len(), 1);
}

/// Ids of spans of many threads differ.
#[test]
fn ids_of_spans() {
    let ids: Vec<Vec<u64>> = thread::scope(|scope| {
        let drawn = || (0..1000).map(|_| task_span!(test::ids).id().as_raw()).collect();
        let folder = tempfile::tempdir().expect("a folder");
        // Without a recording there are no spans.
        let _ = trace::start(Options::flight_recorder().file(&path_in(folder.path(), "x")));
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(drawn)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut all = ids.concat();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert!(all.len() == count && all[0] != 0, "{} of {count}", all.len());
}

#[test]
fn to_disk() {
    const EVENTS: u64 = 1_000_000;
    if let Some(folder) = child_of("to_disk") {
        let options = Options::to_disk("test.trace").max_bytes(2 << 20);
        std::env::set_current_dir(&folder).expect("a folder");
        trace::start(options).expect("a recording");
        // The thread has descriptors of its own.
        std::env::set_current_dir("/").expect("a folder");
        for nth in 0..EVENTS {
            event!(test::number, nth = nth);
            if nth % 1000 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            if nth == EVENTS / 2 {
                trace::flush().expect("a file");
                let now = open(&folder, "test.trace");
                assert_eq!(events(&now).len() as u64, nth + 1);
            }
        }
        assert_eq!(trace::status().expect("a recording").lost, 0);
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for rseq in ["on", "off"] {
        run_well("to_disk", folder.path(), &[("CORELOCAL_RSEQ", rseq)]);
        let recording = open(folder.path(), "test.trace");
        let events = events(&recording);
        assert_eq!(events.len() as u64, EVENTS);
        let numbers = events.iter().enumerate();
        assert!({ numbers }.all(|(nth, event)| event.fields[0].1 == Value::Unsigned(nth as u64)));
    }
}

/// A full disk: events wait, are lost when buffers are full, and are counted.
#[test]
fn to_a_full_disk() {
    if let Some(folder) = child_of("to_a_full_disk") {
        let wrong = trace::start(Options::to_disk("/no/such/file"));
        assert!(matches!(wrong, Err(StartError::NoFile(_))), "{wrong:?}");
        trace::start(Options::to_disk(&path_in(&folder, "full.trace")).max_bytes(1 << 20))
            .expect("a recording");
        // The file may have no more bytes than the header and some buffers. The thread gets no signal.
        limit_files(2 << 20);
        let mut events = 0_u64;
        let mut record = |count: u64| {
            (0..count).for_each(|_| {
                event!(test::number, nth = events);
                events += 1;
            });
            assert!(events < 100_000_000);
        };
        // Until the file is full, and then until the memory is.
        while trace::flush().is_ok() {
            record(1000);
        }
        while trace::status().expect("a recording").lost == 0 {
            record(1);
        }
        assert!(trace::flush().is_err());
        // Attempts go on, and are not reported again.
        thread::sleep(Duration::from_millis(2500));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let output = run("to_a_full_disk", folder.path(), &[]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    assert_eq!(err.matches("cannot be written").count(), 1, "{err}");
    let recording = open(folder.path(), "full.trace");
    let events = events(&recording);
    assert!(events.len() > 1000, "{}", events.len());
    // A buffer of another core may not have been full, and is missing.
    let number = |event: &Event<'_>| match event.fields[0].1 {
        Value::Unsigned(number) => number,
        ref other => panic!("{other:?}"),
    };
    assert!(events.windows(2).all(|pair| number(&pair[0]) < number(&pair[1])));
}

/// A disk that is full at the start, and one that becomes full: each record in the file is of a site that the file
/// describes, and its header has the losses.
#[test]
fn a_full_disk_leaves_a_file_that_explains_itself() {
    const EVENTS: u64 = 400_000;
    if let Some(folder) = child_of("a_full_disk_leaves_a_file_that_explains_itself") {
        trace::start(Options::to_disk(&path_in(&folder, "full.trace")).max_bytes(1 << 20))
            .expect("a recording");
        let kib = std::env::var("CORELOCAL_TEST_LIMIT").expect("a limit");
        let bytes = kib.parse::<u64>().expect("a number") << 10;
        trace::flush().expect("a file");
        limit_files(bytes);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..EVENTS / 4).for_each(|nth| event!(test::number, nth = nth)));
            }
        });
        return;
    }
    for kib in ["1030", "1100", "2000", "20000"] {
        let folder = tempfile::tempdir().expect("a folder");
        let test = "a_full_disk_leaves_a_file_that_explains_itself";
        run_well(test, folder.path(), &[("CORELOCAL_TEST_LIMIT", kib)]);
        let recording = open(folder.path(), "full.trace");
        let mut all = recording.events();
        let count = all.by_ref().filter(|event| event.name == "test::number").count() as u64;
        assert_eq!(all.problems(), []);
        assert_eq!(count + recording.lost(), EVENTS, "{kib} KiB: {count} and {}", recording.lost());
        let told: u64 = recording
            .events()
            .filter(|event| event.name == "corelocal::lost")
            .map(|event| match event.fields[0].1 {
                Value::Unsigned(lost) => lost,
                ref other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(told, recording.lost(), "{kib} KiB");
    }
}

/// How processes end: what the file has, and what it says.
#[test]
fn ends_of_processes() {
    const EVENTS: u64 = 10_000;
    if let Some(folder) = child_of("ends_of_processes") {
        trace::start(Options::to_disk(&path_in(&folder, "end.trace"))).expect("a recording");
        (0..EVENTS).for_each(|nth| event!(test::number, nth = nth));
        let how = std::env::var("CORELOCAL_TEST_END").expect("an end");
        // SAFETY: calls that end this process, or a fork whose child ends at once.
        unsafe {
            match &*how {
                "exit" => std::process::exit(0),
                "term" => {
                    libc::raise(libc::SIGTERM);
                    loop {
                        libc::pause();
                    }
                }
                "daemon" => {
                    libc::daemon(1, 1);
                    libc::_exit(0)
                }
                "flush" => {
                    trace::flush().expect("a file");
                    libc::_exit(0)
                }
                "second" => {
                    thread::sleep(Duration::from_millis(2500));
                    libc::_exit(0)
                }
                _ => libc::_exit(0),
            }
        }
    }
    for (how, is_whole, is_open) in [
        ("exit", true, false),
        ("term", true, false),
        ("daemon", true, true),
        ("flush", true, true),
        ("second", true, true),
        ("_exit", false, true),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let output = run("ends_of_processes", folder.path(), &[("CORELOCAL_TEST_END", how)]);
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
        assert_eq!(signal, (how == "term").then_some(libc::SIGTERM), "{how}");
        let recording = open(folder.path(), "end.trace");
        let count = events(&recording).len() as u64;
        assert!(count == EVENTS || !is_whole, "{how}: {count}");
        assert_eq!(recording.is_open_ended(), is_open, "{how}");
        assert_eq!(recording.remarks().len(), usize::from(is_open), "{how}");
    }
}

/// A recording in several files has each event once, with its thread and span, and the last ones of all.
#[test]
fn files_of_a_long_recording() {
    const EVENTS: u64 = 300_000;
    if let Some(folder) = child_of("files_of_a_long_recording") {
        let path = path_in(&folder, "long.trace");
        let options = Options::to_disk(&path).flush_interval(Duration::from_millis(2));
        trace::start(options.max_file_bytes(3 << 20).files(100)).expect("a recording");
        thread::scope(|scope| {
            for name in ["first", "second"] {
                let work = move || {
                    for nth in 0..EVENTS {
                        let span = span!(test::span, nth);
                        let id = span.id().as_raw();
                        event!(test::long, nth, span = id, name = name);
                        if nth % 1000 == 0 {
                            thread::sleep(Duration::from_millis(1));
                        }
                        drop(span);
                        event!(test::after, nth);
                    }
                };
                thread::Builder::new()
                    .name(name.into())
                    .spawn_scoped(scope, work)
                    .expect("a thread");
            }
        });
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    run_well("files_of_a_long_recording", folder.path(), &[]);
    let mut names: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").flatten().collect();
    names.retain(|file| file.file_name().to_string_lossy().starts_with("long.trace"));
    assert!(names.len() > 10, "{names:?}");
    let (mut seen, mut lost) = (std::collections::HashMap::new(), 0);
    for file in names {
        assert!(file.metadata().expect("a file").len() <= 3 << 20, "{file:?}");
        let recording = Recording::open(file.path()).expect("a recording");
        assert!(!recording.is_open_ended(), "{file:?}");
        assert_eq!(recording.problems(), []);
        lost += recording.lost();
        for event in recording.events().filter(|event| event.what == What::Event) {
            let value = |name| match event.present_fields().find(|(field, _)| *field == name) {
                Some((_, Value::Unsigned(number))) => *number,
                _ => 0,
            };
            match event.name {
                "test::long" => {
                    assert_eq!(event.span, value("span"));
                    let name = event.fields[2].1.text();
                    assert_eq!(*name, *event.thread_name);
                }
                "test::after" => assert_eq!(event.span, 0),
                _ => continue,
            }
            let key = (event.name.to_owned(), event.thread_name.to_string(), value("nth"));
            *seen.entry(key).or_insert(0) += 1;
        }
    }
    assert!(seen.values().all(|count| *count == 1));
    assert!(seen.len() as u64 + lost >= 4 * EVENTS, "{} and {lost} lost", seen.len());
    assert!(lost < EVENTS, "{lost}");
}

/// The oldest files are replaced; a file of another kind is not: the start fails.
#[test]
fn the_oldest_files_are_replaced() {
    if let Some(folder) = child_of("the_oldest_files_are_replaced") {
        let path = path_in(&folder, "old.trace");
        if std::env::var_os("CORELOCAL_TEST_REFUSED").is_some() {
            let started = trace::start(Options::to_disk(&path).max_file_bytes(2 << 20).files(3));
            assert!(matches!(started, Err(StartError::NoFile(_))), "{started:?}");
            return;
        }
        trace::start(Options::to_disk(&path).max_file_bytes(2 << 20).files(3))
            .expect("a recording");
        let is_moved = std::env::var_os("CORELOCAL_TEST_MOVED").is_some();
        for nth in 0..400_000_u64 {
            if is_moved && nth == 50_000 {
                std::fs::rename(&path, path_in(&folder, "elsewhere")).expect("a file");
            }
            event!(test::number, nth);
            if nth % 5000 == 0 {
                thread::sleep(Duration::from_millis(5));
            }
        }
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    run_well("the_oldest_files_are_replaced", folder.path(), &[]);
    let mut names: Vec<String> = std::fs::read_dir(folder.path())
        .expect("a folder")
        .flatten()
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["old.trace", "old.trace.1", "old.trace.2"]);
    let (mut last, mut all) = (400_000, std::collections::HashSet::new());
    for name in names {
        let recording = open(folder.path(), &name);
        let numbers: Vec<u64> = recording
            .events()
            .filter(|event| event.name == "test::number")
            .map(|event| match event.fields[0].1 {
                Value::Unsigned(nth) => nth,
                ref other => panic!("{other:?}"),
            })
            .collect();
        // A thread that has moved goes on where it was before: some of its events are in a later file than later ones.
        assert!(numbers.iter().is_sorted() && numbers.last() < Some(&last), "{name}");
        last = *numbers.last().expect("events");
        assert!(numbers.into_iter().all(|nth| all.insert(nth)), "{name}");
    }
    // Where the file is moved meanwhile, the recording goes on in the next one.
    let other = tempfile::tempdir().expect("a folder");
    run_well("the_oldest_files_are_replaced", other.path(), &[("CORELOCAL_TEST_MOVED", "1")]);
    let recording = open(other.path(), "old.trace");
    assert_eq!(events(&recording).last().expect("events").fields[0].1, Value::Unsigned(399_999));
    assert!(!open(other.path(), "elsewhere").is_open_ended());
    let notes = folder.path().join("old.trace.2");
    std::fs::write(&notes, "notes").expect("a file");
    let refused = [("CORELOCAL_TEST_REFUSED", "1")];
    run_well("the_oldest_files_are_replaced", folder.path(), &refused);
    assert_eq!(std::fs::read(notes).expect("a file"), b"notes");
}

/// Levels belong to sites, and are switched; a part of a site's events is recorded by chance.
#[test]
fn levels_and_parts() {
    const EVENTS: u64 = 200_000;
    if let Some(folder) = child_of("levels_and_parts") {
        trace::start(Options::to_disk(&path_in(&folder, "levels.trace"))).expect("a recording");
        let some = |nth: u64| {
            event!(level: Error; test::error, nth);
            event!(level: Info; test::info, level = nth);
            let _span = span!(level: Debug; test::debug);
            let _task = task_span!(parent: SpanId::NONE; level: Trace; test::trace, nth);
            event!(test::none);
        };
        some(1);
        assert_eq!(trace::switch("@Info", false), Ok(3));
        some(2);
        assert!(trace::switch("*", false).is_ok_and(|sites| sites >= 5));
        assert_eq!(trace::switch("@info", true), Ok(2));
        some(3);
        assert!(trace::switch("@fine", true).is_err());
        assert!(trace::sample(&"x".repeat(123), 2).is_err());
        trace::sample("test::part", 10).expect("a recording");
        (0..EVENTS).for_each(|nth| event!(test::part, nth));
        trace::sample("test::part", 0).expect("a recording");
        event!(test::part, nth = EVENTS);
        trace::sample("test::part", 10).expect("a recording");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    run_well("levels_and_parts", folder.path(), &[]);
    let recording = open(folder.path(), "levels.trace");
    let (mut parts, mut texts) = (0, Vec::new());
    for event in recording.events().filter(|event| event.what != What::End) {
        if event.name == "test::part" {
            parts += 1;
            assert_eq!(event.site.every, 10);
            assert!(event.site.is_on && event.fields[0].1 != Value::Unsigned(EVENTS));
            continue;
        }
        assert_eq!(event.site.every, 1);
        let fields =
            event.present_fields().map(|(name, value)| format!(" {name}={}", value.text()));
        texts.push(format!("{}{}", event.name, fields.collect::<String>()));
    }
    let expected = [
        "test::error level=ERROR nth=1",
        "test::info level=INFO level_2=1",
        "test::debug level=DEBUG",
        "test::trace level=TRACE nth=1",
        "test::none",
        "test::error level=ERROR nth=2",
        "test::none",
        "test::error level=ERROR nth=3",
        "test::info level=INFO level_2=3",
    ];
    assert_eq!(texts, expected);
    // Six standard deviations.
    assert!((19_200..20_800).contains(&parts), "{parts}");
}

/// A file of a recording is kept, and another one is not touched.
#[test]
fn files_that_are_there() {
    if let Some(folder) = child_of("files_that_are_there") {
        let wrong = trace::start(Options::to_disk(&path_in(&folder, "notes.txt")));
        assert!(matches!(wrong, Err(StartError::NoFile(_))), "{wrong:?}");
        trace::start(Options::to_disk(&path_in(&folder, "x.trace"))).expect("a recording");
        event!(test::number, nth = 1_u64);
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("notes.txt"), "notes").expect("a file");
    for round in 0..2 {
        run_well("files_that_are_there", folder.path(), &[]);
        assert_eq!(events(&open(folder.path(), "x.trace")).len(), 1);
        assert_eq!(folder.path().join("x.trace.old").exists(), round == 1);
    }
    assert_eq!(std::fs::read(folder.path().join("notes.txt")).expect("a file"), b"notes");
}

/// A recording cut off anywhere is said to be damaged.
#[test]
fn cut_files() {
    if let Some(folder) = child_of("cut_files") {
        trace::start(Options::to_disk(&path_in(&folder, "cut.trace"))).expect("a recording");
        (0..10_000_u64).for_each(|nth| event!(test::number, nth = nth));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    run_well("cut_files", folder.path(), &[]);
    let bytes = std::fs::read(folder.path().join("cut.trace")).expect("a file");
    for nth in 0..200 {
        let len = bytes.len() * nth / 200;
        let Ok(recording) = Recording::parse(bytes[..len].to_vec()) else { continue };
        assert!(!recording.problems().is_empty(), "{len} of {} bytes", bytes.len());
    }
    assert_eq!(Recording::parse(bytes).expect("a recording").problems(), []);
}

/// Sites beyond the limit are counted, and said.
#[test]
fn too_many_sites() {
    if child_of("too_many_sites").is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        return run_well("too_many_sites", folder.path(), &[]);
    }
    trace::start(Options::flight_recorder().max_bytes(1 << 20)).expect("a recording");
    let before = open_sites();
    for nth in 0..4200 {
        let name = format!("test::site{nth}").leak();
        let site = Box::leak(Box::new(trace::Site::new(trace::format::Kind::Event, name)));
        site.register(&[]);
    }
    let left_out = (before + 4200 - trace::format::MOST_SITES) as u64;
    assert_eq!(trace::status().expect("a recording").sites_left_out, left_out);
    let said = dump().remarks().concat();
    assert!(said.contains(&format!("{left_out} call sites are not recorded")), "{said}");
    // A site from before still records.
    assert!(trace::smoke_test().is_err(), "it has no number");
}

fn open_sites() -> usize {
    dump().sites().count()
}

/// A flight recorder says what it has overwritten.
#[test]
fn overwritten_events_are_told() {
    if child_of("overwritten_events_are_told").is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        return run_well("overwritten_events_are_told", folder.path(), &[]);
    }
    trace::start(Options::flight_recorder().max_bytes(1)).expect("a recording");
    event!(test::number, nth = 0_u64);
    assert_eq!((dump().overwritten(), dump().remarks().len()), (None, 0));
    (0..100_000_u64).for_each(|nth| event!(test::number, nth = nth));
    let recording = dump();
    let overwritten = recording.overwritten().expect("most events");
    assert!(overwritten.bytes > 1_000_000, "{overwritten:?}");
    // Where the thread came from another core, that core's buffer has its older events still.
    let all: Vec<Event<'_>> = recording.events().collect();
    let told = all.iter().position(|event| event.name == "corelocal::overwritten");
    let (before, rest) = all.split_at(told.expect("an event that tells it"));
    assert_eq!(rest[0].time, overwritten.until);
    assert!(before.iter().all(|event| event.time <= overwritten.until));
    assert!(rest[1].time >= overwritten.until && rest.len() > 1000);
    assert!(recording.remarks()[0].contains("older events were overwritten"));
    assert_eq!(trace::status().expect("a recording").overwritten_bytes, overwritten.bytes);
}

/// All forms of fields, and what they are in the recording.
#[test]
fn forms_of_fields() {
    use corelocal_trace::Value;
    if child_of("forms_of_fields").is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        return run_well("forms_of_fields", folder.path(), &[]);
    }
    trace::start(Options::flight_recorder().max_bytes(1 << 20)).expect("a recording");
    let (n, owned) = (7_u8, String::from("owned"));
    let error = std::io::Error::other("broken");
    let peer: std::net::IpAddr = "::1".parse().expect("an address");
    event!(
        test::forms,
        n,
        owned,
        letter = 'ä',
        took = Duration::from_micros(1500),
        some = Some(-3_i16),
        none = None::<&str>,
        debug = ?[Some(1)],
        display = %peer,
        ?error,
        %peer,
        r#type = "last",
    );
    let _span = span!(test::span, n, ?error, took = Some(Duration::from_nanos(5)),);
    let recording = dump();
    let all = events(&recording);
    let text = |text: &str| Value::Str(text.into(), false);
    let expected = [
        ("n", Value::Unsigned(7)),
        ("owned", text("owned")),
        ("letter", text("ä")),
        ("took", Value::Duration(1_500_000)),
        ("some", Value::Signed(-3)),
        ("none", Value::Missing),
        ("debug", text("[Some(1)]")),
        ("display", text("::1")),
        ("error", text(r#"Custom { kind: Other, error: "broken" }"#)),
        ("peer", text("::1")),
        ("type", text("last")),
    ];
    assert_eq!(all[0].fields, expected);
    assert_eq!(all[1].fields[2], ("took", Value::Duration(5)));
    assert_eq!(all[1].fields.len(), 3);
}

/// A program that closes all of its descriptors harms neither the recording nor its own files.
#[test]
fn closed_descriptors() {
    if let Some(folder) = child_of("closed_descriptors") {
        trace::start(Options::to_disk(&path_in(&folder, "closed.trace"))).expect("a recording");
        event!(test::number, nth = 1_u64);
        // SAFETY: this test uses none of them any more.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        let files: Vec<_> = (0..20)
            .map(|nth| std::fs::File::create(folder.join(format!("own{nth}"))).expect("a file"))
            .collect();
        event!(test::number, nth = 2_u64);
        trace::flush().expect("a file");
        assert!(files.iter().all(|file| file.metadata().expect("a file").len() == 0));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    run_well("closed_descriptors", folder.path(), &[]);
    assert_eq!(events(&open(folder.path(), "closed.trace")).len(), 2);
}

/// Memory grows to what the minimum age needs, and younger events are kept.
#[test]
fn min_age() {
    if child_of("min_age").is_some() {
        let options =
            Options::flight_recorder().max_bytes(16 << 20).min_age(Duration::from_millis(500));
        trace::start(options).expect("a recording");
        let began = Instant::now();
        let (mut nth, mut last) = (0_u64, 0);
        while began.elapsed() < Duration::from_secs(2) {
            for _ in 0..2000 {
                event!(test::number, nth = nth);
                nth += 1;
            }
            if began.elapsed() < Duration::from_millis(1500) {
                last = nth;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let recording = dump();
        let kept = events(&recording);
        let first = &kept[0].fields[0].1;
        let Value::Unsigned(first) = first else { panic!("{first:?}") };
        // At least the last half second.
        assert!(*first <= last, "{first} of {nth}, {last}");
        // 24 bytes an event; without the minimum age all would have been kept.
        let (bytes, most) = (24 * kept.len(), 24 * nth as usize);
        assert!(bytes < most && bytes < 16 << 20, "{bytes} of {most}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    run_well("min_age", folder.path(), &[]);
}

#[test]
fn children() {
    if let Some(folder) = child_of("children") {
        let options = Options::flight_recorder().max_bytes(0).children();
        trace::start(options.file(&path_in(&folder, "%p.trace"))).expect("a recording");
        trace::switch("test::off", false).expect("a recording");
        event!(test::parent);
        // SAFETY: the child records, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            for nth in 0..100_000_u64 {
                event!(test::child, nth = nth);
                event!(test::off);
            }
            let is_recording = trace::smoke_test().is_ok()
                && trace::status().is_some_and(|status| status.lost == 0);
            // The rules are those of the parent.
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_recording)) };
        }
        let mut status = -1;
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        event!(test::parent);
        let names = |process: u32| {
            let recording = open(&folder, &format!("{process}.trace"));
            assert_eq!(recording.process(), u64::from(process));
            let events = events(&recording);
            let mut names: Vec<_> = events.iter().map(|event| event.name.to_owned()).collect();
            (names.len(), names.pop())
        };
        assert_eq!(names(std::process::id()), (2, Some("test::parent".into())));
        let (count, last) = names(child as u32);
        assert!(count > 5_000 && last.as_deref() == Some("test::child"), "{count} {last:?}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    run_well("children", folder.path(), &[]);
}

#[test]
fn dumps() {
    if let Some(folder) = child_of("dumps") {
        let options = Options::flight_recorder().max_bytes(0);
        for options in
            [options.dump_on_panic(), options.dump_at_exit(), options.dump_on_signal(libc::SIGUSR2)]
        {
            assert_eq!(trace::start(options), Err(StartError::NoPath));
        }
        let path = path_in(&folder, "dump.%n.trace");
        let options = options.dump_to(&path);
        assert_eq!(trace::start(options.dump_on_signal(libc::SIGKILL)), Err(StartError::NoSignal));
        assert_eq!(trace::start(options.dump_on_signal(1000)), Err(StartError::NoSignal));
        let options = options.dump_on_panic().dump_at_exit().dump_on_signal(libc::SIGUSR2);
        trace::start(options.dump_pause(Duration::from_secs(3600))).expect("a recording");
        let is_there = |number: u32| folder.join(format!("dump.{number}.trace")).exists();
        event!(test::first);
        // SAFETY: a signal that is handled.
        unsafe { libc::kill(libc::getpid(), libc::SIGUSR2) };
        until(|| is_there(1));
        assert!(thread::spawn(|| panic!("as wanted")).join().is_err());
        assert!(is_there(2));
        for _ in 0..3 {
            let _span = trace::dump_if_slow(span!(test::slow), Duration::ZERO);
            thread::sleep(Duration::from_millis(1));
        }
        until(|| is_there(3));
        drop(trace::dump_if_slow(span!(test::fast), Duration::from_secs(3600)));
        // SAFETY: the child exits without a dump.
        let child = unsafe { libc::fork() };
        if child == 0 {
            std::process::exit(0);
        }
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert!(!is_there(4), "one dump an hour, and none of a child");
        event!(test::last);
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    run_well("dumps", folder.path(), &[]);
    let names = |number: u32| {
        let recording = open(folder.path(), &format!("dump.{number}.trace"));
        events(&recording).iter().map(|event| event.name[6..].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(1), ["first"]);
    assert_eq!(names(2), ["first"]);
    assert_eq!(names(3)[..3], ["first", "slow", "slow"]);
    assert_eq!(names(4).last().map(String::as_str), Some("last"));
}

#[test]
fn environment() {
    if let Some(folder) = child_of("environment") {
        let is_on = trace::status().is_some();
        event!(test::number, nth = 1_u32);
        event!(test::other);
        // The environment's options hold.
        let started = trace::start(Options::flight_recorder().file(&path_in(&folder, "not.trace")));
        assert_eq!(started, Ok(()));
        assert_eq!(folder.join("not.trace").exists(), !is_on);
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    let value =
        format!("file={path}/a.trace,exit,dump={path}/b.trace,off=*,on=*number,max-bytes=1M");
    run_well("environment", folder.path(), &[("CORELOCAL_TRACE", &value)]);
    for name in ["a.trace", "b.trace"] {
        let recording = open(folder.path(), name);
        let names: Vec<_> = events(&recording).iter().map(|event| event.name.to_owned()).collect();
        assert_eq!(names, ["test::number"], "{name}");
    }
    for (value, why) in [
        ("exit", "dumps need a path"),
        ("file=/no/such/file", "cannot be made"),
        ("max-bytes=9,yes", "`yes` is wrong (known: on, file=PATH"),
    ] {
        let output = run("environment", folder.path(), &[("CORELOCAL_TRACE", value)]);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{value}: {err}");
        assert!(
            err.contains("corelocal: CORELOCAL_TRACE: ") && err.contains(why),
            "{value}: {err}"
        );
        std::fs::remove_file(folder.path().join("not.trace")).expect("a file");
    }
}
