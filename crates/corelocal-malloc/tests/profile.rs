//! Profiles, statistics and cache statistics of unmodified programs: at their end, on a signal, and on request.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

mod place;

use place::Place;

/// Keeps some memory, then does what its argument says.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
void *volatile kept;
int main(int count, char **words) {
    for (int n = 0; n < 2000; n++) kept = malloc(5000);
    if (!strcmp(words[1], "fork")) {
        if (fork() == 0) { kept = malloc(123456); return 0; }
        int status; wait(&status);
    } else if (!strcmp(words[1], "signal")) {
        puts("ready"); fflush(stdout);
        for (;;) pause();
    } else if (!strcmp(words[1], "ask")) {
        int (*profile)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "corelocal_malloc_profile");
        int first = profile("mine.heap"), second = profile(NULL), third = profile("no/such/folder/x");
        printf("%d %d %d\n", first, second, third); fflush(stdout);
        _exit(0);
    }
    return 0;
}
"#;

/// Names of complete profiles, and the bytes in each.
fn profiles_in(place: &Place) -> Vec<(String, usize)> {
    let files = std::fs::read_dir(place.folder()).expect("the folder").flatten();
    let mut all: Vec<(String, usize)> = files
        .filter_map(|file| {
            let name = file.file_name().into_string().expect("text");
            let bytes = std::fs::read(file.path()).expect("a file of ours");
            let is_whole =
                bytes.starts_with(b"CLHEAP1\n") && bytes.ends_with(&[4, 0, 0, 0, 0, 0, 0, 0]);
            (name.ends_with(".heap") && is_whole).then_some((name, bytes.len()))
        })
        .collect();
    all.sort();
    all
}

#[test]
fn at_the_end() {
    let Some(place) = Place::new("profile-at-the-end", PROGRAM) else { return };
    let mut child = place.command("end", "profile").spawn().expect("the program");
    assert!(child.wait().expect("a child of ours").success());
    let profiles = profiles_in(&place);
    assert_eq!(profiles.len(), 1, "{profiles:?}");
    assert_eq!(profiles[0].0, format!("corelocal.{}.0.heap", child.id()));
    // Without a profile there is no file.
    let status = place.command("end", "stats-signal:USR2").status().expect("the program");
    assert!(status.success() && profiles_in(&place).len() == 1);
    // If it cannot be written, the program ends as usual, and the failure is reported.
    let words = format!("profile:{}/no/such/folder/x", place.folder().display());
    let output = place.command("end", &words).output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("cannot write a profile: ENOENT"), "{said}");
}

/// A file size limit of 0 (`ulimit -f 0`) does not end a program, and no empty file remains.
#[test]
fn where_files_may_not_grow() {
    let Some(place) = Place::new("profile-limit", PROGRAM) else { return };
    for words in ["profile", "tally:t", "profile,stats:json"] {
        let mut command = place.command("end", words);
        // SAFETY: between fork and exec the closure makes one system call.
        unsafe {
            command.pre_exec(|| {
                libc::setrlimit(libc::RLIMIT_FSIZE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
                Ok(())
            });
        }
        let before = files_in(&place);
        let output = command.output().expect("the program");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {}, {said}", output.status);
        let is_said = said.contains("cannot write a profile: EFBIG");
        assert_eq!(is_said, words.contains("profile"), "{said}");
        assert_eq!(files_in(&place), before, "{words}");
        // What goes to a file is lost, and the program ends as usual.
        let log = std::fs::File::create(place.folder().join("log")).expect("a new file");
        assert!(command.stderr(log).status().expect("the program").success(), "{words}");
    }
}

fn files_in(place: &Place) -> usize {
    std::fs::read_dir(place.folder()).expect("the folder").count()
}

#[test]
fn children_have_their_own() {
    let Some(place) = Place::new("profile-children", PROGRAM) else { return };
    let words = format!("profile:{}/a,profile-rate:64K", place.folder().display());
    assert!(place.command("fork", &words).status().expect("the program").success());
    let profiles = profiles_in(&place);
    assert_eq!(profiles.len(), 2, "{profiles:?}");
    assert!(profiles.iter().all(|(name, _)| name.starts_with("a.") && name.ends_with(".0.heap")));
}

#[test]
fn when_the_program_asks() {
    let Some(place) = Place::new("profile-ask", PROGRAM) else { return };
    let output = place.command("ask", "profile").output().expect("the program");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 0 -1\n");
    let profiles = profiles_in(&place);
    assert!(profiles.len() == 2 && profiles[1].0 == "mine.heap", "{profiles:?}");
    // A program without a profile gets none.
    let output = place.command("ask", "").output().expect("the program");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "-1 -1 -1\n");
}

