//! `corelocal locks --order`: programs that lock in orders that contradict each other, and one that is stuck.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use corelocal::sync::Mutex;
use serde_json::Value;

use crate::{Call, Done, corelocal, json};

/// What makes the test below be the program.
const CHILD: &str = "CORELOCAL_TEST_ORDER";
const PROGRAM: &str = "locks_order::ordering_program";

static A: Mutex<u64> = Mutex::new(0);
static B: Mutex<u64> = Mutex::new(0);
static GATE: Mutex<u64> = Mutex::new(0);

#[inline(never)]
fn lock_a_then_b() {
    let a = A.lock();
    *B.lock() += *a;
}

#[inline(never)]
fn lock_b_then_a() {
    let b = B.lock();
    *A.lock() += *b;
}

/// Two threads that wait for each other, for good.
fn get_stuck() {
    static MET: Barrier = Barrier::new(2);
    let both = [(&A, &B), (&B, &A)].map(|(mine, other)| {
        thread::spawn(move || {
            let _mine = mine.lock();
            MET.wait();
            *other.lock() += 1;
        })
    });
    both.into_iter().for_each(|thread| thread.join().expect("it never ends"));
}

/// Does nothing as a test.
#[test]
fn ordering_program() {
    let Ok(how) = env::var(CHILD) else { return };
    println!("begun");
    match how.as_str() {
        "agree" => (0..3).for_each(|_| lock_a_then_b()),
        "contradict" => {
            lock_a_then_b();
            thread::spawn(lock_b_then_a).join().expect("no panic");
        }
        "guarded" => {
            let _gate = GATE.lock();
            lock_a_then_b();
            lock_b_then_a();
        }
        "child" => {
            // SAFETY: the child locks what is free, and leaves.
            let child = unsafe { libc::fork() };
            if child == 0 {
                lock_a_then_b();
                lock_b_then_a();
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            // SAFETY: a child of ours, whose status is not asked for.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        }
        "exit-7" => {
            lock_a_then_b();
            lock_b_then_a();
            std::process::exit(7);
        }
        "stuck" => get_stuck(),
        "odd-names" => {
            crate::take_odd_names();
            lock_a_then_b();
            thread::sleep(Duration::from_secs(60));
        }
        _ => thread::sleep(Duration::from_secs(60)),
    }
}

fn this() -> String {
    env::current_exe().expect("this program").to_str().expect("text").to_owned()
}

/// `corelocal locks --order` with these options, of this program.
fn order_of_program(options: &[&str], how: &str) -> Done {
    let this = this();
    let program = [this.as_str(), PROGRAM, "--exact", "--nocapture", "--test-threads=1"];
    let call = Call::new(&[&["locks", "--order"], options, &program].concat());
    call.env(CHILD, how).done()
}

/// Whether the functions in this list begin with one of this name.
fn begins_with(frames: &Value, function: &str) -> bool {
    // Elsewhere stacks are not copied.
    !cfg!(target_arch = "x86_64")
        || frames[0]["function"].as_str().is_some_and(|name| name.contains(function))
}

/// Statics are named.
fn is_named(lock: &Value, name: &str) -> bool {
    lock["lock"].as_str().is_some_and(|lock| lock.ends_with(&format!("locks_order::{name}")))
}

#[test]
fn orders_that_contradict_each_other_are_told_with_their_places() {
    // The text would show none.
    let done = order_of_program(&["--json", "--top", "0"], "contradict");
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let answer = json(&done.out);
    let process = &answer["processes"][0];
    assert_eq!((&process["locks"], &process["pairs"]), (&2.into(), &2.into()), "{answer:#}");
    assert!(process["deadlocks"].as_array().is_some_and(Vec::is_empty), "{answer:#}");
    let potential = process["potential"].as_array().expect("a list");
    assert_eq!(potential.len(), 1, "{answer:#}");
    assert_eq!(potential[0]["is_of_one_thread"], false);
    let steps = potential[0]["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 2);
    for step in steps {
        let is_forth = is_named(&step["held"], "A");
        let (other, function) =
            if is_forth { ("B", "lock_a_then_b") } else { ("A", "lock_b_then_a") };
        assert!(is_named(&step["taken"], other), "{answer:#}");
        assert_eq!(step["times"], 1);
        for place in ["held_at", "taken_at"] {
            assert!(begins_with(&step[place], function), "{place}: {answer:#}");
        }
    }
    // What the program said is not in the JSON.
    assert!(done.err.contains("begun"), "{}", done.whole());
    let table = order_of_program(&[], "contradict");
    for text in ["Order of locks", "Potential deadlock", "locks_order::A", "then ", "first by"] {
        assert!(table.err.contains(text), "{text}: {}", table.whole());
    }
}

#[test]
fn what_is_no_danger_is_not_found() {
    for how in ["agree", "guarded"] {
        let done = order_of_program(&["--strict"], how);
        assert_eq!(done.code, Some(0), "{}", done.whole());
        assert!(done.err.contains("no inconsistent lock orders"), "{}", done.whole());
        assert_eq!(done.err.contains("Safe, because"), how == "guarded", "{}", done.whole());
    }
}

#[test]
fn a_child_is_told_of_and_strict_has_an_exit_code() {
    let done = order_of_program(&["--strict", "--json"], "child");
    assert_eq!(done.code, Some(1), "{}", done.whole());
    let answer = json(&done.out);
    let processes = answer["processes"].as_array().expect("processes");
    // The parent locked nothing.
    assert_eq!(processes.len(), 1, "{answer:#}");
    assert_eq!(processes[0]["potential"][0]["is_of_one_thread"], true, "{answer:#}");
    assert_eq!(order_of_program(&["--strict"], "exit-7").code, Some(7));
    let done = corelocal(&["locks", "--strict", "true"]);
    assert_eq!(done.code, Some(2), "{}", done.whole());
}

fn check_stuck(answer: &Value) {
    let threads = answer["processes"][0]["deadlocks"][0]["threads"].as_array();
    let threads = threads.unwrap_or_else(|| panic!("no deadlock: {answer:#}"));
    assert_eq!(threads.len(), 2, "{answer:#}");
    let [one, other] = [&threads[0], &threads[1]];
    assert_ne!(one["thread"], other["thread"]);
    assert_eq!((&one["waits_for"], &other["waits_for"]), (&other["holds"], &one["holds"]));
    for thread in threads {
        for place in ["waits_at", "held_at"] {
            assert!(begins_with(&thread[place], "get_stuck"), "{place}: {answer:#}");
        }
    }
}

#[test]
fn a_deadlock_is_told_of_when_the_program_is_ended() {
    let done = order_of_program(&["--for", "2s", "--json"], "stuck");
    assert_eq!(done.code, Some(128 + libc::SIGTERM), "{}", done.whole());
    check_stuck(&json(&done.out));
}

/// This program, killed when dropped.
struct Running(Child);

impl Running {
    fn start(how: &str, wish: Option<&str>) -> Running {
        let mut command = Command::new(this());
        command.args([PROGRAM, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, how);
        command.env_remove("CORELOCAL_LOCK_ORDER").stdout(Stdio::piped()).stdin(Stdio::null());
        command.envs(wish.map(|wish| ("CORELOCAL_LOCK_ORDER", wish)));
        let mut child = command.spawn().expect("this program starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        assert!(out.lines().map_while(Result::ok).any(|line| line.ends_with("begun")));
        Running(child)
    }

    fn look(&self, options: &[&str]) -> Done {
        let process = self.0.id().to_string();
        corelocal(&[&["locks", "--order"], options, &[process.as_str()]].concat())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_is_stuck_is_looked_at() {
    let running = Running::start("stuck", Some("on"));
    let is_there = |answer: &Value| !answer["processes"][0]["deadlocks"][0].is_null();
    // Until its threads have met.
    let answer = loop {
        let done = running.look(&["--json"]);
        assert_eq!(done.code, Some(0), "{}", done.whole());
        let answer = json(&done.out);
        if is_there(&answer) {
            break answer;
        }
        thread::sleep(Duration::from_millis(50));
    };
    check_stuck(&answer);
    let table = running.look(&["--strict", "--for", "100ms"]);
    assert_eq!(table.code, Some(1), "{}", table.whole());
    for text in ["Deadlock: 2 threads wait for each other", "waits for", "get_stuck"] {
        assert!(table.out.contains(text) || cfg!(not(target_arch = "x86_64")), "{}", table.whole());
    }
}

/// The name of a file that it maps, and its own, are not UTF-8: it has not ended for that.
#[test]
fn a_process_with_odd_names_is_looked_at_for_the_whole_time() {
    let running = Running::start("odd-names", Some("on"));
    let began = Instant::now();
    let done = running.look(&["--json", "--for", "2s"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn where_there_is_no_record_it_says_what_to_do() {
    let without = Running::start("idle", None);
    let done = without.look(&[]);
    assert_eq!((done.code, done.out.as_str()), (Some(3), ""), "{}", done.whole());
    assert!(done.err.contains("CORELOCAL_LOCK_ORDER=on"), "{}", done.whole());
    // One that has locked nothing yet may still.
    let idle = Running::start("idle", Some("on"));
    let done = idle.look(&["--for", "100ms"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    assert!(done.out.contains("No mutex was locked while"), "{}", done.whole());
}
