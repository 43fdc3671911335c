//! What a program with `CoreLocal` writes of its malloc because `CORELOCAL_MALLOC` asks for it.
#![cfg(not(any(loom, miri)))]

use std::env;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use corelocal::alloc::{CoreLocal, profile};

/// This test binary's heap.
#[global_allocator]
static MEMORY: CoreLocal = CoreLocal;

const CHILD: &str = "CORELOCAL_TEST_REPORTS";
const SOON: Duration = Duration::from_secs(60);

/// Does nothing as a test.
#[test]
fn program() {
    let Ok(how) = env::var(CHILD) else { return };
    let held: Vec<_> = (0..3000).map(|_| vec![1_u8; 1000]).collect();
    match how.as_str() {
        // SAFETY: a number.
        "signal" => unsafe { _ = libc::raise(libc::SIGUSR1) },
        "child" => {
            // SAFETY: the child ends by `exit`, as a program does that forks a worker; the parent waits for it.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::exit(0);
                }
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
        }
        "profiled" => assert!(profile::is_on()),
        _ => {}
    }
    std::mem::forget(held);
    std::process::exit(0);
}

fn run(words: &str, how: &str, folder: &std::path::Path) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["program", "--exact", "--nocapture", "--test-threads=1"]).current_dir(folder);
    command.env(CHILD, how).env("CORELOCAL_MALLOC", words).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < SOON, "{words} {how} hangs");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Returns standard error of a program that ends well, and the names of the files it has written.
fn report(words: &str, how: &str) -> (String, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let output = run(words, how, folder.path());
    assert_eq!(output.status.code(), Some(0), "{words}: {output:?}");
    let files = std::fs::read_dir(&folder).unwrap().flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    (String::from_utf8(output.stderr).unwrap(), names)
}

#[test]
fn nothing_is_written_unless_it_is_asked_for() {
    assert_eq!(report("", "ends"), (String::new(), Vec::new()));
    assert_eq!(report("count,resident:1G,background:no", "ends"), (String::new(), Vec::new()));
}

#[test]
fn statistics_at_the_end() {
    let (text, files) = report("stats", "ends");
    assert!(text.contains("corelocal malloc") && text.contains("bytes in use"), "{text}");
    assert!(files.is_empty());
    let (text, _) = report("stats:json", "ends");
    let stats: serde_json::Value = serde_json::from_str(&text).expect(&text);
    assert!(stats["in_use"].as_u64().unwrap() >= 3_000_000, "{stats}");
    // Of a child as well, and each once.
    let (text, _) = report("stats:json", "child");
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn statistics_at_a_signal() {
    let (text, _) = report("stats-signal:USR1", "signal");
    assert!(text.contains("bytes in use"), "{text}");
}

#[test]
fn profiles_at_the_end_and_at_a_signal() {
    if !report("profile", "profiled").1.iter().any(|name| name.ends_with(".0.heap")) {
        return eprintln!(
            "skipped: profiles_at_the_end_and_at_a_signal: no profile is possible here"
        );
    }
    let (text, files) = report("profile:one,profile-signal:USR1", "signal");
    let is_heap = |name: &&String| name.starts_with("one.") && name.ends_with(".heap");
    assert_eq!((text.as_str(), files.iter().filter(is_heap).count()), ("", 2), "{files:?}");
}

/// A profile that cannot be written is told of, and the program ends as it would have.
#[test]
fn what_cannot_be_written_is_told() {
    let (text, files) = report("profile:/nowhere/at/all", "ends");
    assert!(text.contains("cannot write a profile: ENOENT"), "{text}");
    assert!(files.is_empty());
}

/// A handler that is not ours stays as it is: without the word, the signal ends the program.
#[test]
fn signals_that_are_not_asked_for_end_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = run("stats", "signal", folder.path());
    assert_eq!(output.status.signal(), Some(libc::SIGUSR1), "{output:?}");
}
