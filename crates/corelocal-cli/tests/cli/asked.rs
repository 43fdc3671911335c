//! `corelocal heap` and `corelocal locks` with a program that they run, when signals come, and `clockd`: who is ended,
//! who is not, and what is left behind.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::{Call, heap, json, skip};

/// The commands that run programs; `heap` where it can.
fn commands(test: &str) -> Vec<(&'static str, Option<PathBuf>)> {
    let library = heap::library(test);
    let heap = library.map(|library| ("heap", Some(library)));
    [("locks", None)].into_iter().chain(heap).collect()
}

/// A command that runs a shell, until that reads a line.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    /// The shell's first line.
    says: String,
}

impl Running {
    /// With these signals ignored.
    fn start(command: &str, library: Option<&Path>, script: &str, ignored: &[i32]) -> Running {
        let ignored = ignored.to_vec();
        let mut corelocal = Command::new(env!("CARGO_BIN_EXE_corelocal"));
        corelocal.args([command, "--", "sh", "-c", script]).env_remove("CORELOCAL_MALLOC");
        corelocal.envs(library.map(|library| ("CORELOCAL_MALLOC_LIBRARY", library)));
        corelocal.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // SAFETY: signal(2) may be called between fork and exec, and the vector is only read.
        unsafe {
            corelocal.pre_exec(move || {
                for signal in &ignored {
                    libc::signal(*signal, libc::SIG_IGN);
                }
                Ok(())
            });
        }
        let mut child = corelocal.spawn().expect("the program starts");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut says = String::new();
        out.read_line(&mut says).expect("text");
        Running { child, out, says: says.trim_end().to_owned() }
    }

    /// To the command alone.
    fn signal(&self, signal: i32) {
        // SAFETY: two integers; the child was not waited for, so the number is still its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
    }

    /// The command's exit code; none if a signal ended it.
    fn end(mut self) -> Option<i32> {
        for line in self.out.lines() {
            line.expect("text");
        }
        self.child.wait().expect("a child of ours").code()
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

/// Nor does a publisher of the clock end by them, who waits for signals in another way.
#[test]
fn a_publisher_goes_on_behind_nohup() {
    const SCRIPT: &str = "trap '' HUP; exec \"$0\" clockd --source kernel --for 60s --file \"$1\"";
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let mut clockd = Command::new("sh");
    clockd.args(["-c", SCRIPT, env!("CARGO_BIN_EXE_corelocal")]).arg(folder.path().join("page"));
    clockd.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = clockd.spawn().expect("a shell");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut says = String::new();
    out.read_line(&mut says).expect("text");
    if says.is_empty() {
        child.wait().expect("a child of ours");
        return skip("a_publisher_goes_on_behind_nohup", "nothing can be published here");
    }
    let mut running = Running { child, out, says };
    running.signal(libc::SIGHUP);
    thread::sleep(Duration::from_millis(500));
    assert!(running.child.try_wait().expect("a child of ours").is_none(), "{}", running.says);
    running.signal(libc::SIGTERM);
    assert_eq!(running.end(), Some(0));
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
            assert_eq!(running.end(), Some(128 + libc::SIGTERM), "{command}: signal {signal}");
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
    let wanted = tempfile::TempDir::new().expect("a temporary folder");
    let wanted = wanted.path().canonicalize().expect("a path");
    let wanted = wanted.to_str().expect("text");
    for (place, is_there) in [(wanted, true), ("/no/such/folder", false)] {
        let call = Call::new(&["heap", "--", "env"]);
        let call = call.env("CORELOCAL_MALLOC_LIBRARY", library.to_str().expect("text"));
        let done = call.env("TMPDIR", place).done();
        assert_eq!(done.code, Some(0), "{}", done.whole());
        let words = format!("CORELOCAL_MALLOC=profile:{place}/corelocal-heap-");
        assert_eq!(done.out.contains(&words), is_there, "{}", done.whole());
        assert!(done.out.contains("Heap of"), "{}", done.whole());
    }
    assert_eq!(std::fs::read_dir(wanted).expect("the folder").count(), 0);
}
