//! Ten million events of 16 threads, to disk, while signals interrupt them, cpus change and the process forks: each is there
//! once or was counted as lost, in order, with its content.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use corelocal::event;
use corelocal::trace::{self, Options};
use corelocal_trace::{Recording, Value};

const FILE: &str = "CORELOCAL_TEST_STORM";
const THREADS: u64 = 16;
/// Bytes of each event's blob: an event has 72 with it, and 10^7 of them 10^4 buffers.
const BLOB: usize = 34;

/// Events of each thread.
fn events() -> u64 {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let all = number("CORELOCAL_TRACE_EVENTS").unwrap_or(1e7);
    (all * number("CORELOCAL_TEST_SCALE").unwrap_or(1.0)) as u64 / THREADS
}

fn blob(nth: u64) -> [u8; BLOB] {
    std::array::from_fn(|at| nth.wrapping_mul(0x9e37_79b9).rotate_left(at as u32 * 8) as u8)
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    event!(storm::signal);
}

/// Goes to another cpu.
fn migrate(nth: u64) {
    // SAFETY: sets of cpus that are initialised; the calling thread's own.
    unsafe {
        let mut allowed = std::mem::zeroed::<libc::cpu_set_t>();
        libc::sched_getaffinity(libc::getpid(), size_of_val(&allowed), &raw mut allowed);
        let cpus: Vec<usize> =
            (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &allowed)).collect();
        let mut one = std::mem::zeroed::<libc::cpu_set_t>();
        libc::CPU_SET(cpus[nth as usize % cpus.len()], &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &raw const one);
    }
}

fn record(thread: u64, events: u64) {
    for nth in 0..events {
        event!(storm::number, thread = thread as u16, nth = nth, blob = &blob(nth)[..]);
        if nth % 4096 == 0 && thread != 0 {
            migrate(thread + nth / 4096);
        }
        if nth % 1000 == 0 {
            // So that not most of them are lost: this build writes the file slowly.
            thread::sleep(Duration::from_millis(8));
        }
    }
}

fn storm(file: &std::path::Path) {
    let path = file.to_str().expect("UTF-8");
    trace::start(Options::to_disk(path).max_bytes(64 << 20)).expect("a recording");
    // SAFETY: a handler that records.
    unsafe { libc::signal(libc::SIGUSR1, on_signal as extern "C" fn(libc::c_int) as usize) };
    let (is_over, ids) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let mut forks = 0;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let ids = &ids;
                scope.spawn(move || {
                    // SAFETY: no preconditions.
                    ids.lock().expect("no panic").push(unsafe { libc::gettid() });
                    record(thread, events());
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for &id in ids.lock().expect("no panic").iter() {
                    // SAFETY: a thread that may have ended: then the call fails.
                    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, libc::SIGUSR1) };
                }
                thread::sleep(Duration::from_micros(200));
            }
        });
        while workers.iter().any(|worker| !worker.is_finished()) {
            // SAFETY: the child records, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                event!(storm::forked);
                event!(storm::number, thread = u16::MAX, nth = 0_u64, blob = &[0_u8; 0][..]);
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            // SAFETY: a child of ours.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            forks += 1;
            thread::sleep(Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    trace::flush().expect("a file");
    let begun = trace::status().expect("a recording").buffers;
    println!("{} signals, {forks} forks, {begun} buffers", SIGNALS.load(Ordering::Relaxed));
}

#[test]
fn every_event_is_there_or_lost() {
    if let Some(file) = std::env::var_os(FILE) {
        return storm(&PathBuf::from(file));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("storm.trace");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "every_event_is_there_or_lost", "--nocapture"])
        .env(FILE, &file)
        .env_remove("CORELOCAL_TRACE")
        .output()
        .expect("a child");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let recording = Recording::open(&file).expect("a recording");
    assert_eq!(recording.problems(), []);
    let mut seen: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut all = recording.events();
    for event in all.by_ref().filter(|event| event.name == "storm::number") {
        let [
            (_, Value::Unsigned(thread)),
            (_, Value::Unsigned(nth)),
            (_, Value::Bytes(bytes, false)),
        ] = &event.fields[..]
        else {
            panic!("{event:?}")
        };
        assert!(*thread < THREADS && bytes[..] == blob(*nth)[..], "{event:?}");
        let (count, next) = seen.entry(*thread).or_default();
        assert!(*count == 0 || nth >= next, "thread {thread}: {nth} is behind {next}");
        (*count, *next) = (*count + 1, nth + 1);
    }
    assert_eq!(all.problems(), []);
    let there: u64 = seen.values().map(|(count, _)| count).sum();
    let lost: u64 =
        recording.sites().filter(|site| site.name == "storm::number").map(|site| site.lost).sum();
    assert_eq!(there + lost, THREADS * events(), "{there} are there, {lost} were lost");
    assert!(recording.sites().all(|site| site.name != "storm::forked"), "a child has written");
    println!(
        "{there} events, {lost} lost; {}",
        text(&output.stdout).lines().nth(2).unwrap_or_default()
    );
}
