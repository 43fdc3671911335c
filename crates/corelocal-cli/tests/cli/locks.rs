//! `corelocal locks`: a program with two locks, of which one is held for long; run for it, and looked at while it
//! runs.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::sync::RwLock;
use serde_json::Value;

use crate::{Call, corelocal, json, skip};

/// What makes the test below be the program.
const CHILD: &str = "CORELOCAL_TEST_CONTENDED";
const PROGRAM: &str = "locks::contended_program";

static HOT: RwLock<u64> = RwLock::new(0);
static COLD: RwLock<u64> = RwLock::new(0);

#[inline(never)]
fn hold_for_long() {
    let mut held = HOT.write();
    thread::sleep(Duration::from_millis(3));
    *held += 1;
}

#[inline(never)]
fn hold_briefly(tell: &Sender<()>) {
    let mut held = COLD.write();
    // The other one comes to wait, unless this thread is the last one here.
    let _ = tell.send(());
    thread::sleep(Duration::from_micros(300));
    *held += 1;
}

#[inline(never)]
fn wait_briefly() {
    *COLD.write() += 1;
}

/// The program: it runs for so many milliseconds.
fn contend(millis: u64) {
    let ended = &AtomicBool::new(false);
    let goes_on = || !ended.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || {
                while goes_on() {
                    hold_for_long();
                }
            });
        }
        let (tell, told) = mpsc::channel();
        scope.spawn(move || {
            while goes_on() {
                thread::sleep(Duration::from_millis(5));
                hold_briefly(&tell);
            }
        });
        scope.spawn(move || told.iter().for_each(|()| wait_briefly()));
        thread::sleep(Duration::from_millis(millis));
        ended.store(true, Ordering::Relaxed);
    });
}

/// Does nothing as a test.
#[test]
fn contended_program() {
    let Ok(how) = env::var(CHILD) else { return };
    println!("begun");
    match how.as_str() {
        "idle" => thread::sleep(Duration::from_secs(60)),
        "odd-names" => {
            crate::take_odd_names();
            contend(60_000);
        }
        "exit-7" => std::process::exit(7),
        "closed" => thread::scope(|scope| {
            scope.spawn(|| contend(60_000));
            thread::sleep(Duration::from_millis(100));
            for descriptor in 3..1024 {
                // SAFETY: as a daemon does; nothing in this process needs more than its standard streams.
                unsafe { libc::close(descriptor) };
            }
        }),
        millis => contend(millis.parse().expect("milliseconds")),
    }
}

fn this() -> String {
    env::current_exe().expect("this program").to_str().expect("text").to_owned()
}

/// `corelocal locks` with these options, of this program.
fn locks_of_program(options: &[&str], how: &str) -> Call {
    let this = this();
    let program = [this.as_str(), PROGRAM, "--exact", "--nocapture", "--test-threads=1"];
    Call::new(&[&["locks"], options, &program].concat()).env(CHILD, how)
}