#[test]
fn when_a_signal_comes() {
    let Some(place) = Place::new("profile-signal", PROGRAM) else { return };
    let words = "profile,profile-signal:USR2,stats-signal:10,stats:json";
    let mut command = place.command("signal", words);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program");
    let process = child.id();
    let send = |signal: libc::c_int| {
        // SAFETY: a child of this test that was not waited for.
        unsafe { libc::kill(process as libc::pid_t, signal) };
    };
    let mut line = String::new();
    let out = child.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    for count in 1..=2 {
        send(libc::SIGUSR2);
        wait_for(|| profiles_in(&place).len() == count);
    }
    send(libc::SIGUSR1);
    let mut said = String::new();
    let err = child.stderr.take().expect("a pipe");
    BufReader::new(err).read_line(&mut said).expect("a line");
    assert!(said.starts_with("{\"in_use\":") && said.ends_with("]}\n"), "{said}");
    send(libc::SIGTERM);
    assert_eq!(child.wait().expect("a child of ours").signal(), Some(libc::SIGTERM));
    let names: Vec<String> = profiles_in(&place).into_iter().map(|(name, _)| name).collect();
    let expected = [0, 1].map(|nth| format!("corelocal.{}.{nth}.heap", child.id()));
    assert_eq!(names, expected);
    assert!(Path::new(&place.folder().join(&names[0])).exists());
}

fn wait_for(is_so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it takes longer than a minute");
}

/// The cache statistics of processes: numbers by name, in the order of their files.
fn tallies(place: &Place) -> Vec<impl Fn(&str) -> u64> {
    let files = std::fs::read_dir(place.folder()).expect("the folder").flatten();
    let mut names: Vec<PathBuf> = files.map(|file| file.path()).collect();
    names.retain(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("t."))
    });
    names.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).expect("a file of ours");
        std::fs::remove_file(path).expect("a file of ours");
        move |name: &str| -> u64 {
            let (_, rest) = text.split_once(&format!("\"{name}\":")).expect("a number");
            rest.split([',', '}']).next().and_then(|it| it.parse().ok()).expect("a number")
        }
    };
    names.iter().map(read).collect()
}

#[test]
fn what_caches_did() {
    let Some(place) = Place::new("tally", PROGRAM) else { return };
    let prefix = format!("tally:{}/t", place.folder().display());
    let run = |how: &str, words: &str| {
        let mut child = place.command(how, words).spawn().expect("the program");
        assert!(child.wait().expect("a child of ours").success());
        u64::from(child.id())
    };
    // Misses are counted always, hits only on request.
    let process = run("end", &prefix);
    let [one] = &tallies(&place)[..] else { panic!("one process") };
    assert_eq!((one("process"), one("allocated"), one("freed")), (process, 0, 0));
    assert!(one("refills") > 0);
    // A forked child reports its own numbers only.
    let process = run("fork", &format!("{prefix},count"));
    let all = tallies(&place);
    let (parent, child): (Vec<_>, Vec<_>) = all.iter().partition(|it| it("process") == process);
    let ([parent], [child]) = (&parent[..], &child[..]) else { panic!("two processes") };
    assert!(parent("allocated") >= 2000 && parent("refills") < parent("allocated"));
    assert!((1..1000).contains(&child("allocated")), "{}", child("allocated"));
    // A process that is killed reports nothing, and a file that cannot be written is not mentioned.
    run("ask", &prefix);
    assert!(tallies(&place).is_empty());
    let output = place.command("end", "tally:/no/such/folder/t").output().expect("the program");
    assert!(output.status.success() && output.stderr.is_empty());
}
