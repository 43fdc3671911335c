//! Where statistics go in programs that change their descriptors, and which signals ask for them.

use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

mod place;

use place::Place;

/// Does what its argument says, and ends.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
static void nothing(int signal) {}
static void close_from(int fd) {
    for (; fd < 1000; fd++) close(fd);
}
/* Stderr is full, and nobody reads it just now; signals come. */
static void fill(void) {
    fcntl(2, F_SETFL, fcntl(2, F_GETFL) | O_NONBLOCK);
    while (write(2, "\n", 1) == 1) {}
    struct sigaction action = {.sa_handler = nothing};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, NULL);
}
int main(int count, char **words) {
    if (!strcmp(words[1], "reuse")) {
        close_from(3);
        int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
        for (int to = fd + 1; to < 1000; to++) dup2(fd, to);
        write(fd, "mine", 4);
    } else if (!strcmp(words[1], "open")) {
        write(open("data", O_RDWR | O_CREAT | O_TRUNC, 0600), "mine", 4);
    } else if (!strcmp(words[1], "close")) {
        close(2);
    } else if (!strcmp(words[1], "afresh")) {
        close_from(0);
        static const char *const names[] = {"first", "second", "data"};
        for (int i = 0; i < 3; i++) write(open(names[i], O_RDWR | O_CREAT | O_TRUNC, 0600), "mine", 4);
    } else if (!strcmp(words[1], "daemon")) {
        close(2);
        write(open("data", O_RDWR | O_CREAT | O_TRUNC, 0600), "mine", 4);
        raise(SIGUSR1);
    } else if (!strcmp(words[1], "full")) {
        fill();
        puts("full"); fflush(stdout);
    } else if (!strcmp(words[1], "stuck")) {
        fill();
    } else if (!strcmp(words[1], "signals")) {
        raise(SIGUSR1);
        raise(SIGUSR2);
    }
    return 0;
}
"#;

fn is_whole(json: &str) -> bool {
    serde_json::from_str::<Value>(json).is_ok_and(|told| told["in_use"].is_u64())
}

/// A file that the program opened with the number of the copy of stderr is not written to.
#[test]
fn files_of_the_program_stay_as_they_are() {
    let Some(place) = Place::new("statistics-files", PROGRAM) else { return };
    let output = place.command("reuse", "stats:json").output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(std::fs::read(place.folder().join("data")).expect("a file of its"), b"mine");
    assert!(output.status.success() && is_whole(&said), "{said}");
}

/// Nor is any other file: a daemon closes all descriptors, and the next file it opens gets the number of stderr.
#[test]
fn a_program_that_begins_afresh() {
    let Some(place) = Place::new("statistics-afresh", PROGRAM) else { return };
    for words in ["stats:json", "stats"] {
        let output = place.command("afresh", words).output().expect("the program");
        assert!(output.status.success() && output.stderr.is_empty());
        for name in ["first", "second", "data"] {
            let content = std::fs::read(place.folder().join(name)).expect("a file of its");
            assert_eq!(content, b"mine", "{name}");
        }
    }
}