/// The contended lock comes first, and its owner is named.
fn check(answer: &Value) {
    let process = &answer["processes"][0];
    let locks = process["locks"].as_array().expect("locks");
    let named = |name: &str| {
        let ends = |lock: &&Value| lock["lock"].as_str().is_some_and(|lock| lock.ends_with(name));
        locks.iter().find(ends).unwrap_or_else(|| panic!("no {name} in {answer:#}"))
    };
    let (hot, cold) = (named("locks::HOT"), named("locks::COLD"));
    if hot != &locks[0] {
        // What ci/flaky.list names: else the cold lock is never waited for as long.
        let is_held_up = cold == &locks[0] && cold["longest_ns"].as_u64() > Some(20_000_000);
        assert!(!is_held_up, "the holder of the cold lock did not run for a while: {answer:#}");
        panic!("the hot lock is not the first one: {answer:#}");
    }
    assert!(hot["total_ns"].as_u64() > cold["total_ns"].as_u64(), "{answer:#}");
    assert_eq!((&hot["kind"], &hot["is_lock"]), (&"rwlock write".into(), &true.into()));
    let sum: u64 = hot["histogram"]
        .as_array()
        .expect("buckets")
        .iter()
        .map(|bucket| bucket["waits"].as_u64().expect("a number"))
        .sum();
    assert!(sum > 0 && hot["waits"].as_u64().is_some_and(|waits| waits.abs_diff(sum) <= 3));
    assert!(hot["longest_held_ns"].as_u64() >= Some(3_000_000), "{hot:#}");
    if cfg!(target_arch = "x86_64") {
        let places = [
            (hot, "worst_holder", "hold_for_long"),
            (hot, "longest_wait", "hold_for_long"),
            (cold, "worst_holder", "hold_briefly"),
            (cold, "longest_wait", "wait_briefly"),
        ];
        for (lock, place, function) in places {
            if place == "worst_holder" && lock["sleeps"] == 0 {
                // On a machine with much to do, those that wait are still looking again when they get it.
                continue;
            }
            let frames = lock[place]["frames"].as_array().expect("frames");
            let is = |frame: &Value, name| {
                frame["function"].as_str().is_some_and(|function| function.contains(name))
            };
            assert!(frames.first().is_some_and(|first| is(first, function)), "{place}: {lock:#}");
            assert!(frames.iter().any(|frame| is(frame, "contend")), "{place}: {lock:#}");
        }
    }
}

#[test]
fn a_program_is_run_and_told_of() {
    // The text would show none.
    let done = locks_of_program(&["--json", "--top", "0"], "500").done();
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let answer = json(&done.out);
    check(&answer);
    // What the program said is not in the JSON.
    assert!(done.err.contains("begun"), "{}", done.whole());
    let table = locks_of_program(&["--top", "1"], "500").done();
    assert_eq!(table.code, Some(0), "{}", table.whole());
    assert!(table.out.contains("begun") && !table.out.contains("locks::HOT"), "{}", table.whole());
    for text in
        ["Waits for locks of", "locks::HOT", "rwlock write", "longest holder", "hold_for_long"]
    {
        assert!(table.err.contains(text), "{text}: {}", table.whole());
    }
    assert!(!table.err.contains("locks::COLD") && table.err.contains("--top"), "{}", table.whole());
}

#[test]
fn the_programs_exit_code_is_ours() {
    let done = locks_of_program(&[], "exit-7").done();
    assert_eq!(done.code, Some(7), "{}", done.whole());
    assert!(done.err.contains("No thread waited for a lock"), "{}", done.whole());
    assert_eq!(corelocal(&["locks", "sh", "-c", "kill -KILL $$"]).code, Some(137));
}

#[test]
fn a_program_is_asked_to_end() {
    let began = Instant::now();
    let done = locks_of_program(&["--for", "500ms", "--json"], "60000").done();
    assert_eq!(done.code, Some(128 + libc::SIGTERM), "{}", done.whole());
    assert!(began.elapsed() < Duration::from_secs(50));
    check(&json(&done.out));
}

#[test]
fn no_folders_are_left_behind() {
    let call = locks_of_program(&[], "exit-7");
    let temporary = call.folder.path().to_owned();
    let call = call.env("TMPDIR", temporary.to_str().expect("text"));
    let mine = |done: &crate::Done| {
        let left = ["/dev/shm", temporary.to_str().expect("text")].map(PathBuf::from);
        let entries = left.iter().flat_map(std::fs::read_dir).flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        // Other tests have theirs meanwhile; a process that is gone has none.
        let of_nobody = |name: &String| {
            let process =
                name.strip_prefix("corelocal-locks-").and_then(|rest| rest.split('-').next());
            process.is_some_and(|process| !PathBuf::from(format!("/proc/{process}")).exists())
        };
        (done.code, names.filter(of_nobody).count())
    };
    let done = call.done();
    assert_eq!(mine(&done), (Some(7), 0));
}

