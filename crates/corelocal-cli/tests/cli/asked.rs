//! Signals to `corelocal heap` and `corelocal locks` with a program that they run, and to `clockd`: which processes
//! end, and what is left behind.

use std::io::{BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::clock::{self, Daemon};
use crate::{Call, ended, heap, json, line};

/// The commands that run programs; `heap` where it can.
fn commands(test: &str) -> Vec<(&'static str, Option<PathBuf>)> {
    let library = heap::library(test);
    let heap = library.map(|library| ("heap", Some(library)));
    [("locks", None)].into_iter().chain(heap).collect()
}

/// A command that runs a shell, until that reads a line.
struct Running {
    /// The first process of a group.
    child: Child,
    out: BufReader<ChildStdout>,
    /// The shell's first line.
    says: String,
    /// Where it runs.
    _folder: TempDir,
}

impl Running {
    /// With these signals ignored.
    fn start(command: &str, library: Option<&Path>, script: &str, ignored: &[i32]) -> Running {
        let call = Call::new(&[command, "--", "sh", "-c", script]).ignoring(ignored);
        let Call { command: mut corelocal, folder } = call;
        corelocal.envs(library.map(|library| ("CORELOCAL_MALLOC_LIBRARY", library)));
        corelocal.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = corelocal.process_group(0).spawn().expect("the program starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut running = Running { child, out, says: String::new(), _folder: folder };
        running.says = line(&mut running.out).trim_end().to_owned();
        running
    }

    /// To the command alone.
    fn signal(&self, signal: i32) {
        // SAFETY: two integers; the child was not waited for, so the number is still its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
    }

    /// The command's exit code; none if a signal ended it.
    fn end(mut self) -> Option<i32> {
        let code = ended(&mut self.child).code();
        // A shell that it left behind reads no line, and ends, too.
        drop(self.child.stdin.take());
        self.out.read_to_end(&mut Vec::new()).expect("what is left");
        code
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // SAFETY: two integers; the child was not waited for, so its number is still the group's.
            unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGKILL) };
            let _ = self.child.wait();
        }
    }
}

#[test]
fn signals_that_are_ignored_stay_ignored() {
    let ignored = [libc::SIGHUP, libc::SIGQUIT];
    for (command, library) in commands("signals_that_are_ignored_stay_ignored") {
        let script = "grep SigIgn: /proc/self/status; read line; exit 7";
        let mut running = Running::start(command, library.as_deref(), script, &ignored);
        let mask = running.says.split_whitespace().nth(1).expect("a mask");
        let mask = u64::from_str_radix(mask, 16).expect("a number");
        for signal in ignored {
            assert_eq!(mask >> (signal - 1) & 1, 1, "{command}: {signal} in {}", running.says);
            running.signal(signal);
        }
        // It would be noticed within 20 ms.
        thread::sleep(Duration::from_millis(500));
        running.child.stdin.take().expect("a pipe").write_all(b"\n").expect("a reader");
        assert_eq!(running.end(), Some(7), "{command}");
    }
}

/// A publisher of the clock, which waits for signals in another way, is not ended by them either.
#[test]
fn a_publisher_goes_on_behind_nohup() {
    let (_folder, page) = clock::folder();
    let args = ["--encoding", "clockbound", "--max-error", "40us"];
    let daemon = Daemon::start_ignoring(&[libc::SIGHUP], &page, &args);
    let daemon = daemon.expect("an encoding for every machine");
    daemon.signal(libc::SIGHUP);
    thread::sleep(Duration::from_millis(500));
    daemon.signal(libc::SIGTERM);
    let (rest, code) = daemon.end();
    assert!(code == Some(0) && rest.starts_with("ended by SIGTERM"), "{code:?}: {rest}");
}

#[test]
fn no_folder_is_left_when_one_is_asked_to_end() {
    for (command, library) in commands("no_folder_is_left_when_one_is_asked_to_end") {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
            let script = "echo $CORELOCAL_LOCKS $CORELOCAL_MALLOC; read line";
            let running = Running::start(command, library.as_deref(), script, &[]);
            let says = running.says.trim_start_matches("profile:");
            let says = says.split(',').next().expect("a word").trim_end_matches("/of");
            let folder = PathBuf::from(says);
            assert!(folder.is_dir(), "{command}: {}", running.says);
            running.signal(signal);
            assert_eq!(running.end(), Some(128 + signal), "{command}: signal {signal}");
            assert!(!folder.exists(), "{command}: signal {signal}: {}", folder.display());
        }
    }
}

/// `env -i sleep` is started without the malloc, and has no handler.
#[test]
fn what_cannot_be_asked_for_a_profile_is_only_asked_to_end() {
    let Some(library) = heap::library("what_cannot_be_asked_for_a_profile_is_only_asked_to_end")
    else {
        return;
    };
    // By then `env` has become the other.
    let args = ["heap", "--for", "2s", "--json", "--", "env", "-i", "sleep", "60"];
    let call = Call::new(&args).env("CORELOCAL_MALLOC_LIBRARY", library.to_str().expect("text"));
    let done = call.done();
    assert_eq!(done.code, Some(128 + libc::SIGTERM), "{}", done.whole());
    assert!(done.err.contains("signal 61") && done.err.contains("env -i"), "{}", done.whole());
    assert!(!done.err.contains("wrote a profile"), "{}", done.whole());
    assert_eq!(json(&done.out)["processes"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_malloc_that_checks_has_no_profile() {
    let Some(library) = heap::library("a_malloc_that_checks_has_no_profile") else { return };
    let call = Call::new(&["heap", "--", "echo", "begun"]).env("CORELOCAL_MALLOC", "stats,check");
    let done = call.env("CORELOCAL_MALLOC_LIBRARY", library.to_str().expect("text")).done();
    assert_eq!((done.code, done.out.as_str()), (Some(125), ""), "{}", done.whole());
    for text in ["CORELOCAL_MALLOC=stats,check", "excludes a profile", "unset"] {
        assert!(done.err.contains(text), "{text}: {}", done.whole());
    }
}

#[test]
fn profiles_of_memory_are_where_the_user_says() {
    let Some(library) = heap::library("profiles_of_memory_are_where_the_user_says") else { return };
    let wanted = TempDir::new().expect("a temporary folder");
    let wanted = wanted.path().canonicalize().expect("a path");
    let wanted = wanted.to_str().expect("text");
    for (place, is_there) in [(wanted, true), ("/no/such/folder", false)] {
        let call = Call::new(&["heap", "--", "env"]);
        let call = call.env("CORELOCAL_MALLOC_LIBRARY", library.to_str().expect("text"));
        let done = call.env("TMPDIR", place).done();
        assert_eq!(done.code, Some(0), "{}", done.whole());
        let words = format!("CORELOCAL_MALLOC=profile:{place}/corelocal-heap-");
        assert_eq!(done.out.contains(&words), is_there, "{}", done.whole());
        assert!(done.err.contains("Heap of"), "{}", done.whole());
    }
    assert_eq!(std::fs::read_dir(wanted).expect("the folder").count(), 0);
}
