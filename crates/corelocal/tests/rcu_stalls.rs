//! Reports of grace periods that take too long, and of the readers in their way.
#![cfg(feature = "std")]

mod forked;
mod sandbox;

use std::process::Command;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, ptr};

use corelocal::rcu::{self, Domain, Error, Guard, Stall};

const LIMIT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);

/// What the hook was told: the domain, the text, whether the reporting thread had a guard.
static TOLD: Mutex<Vec<(usize, String, bool)>> = Mutex::new(Vec::new());

/// The only hook of this test program.
fn note(stall: &Stall) {
    assert!(stall.duration() >= LIMIT && stall.guards() > 0);
    let domain = ptr::from_ref(stall.domain()).addr();
    TOLD.lock().unwrap().push((domain, stall.to_string(), stall.is_own()));
}

/// What was told of a domain.
fn told(domain: &'static Domain) -> Vec<(String, bool)> {
    let told = TOLD.lock().unwrap();
    let of = told.iter().filter(|(of, ..)| *of == ptr::from_ref(domain).addr());
    of.map(|(_, text, is_own)| (text.clone(), *is_own)).collect()
}

fn watch(domain: &'static Domain) {
    rcu::set_stall_hook(note);
    domain.set_stall_limit(LIMIT);
}

/// A thread that has a guard until the sender is dropped.
fn reader(domain: &'static Domain) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
    let (end, is_over) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let thread = thread::Builder::new()
        .name("slow-reader".into())
        .spawn(move || {
            let guard = begin_here(domain);
            begun.send(()).unwrap();
            let _ = is_over.recv();
            drop(guard);
        })
        .unwrap();
    has_begun.recv().unwrap();
    (end, thread)
}

#[inline(never)]
fn begin_here(domain: &'static Domain) -> Guard {
    std::hint::black_box(domain.read())
}

#[test]
fn a_stall_is_reported_once_for_each_doubling() {
    static SESSIONS: Domain = Domain::named("sessions");
    watch(&SESSIONS);
    assert!(SESSIONS.location().file().ends_with("rcu_stalls.rs"));
    let (end, reader) = reader(&SESSIONS);
    let begin = Instant::now();
    assert_eq!(SESSIONS.synchronize_timeout(LIMIT / 2), Err(Error::TimedOut));
    // None before the limit, unless this thread was kept from its cpu for as long.
    assert!(SESSIONS.stalls() == 0 || begin.elapsed() >= LIMIT);
    while SESSIONS.stalls() < 3 {
        let _ = SESSIONS.synchronize_timeout(LIMIT);
        assert!(begin.elapsed() < LONG);
    }
    assert!(begin.elapsed() >= LIMIT * 3);
    drop(end);
    reader.join().unwrap();
    SESSIONS.synchronize().unwrap();
    let told = told(&SESSIONS);
    assert_eq!(told.len() as u64, SESSIONS.stalls());
    let (text, is_own) = &told[0];
    let location = SESSIONS.location();
    let expected =
        format!("a grace period of the RCU domain `sessions` of {location} has been waiting for ");
    assert!(text.starts_with(&expected) && text.contains(" behind 1 guard; call"), "{text}");
    assert!(text.contains("track_readers") && !is_own, "{text}");
}

/// Held by tests whose guards are noted: a process has room for 511, which one of them needs all.
static NOTED: Mutex<()> = Mutex::new(());

#[test]
fn readers_are_told_by_thread_and_stack() {
    let _alone = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    static DOMAIN: Domain = Domain::new();
    watch(&DOMAIN);
    let before = DOMAIN.read();
    DOMAIN.track_readers(true);
    let (end, reader) = reader(&DOMAIN);
    let inner = (DOMAIN.read(), DOMAIN.read());
    drop(inner.0);
    while DOMAIN.stalls() == 0 {
        let _ = DOMAIN.synchronize_timeout(LIMIT);
    }
    let (text, is_own) = told(&DOMAIN).remove(0);
    assert!(is_own && text.contains("the waiting thread has one itself"), "{text}");
    assert!(text.contains("(slow-reader) has had a guard for"), "{text}");
    assert!(cfg!(miri) || text.contains("begin_here"), "{text}");
    assert_eq!(text.matches("has had a guard for").count(), 2, "{text}");
    DOMAIN.track_readers(false);
    drop(end);
    reader.join().unwrap();
    // Those that began before tracking began, and before it ended.
    assert_eq!(DOMAIN.synchronize_timeout(LIMIT), Err(Error::TimedOut));
    drop((before, inner.1));
    DOMAIN.synchronize().unwrap();
}