/// This program, with a profile that is off.
struct Running(Child);

impl Running {
    fn start(how: &str, wish: Option<&str>) -> Running {
        let mut command = Command::new(this());
        command.args([PROGRAM, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, how);
        command.env_remove("CORELOCAL_LOCKS").stdout(Stdio::piped()).stdin(Stdio::null());
        command.envs(wish.map(|wish| ("CORELOCAL_LOCKS", wish)));
        let mut child = command.spawn().expect("this program starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        assert!(out.lines().map_while(Result::ok).any(|line| line.ends_with("begun")));
        Running(child)
    }

    fn look(&self, options: &[&str]) -> crate::Done {
        let process = self.0.id().to_string();
        corelocal(&[&["locks"], options, &[process.as_str()]].concat())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is seen of a process in half a second, and in how many it was.
fn half_a_second(running: &Running) -> (serde_json::Value, f64) {
    let done = running.look(&["--for", "500ms", "--json"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let answer = json(&done.out);
    check(&answer);
    let seconds = answer["seconds"].as_f64().expect("seconds");
    assert!(seconds >= 0.5, "{seconds}");
    (answer, seconds)
}

#[test]
fn a_process_is_looked_at_while_it_runs() {
    let running = Running::start("60000", Some("ready"));
    for _ in 0..2 {
        let (answer, seconds) = half_a_second(&running);
        // What came within that time, and not before: three threads, each with the lock for 3 ms at a time.
        let waits = answer["processes"][0]["locks"][0]["waits"].as_u64().expect("waits");
        assert!(waits as f64 <= seconds / 0.003 + 3.0, "{waits} in {seconds}");
    }
}

/// The name of a file that it maps, and its own, are not UTF-8: it has not ended for that.
#[test]
fn a_process_with_odd_names_is_looked_at_while_it_runs() {
    let running = Running::start("odd-names", Some("ready"));
    half_a_second(&running);
}

#[test]
fn what_a_process_has_recorded_is_shown_at_once() {
    let running = Running::start("60000", Some("on"));
    thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    let done = running.look(&["--json"]);
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "it looked for as long as at one that is off"
    );
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let answer = json(&done.out);
    check(&answer);
    assert!(answer["seconds"].as_f64() >= Some(0.4), "{answer:#}");
}

/// What a process has of its profile is its memory: root finds it there.
#[test]
fn a_process_without_descriptors_is_looked_at_by_root() {
    const TEST: &str = "a_process_without_descriptors_is_looked_at_by_root";
    let mapped = std::fs::read_dir("/proc/self/map_files").into_iter().flatten().flatten();
    if !mapped.map(|file| file.path()).any(|file| std::fs::File::open(file).is_ok()) {
        return skip(TEST, "/proc/PROCESS/map_files cannot be opened here: only root may");
    }
    let running = Running::start("closed", Some("on"));
    thread::sleep(Duration::from_millis(500));
    let done = running.look(&["--json"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    check(&json(&done.out));
}

#[test]
fn where_there_is_no_profile_it_says_what_to_do() {
    let without = Running::start("idle", None);
    let done = without.look(&[]);
    assert_eq!((done.code, done.out.as_str()), (Some(3), ""), "{}", done.whole());
    assert!(
        done.err.contains("CORELOCAL_LOCKS=ready") && done.err.contains("corelocal locks PROGRAM")
    );
    // One that has not waited for anything yet may still.
    let idle = Running::start("idle", Some("ready"));
    let done = idle.look(&["--for", "100ms"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    assert!(done.out.contains("No thread waited for a lock"), "{}", done.whole());
    let done = corelocal(&["locks", "./no/such/program"]);
    assert_eq!((done.code, done.out.as_str()), (Some(3), ""), "{}", done.whole());
    assert!(done.err.contains("cannot run ./no/such/program"), "{}", done.whole());
}