/// Nor on a signal, nor to report that a profile cannot be written.
#[test]
fn a_daemon_whose_stderr_is_a_file_of_its_own() {
    let Some(place) = Place::new("statistics-daemon", PROGRAM) else { return };
    let nowhere = place.folder().join("no/such/folder/x");
    let nowhere = format!("profile:{}", nowhere.display());
    let no_profile = "corelocal malloc: cannot write a profile: ENOENT\n";
    let by_signal = format!("{nowhere},profile-signal:USR1");
    let run = |words: &str| {
        let output = place.command("daemon", words).output().expect("the program");
        let content = std::fs::read(place.folder().join("data")).expect("a file of its");
        assert!(output.status.success() && content == b"mine", "{words}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = run("stats-signal:USR1");
    assert!(said.contains("in use"), "{said}");
    // Allocations are counted, since a signal may come.
    let hits = said.lines().find(|line| line.contains("hits of caches")).expect("a line");
    assert!(hits.trim_end().ends_with(|last: char| last.is_ascii_digit()), "{said}");
    assert_eq!(run("profile-signal:USR1"), "");
    // On the signal, and at the end.
    assert_eq!(run(&by_signal), no_profile.repeat(2));
    // If the program has closed the copy as well, nothing is printed.
    let output = place.command("afresh", &nowhere).output().expect("the program");
    assert!(output.status.success() && output.stderr.is_empty());
    for name in ["first", "second", "data"] {
        let content = std::fs::read(place.folder().join(name)).expect("a file of its");
        assert_eq!(content, b"mine", "{name}");
    }
}

/// Without a stderr from the start, its number belongs to a file.
#[test]
fn a_program_without_stderr() {
    let Some(place) = Place::new("statistics-without", PROGRAM) else { return };
    let mut command = place.command("open", "stats");
    // SAFETY: between fork and exec the closure makes one system call.
    unsafe {
        command.pre_exec(|| {
            libc::close(2);
            Ok(())
        });
    }
    assert!(command.status().expect("the program").success());
    assert_eq!(std::fs::read(place.folder().join("data")).expect("a file of its"), b"mine");
}

#[test]
fn a_program_that_closes_stderr() {
    let Some(place) = Place::new("statistics-closed", PROGRAM) else { return };
    let output = place.command("close", "stats:json").output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && is_whole(&said), "{said}");
}

/// No descriptor is left for a copy.
#[test]
fn a_program_with_few_descriptors() {
    let Some(place) = Place::new("statistics-few", PROGRAM) else { return };
    let mut command = place.command("reuse", "stats:json");
    // SAFETY: between fork and exec the closure makes one system call.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            Ok(())
        });
    }
    let output = command.output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(std::fs::read(place.folder().join("data")).expect("a file of its"), b"mine");
    assert!(output.status.success() && is_whole(&said), "{said}");
}

/// A non-blocking stderr that is full gets everything once its reader reads.
#[test]
fn a_reader_that_is_late() {
    let Some(place) = Place::new("statistics-late", PROGRAM) else { return };
    for _ in 0..20 {
        let began = Instant::now();
        let mut command = place.command("full", "stats:json");
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program");
        let (mut out, mut line) = (child.stdout.take().expect("a pipe"), [0; 5]);
        out.read_exact(&mut line).expect("a line");
        std::thread::sleep(Duration::from_millis(500));
        let (mut err, mut said) = (child.stderr.take().expect("a pipe"), String::new());
        err.read_to_string(&mut said).expect("text");
        let took = began.elapsed();
        assert!(child.wait().expect("a child of ours").success(), "{said}");
        if is_whole(said.trim()) {
            return;
        }
        // The wait may end after a second, in which this test may not have run.
        assert!(took >= Duration::from_secs(1), "{took:?}: {said}");
    }
    panic!("never a whole one, and never read in time");
}

/// If its reader never reads, the program ends.
#[test]
fn a_reader_that_never_comes() {
    let Some(place) = Place::new("statistics-never", PROGRAM) else { return };
    let mut command = place.command("stuck", "stats:json");
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the program");
    assert!(child.wait().expect("a child of ours").success());
}

/// Of two signals for one purpose the first counts, not the OR of both; the other keeps its default action.
#[test]
fn the_first_signal_counts() {
    let Some(place) = Place::new("statistics-signals", PROGRAM) else { return };
    let words = "stats:json,stats-signal:USR1,stats-signal:USR2";
    let output = place.command("signals", words).output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGUSR2), "{said}");
    assert!(is_whole(&said), "{said}");
    let words = "profile:p,profile-signal:USR1,profile-signal:USR2";
    let output = place.command("signals", words).output().expect("the program");
    assert_eq!(output.status.signal(), Some(libc::SIGUSR2));
    let files = std::fs::read_dir(place.folder()).expect("the folder").flatten();
    let is_profile =
        |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.ends_with(".heap"));
    assert_eq!(files.filter(|file| is_profile(&file.file_name())).count(), 1);
}