/// More guards than can be noted, in any order.
#[test]
fn many_guards_are_counted() {
    let _alone = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    static DOMAIN: Domain = Domain::new();
    DOMAIN.track_readers(true);
    let mut guards: Vec<Guard> = (0..600).map(|_| DOMAIN.read()).collect();
    while !guards.is_empty() {
        assert_eq!(DOMAIN.start_poll().is_complete(), Ok(false));
        drop(guards.swap_remove(guards.len() / 2));
    }
    DOMAIN.synchronize().unwrap();
}

/// A child that waits for its own guard from before the fork is told so.
#[test]
fn a_guard_from_before_a_fork_is_reported() {
    static DOMAIN: Domain = Domain::new();
    watch(&DOMAIN);
    let guard = DOMAIN.read();
    forked::judge(|| {
        rcu::set_stall_hook(|_| ());
        let begin = Instant::now();
        while DOMAIN.stalls() == 0 && begin.elapsed() < LONG {
            let _ = DOMAIN.synchronize_timeout(LIMIT);
        }
        DOMAIN.stalls() > 0
    })
    .succeeds();
    drop(guard);
}

/// Deferred functions that wait are reported, too, by the background thread. Without a hook a line is printed.
#[test]
fn without_a_hook_a_line_is_printed() {
    const TEST: &str = "without_a_hook_a_line_is_printed";
    const CHILD: &str = "CORELOCAL_TEST_OF_STALLS";
    static DOMAIN: Domain = Domain::named("printed");
    if env::var_os(CHILD).is_some() {
        DOMAIN.set_stall_limit(LIMIT);
        let guard = DOMAIN.read();
        DOMAIN.defer(|| ());
        while DOMAIN.stalls() == 0 {
            thread::sleep(LIMIT);
        }
        drop(guard);
        return;
    }
    let child = Command::new(env::current_exe().unwrap())
        .args([TEST, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&child.stderr);
    let lines: Vec<&str> = errors.lines().filter(|line| line.contains("`printed`")).collect();
    assert!(child.status.success() && !lines.is_empty(), "{errors}");
    assert!(lines[0].starts_with("corelocal: a grace period of the RCU domain"), "{errors}");
}

/// A thread that does not say that it is between two tasks, by name and stack, once it has renewed its guard.
#[test]
fn a_quiescent_reader_is_reported() {
    let _alone = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    static DOMAIN: Domain = Domain::new();
    watch(&DOMAIN);
    DOMAIN.track_readers(true);
    let (end, is_over) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let thread = thread::Builder::new()
        .name("forgetful".into())
        .spawn(move || {
            let mut reader = DOMAIN.quiescent_reader();
            begun.send(()).unwrap();
            let _ = is_over.recv();
            reader.quiescent();
            let _ = reader.offline(|| is_over.recv());
        })
        .unwrap();
    has_begun.recv().unwrap();
    while DOMAIN.stalls() == 0 {
        let _ = DOMAIN.synchronize_timeout(LIMIT);
    }
    let (text, is_own) = told(&DOMAIN).remove(0);
    assert!(!is_own && text.contains("(forgetful) has had a guard for"), "{text}");
    drop(end);
    thread.join().unwrap();
    DOMAIN.synchronize_timeout(LONG).unwrap();
}

/// The background thread goes on, and so does the caller.
#[test]
fn a_hook_that_panics_is_counted() {
    static DOMAIN: Domain = Domain::new();
    sandbox::run_in_child(
        "a_hook_that_panics_is_counted",
        |_| (),
        || {
            rcu::set_stall_hook(|_| std::panic::resume_unwind(Box::new(())));
            DOMAIN.set_stall_limit(LIMIT);
            let (sender, receiver) = mpsc::channel();
            let guard = DOMAIN.read();
            DOMAIN.defer(move || sender.send(()).unwrap());
            while DOMAIN.panics() == 0 {
                thread::sleep(LIMIT);
            }
            assert_eq!(DOMAIN.synchronize_timeout(LIMIT * 9), Err(Error::TimedOut));
            drop(guard);
            assert_eq!(receiver.recv_timeout(LONG), Ok(()));
            assert_eq!(DOMAIN.panics(), DOMAIN.stalls());
        },
    );
}
